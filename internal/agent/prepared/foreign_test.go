package prepared

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// world is a replica and its node. Its log has one XA transaction, x, prepared by entry 1.
type world struct {
	commits, foreign bool // what performance_schema says
	there            bool // XA RECOVER has it
	ended            bool // the applier has ended it, by entry 2
	noted            bool
	err              error // of a question to mysqld
	// after: the world changes once this much time has passed.
	after  time.Duration
	change func(*world)
	began  time.Time
}

var x = binlog.XID{GTRID: "x"}

func (w *world) now() *world {
	if w.change != nil && time.Since(w.began) >= w.after {
		w.change(w)
		w.change = nil
	}
	return w
}

func (w *world) ForeignXA(context.Context) (bool, error)       { return w.now().foreign, w.err }
func (w *world) ForeignXACommit(context.Context) (bool, error) { return w.now().commits, w.err }
func (w *world) PreparedXA(context.Context) (map[binlog.XID]bool, error) {
	return map[binlog.XID]bool{x: w.now().there}, w.err
}

func (w *world) GTIDExecuted(context.Context) (*gtid.Set, error) {
	set, n := new(gtid.Set), uint64(1)
	if w.now().ended {
		n = 2
	}
	for i := range n {
		set.Add(gtid.GTID{N: i + 1})
	}
	return set, w.err
}

func (w *world) ForeignXANoted() (bool, error) { return w.noted, nil }
func (w *world) NoteForeignXA() error          { w.noted = true; return nil }
func (w *world) Durable() uint64               { return 0 }
func (w *world) Applied(executed *gtid.Set) uint64 {
	if executed.Contains(gtid.GTID{N: 2}) {
		return 2
	}
	return 1
}

func (w *world) PreparedIn(from uint64, executed *gtid.Set, open map[binlog.XID]gtid.GTID) error {
	if from <= 1 {
		open[x] = gtid.GTID{N: 1}
	}
	if from <= 2 && executed.Contains(gtid.GTID{N: 2}) {
		delete(open, x)
	}
	return nil
}

// TestForeign: a client's commit is told from the applier's commit and from a client's rollback. It is noted, and
// from then on counts whatever mysqld says.
func TestForeign(t *testing.T) {
	broken := errors.New("connection lost")
	for name, c := range map[string]struct {
		world         world
		judge, stops  error // of a judgement before a promotion, and of a poll where the applier has stopped
		quiet, undone error // of a poll where it has not, and of a switchover to this node
		noted         bool
	}{
		"nothing was done":                    {world: world{there: true}},
		"a client rolled it back":             {world: world{foreign: true}, stops: ErrEnded, undone: ErrEnded},
		"a client committed it":               {world: world{foreign: true, commits: true}, judge: ErrCommitted, stops: ErrCommitted, quiet: ErrCommitted, undone: ErrEnded, noted: true},
		"clients commit, and it is there":     {world: world{foreign: true, commits: true, there: true}, stops: ErrEnded, undone: ErrEnded},
		"the applier has committed it":        {world: world{foreign: true, commits: true, ended: true}, stops: ErrEnded, undone: ErrEnded},
		"the applier is just ending it":       {world: world{foreign: true, commits: true, after: 100 * time.Millisecond, change: func(w *world) { w.ended = true }}, stops: ErrEnded, undone: ErrEnded},
		"the applier's own commit is counted": {world: world{foreign: true, commits: true, after: 100 * time.Millisecond, change: func(w *world) { w.foreign, w.commits = false, false }}},
		"it was noted of these data":          {world: world{there: true, noted: true}, judge: ErrCommitted, noted: true},
		"mysqld does not answer":              {world: world{foreign: true, commits: true, err: broken}, judge: broken, stops: broken, quiet: broken, undone: broken},
	} {
		for what, q := range map[string]struct {
			ask  func(ctx context.Context, f *Foreign, w *world) error
			want error
		}{
			"judge":  {func(ctx context.Context, f *Foreign, w *world) error { return f.Judge(ctx, w, true) }, c.judge},
			"stops":  {func(ctx context.Context, f *Foreign, w *world) error { return poll(ctx, t, f, w, true) }, c.stops},
			"quiet":  {func(ctx context.Context, f *Foreign, w *world) error { return poll(ctx, t, f, w, false) }, c.quiet},
			"undone": {func(ctx context.Context, f *Foreign, w *world) error { return f.Undone(ctx, w) }, c.undone},
		} {
			synctest.Test(t, func(t *testing.T) {
				w := c.world
				w.began = time.Now()
				if err := q.ask(t.Context(), &Foreign{Node: &w}, &w); !errors.Is(err, q.want) || (err == nil) != (q.want == nil) {
					t.Errorf("%s: %s: %v, want %v", name, what, err, q.want)
				}
				if what != "undone" && w.noted != (c.noted || c.world.noted) {
					t.Errorf("%s: %s: noted is %t", name, what, w.noted)
				}
			})
		}
	}
}

func poll(ctx context.Context, t *testing.T, f *Foreign, w *world, stopped bool) error {
	t.Helper()
	if !f.Begin() || f.Begin() {
		t.Error("there is not one place to look")
	}
	defer func() {
		if !f.Begin() {
			t.Error("the place is not given back")
		}
	}()
	return f.Poll(ctx, w, stopped)
}

// TestNotPromoted: without a promotion mysqld is not asked, and only the note counts.
func TestNotPromoted(t *testing.T) {
	for _, noted := range []bool{false, true} {
		w := &world{foreign: true, commits: true, noted: noted}
		err := (&Foreign{Node: w}).Judge(t.Context(), w, false)
		if (err == nil) == noted {
			t.Errorf("noted is %t: %v", noted, err)
		}
	}
}
