package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

// fakeNode is node 9, which joins the members a (1), b (2) and c (3).
type fakeNode struct {
	logcopy.Peers // c leads, and has 7 entries
	plans         map[cluster.NodeID]Offer
	refused       map[cluster.NodeID]*transport.RejectedError
	fails         int // so many copies fail

	did      []string
	rejected *transport.RejectedError
	leave    context.CancelCauseFunc
	last     uint64 // in its log
}

func (n *fakeNode) AsSelf() membership.Self { return membership.Self{ID: 9, Instance: "new"} }
func (n *fakeNode) Members() []cluster.Member {
	return []cluster.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c"}, {ID: 9, Name: "new"}}
}

func (n *fakeNode) AskPlan(_ context.Context, of cluster.NodeID) (Offer, error) {
	if r := n.refused[of]; r != nil {
		return Offer{}, r
	}
	p, ok := n.plans[of]
	if !ok {
		return p, errors.New("no answer")
	}
	p.State.State.Members = n.Members()
	return p, nil
}
func (n *fakeNode) Follow(Offer) error { return nil }
func (n *fakeNode) Rejected(_ string, r *transport.RejectedError) {
	n.rejected = r
	n.leave(r)
}
func (n *fakeNode) Show(status.Seed, string) {}
func (n *fakeNode) Begin(cluster.NodeID) error {
	n.did = append(n.did, "begin")
	return nil
}
func (n *fakeNode) CopyData(_ context.Context, p Offer, _ cluster.NodeID) error {
	n.did = append(n.did, "data of "+p.Node)
	if n.fails--; n.fails >= 0 {
		return errors.New("cut off")
	}
	return nil
}
func (n *fakeNode) CopyFailed(error) {}
func (n *fakeNode) MakeLog(ctx context.Context, _ *seglog.Begin, fill func(context.Context, logcopy.Log, logcopy.Peers) error) error {
	return fill(ctx, n, n)
}
func (n *fakeNode) Finish(context.Context, Offer) error {
	n.did = append(n.did, "finish")
	return nil
}
func (n *fakeNode) AskTail(_ context.Context, peer cluster.NodeID) (bulk.Tail, error) {
	return bulk.Tail{Leading: peer == 3, Term: 4, Last: 7}, nil
}
func (n *fakeNode) FetchEntries(_ context.Context, from cluster.NodeID, index uint64, f func(seglog.Entry) error) error {
	for ; ; index++ {
		if err := f(seglog.Entry{Index: index, Term: 4}); err != nil {
			return err
		}
	}
}
func (n *fakeNode) LastIndex() uint64 { return n.last }
func (n *fakeNode) Term(index uint64) (uint64, error) {
	if index > n.last {
		return 0, errors.New("not there")
	}
	return 4, nil
}
func (n *fakeNode) Append(entries []seglog.Entry, hs *seglog.HardState) error {
	for _, e := range entries {
		n.last = e.Index
	}
	if hs != nil {
		n.did = append(n.did, fmt.Sprintf("log up to %d", hs.Commit))
	}
	return nil
}

func (n *fakeNode) join(t *testing.T) (err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ctx, n.leave = context.WithCancelCause(ctx)
		err = New(Config{
			Node: n, Self: cluster.Member{ID: 9, Name: "new", Kind: cluster.KindFull}, Clock: clock.Machine{}, Logger: slog.New(slog.DiscardHandler),
		}).Run(ctx)
	})
	return err
}

// TestJoin: a node copies the data if no log goes back to the beginning, from the replica that lags least, and begins
// again if the copy was cut off.
func TestJoin(t *testing.T) {
	begin := replay.LogBegin{First: 5, GTIDs: new(gtid.Set).AppendBinary(nil)}
	n := &fakeNode{fails: 1, plans: map[cluster.NodeID]Offer{
		1: {Node: "a", Begin: begin, Data: &Data{Role: status.RolePrimary}},
		2: {Node: "b", Begin: begin, Data: &Data{Role: status.RoleReplica}},
		3: {Node: "c", Begin: begin},
	}}
	err := n.join(t)
	if want := []string{"begin", "data of b", "begin", "data of b", "log up to 7", "finish"}; err != nil || !slices.Equal(n.did, want) {
		t.Errorf("it does %q (%v), want %q", n.did, err, want)
	}
}

// TestJoinTwoDirectories: a member that knows this node with another data directory gives it nothing.
func TestJoinTwoDirectories(t *testing.T) {
	n := &fakeNode{plans: map[cluster.NodeID]Offer{1: {Node: "a", Begin: replay.LogBegin{First: 1}}}}
	j := New(Config{Node: n, Self: cluster.Member{ID: 9}, Clock: clock.Machine{}, Logger: slog.New(slog.DiscardHandler)})
	if err := j.Ask(t.Context()); err != nil {
		t.Error(err)
	}
	other := &otherInstance{n}
	j.cfg.Node = other
	if err := j.Ask(t.Context()); err == nil || !strings.Contains(err.Error(), "another data directory") {
		t.Errorf("it asks with another directory: %v", err)
	}
}

// otherInstance is a node whose members give it another instance than it has.
type otherInstance struct{ *fakeNode }

func (o *otherInstance) AskPlan(ctx context.Context, of cluster.NodeID) (Offer, error) {
	p, err := o.fakeNode.AskPlan(ctx, of)
	for i := range p.State.State.Members {
		p.State.State.Members[i].Instance = "former"
	}
	return p, err
}

