package primary

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/role"
)

// formerPrimary is a mysqld that was the primary, and is to replicate.
type formerPrimary struct {
	did      []string
	failing  string
	executed *gtid.Set
	pending  bool
}

func (w *formerPrimary) step(name string) error {
	w.did = append(w.did, name)
	if name == w.failing {
		return errors.New(name + " fails")
	}
	return nil
}

func (w *formerPrimary) BeginReplica(context.Context) error       { return w.step("begin") }
func (w *formerPrimary) RestartAckReceiver(context.Context) error { return w.step("restart") }
func (w *formerPrimary) InCommit(context.Context) (bool, error) {
	return w.pending, w.step("in commit")
}
func (w *formerPrimary) NextBinlog(context.Context) error { return w.step("binlog") }
func (w *formerPrimary) Configure(context.Context) error  { return w.step("configure") }
func (w *formerPrimary) Start(context.Context) error      { return w.step("start") }

func (w *formerPrimary) GTIDExecuted(context.Context) (*gtid.Set, error) {
	return w.executed.Clone(), w.step("executed")
}

func (w *formerPrimary) ShutOut(context.Context) (func(context.Context) error, error) {
	return func(context.Context) error { return w.step("let in") }, w.step("shut out")
}

// TestReplicate: a former primary replicates after these steps in this order. If a step fails, or if somebody has
// committed beside the log, mysqld has to be killed before it begins a new binlog: that would make the commit
// permanent.
func TestReplicate(t *testing.T) {
	tidy := []string{"shut out", "begin", "restart", "in commit", "executed", "binlog", "let in"}
	all := append(slices.Clone(tidy), "configure", "start")
	try := func(w *formerPrimary, was bool) (tidied bool, err error) {
		err = Replicate{Server: w, Committed: func() *gtid.Set { return gtids(t, "1-5") }, WasPrimary: was, Tidied: func() { tidied = true }}.Run(t.Context())
		return tidied, err
	}
	for i := range all {
		w := &formerPrimary{executed: gtids(t, "1-5"), failing: all[i]}
		tidied, err := try(w, true)
		unfit := Done(1, 0, err).Verdict == role.Unfit
		if err == nil || !slices.Equal(w.did, all[:i+1]) || unfit != (i < len(tidy)) || tidied == unfit {
			t.Errorf("%s fails: %v after %q, tidied %t", all[i], err, w.did, tidied)
		}
	}
	for _, c := range []struct {
		what     string
		was      bool
		pending  bool
		executed string
		want     string
		did      []string
	}{
		{"in order", true, false, "1-5", "", all},
		{"it lacks something", true, false, "1-4", "", all},
		{"it was a replica", false, false, "1-5", "", all[len(tidy):]},
		{"something slipped", true, false, "1-6", judgedUUID + ":6", all[:5]},
		{"something slips", true, true, "1-5", "under way", all[:5]},
	} {
		w := &formerPrimary{executed: gtids(t, c.executed), pending: c.pending}
		tidied, err := try(w, c.was)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || !slices.Equal(w.did, c.did) {
			t.Errorf("%s: %v after %q", c.what, err, w.did)
		}
		if tidied != (c.was && err == nil) {
			t.Errorf("%s: tidied is %t", c.what, tidied)
		}
	}
}
