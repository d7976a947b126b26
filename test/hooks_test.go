package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVIPHook runs the example hook for a VIP in a network namespace of its own, as an agent would:
// twice in each role.
func TestVIPHook(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a network namespace")
	}
	for _, program := range []string{"unshare", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	vip, err := filepath.Abs(filepath.Join("..", "packaging", "hooks", "vip"))
	if err != nil {
		t.Fatal(err)
	}
	script := `set -e
ip link set lo up && ip address add 10.9.9.9/24 dev lo
show() { ip -brief -4 address show dev lo; }
for role in primary primary demoting replica primary; do QUORATE_ROLE=$role "$1" lo 10.9.9.99/24 >/dev/null; echo "$role: $(show)"; done
"$1" lo 10.9.9.99/24
echo "none: $(show)"`
	out, err := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c", script, "sh", vip).CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "not permitted") {
			t.Skipf("no network namespace: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(strings.TrimSpace(string(out))) {
		role, addresses, ok := strings.Cut(line, ": ")
		if ok && strings.Contains(addresses, "10.9.9.99/24") != (role == "primary") {
			t.Errorf("%s", line)
		}
		if ok && !strings.Contains(addresses, "10.9.9.9/24") {
			t.Errorf("the host's own address is gone: %s", line)
		}
	}
	if n := strings.Count(string(out), ": "); n != 6 {
		t.Errorf("%d lines, want 6:\n%s", n, out)
	}
}

// TestDNSHook runs the example hook for DNS with an nsupdate that keeps what it is told.
func TestDNSHook(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nsupdate"), []byte("#!/bin/sh\necho \"$@\" > \"$SAID\"\ncat >> \"$SAID\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(dir, "said")
	for _, c := range []struct{ role, peer, want string }{
		{"replica", "10.0.0.1:7400", ""},
		{"primary", "10.0.0.1:7400", "update add db.example. 5 A 10.0.0.1"},
		{"primary", "[fd00::1]:7400", "update add db.example. 5 AAAA fd00::1"},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join("..", "packaging", "hooks", "dns"), "ns1", "db.example", "/k")
		cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "SAID=" + said, "QUORATE_ROLE=" + c.role, "QUORATE_PRIMARY_PEER=" + c.peer}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		text, _ := os.ReadFile(said)
		if got := string(text); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || got != "" && !strings.HasPrefix(got, "-k /k\nserver ns1\n") {
			t.Errorf("%s at %s: %q, want %q", c.role, c.peer, got, c.want)
		}
	}
}
