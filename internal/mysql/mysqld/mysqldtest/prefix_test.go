package mysqldtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/install"
)

// fakeMysqld initialises like mysqld, and adds a line for each time to the file runs beside it.
const fakeMysqld = `#!/bin/sh
case " $* " in
*" --version "*) echo 'mysqld  Ver 8.4.3 for Linux on x86_64 (MySQL Community Server - GPL)' ;;
*" --initialize-insecure "*)
	echo run >>"${0%/*}/runs"
	for a; do
		case $a in
		--datadir=*) data=${a#*=} ;;
		--defaults-file=*) data=$(sed -n 's/^datadir=//p' "${a#*=}") ;;
		esac
	done
	mkdir "$data"
	echo made >"$data/ibdata1"
	;;
*) echo "$$ $*"; exit 7 ;;
esac
`

func TestPrefix(t *testing.T) {
	base := t.TempDir()
	write := func(mode os.FileMode, text string, path ...string) string {
		t.Helper()
		name := filepath.Join(path...)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write(0o755, fakeMysqld, base, "bin", "mysqld")
	write(0o644, "", base, "lib", "plugin", "semisync_source.so")
	dir := filepath.Join(t.TempDir(), "it's a prefix")
	if err := Prefix(dir, base); err != nil {
		t.Fatal(err)
	}
	in, err := install.Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	runs := func() int {
		text, _ := os.ReadFile(filepath.Join(base, "bin", "runs"))
		return strings.Count(string(text), "\n")
	}
	data := t.TempDir()
	initialize := func(want int, name string, args ...string) {
		t.Helper()
		made := filepath.Join(data, name)
		if out, err := exec.Command(in.Mysqld, append(args, "--initialize-insecure")...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if text, err := os.ReadFile(filepath.Join(made, "ibdata1")); err != nil || string(text) != "made\n" {
			t.Errorf("%s has %q, %v", name, text, err)
		}
		if got := runs(); got != want {
			t.Errorf("%s: mysqld has initialised %d times, want %d", name, got, want)
		}
	}
	optionFile := func(name string, more string) string {
		return "--defaults-file=" + write(0o644, "[mysqld]\ndatadir="+filepath.Join(data, name)+"\n"+more, data, name+".cnf")
	}
	initialize(1, "first", optionFile("first", "innodb_page_size=4096\n"))
	initialize(1, "same options", optionFile("same options", "innodb_page_size=4096\n"))
	if err := os.Remove(filepath.Join(data, "first", "ibdata1")); err != nil {
		t.Fatal(err)
	}
	initialize(1, "first is gone", optionFile("first is gone", "innodb_page_size=4096\n"))
	initialize(1, "=quoted", "--defaults-file="+write(0o644,
		"[mysqld]\ndatadir=\""+filepath.Join(data, "=quoted")+"\"\ninnodb_page_size=4096\n", data, "quoted.cnf"))
	initialize(2, "other page size", optionFile("other page size", ""))
	initialize(3, "no file", "--no-defaults", "--datadir="+filepath.Join(data, "no file"))
	initialize(3, "no file again", "--no-defaults", "--datadir="+filepath.Join(data, "no file again"))

	cmd := exec.Command(in.Mysqld, "--x", "a b")
	out, err := cmd.Output()
	if want := strconv.Itoa(cmd.Process.Pid) + " --x a b\n"; string(out) != want || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("it printed %q, %v; want %q and exit status 7", out, err, want)
	}
}