// TestJoinWithNewerState: a node whose quorate does not know all of the cluster state does not join, and is not told to be
// added.
func TestJoinWithNewerState(t *testing.T) {
	n := &fakeNode{plans: map[cluster.NodeID]Offer{1: {Node: "a", Begin: replay.LogBegin{First: 1}}}}
	j := New(Config{Node: tooOld{n}, Self: cluster.Member{ID: 9}, Clock: clock.Machine{}, Logger: slog.New(slog.DiscardHandler)})
	if err := j.Ask(t.Context()); err == nil || strings.Contains(err.Error(), "node add") || !strings.Contains(err.Error(), "upgrade quorate on this node") {
		t.Errorf("it asks: %v", err)
	}
}

// tooOld is a node of an older quorate.
type tooOld struct{ *fakeNode }

func (tooOld) AskPlan(context.Context, cluster.NodeID) (p Offer, err error) {
	return p, json.Unmarshal([]byte(`{"state": {"state": {"version": 3, "format": 10}}}`), &p)
}

// TestJoinRejected: the newest rejection counts, and ends the node.
func TestJoinRejected(t *testing.T) {
	older := &transport.RejectedError{Code: transport.CodePeer, Text: "older", Order: transport.Order{StateVersion: 3}}
	newer := &transport.RejectedError{Code: transport.CodeRebuild, Text: "newer", Order: transport.Order{StateVersion: 4}}
	n := &fakeNode{refused: map[cluster.NodeID]*transport.RejectedError{1: older, 2: newer, 3: older}}
	if err := n.join(t); !errors.Is(err, newer) || n.rejected != newer {
		t.Errorf("it ends with %v, by %v", err, n.rejected)
	}
}

// TestPlanBarrier: a member that does not know what is committed gives nothing.
func TestPlanBarrier(t *testing.T) {
	m := Member{Clock: clock.Machine{}, Barrier: func(context.Context) error { return errors.New("no majority") }}
	if p, err := m.Plan(t.Context(), "new"); err == nil || !strings.Contains(err.Error(), "no majority") {
		t.Errorf("it gives %+v, %v", p, err)
	}
}

// TestStoppedApplierGivesNoData: a node that is rebuilt from a replica that does not apply would stop where that one did.
func TestStoppedApplierGivesNoData(t *testing.T) {
	for name, c := range map[string]struct {
		own   status.Node
		mark  uint64
		first uint64
		want  bool
	}{
		"replica":         {status.Node{Role: status.RoleReplica, LogState: status.LogOK}, 9, 10, true},
		"primary":         {status.Node{Role: status.RolePrimary, LogState: status.LogOK}, 9, 10, true},
		"stopped applier": {status.Node{Role: status.RoleReplica, LogState: status.LogOK, ApplierStopped: "error 1062"}, 9, 10, false},
		"mark too old":    {status.Node{Role: status.RoleReplica, LogState: status.LogOK}, 8, 10, false},
		"whole log":       {status.Node{Role: status.RoleReplica, LogState: status.LogOK}, 0, 1, true},
		"healing":         {status.Node{Role: status.RoleReplica, LogState: status.LogRepairing}, 9, 10, false},
		"not judged":      {status.Node{Role: status.RoleUnverified, LogState: status.LogOK}, 9, 10, false},
	} {
		if got := givesData(c.own, replay.Mark{Index: c.mark}, replay.LogBegin{First: c.first}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestNodeOfBeforeIsNotToBeAdded: a former member with an empty directory is told to be rebuilt, which works.
func TestNodeOfBeforeIsNotToBeAdded(t *testing.T) {
	self := cluster.Member{Name: "a", Peer: "h:1", Kind: cluster.KindFull}
	unknown := &transport.RejectedError{By: "b", Code: transport.CodeUnknown, Text: "no member"}
	order := &transport.RejectedError{By: "c", Code: transport.CodeRecovered, Text: `"quorate node rebuild a" takes it in again`}
	got := notTakenIn(self, nil, unknown, []*transport.RejectedError{unknown, order}).Error()
	if !strings.HasPrefix(got, "node c refuses this node: ") || !strings.Contains(got, `"quorate node rebuild a"`) || strings.Contains(got, "node add") {
		t.Error(got)
	}
	got = notTakenIn(self, nil, unknown, []*transport.RejectedError{unknown}).Error()
	if !strings.Contains(got, "quorate node add a --peer h:1 --kind full") || !strings.Contains(got, "no member") {
		t.Error(got)
	}
}

// TestTakeIn: the command that a person is told to run has the key that the node shows, and adds no member a second
// time.
func TestTakeIn(t *testing.T) {
	self := cluster.Member{ID: 9, Name: "d", Peer: "h:1", Kind: cluster.KindFull}
	keyed := self
	keyed.Key = "q1:d"
	unknown := &transport.RejectedError{By: "b", Code: transport.CodeUnknown}
	keyUnknown := &transport.RejectedError{By: "b", Code: transport.CodeKey}
	refused := &transport.RejectedError{By: "d", Code: transport.CodeKey} // by this node
	const add, set = "add it on a member: quorate node add d --peer h:1 --kind full", "quorate node set d --key q1:d"
	for _, c := range []struct {
		self      cluster.Member
		known     cluster.Key
		rejection *transport.RejectedError
		want      string
	}{
		{self, "", unknown, add},
		{keyed, "", unknown, add + " --key q1:d"},
		{keyed, "", refused, add + " --key q1:d"},
		{keyed, "q1:d", unknown, add + " --key q1:d"},
		{keyed, "", keyUnknown, add + " --key q1:d; if it was added with another key: " + set},
		{keyed, "q1:other", keyUnknown, "it is a member with another key; correct that on a member: " + set},
	} {
		members := []cluster.Member{{ID: 1, Name: "a", Key: "q1:a"}, {ID: 9, Name: "d", Key: c.known}}
		if got := takeIn(c.self, members, []*transport.RejectedError{c.rejection}); got != c.want {
			t.Errorf("%+v: %q, want %q", c, got, c.want)
		}
	}
}
