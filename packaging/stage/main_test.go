package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPackageVersion(t *testing.T) {
	for said, want := range map[string]string{
		"v1.2.0":                   "1.2.0",
		"1.2.0":                    "1.2.0",
		"v1.2.0-dirty":             "1.2.0+dirty",
		"v1.2.0-rc1":               "1.2.0~rc1",
		"v1.2.0-14-g0057873":       "1.2.0+14.g0057873",
		"v1.2.0-rc1-14-g005-dirty": "1.2.0~rc1+14.g005.dirty",
		"0057873":                  "0.0.0+568.0057873",
		"0057873-dirty":            "0.0.0+568.0057873.dirty",
		"dev":                      "0.0.0+568.dev",
	} {
		if got := packageVersion(said, 568); got != want {
			t.Errorf("the version for packages of %s is %s, want %s", said, got, want)
		}
	}
}

// read returns a file below dir.
func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWrite(t *testing.T) {
	dir, again := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, again} {
		if err := write(d, "1.2.0", time.Unix(1_700_000_000, 0).UTC()); err != nil {
			t.Fatal(err)
		}
	}
	for name, wants := range map[string][]string{
		"share/man/man1/quorate.1":                     {"quorate 1.2.0", "quorate-switchover(1)", "Exit codes", "wrong usage"},
		"share/man/man1/quorate-node-add.1":            {"quorate node add"},
		"share/man/man1/quorate-config-example.1":      {"every setting"},
		"share/bash-completion/completions/quorate":    {"__start_quorate"},
		"share/zsh/site-functions/_quorate":            {"#compdef quorate"},
		"share/fish/vendor_completions.d/quorate.fish": {"complete -c quorate"},
		"share/doc/quorate/examples/node.toml":         {"[[member]]", "[mysql]"},
	} {
		text := read(t, dir, name)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
		if text != read(t, again, name) {
			t.Errorf("%s is another one when it is written again", name)
		}
	}
}

// TestRemovalStopsAllUnits: what an operator can enable does not run on without its program.
func TestRemovalStopsAllUnits(t *testing.T) {
	script, err := os.ReadFile("../scripts/preremove.sh")
	if err != nil {
		t.Fatal(err)
	}
	units, err := filepath.Glob("../quorate*.*")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("[Install]")) && !bytes.Contains(script, []byte(" "+filepath.Base(unit)+" ")) {
			t.Errorf("the removal of the package leaves %s enabled", filepath.Base(unit))
		}
	}
}

// TestArchiveSpoolsOnDisk: a transaction of gigabytes waits on a disk, and not in a /tmp that is memory.
func TestArchiveSpoolsOnDisk(t *testing.T) {
	if !strings.Contains(read(t, "..", "quorate-archive.service"), "\nEnvironment=TMPDIR=/var/tmp\n") {
		t.Error("quorate-archive.service has not TMPDIR=/var/tmp")
	}
}

// TestRemovalStopsAll: no service of the package runs on without its program.
func TestRemovalStopsAll(t *testing.T) {
	script := read(t, "../scripts", "preremove.sh")
	units, err := filepath.Glob("../quorate*.service")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		if name := filepath.Base(unit); !strings.Contains(script, " "+name) {
			t.Errorf("%s runs on after the package is removed", name)
		}
	}
}

// TestUpgradeNamesWhatRunsOn: the package says which services run on with the old program.
func TestUpgradeNamesWhatRunsOn(t *testing.T) {
	script := read(t, "..", "scripts/postinstall.sh")
	units, err := filepath.Glob("../quorate*.service")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		name := filepath.Base(unit)
		if starts := strings.Contains(read(t, "..", name), "[Install]"); starts && !strings.Contains(script, "is-active "+name+";") {
			t.Errorf("%s runs on after an upgrade, and nothing says so", name)
		}
	}
}

// TestRestartRepeatsOneCommand: a restart begins with a unit's first command. So none that can make the unit fail has another such
// command before it: a prune that fails takes no other full backup. And old backups are deleted before the new one: a repository
// that is full would never get room behind it, and while a prune runs behind a backup, systemd drops the start of the next one.
func TestRestartRepeatsOneCommand(t *testing.T) {
	units, err := filepath.Glob("../quorate*.service")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	prunes := false
	for _, unit := range units {
		text := read(t, "..", filepath.Base(unit))
		failing := 0
		for _, command := range strings.Split(text, "\nExecStart=")[1:] {
			command, _, _ = strings.Cut(command, "\n")
			if strings.Contains(command, "quorate backup prune") {
				prunes = strings.HasPrefix(command, "-") && failing == 0
			} else if !strings.HasPrefix(command, "-") {
				failing++
			}
		}
		if failing > 1 && strings.Contains(text, "\nRestart=") {
			t.Errorf("%s begins again with the first of %d commands if another one fails", filepath.Base(unit), failing)
		}
	}
	if !prunes {
		t.Error("no unit deletes old backups, without a failure of its own, before it takes one")
	}
}

// TestOneProcessIsKilledForWantOfMemory: the kernel kills mysqld or a hook, and systemd leaves their agent alone.
func TestOneProcessIsKilledForWantOfMemory(t *testing.T) {
	_, service, found := strings.Cut(read(t, "..", "quorate.service"), "\n[Service]\n")
	service, _, _ = strings.Cut(service, "\n[Install]\n")
	if !found || !strings.Contains(service, "\nOOMPolicy=continue\n") {
		t.Error("quorate.service has not OOMPolicy=continue: systemd stops the agent, too")
	}
}
