package install

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fakeServer writes a program that prints line for --version and nothing else.
func fakeServer(t *testing.T, path, line string) {
	t.Helper()
	write(t, path, "#!/bin/sh\n[ \"$1\" = --no-defaults ] && [ \"$2\" = --version ] && echo '"+line+"'\n", 0o755)
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

const line84 = "mysqld  Ver 8.4.3 for Linux on x86_64 (MySQL Community Server - GPL)"

// fakePrefix makes a complete installation of the usual layout.
func fakePrefix(t *testing.T) string {
	t.Helper()
	base := t.TempDir()
	fakeServer(t, filepath.Join(base, "bin/mysqld"), line84)
	for _, client := range []string{"bin/mysql", "bin/mysqlbinlog", "bin/mysqldump"} {
		write(t, filepath.Join(base, client), "#!/bin/sh\n", 0o755)
	}
	write(t, filepath.Join(base, "lib/plugin/semisync_source.so"), "", 0o644)
	write(t, filepath.Join(base, "share/english/errmsg.sys"), "", 0o644)
	write(t, filepath.Join(base, "share/charsets/Index.xml"), "", 0o644)
	return base
}

func TestDiscoverNormalPrefix(t *testing.T) {
	base := fakePrefix(t)
	got, err := Discover(base)
	if err != nil {
		t.Fatal(err)
	}
	want := &Installation{
		BaseDir: base, Version: Version{8, 4, 3}, Mysqld: base + "/bin/mysqld", Mysql: base + "/bin/mysql",
		Mysqlbinlog: base + "/bin/mysqlbinlog", Mysqldump: base + "/bin/mysqldump",
		PluginDir: base + "/lib/plugin", ShareDir: base + "/share", CharsetsDir: base + "/share/charsets",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("installation (-want +got):\n%s", diff)
	}
	argv, err := got.MysqlbinlogArgv()
	if err != nil {
		t.Fatal(err)
	}
	wantArgv := []string{base + "/bin/mysqlbinlog", "--no-defaults", "--plugin-dir=" + base + "/lib/plugin", "--character-sets-dir=" + base + "/share/charsets"}
	if diff := cmp.Diff(wantArgv, argv); diff != "" {
		t.Fatalf("argv (-want +got):\n%s", diff)
	}
	got.Mysql = ""
	if _, err := got.ClientArgv(); !errors.Is(err, ErrNotFound) {
		t.Fatalf("argv of a client that is not there: %v", err)
	}
}

func TestDiscoverOrder(t *testing.T) {
	explicit, env, path := fakePrefix(t), fakePrefix(t), fakePrefix(t)
	t.Setenv("PATH", path+"/bin:"+os.Getenv("PATH"))
	t.Setenv(EnvBaseDir, env)
	for _, tc := range []struct{ baseDir, env, want string }{
		{explicit, env, explicit},
		{"", env, env},
		{"", "", path},
	} {
		t.Setenv(EnvBaseDir, tc.env)
		in, err := Discover(tc.baseDir)
		if err != nil {
			t.Fatal(err)
		}
		if in.BaseDir != tc.want {
			t.Errorf("Discover(%q) with %s=%q found %s, want %s", tc.baseDir, EnvBaseDir, tc.env, in.BaseDir, tc.want)
		}
	}
}

func TestDiscoverFollowsLinkOnPath(t *testing.T) {
	base, links := fakePrefix(t), t.TempDir()
	if err := os.Symlink(base+"/bin/mysqld", links+"/mysqld"); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvBaseDir, "")
	t.Setenv("PATH", links+":"+os.Getenv("PATH"))
	in, err := Discover("")
	if err != nil || in.BaseDir != base {
		t.Fatalf("Discover through a link: %+v, %v; want %s", in, err, base)
	}
}

func TestDiscoverFaults(t *testing.T) {
	for _, tc := range []struct {
		name string
		ruin func(base string)
		want error
		says string
	}{
		{"nothing there", func(b string) { _ = os.RemoveAll(b) }, ErrNotFound, "mysql.base_dir names"},
		{"not a program", func(b string) { _ = os.Chmod(b+"/bin/mysqld", 0o644) }, ErrNotFound, "no bin/mysqld"},
		{"old", func(b string) { fakeServer(t, b+"/bin/mysqld", "mysqld  Ver 8.0.29 for Linux") }, ErrTooOld, "8.0.29, quorate needs 8.0.30"},
		{"5.7", func(b string) { fakeServer(t, b+"/bin/mysqld", "mysqld  Ver 5.7.44 for Linux") }, ErrTooOld, "5.7.44"},
		{"MariaDB", func(b string) {
			fakeServer(t, b+"/bin/mysqld", "mysqld  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu")
		}, ErrMariaDB, "10.11.6"},
		{"no semisync", func(b string) { _ = os.Remove(b + "/lib/plugin/semisync_source.so") }, ErrNoSemiSync, "lib directories"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := fakePrefix(t)
			tc.ruin(base)
			_, err := Discover(base)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("got %v, want %v that says %q", err, tc.want, tc.says)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
	base := fakePrefix(t)
	write(t, base+"/bin/mysqld", "#!/bin/sh\necho broken >&2\nexit 3\n", 0o755)
	if _, err := Discover(base); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a server that does not start: %v", err)
	}
}

func TestVersionOrder(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) Version {
		n := rapid.IntRange(0, 12)
		return Version{n.Draw(t, "major"), n.Draw(t, "minor"), n.Draw(t, "patch")}
	})
	rapid.Check(t, func(t *rapid.T) {
		v, w := draw.Draw(t, "v"), draw.Draw(t, "w")
		if v.Compare(w) != -w.Compare(v) || (v.Compare(w) == 0) != (v == w) {
			t.Fatalf("Compare(%s, %s) = %d", v, w, v.Compare(w))
		}
		if v.AtLeast(w.Major, w.Minor, w.Patch) != (w.Compare(v) <= 0) {
			t.Fatalf("%s.AtLeast(%s)", v, w)
		}
		if got, err := ParseVersion(v.String() + "-suffix"); err != nil || got != v {
			t.Fatalf("ParseVersion(%s-suffix) = %s, %v", v, got, err)
		}
	})
	for _, s := range []string{"", "8", "8.0", "x8.0.30", "99999.1.1"} {
		if v, err := ParseVersion(s); err == nil {
			t.Errorf("ParseVersion(%q) = %s", s, v)
		}
	}
}

// TestDiscoverPrivatePrefix looks at what scripts/get-mysql.sh made, if it ran:
// every program must start through the prefix's own loader.
func TestDiscoverPrivatePrefix(t *testing.T) {
	base, err := filepath.Abs("../../../.mysql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(base); err != nil {
		t.Skipf("no private MySQL: %v; run `make mysql`", err)
	}
	in, err := Discover(base)
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Loader) != 3 || !strings.HasPrefix(in.Loader[0], base) || in.ShareDir == "" || in.CharsetsDir == "" {
		t.Fatalf("installation %+v", in)
	}
	for name, argv := range map[string]func() ([]string, error){"mysql": in.ClientArgv, "mysqlbinlog": in.MysqlbinlogArgv} {
		args, err := argv()
		if err != nil {
			t.Fatal(err)
		}
		if out, err := runVersion(args); err != nil || !strings.Contains(out, in.Version.String()) {
			t.Errorf("%s --version: %v, %s", name, err, out)
		}
	}
}

func runVersion(argv []string) (string, error) {
	out, err := exec.Command(argv[0], append(argv[1:], "--version")...).CombinedOutput()
	return string(out), err
}
