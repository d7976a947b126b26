package standstill

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster/status"
)

// TestProbeWritesItsOwnFile: a file that mysqld's account has put in the place of the probe's is not written, and is
// removed.
func TestProbeWritesItsOwnFile(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "probe"), filepath.Join(dir, "other")
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

// TestDiskProbe: a disk that answers is well. A write that does not end is noticed after Patience, whether or not
// more writes are asked for, and no more once it has ended. A stop of the agent waits for nothing.
func TestDiskProbe(t *testing.T) {
	dir := t.TempDir()
	if err := writeProbe(filepath.Join(dir, "probe")); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var p diskProbe
		began := time.Now()
		p.began.Store(&began) // a write is under way
		ctx, stop := context.WithTimeout(t.Context(), Patience-probeEvery)
		defer stop()
		p.run(ctx, func() error { t.Error("a second write is begun"); return nil })
		if took := p.hangs(time.Now()); took != 0 {
			t.Errorf("it hangs for %s already", took)
		}
		<-time.After(probeEvery)
		if took := p.hangs(time.Now()); took != 0 {
			t.Errorf("at the first look it hangs for %s already: the agent may have been stopped", took)
		}
		<-time.After(probeEvery)
		if took := p.hangs(time.Now()); took != Patience+probeEvery {
			t.Errorf("it hangs for %s, want %s", took, Patience+probeEvery)
		}
		next := time.Now().Add(-2 * Patience) // another write, as after a second stop
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

// TestDiskProbeOfADiskThatHangs: a write that does not end means that the disk hangs. It keeps no stop waiting, and
// the disk is well once it ends.
func TestDiskProbeOfADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var p diskProbe
		var writes atomic.Int64
		disk, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			p.run(ctx, func() error {
				writes.Add(1)
				<-disk
				return nil
			})
		}()
		time.Sleep(Patience + probeEvery)
		p.hangs(time.Now())
		time.Sleep(probeEvery)
		if took := p.hangs(time.Now()); took < Patience || writes.Load() != 1 {
			t.Errorf("a write that does not end hangs for %s; %d were begun", took, writes.Load())
		}
		stop()
		<-ended
		close(disk)
		synctest.Wait()
		if took := p.hangs(time.Now()); took != 0 || p.began.Load() != nil {
			t.Errorf("the write has ended, and hangs for %s", took)
		}
	})
}

// board is the part of a board that a Watch knows.
type board struct {
	own   status.Node
	about map[string]string
}

func (b *board) Own() status.Node            { return b.own }
func (b *board) Trouble(about string) string { return b.about[about] }
func (b *board) SetTrouble(about, text string) bool {
	news := b.about[about] != text
	b.about[about] = text
	return news
}

// TestWhomABadDiskFences: a disk that is full or hangs fences a primary, and a node that is being promoted. A replica
// only says so, and says so no more once its disk is well.
func TestWhomABadDiskFences(t *testing.T) {
	for _, c := range []struct {
		role  status.Role
		fence bool
	}{
		{status.RolePrimary, true}, {status.RolePromoting, true}, {status.RoleReplica, false}, {status.RoleUnverified, false},
	} {
		for _, bad := range []struct {
			what, about string
			spoil, mend func(w *Watch, doubt func(string))
		}{
			{"mysqld's disk is full", aboutSpace, func(w *Watch, doubt func(string)) { w.full("mysqld's disk is full: ...", doubt) },
				func(w *Watch, _ func(string)) { w.Commits("uuid:1-2", false, time.Now()) }},
			{"mysqld's disk has not answered for 10s", aboutDisk, func(w *Watch, doubt func(string)) {
				began := time.Now().Add(-Patience)
				w.disk.began.Store(&began)
				w.disk.suspect, w.disk.suspectedAt = &began, began
				w.Commits("uuid:1", true, began)
				w.Disk(c.role, writers(1), doubt)
			}, func(w *Watch, doubt func(string)) {
				w.disk.began.Store(nil)
				w.Disk(c.role, writers(1), doubt)
			}},
		} {
			b := &board{own: status.Node{Role: c.role}, about: map[string]string{}}
			w, doubted := New(b, ""), ""
			doubt := func(reason string) { doubted = reason }
			bad.spoil(w, doubt)
			if c.fence != strings.HasPrefix(doubted, bad.what) || !c.fence && doubted != "" {
				t.Errorf("%s: %s: fenced is %t, for %q", c.role, bad.what, !c.fence, doubted)
			}
			if said := b.about[bad.about]; !c.fence && !strings.HasPrefix(said, bad.what) {
				t.Errorf("%s: %s: the status says %q", c.role, bad.what, said)
			}
			bad.mend(w, doubt)
			if said := b.about[bad.about]; said != "" {
				t.Errorf("%s: %s no more, and the status says %q", c.role, bad.what, said)
			}
		}
	}
}

func writers(n int) func() (int, error) { return func() (int, error) { return n, nil } }

// TestADiskThatHangsUnderOneWhoCommits: mysqld stands still only if nothing was committed for as long as its disk may
// take, and something should have been committed.
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
		{"who writes waits", Patience, false, writers(1), true},
		{"it does not say", Patience, false, silent, true},
		{"it does not say, and has just committed", time.Second, false, silent, false},
		{"it is behind, and applies", time.Second, true, none, false},
		{"it is behind, and applies nothing", Patience, true, none, true},
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

// TestSpace: what mysqld says of its disk is in the status until mysqld ends.
func TestSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{own: status.Node{Role: status.RoleReplica}, about: map[string]string{}}
		w, full, ended := New(b, ""), make(chan string, 1), make(chan struct{})
		over := make(chan struct{})
		go func() {
			defer close(over)
			w.WatchSpace(full, ended, func(string) { t.Error("a replica is doubted") })
		}()
		full <- "No space left"
		synctest.Wait()
		if said := w.Full(); !strings.HasPrefix(said, "mysqld's disk is full: No space left") {
			t.Errorf("the status says %q", said)
		}
		b.SetTrouble(aboutDisk, "mysqld's disk has not answered for 12s")
		close(ended)
		<-over
		if said := w.Full() + b.Trouble(aboutDisk); said != "" {
			t.Errorf("mysqld has ended, and the status says %q", said)
		}
	})
}

// TestGreets: a mysqld that takes connections and says nothing is doubted if clients may wait for it. A mysqld that
// greets, or is not there, is not doubted.
func TestGreets(t *testing.T) {
	dir := t.TempDir()
	listen := func(name string, greets bool) string {
		path := filepath.Join(dir, name)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if greets {
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Write([]byte("hello"))
				}
			}()
		}
		return path
	}
	well, stopped := listen("well", true), listen("stopped", false)
	for _, c := range []struct {
		socket string
		role   status.Role
		want   bool
	}{
		{well, status.RolePrimary, false}, {filepath.Join(dir, "none"), status.RolePrimary, false},
		{stopped, status.RolePrimary, true}, {stopped, status.RoleReplica, true}, {stopped, status.RoleStarting, false},
	} {
		doubted := false
		patience := time.Hour // Greets has its own
		if c.want {
			patience = 100 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		New(&board{}, "").Greets(ctx, c.role, c.socket, func(string) { doubted = true })
		cancel()
		if doubted != c.want {
			t.Errorf("%s, %s: doubted is %t", filepath.Base(c.socket), c.role, doubted)
		}
	}
}
