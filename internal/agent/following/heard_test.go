package following

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// hearer is a node that follows site west.
type hearer struct {
	*Service
	board *board.Board
	stop  func()
}

// hearingNode is what RunHeard needs of a node.
type hearingNode struct {
	sitedNode
	dir   datadir.Dir
	board *board.Board
}

func (n hearingNode) Nodes() []status.Node { return n.board.Nodes() }
func (n hearingNode) ShowHeard(h *cluster.SiteHeard) {
	n.board.Update(func(s *status.Node) { s.SiteHeard = h })
}

func (n hearingNode) SiteHeard() (cluster.SiteHeard, error)    { return n.dir.SiteHeard() }
func (n hearingNode) WriteSiteHeard(h cluster.SiteHeard) error { return n.dir.WriteSiteHeard(h) }

// newHearer returns the node with this id, whose disk is fs. It runs until it is stopped.
func newHearer(t *testing.T, id cluster.NodeID, fs vfs.FS) hearer {
	members := []cluster.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}
	state := cluster.NewState(members)
	state.Follow = &cluster.Follow{Site: "west"}
	b := board.New(board.Config{Self: status.Node{ID: id, Name: members[id-1].Name}, State: state, Known: &membership.Directories{}, Now: time.Now})
	node := hearingNode{sitedNode{state: state, process: new(mysqld.Process)}, datadir.New(fs, "."), b}
	h := hearer{NewService(node, nil, slog.New(slog.DiscardHandler)), b, nil}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.RunHeard(ctx) }()
	h.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return h
}

// TestHeardIsKept: what the other site was heard to have is known after the end of the agent that heard it, after a
// loss of power, and to the other nodes. It was kept in one agent's memory only: a promotion after a disaster said
// that nothing is known.
func TestHeardIsKept(t *testing.T) {
	const there, more = "aaaaaaaa-0000-0000-0000-000000000001:1-7", "aaaaaaaa-0000-0000-0000-000000000001:1-9"
	set := func(text string) *gtid.Set {
		s, err := gtid.ParseSet(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		a, b := newHearer(t, 1, disk), newHearer(t, 2, vfs.NewMem())
		says := func(name string, h hearer, executed string, at time.Time) {
			t.Helper()
			known, p := h.knownOf(t.Context(), cluster.Follow{Site: "west"})
			if known.String() != executed || !p.Heard.Equal(at) {
				t.Errorf("%s: %s was heard at %v, want %s at %v", name, known, p.Heard, executed, at)
			}
		}
		says("nothing so far", a, "", time.Time{})
		first := time.Now().UTC()
		a.hears(set(there), first)
		time.Sleep(heardKeptEvery + 2*heardEvery)
		second := time.Now().UTC()
		a.hears(set(more), second)
		says("itself", a, more, second)
		time.Sleep(heardEvery + time.Millisecond)

		power := newHearer(t, 1, disk.CrashClone(1))
		synctest.Wait()
		says("after a loss of power", power, there, first)
		if err := b.board.Received(1, a.board.Own()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heardEvery + time.Millisecond)
		says("another node", b, more, second)
		if err := power.board.Received(2, b.board.Own()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heardEvery + time.Millisecond)
		says("after a loss of power, by another node", power, more, second)
		b.learns(cluster.SiteHeard{Site: "west", Term: 0, At: second.Add(time.Hour), Executed: there})
		says("an earlier primary's clock is ahead", b, more, second)

		a.stop()
		again := newHearer(t, 1, disk.CrashClone(0))
		synctest.Wait()
		says("after an end in order", again, more, second)
		for _, h := range []hearer{b, power, again} {
			h.stop()
		}
		if err := datadir.New(disk, ".").WriteSiteHeard(cluster.SiteHeard{Site: "north", Term: 9, Executed: there}); err != nil {
			t.Fatal(err)
		}
		other := newHearer(t, 1, disk)
		synctest.Wait()
		says("of another site", other, "", time.Time{})
		other.stop()
	})
}

// lateNode learns which site is followed from its log, some time after its start.
type lateNode struct {
	hearingNode
	knows *atomic.Bool
}

func (n lateNode) Committed() (*cluster.Follow, uint64) {
	if !n.knows.Load() {
		return nil, 0
	}
	return n.hearingNode.Committed()
}

func (n lateNode) State() cluster.State {
	if !n.knows.Load() {
		return cluster.State{}
	}
	return n.hearingNode.State()
}

// TestHeardBeforeItsSite: a node forgot what its disk has of the other site, if it did not know yet that this site is
// followed.
func TestHeardBeforeItsSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := datadir.New(vfs.NewMem(), ".")
		heard := cluster.SiteHeard{Site: "west", Term: 2, Executed: "aaaaaaaa-0000-0000-0000-000000000001:1-7"}
		if err := dir.WriteSiteHeard(heard); err != nil {
			t.Fatal(err)
		}
		state := cluster.NewState([]cluster.Member{{ID: 1, Name: "a"}})
		state.Follow = &cluster.Follow{Site: "west"}
		b := board.New(board.Config{Self: status.Node{ID: 1, Name: "a"}, State: state, Known: &membership.Directories{}, Now: time.Now})
		node := lateNode{hearingNode{sitedNode{state: state}, dir, b}, new(atomic.Bool)}
		s := NewService(node, nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.RunHeard(ctx) }()
		time.Sleep(2 * heardEvery)
		node.knows.Store(true)
		time.Sleep(2 * heardEvery)
		if got := s.heardOf("west"); got == nil || *got != heard {
			t.Errorf("it knows %+v of west, want what its disk has: %+v", got, heard)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
