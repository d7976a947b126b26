package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestNetworksList(t *testing.T) {
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"networks"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 {
		t.Fatalf("a heading and four networks, got\n%s", out.String())
	}
	for i, want := range []string{"network made of a-b a-c b-c b-d client-a what", "same-rack veth 100µs", "same-city tun 1ms 1ms 1ms 100µs 100µs", "two-city tun 1ms 30ms 30ms", "three-city tun 5ms 30ms 30ms"} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("line %d is %q, want %q …", i, got, want)
		}
	}
}

func TestNetworksUnknown(t *testing.T) {
	cmd := root()
	cmd.SetArgs([]string{"networks", "moon"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "choose same-rack") {
		t.Errorf("networks moon: %v", err)
	}
}
