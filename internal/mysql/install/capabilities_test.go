package install

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ambient runs f on a thread with three capabilities for its children to inherit, as systemd's
// AmbientCapabilities gives them to the agent. The thread ends afterwards, with its
// capabilities.
func ambient(t *testing.T, f func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can have the capabilities to begin with")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var have [2]unix.CapUserData
		err := unix.Capget(&header, &have[0])
		have[0].Inheritable |= 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_SYS_NICE
		if err == nil {
			err = unix.Capset(&header, &have[0])
		}
		for _, c := range []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SYS_NICE} {
			if err == nil {
				err = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0)
			}
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestWithoutNetCapabilities asks a server for its version, as Discover does. The child has the
// thread's capabilities, except those for the agent and its hook. Afterwards the thread has all
// of them, because a hook could be started from it.
func TestWithoutNetCapabilities(t *testing.T) {
	dir := t.TempDir()
	server, said := filepath.Join(dir, "mysqld"), filepath.Join(dir, "said")
	script := "#!/bin/sh\ngrep CapAmb /proc/self/status > " + said + "\necho 'mysqld  Ver 8.4.3 for Linux on x86_64 (MySQL Community Server - GPL)'\n"
	if err := os.WriteFile(server, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ambient(t, func() error {
		err := (&Installation{Mysqld: server}).readVersion(nil)
		for _, c := range []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SYS_NICE} {
			if set, capErr := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, c, 0, 0); set != 1 || capErr != nil {
				t.Errorf("capability %d is lost to the thread: %v", c, capErr)
			}
		}
		return err
	})
	got, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	if want := "CapAmb:\t0000000000800000"; strings.TrimSpace(string(got)) != want {
		t.Errorf("the server has %s, want %s", got, want)
	}
}

// TestServerIsAskedAsItRuns: root runs a server's program, to ask its version, as the account
// that mysqld will run as: the program may belong to that account.
func TestServerIsAskedAsItRuns(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another account")
	}
	base := t.TempDir()
	for _, dir := range []string{base, filepath.Dir(base)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	server, said := filepath.Join(base, "bin", "mysqld"), filepath.Join(base, "said")
	script := "#!/bin/sh\nid -u > " + said + "\necho 'mysqld  Ver 8.4.3 for Linux on x86_64 (MySQL Community Server - GPL)'\n"
	if err := errors.Join(os.Mkdir(filepath.Dir(server), 0o755), os.WriteFile(server, []byte(script), 0o755),
		os.WriteFile(said, nil, 0o600), os.Chown(said, 4711, 4711)); err != nil {
		t.Fatal(err)
	}
	if _, err := DiscoverAs(base, &syscall.Credential{Uid: 4711, Gid: 4711}); !errors.Is(err, ErrNoSemiSync) { // it was asked
		t.Fatal(err)
	}
	if got, err := os.ReadFile(said); err != nil || strings.TrimSpace(string(got)) != "4711" {
		t.Errorf("it was asked as %s, %v", got, err)
	}
}
