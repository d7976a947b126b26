package primary

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/role"
)

const judgedUUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

func gtids(t *testing.T, intervals string) *gtid.Set {
	t.Helper()
	set, err := gtid.ParseSet(judgedUUID + ":" + intervals)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// judgedWorld is a mysqld and what it is compared with. At first all is in order.
type judgedWorld struct {
	replay.CommittedLog
	did []string

	binlogs             bool
	executed, committed *gtid.Set
	drifts              []string
	pending             int
	ended               bool
	failing             string // this question fails
	foreign             int    // a client's XA COMMIT shows from this look on; 0 = never
	looks               int
	mark                replay.Mark
}

func (w *judgedWorld) step(name string) error {
	w.did = append(w.did, name)
	if name == w.failing {
		return errors.New(name + " fails")
	}
	return nil
}

func (w *judgedWorld) ReplicaBinlog() bool                        { return w.binlogs }
func (w *judgedWorld) Barrier(context.Context) error              { return w.step("barrier") }
func (w *judgedWorld) GTIDs() *gtid.Set                           { return w.committed }
func (w *judgedWorld) AddPurged(context.Context, *gtid.Set) error { return w.step("purged") }
func (w *judgedWorld) JudgeGrants(context.Context) error          { return w.step("grants") }
func (w *judgedWorld) EnableSemiSync(context.Context) error       { return w.step("semi-sync") }
func (w *judgedWorld) RemoveOldBinlogs() error                    { return w.step("binlogs") }
func (w *judgedWorld) XAEnded(context.Context) (bool, error)      { return w.ended, w.step("xa ended") }
func (w *judgedWorld) PendingXA(context.Context) (int, error)     { return w.pending, w.step("xa") }
func (w *judgedWorld) Drifts(context.Context) ([]string, error)   { return w.drifts, w.step("drifts") }
func (w *judgedWorld) GTIDExecuted(context.Context) (*gtid.Set, error) {
	return w.executed, w.step("executed")
}

func (w *judgedWorld) JudgeForeignXA(context.Context, bool) error {
	if w.looks++; w.looks == w.foreign {
		return &VerdictError{role.Errant, "a client committed"}
	}
	return w.step("foreign xa")
}

// TestJudgePromotion: a mysqld in order may serve, after these questions in this order. If one thing is out of order,
// it may not serve, and the questions after that are not asked.
func TestJudgePromotion(t *testing.T) {
	looks := []string{"foreign xa", "barrier", "executed", "drifts", "grants"}
	for _, c := range []struct {
		what    string
		spoil   func(w *judgedWorld)
		want    string // "" = it may serve
		verdict role.Verdict
		last    string
	}{
		{"in order", func(*judgedWorld) {}, "", role.OK, "xa ended"},
		{"it lacks something", func(w *judgedWorld) { w.committed = gtids(t, "1-6") }, "", role.OK, "xa ended"},
		{"with a replica's binlog", func(w *judgedWorld) { w.binlogs = true }, "", role.OK, "foreign xa"},
		{"foreign XA while semi-sync was off", func(w *judgedWorld) { w.binlogs, w.foreign = true, 2 }, "a client committed", role.Errant, "semi-sync"},
		{"foreign XA", func(w *judgedWorld) { w.foreign = 1 }, "a client committed", role.Errant, ""},
		{"foreign XA meanwhile", func(w *judgedWorld) { w.foreign = 2 }, "a client committed", role.Errant, "grants"},
		{"no majority", func(w *judgedWorld) { w.failing = "barrier" }, "barrier fails", role.Failed, "barrier"},
		{"errant", func(w *judgedWorld) { w.executed = gtids(t, "1-6") }, judgedUUID + ":6; it stays down, its data and binlogs are kept (DIR)", role.Errant, "executed"},
		{"errant in memory alone", func(w *judgedWorld) { w.binlogs, w.executed = true, gtids(t, "1-6") }, judgedUUID + ":6", role.Failed, "executed"},
		{"drifts", func(w *judgedWorld) { w.drifts = []string{"a", "b"} }, "not set as it must be: a; b", role.Unfit, "drifts"},
		{"drifts not known", func(w *judgedWorld) { w.failing = "drifts" }, "check guarded variables", role.Failed, "drifts"},
		{"grants", func(w *judgedWorld) { w.failing = "grants" }, "grants fails", role.Failed, "grants"},
		{"prepared XA", func(w *judgedWorld) { w.pending = 1 }, "1 XA transaction is prepared: mysqld starts again", role.XAPending, "xa"},
		{"ended XA", func(w *judgedWorld) { w.ended = true }, XAEnded, role.XAPending, "xa ended"},
		{"semi-sync not enabled", func(w *judgedWorld) { w.binlogs, w.failing = true, "semi-sync" }, "semi-sync fails", role.Failed, "semi-sync"},
	} {
		w := &judgedWorld{executed: gtids(t, "1-5"), committed: gtids(t, "1-5")}
		c.spoil(w)
		var judged []replay.Verdict
		err := Judge{Server: w, Log: w, Durable: func() replay.Mark { return w.mark }, Dir: "DIR",
			Judged: func(v replay.Verdict) { judged = append(judged, v) }}.Run(t.Context(), true)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || Done(7, 0, err).Verdict != c.verdict {
			t.Errorf("%s: %v, want %s: %q", c.what, err, c.verdict, c.want)
		}
		if n := len(w.did); n > 0 && w.did[n-1] != c.last || n == 0 && c.last != "" {
			t.Errorf("%s: it asked %q, want %q last", c.what, w.did, c.last)
		}
		if n := min(len(looks), len(w.did)); !slices.Equal(w.did[:n], looks[:n]) {
			t.Errorf("%s: it asked %q, want %q first", c.what, w.did, looks)
		}
		if told := len(judged) == 1; told == (c.last == "" || c.last == "barrier" || w.binlogs && c.verdict == role.Failed && c.last == "executed") {
			t.Errorf("%s: the verdict is told is %t", c.what, told)
		}
	}
}
