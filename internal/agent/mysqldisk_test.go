package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/role"
)

// TestProbeWritesItsOwnFile: what mysqld's account put in its place is not written, and goes.
func TestProbeWritesItsOwnFile(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, probeFile), filepath.Join(dir, "other")
	for what, plant := range map[string]func() error{
		"symbolic link": func() error { return os.Symlink(other, path) },
		"hard link":     func() error { return os.Link(other, path) },
		"FIFO":          func() error { return unix.Mkfifo(path, 0o600) },
	} {
		if err := os.WriteFile(other, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		if err := writeProbe(path); err == nil {
			t.Errorf("%s: written", what)
		}
		if err := writeProbe(path); err != nil {
			t.Errorf("after a %s: %v", what, err)
		}
		if text, err := os.ReadFile(other); err != nil || string(text) != "kept" {
			t.Errorf("%s: it leads to %q, %v", what, text, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiskProbe: a disk that answers is well; a write that does not end is seen
// after diskPatience, whether or not anybody asks for more writes, and no more once
// it has ended; nothing waits for it when the agent stops.
func TestDiskProbe(t *testing.T) {
	dir := t.TempDir()
	if err := writeProbe(filepath.Join(dir, probeFile)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var p diskProbe
		began := time.Now()
		p.began.Store(&began) // a write is under way
		ctx, stop := context.WithTimeout(t.Context(), diskPatience-diskProbeInterval)
		defer stop()
		if err := p.run(ctx, func() error { t.Error("a second write is begun"); return nil }); err != nil {
			t.Fatal(err)
		}
		if took := p.hangs(time.Now()); took != 0 {
			t.Errorf("it hangs for %s already", took)
		}
		<-time.After(diskProbeInterval)
		if took := p.hangs(time.Now()); took != 0 {
			t.Errorf("at the first look it hangs for %s already: the agent may have been stopped", took)
		}
		<-time.After(diskProbeInterval)
		if took := p.hangs(time.Now()); took != diskPatience+diskProbeInterval {
			t.Errorf("it hangs for %s, want %s", took, diskPatience+diskProbeInterval)
		}
		next := time.Now().Add(-2 * diskPatience) // another one, as after a second stop
		p.began.Store(&next)
		if took := p.hangs(time.Now()); took != 0 {
			t.Errorf("at the first look at another write it hangs for %s", took)
		}
		p.began.Store(nil)
		if took := p.hangs(time.Now()); took != 0 {
			t.Errorf("it has answered, and hangs for %s", took)
		}
	})
}

// TestDiskProbeOfADiskThatHangs: a write that does not end hangs, keeps no stop waiting, and is
// over once it ends.
func TestDiskProbeOfADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var p diskProbe
		var writes atomic.Int64
		disk, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- p.run(ctx, func() error {
				writes.Add(1)
				<-disk
				return nil
			})
		}()
		time.Sleep(diskPatience + diskProbeInterval)
		p.hangs(time.Now())
		time.Sleep(diskProbeInterval)
		if took := p.hangs(time.Now()); took < diskPatience || writes.Load() != 1 {
			t.Errorf("a write that does not end hangs for %s; %d were begun", took, writes.Load())
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the agent stops: %v", err)
		}
		close(disk)
		synctest.Wait()
		if took := p.hangs(time.Now()); took != 0 || p.began.Load() != nil {
			t.Errorf("the write has ended, and hangs for %s", took)
		}
	})
}

// TestWhomABadDiskFences: a primary and a node that is being promoted, on a disk
// that is full or hangs; a replica says so and goes on, and says so no more once its
// disk is well.
func TestWhomABadDiskFences(t *testing.T) {
	for _, c := range []struct {
		role  status.Role
		fence bool
	}{
		{status.RolePrimary, true}, {status.RolePromoting, true}, {status.RoleReplica, false}, {status.RoleUnverified, false},
	} {
		t.Run(string(c.role), func(t *testing.T) {
			for _, bad := range []struct {
				what        string
				spoil, mend func(a *Agent)
			}{
				{"mysqld's disk is full", func(a *Agent) { a.diskFull(&mysqld.Process{}, "mysqld's disk is full: ...") },
					func(a *Agent) { a.board.SetTrouble(aboutSpace, "") }},
				{"mysqld's disk has not answered for 10s", func(a *Agent) {
					began := time.Now().Add(-diskPatience)
					a.disk.began.Store(&began)
					a.disk.suspect, a.disk.suspectedAt = &began, began
					a.disk.commits("", began)
					a.pollDisk(&mysqld.Process{}, c.role, writers(1))
				}, func(a *Agent) {
					a.disk.began.Store(nil)
					a.pollDisk(&mysqld.Process{}, c.role, writers(1))
				}},
			} {
				a := openLone(t)
				a.Inbox.Mail()
				a.board.SetRole(c.role, "")
				bad.spoil(a)
				doubted := slices.ContainsFunc(a.Inbox.Mail(), func(in role.Input) bool {
					d, ok := in.(role.Doubt)
					return ok && strings.HasPrefix(d.Reason, bad.what)
				})
				if doubted != c.fence {
					t.Errorf("%s: fenced is %t", bad.what, doubted)
				}
				a.board.SetRole(c.role, "")
				if said := a.board.Own().Reason; !c.fence && !strings.HasPrefix(said, bad.what) {
					t.Errorf("%s: the status says %q", bad.what, said)
				}
				bad.mend(a)
				a.board.SetRole(c.role, "")
				if said := a.board.Own().Reason; said != "" {
					t.Errorf("%s no more, and the status says %q", bad.what, said)
				}
			}
		})
	}
}

func writers(n int) func() (int, error) { return func() (int, error) { return n, nil } }

// TestADiskThatHangsUnderOneWhoCommits: mysqld stands still only where nothing was
// committed for as long as its disk may take, and something should have been.
func TestADiskThatHangsUnderOneWhoCommits(t *testing.T) {
	none := writers(0)
	silent := func() (int, error) { return 0, errors.New("it does not answer") }
	for _, c := range []struct {
		what    string
		quiet   time.Duration // since the newest commit
		behind  bool
		writers func() (int, error)
		want    bool
	}{
		{"commits flow, and one statement is long", time.Second, false, writers(1), false},
		{"nobody writes", time.Hour, false, none, false},
		{"who writes waits", diskPatience, false, writers(1), true},
		{"it does not say", diskPatience, false, silent, true},
		{"it does not say, and has just committed", time.Second, false, silent, false},
		{"it is behind, and applies", time.Second, true, none, false},
		{"it is behind, and applies nothing", diskPatience, true, none, true},
	} {
		var p diskProbe
		now := time.Now()
		if p.standsStill(now, c.behind, c.writers) {
			t.Errorf("%s: what it had before is not known, and it stands still", c.what)
		}
		p.commits("uuid:1-4", now.Add(-time.Hour))
		p.commits("uuid:1-5", now.Add(-c.quiet))
		p.commits("uuid:1-5", now)
		if got := p.standsStill(now, c.behind, c.writers); got != c.want {
			t.Errorf("%s: it stands still is %t", c.what, got)
		}
	}
}
