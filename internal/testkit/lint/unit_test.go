package lint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestUnit: the units run the agent, the archive and backups without root, and take from them, and from mysqld, all
// rights that they do not need. If you remove a setting from a unit, change this test, too.
func TestUnit(t *testing.T) {
	all := []string{
		"User=mysql", "Group=mysql", "UMask=0077", "CapabilityBoundingSet=", "NoNewPrivileges=yes", "LimitCORE=0",
		"ProtectHome=yes", "ProtectProc=invisible", "ProtectKernelTunables=yes", "ProtectKernelModules=yes",
		"ProtectKernelLogs=yes", "ProtectControlGroups=yes", "ProtectClock=yes", "ProtectHostname=yes", "PrivateTmp=yes", "PrivateDevices=yes",
		"RestrictNamespaces=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes", "LockPersonality=yes",
		"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK", "SystemCallArchitectures=native", "SystemCallFilter=@system-service",
	}
	for unit, own := range map[string][]string{
		"quorate": {
			"ProtectSystem=strict", "StateDirectory=quorate", "StateDirectoryMode=0751", "RuntimeDirectory=quorate",
			"KillMode=mixed", "Restart=always", "RestartPreventExitStatus=2", "Environment=GOTRACEBACK=crash",
		},
		"quorate-archive": {"ProtectSystem=full", "Restart=on-abnormal", "Environment=GOTRACEBACK=crash"},
		"quorate-backup":  {"ProtectSystem=full", "Restart=on-failure"},
	} {
		text, err := os.ReadFile(filepath.Join(root, "packaging", unit+".service"))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for _, want := range slices.Concat(all, own) {
			if !slices.Contains(lines, want) {
				t.Errorf("packaging/%s.service lacks %s", unit, want)
			}
		}
	}
}

// TestImageToolchain: the image is built with the toolchain that go.mod names.
func TestImageToolchain(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, rest, found := strings.Cut(read("go.mod"), "\ntoolchain go")
	version, _, _ := strings.Cut(rest, "\n")
	if want := "\nARG GO_IMAGE=golang:" + version + "\n"; !found || !strings.Contains(read("packaging/Containerfile"), want) {
		t.Errorf("packaging/Containerfile lacks %q", want)
	}
}
