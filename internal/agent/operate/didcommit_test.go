package operate

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
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
		"of no epoch":               {epochState{Term: 5, Newest: 5}, other, true, false, cluster.OutcomeUnknown, "is not known to have been a primary of this cluster"},
		"of no epoch, newest over":  {epochState{Term: 6, Newest: 5}, other, true, false, cluster.OutcomeUnknown, "is not known to have been a primary of this cluster"},
		"of no epoch, none known":   {epochState{Term: 5, Newest: 5}, other, false, false, cluster.OutcomeUnknown, "is not known to have been a primary of this cluster"},
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

// logged is a node whose log has one epoch, and which is in a later term. The log begins at an entry.
type logged struct {
	leading
	first   uint64
	entries []seglog.Entry // from 1 on; all are committed
}

func (n logged) Raft() Raft                  { return n }
func (logged) Barrier(context.Context) error { return nil }
func (logged) Role() consensus.RoleState {
	return consensus.RoleState{Term: 7, Leader: 1, Leading: true}
}
func (n logged) Log() Log                                     { return n }
func (logged) Close()                                         {}
func (n logged) FirstIndex() uint64                           { return n.first }
func (logged) ReadStage(entry.StageID) (io.ReadCloser, error) { return nil, seglog.ErrNoStage }
func (n logged) ReadCommitted(index, _ uint64) ([]seglog.Entry, bool, error) {
	return n.entries[index-1:], index <= uint64(len(n.entries)), nil
}

// Segments: one begins with each entry.
func (n logged) Segments() (all []seglog.SegmentInfo) {
	before := &gtid.Set{}
	for i, e := range n.entries {
		all = append(all, seglog.SegmentInfo{FirstIndex: e.Index, GTIDsBefore: before.Clone()})
		if i > 0 {
			before.Add(binlogtest.GTID(uint64(i)))
		}
	}
	return slices.DeleteFunc(all, func(s seglog.SegmentInfo) bool { return s.FirstIndex < n.first })
}

// TestFollowedIsNotAnswered: a followed transaction keeps its source's GTID, and one of the agent's connections wrote
// it, for many clients. So nothing is known of the session that has it as its token, and more may come from the
// source: the answers are "not known". A transaction of this cluster's own server is answered, also behind the begin
// of a long epoch, which was purged.
func TestFollowedIsNotAnswered(t *testing.T) {
	server := binlogtest.GTID(1).UUID // of all transactions
	source := &cluster.Follow{Source: "db:3306"}
	for name, c := range map[string]struct {
		primary gtid.UUID // of the epoch
		purged  bool
		member  gtid.UUID // the mysqld of node a
		state   cluster.State
		session bool // it is answered what a session did
		bare    bool // and what became of a GTID
	}{
		"written here":                         {primary: server, session: true, bare: true},
		"written here, purged":                 {primary: server, purged: true, member: server, session: true},
		"written here, after a migration":      {primary: server, state: cluster.State{CutOver: &cluster.CutOver{}}, session: true, bare: true},
		"followed":                             {primary: gtid.UUID{2}},
		"written again, from another primary":  {primary: gtid.UUID{2}, member: server, bare: true},
		"followed, purged":                     {primary: gtid.UUID{2}, purged: true, member: gtid.UUID{2}},
		"restored":                             {primary: server, state: cluster.State{Version: cluster.NextGeneration(0)}, session: true, bare: true},
		"restored, and follows the other":      {primary: server, state: cluster.State{Version: cluster.NextGeneration(0), Follow: source}},
		"restored, and took the other's place": {primary: server, state: cluster.State{Version: cluster.NextGeneration(0), SiteBallot: cluster.Ballot{Number: 1}}},
		"restored, written here":               {primary: server, member: server, state: cluster.State{Version: cluster.NextGeneration(0), Follow: source}, session: true, bare: true},
	} { // behind the purge, right after a start, the newest epoch is not known
		t.Run(name, func(t *testing.T) {
			s := serveLeading(t)
			n := logged{leading: s.Node.(leading), first: 1}
			w := binlogtest.New("q.000001")
			n.entries = append(n.entries, seglog.Entry{Index: 1, Term: 5, Data: entry.EncodeEpoch(entry.Epoch{Term: 5, Primary: "a", ServerUUID: c.primary})})
			for i := range uint64(3) {
				data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: 1, Term: 5, Number: i + 1})
				n.entries = append(n.entries, seglog.Entry{Index: i + 2, Term: 5, Data: append(data, binlogtest.Join(w.Rows(10)...)...)})
			}
			if c.purged {
				n.first = 2
			}
			s.Node = n
			c.state.Members = n.board.State().Members
			c.state.Version++
			n.board.SetState(c.state)
			n.board.Update(func(own *status.Node) { own.ServerUUID = fmt.Sprint(c.member) })
			for token, want := range map[uint64]cluster.Outcome{2: cluster.OutcomeCommitted, 3: cluster.OutcomeNotCommitted} {
				if !c.session {
					want = cluster.OutcomeUnknown
				}
				if got, err := s.didSessionCommit(t.Context(), binlogtest.GTID(token)); err != nil || got.Outcome != want {
					t.Errorf("after %d: %+v, %v, want %s", token, got, err, want)
				}
			}
			want := cluster.OutcomeUnknown
			if c.bare {
				want = cluster.OutcomeNotCommitted
			}
			for _, id := range []gtid.GTID{binlogtest.GTID(99), {UUID: server, Tag: "x", N: 1}} {
				if got, err := s.didCommit(t.Context(), id); err != nil || got.Outcome != want {
					t.Errorf("%v: %+v, %v, want %s", id, got, err, want)
				}
			}
		})
	}
}
