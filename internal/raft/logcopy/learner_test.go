package logcopy

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/sys/clock"
)

// wokenTable counts how often the peers are told.
type wokenTable struct {
	Table
	woken int
}

// Wake implements Table.
func (t *wokenTable) Wake() { t.woken++ }

// TestSilentSource: a learner says that its source feeds it for as long as that gives signs of
// life, and tells its peers at once when one of the two changes.
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
