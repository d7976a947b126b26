package logcopy

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// wokenTable counts how often the peers are told the status.
type wokenTable struct {
	Table
	woken int
}

// Name implements Table.
func (t *wokenTable) Name(cluster.NodeID) string { return "b" }

// Wake implements Table.
func (t *wokenTable) Wake() { t.woken++ }

// TestSilentSource: a learner says that its source feeds it as long as the source gives signs of life. When that
// begins or ends it tells its peers at once.
func TestSilentSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &wokenTable{}
		l := NewLearner(LearnerConfig{Table: table, Clock: clock.Machine{}, Logger: slog.New(slog.DiscardHandler)})
		want := func(by string, woken int) {
			t.Helper()
			if got := l.FedBy(); got != by || table.woken != woken {
				t.Errorf("fed by %q, told %d times, want %q and %d", got, table.woken, by, woken)
			}
		}
		want("", 0)
		for range 3 {
			l.fed("b", sourcePatience)
			time.Sleep(sourcePatience - time.Second)
			want("b", 1)
		}
		time.Sleep(time.Second)
		want("", 2)
		l.fed("b", sourcePatience)
		want("b", 3)
		l.fed("", 0)
		want("", 4)
	})
}

// oneSource gives a sign of life, and one part of the log.
type oneSource struct{ SourcePeers }

// Follow implements SourcePeers.
func (oneSource) Follow(_ context.Context, _ cluster.NodeID, _ uint64, f func(bulk.Point, []seglog.Entry) error, alive func() error) error {
	_ = alive()
	return f(bulk.Point{}, []seglog.Entry{{}})
}

// TestFailedSource: if a learner could not take a part of the log from its source, it does not say that the source
// feeds it. That stays so while the source is alive and is asked again, until a part was taken.
func TestFailedSource(t *testing.T) {
	broken := errors.New("broken")
	l := NewLearner(LearnerConfig{
		Committed: &consensus.Committed{}, Role: func() consensus.RoleState { return consensus.RoleState{} },
		Peers: oneSource{},
		Table: &wokenTable{}, Clock: clock.Machine{}, Logger: slog.New(slog.DiscardHandler),
	})
	for _, c := range []struct {
		refused error
		during  string
		after   string
	}{{nil, "b", "b"}, {broken, "b", ""}, {broken, "", ""}, {nil, "", "b"}} {
		during := "nobody asked"
		l.cfg.Step = func(context.Context, consensus.Relayed) error { during = l.FedBy(); return c.refused }
		if err := l.follow(t.Context(), 2); !errors.Is(err, c.refused) || during != c.during || l.FedBy() != c.after {
			t.Errorf("%v: fed by %q while a part is taken, by %q then; want %q, %q", err, during, l.FedBy(), c.during, c.after)
		}
	}
}
