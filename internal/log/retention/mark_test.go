package retention

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

// fakeMarks has a mark for each mysqld.
type fakeMarks map[string]replay.Mark

func (f fakeMarks) Of(uuid string) replay.Mark { return f[uuid] }
func (f fakeMarks) Advance(uuid string, m replay.Mark) error {
	f[uuid] = m
	return nil
}

// fakeMysqld fails if it is told to.
type fakeMysqld struct {
	err      error
	asked    int
	executed *gtid.Set
	// during is what happens while it flushes; nil = nothing.
	during func()
}

func (*fakeMysqld) ServerUUID() string { return "a" }
func (f *fakeMysqld) FlushExecuted(context.Context) (*gtid.Set, bool, error) {
	f.asked++
	if f.during != nil {
		f.during()
	}
	return f.executed, false, f.err
}

// TestMarkerTriesAgain: a mysqld that ended or failed while it was asked is asked again at the next look. If no
// mysqld runs, none is asked.
func TestMarkerTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, looks, runs := &fakeMysqld{err: ErrEnded}, 0, false
		m := NewMarker(MarkerConfig{
			Mysqld: func() Mysqld {
				if runs {
					return server
				}
				return nil
			},
			Applied: func() uint64 { return 7 }, Every: time.Second, Clock: clock.Machine{}, Logger: slog.New(slog.DiscardHandler),
			Also: func(context.Context, Mysqld) { looks++ },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		time.Sleep(2500 * time.Millisecond)
		if looks > 0 {
			t.Error("it looks at no mysqld")
		}
		runs = true
		time.Sleep(2 * time.Second)
		server.err = errors.New("the disk hangs")
		time.Sleep(2 * time.Second)
		if server.asked != 4 || looks != 4 {
			t.Errorf("asked %d times in %d looks, want 4", server.asked, looks)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestMarkerXABeginsAtTheMark: the log is read when mysqld has seen an XA transaction. It is read from the
// durable mark on, and for another mysqld from the beginning.
func TestMarkerXABeginsAtTheMark(t *testing.T) {
	marks := fakeMarks{"a": {Index: 7}}
	m := NewMarker(MarkerConfig{Marks: marks})
	if m.beginXA("a"); m.prepared != nil {
		t.Error("the log is read although nobody uses XA")
	}
	m.UsesXA()
	m.beginXA("a")
	first := m.prepared
	marks["a"] = replay.Mark{Index: 20}
	if m.beginXA("a"); first == nil || m.prepared != first {
		t.Error("what was read is forgotten")
	}
	if diff := cmp.Diff(replay.NewPrepared(8), first, cmp.AllowUnexported(replay.Prepared{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m.beginXA("b"); m.prepared == first {
		t.Error("another mysqld goes on where the first one was")
	}
}

// TestMarkerXAEndsWithItsContext: reading a long log stops when the agent has to stop, and goes on from there
// the next time.
func TestMarkerXAEndsWithItsContext(t *testing.T) {
	m := NewMarker(MarkerConfig{Marks: fakeMarks{}})
	m.UsesXA()
	m.beginXA("a")
	log := &countingLog{}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := m.readXA(stopped, log, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	if err := m.readXA(t.Context(), log, 5); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3, 4, 5}, log.asked); diff != "" {
		t.Errorf("what was read (-want +got):\n%s", diff)
	}
}

// TestMarkerOfABusyMysqld: a mysqld that is polled while it flushes, and has gone on, has its mark where it was before.
// If it was killed before it was asked, there is no mark: the log says so, and a killed mysqld of which nothing is known
// is not asked.
func TestMarkerOfABusyMysqld(t *testing.T) {
	w := binlogtest.New("b")
	log := rowsLog{w.Rows(20), w.Rows(20), w.Rows(20)}
	executed := &gtid.Set{}
	executed.Add(binlogtest.GTID(1))
	before := executed.Clone()
	executed.Add(binlogtest.GTID(2))
	for name, c := range map[string]struct {
		applied  uint64
		executed *gtid.Set
		want     fakeMarks
		asked    int
		logged   string
	}{
		"polled":      {2, executed, fakeMarks{"a": {Index: 2, Witness: binlogtest.GTID(2)}}, 1, ""},
		"killed":      {2, before, fakeMarks{}, 1, "no durable mark was taken"},
		"not polled":  {0, before, fakeMarks{}, 0, ""},
		"behind that": {1, executed, fakeMarks{"a": {Index: 1, Witness: binlogtest.GTID(1)}}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var logged strings.Builder
			applied, marks := c.applied, fakeMarks{}
			server := &fakeMysqld{executed: c.executed, during: func() { applied = 3 }}
			m := NewMarker(MarkerConfig{
				Applied: func() uint64 { return applied }, Marks: marks, Clock: clock.Machine{}, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
				Read: func(f func(replay.CommittedLog) error) error { return f(log) },
			})
			m.look(t.Context(), server)
			if diff := cmp.Diff(c.want, marks); diff != "" || server.asked != c.asked {
				t.Errorf("asked %d times; marks (-want +got):\n%s", server.asked, diff)
			}
			if got := logged.String(); !strings.Contains(got, c.logged) || (got == "") != (c.logged == "") {
				t.Errorf("the log says %q", got)
			}
		})
	}
}

// rowsLog is a log that has one transaction in each entry, the first in entry 1.
type rowsLog [][][]byte

func (rowsLog) Segments() []seglog.SegmentInfo                 { return nil }
func (rowsLog) FirstIndex() uint64                             { return 1 }
func (rowsLog) ReadStage(entry.StageID) (io.ReadCloser, error) { return nil, seglog.ErrNoStage }
func (l rowsLog) ReadCommitted(index, _ uint64) ([]seglog.Entry, bool, error) {
	h := entry.Header{Kind: entry.KindTransactions, Count: 1, Term: 1, Number: index}
	data := append(entry.AppendHeader(nil, h), binlogtest.Join(l[index-1]...)...)
	return []seglog.Entry{{Index: index, Term: 1, Data: data}}, true, nil
}

// countingLog is a log of entries without transactions. It returns one entry at a time.
type countingLog struct {
	replay.CommittedLog
	asked []uint64
}

func (l *countingLog) FirstIndex() uint64 { return 1 }

func (l *countingLog) ReadCommitted(index, _ uint64) ([]seglog.Entry, bool, error) {
	l.asked = append(l.asked, index)
	return []seglog.Entry{{Index: index, Type: 1}}, true, nil
}
