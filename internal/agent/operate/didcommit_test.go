package operate

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestUnknownServerIsNotAnswered: a typo in a GTID must not read as "not committed,
// and never will be".
func TestUnknownServerIsNotAnswered(t *testing.T) {
	server, other := gtid.UUID{1}, gtid.UUID{2}
	for name, c := range map[string]struct {
		state       epochState
		id          gtid.UUID
		known, ours bool
		want        cluster.Outcome
		says        string
	}{
		"of no epoch":               {epochState{Term: 5, Newest: 5}, other, true, false, cluster.OutcomeUnknown, "no epoch in this log belongs to server"},
		"of no epoch, newest over":  {epochState{Term: 6, Newest: 5}, other, true, false, cluster.OutcomeUnknown, "no epoch in this log belongs to server"},
		"of no epoch, none known":   {epochState{Term: 5, Newest: 5}, other, false, false, cluster.OutcomeUnknown, "no epoch in this log belongs to server"},
		"of an epoch before":        {epochState{Term: 5, Newest: 5}, other, true, true, cluster.OutcomeNotCommitted, "is not the primary: the newest epoch, 5, belongs to server 01000000-0000-0000-0000-000000000000; should its server"},
		"of the newest":             {epochState{Term: 5, Newest: 5}, server, true, true, cluster.OutcomeUnknown, "may be on its way"},
		"of the newest, it is over": {epochState{Term: 6, Newest: 5}, server, true, true, cluster.OutcomeNotCommitted, "term 6; should its server be the primary again, it may give the GTID to another"},
		"the newest is not known":   {epochState{Term: 5, Newest: 5}, server, false, true, cluster.OutcomeUnknown, "does not know to which server"},
	} {
		got := notCommitted(c.state, gtid.GTID{UUID: c.id, N: 7}, server, c.known, c.ours)
		if got.Outcome != c.want || !strings.Contains(got.Reason, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestTokenOfNobodyIsNotAnswered: a session gets its token with an OK. So a token that is not in the log was never
// given here, and says nothing of any session.
func TestTokenOfNobodyIsNotAnswered(t *testing.T) {
	if got := notAToken(false); got.Outcome != cluster.OutcomeUnknown || !strings.Contains(got.Reason, "no transaction of this cluster has this token") {
		t.Errorf("%+v", got)
	}
	if got := notAToken(true); got.Outcome != cluster.OutcomeUnknown || !strings.Contains(got.Reason, "ask again") {
		t.Errorf("%+v", got)
	}
}

// TestEpochOver: an epoch can commit nothing more once a later epoch is committed, or a leader of a later term has
// answered; until then the outcome is unknown.
func TestEpochOver(t *testing.T) {
	for _, c := range []struct {
		state epochState
		epoch uint64
		over  bool
	}{
		{epochState{Term: 5, Newest: 5}, 5, false},
		{epochState{Term: 5, Newest: 5}, 4, true},
		{epochState{Term: 6, Newest: 5}, 5, true},
		{epochState{Term: 4, Newest: 5}, 5, false},
		{epochState{Term: 4, Newest: 5}, 4, true},
		{epochState{Term: 5, Newest: 0}, 5, false},
		{epochState{Term: 6, Newest: 0}, 5, true},
	} {
		if got := c.state.over(c.epoch); got != c.over {
			t.Errorf("%+v, epoch %d: over %t", c.state, c.epoch, got)
		}
	}
}
