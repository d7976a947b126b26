package membership

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/transport"
)

// TestWeightiestRejection: a node that knows nothing goes by the newest state that others name, and takes no instance
// that has been used.
func TestWeightiestRejection(t *testing.T) {
	r := func(c transport.Code, version uint64) *transport.RejectedError {
		return &transport.RejectedError{Code: c, Order: transport.Order{StateVersion: version}}
	}
	const peer, rebuild, reseed, removed = transport.CodePeer, transport.CodeRebuild, transport.CodeReseed, transport.CodeRemoved
	recovered := func(version uint64) *transport.RejectedError {
		return &transport.RejectedError{Code: transport.CodeRecovered, Order: transport.Order{Recovery: &cluster.Recovery{Version: version}}}
	}
	for _, c := range []struct {
		name string
		all  []*transport.RejectedError // the first is to win
	}{
		{"one", []*transport.RejectedError{r(rebuild, 4)}},
		{"it had its vote back since", []*transport.RejectedError{r(reseed, 6), r(rebuild, 4)}},
		{"the order is news", []*transport.RejectedError{r(rebuild, 7), r(reseed, 6), r(peer, 5)}},
		{"it was here already", []*transport.RejectedError{r(reseed, 7), r(rebuild, 7)}},
		{"it is here", []*transport.RejectedError{r(peer, 7), r(reseed, 7), r(rebuild, 7)}},
		{"a learner does not say", []*transport.RejectedError{r(rebuild, 7), r(peer, 0)}},
		{"an older agent waits", []*transport.RejectedError{r(rebuild, 7), r(reseed, 0)}},
		{"recovered without it", []*transport.RejectedError{recovered(1_000_000), r(reseed, 8)}},
		{"and taken in again", []*transport.RejectedError{r(rebuild, 1_000_001), recovered(1_000_000), r(reseed, 8)}},
		{"whoever knows its key knows more", []*transport.RejectedError{r(reseed, 0), r(transport.CodeKey, 0)}},
		{"which is to be rebuilt", []*transport.RejectedError{r(rebuild, 7), r(transport.CodeKey, 0)}},
		{"or was recovered without", []*transport.RejectedError{recovered(1_000_000), r(transport.CodeKey, 0)}},
		{"removed", []*transport.RejectedError{r(removed, 0), r(rebuild, 7), r(peer, 8)}},
		{"removed, which a learner does not say", []*transport.RejectedError{r(removed, 0), r(transport.CodeUnknown, 0), r(peer, 8)}},
	} {
		slices.Reverse(c.all)
		want := c.all[len(c.all)-1]
		for range c.all {
			if got := Weightiest(c.all); got != want {
				t.Errorf("%s: %v with %+v", c.name, got.Code, got.Order)
			}
			c.all = append(c.all[1:], c.all[0])
		}
	}
	if got := Weightiest(nil); got != nil {
		t.Errorf("nobody refuses it, and it goes by %v", got)
	}
}

// TestReact: what a node does about a rejection. It obeys only its own cluster, and only by the state that it knows
// or a newer one.
func TestReact(t *testing.T) {
	const next, other = "02000000000000000000000000000000", "03000000000000000000000000000000"
	known := func(own string) cluster.State {
		return cluster.State{Version: 7, Members: []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull, Instance: own}, {ID: 2, Name: "b", Kind: cluster.KindLearner, Instance: "x"}}}
	}
	recovery := &cluster.Recovery{Version: 1_000_000, Node: "c"}
	self := Self{ID: 1, Name: "a", State: known("")}
	same, fenced, blank, out, later := self, self, self, self, self
	same.State, fenced.Fenced, blank.Blank, out.Superseded = known(next), true, true, recovery
	later.State = known("")
	later.State.Version = 1_000_001
	rebuild := func(version uint64, r *cluster.Recovery) *transport.RejectedError {
		return &transport.RejectedError{Code: transport.CodeRebuild, Text: "to be rebuilt", Order: transport.Order{Recovery: r, StateVersion: version, Instance: next}}
	}
	refusal := func(c transport.Code, by string, r *cluster.Recovery) *transport.RejectedError {
		return &transport.RejectedError{Code: c, Text: "no", By: by, Order: transport.Order{Recovery: r}}
	}
	leaves := func(instance string) Reaction { return Reaction{Departure: &Departure{Instance: instance}} }
	const peer, unknown, removed, recovered = transport.CodePeer, transport.CodeUnknown, transport.CodeRemoved, transport.CodeRecovered
	for _, c := range []struct {
		name string
		self Self
		by   string
		got  *transport.RejectedError
		want Reaction
	}{
		{"a newer state", self, "b", rebuild(8, nil), leaves(next)},
		{"the same one, which it knows", same, "b", rebuild(7, nil), leaves(next)},
		{"the same one, by which it is another", Self{ID: 1, State: known(other)}, "b", rebuild(7, nil), Reaction{Trouble: "to be rebuilt", Refusal: true}},
		{"the same one, which does not say", self, "b", rebuild(7, nil), Reaction{Trouble: "to be rebuilt", Refusal: true}},
		{"an older one", self, "b", rebuild(6, nil), Reaction{Trouble: "to be rebuilt", Refusal: true}},
		{"without an instance", self, "b", refusal(transport.CodeRebuild, "b", nil), Reaction{Trouble: "no", Refusal: true}},
		{"fenced", fenced, "b", rebuild(8, nil), Reaction{Trouble: `it is to be rebuilt, and keeps its data until "quorate unfence a"`}},
		{"by a recovered cluster", self, "b", rebuild(1_000_001, recovery), Reaction{Recovery: recovery}},
		{"which it obeys", out, "b", rebuild(1_000_001, recovery), leaves(next)},
		{"by a cluster that was recovered apart", later, "b", rebuild(1_000_002, recovery), Reaction{Trouble: "to be rebuilt" + notByOthers + toJoinOthers}},
		{"a later generation, of an older agent", self, "b", rebuild(1_000_001, nil), Reaction{Trouble: "to be rebuilt" + notByOthers + toJoinOthers}},
		{"blank", blank, "b", rebuild(1_000_001, recovery), leaves(next)},
		{"removed", self, "b", refusal(removed, "b", nil), leaves("")},
		{"removed by a recovered cluster", self, "b", refusal(removed, "b", recovery), Reaction{Recovery: recovery}},
		{"removed by one that was recovered apart", later, "b", refusal(removed, "b", recovery), Reaction{Trouble: "no" + notByOthers}},
		{"recovered without it", self, "b", refusal(recovered, "b", recovery), Reaction{Recovery: recovery}},
		{"by a former member that is being rebuilt", later, "b", refusal(recovered, "b", recovery), Reaction{}},
		{"refused", self, "b", refusal(peer, "b", nil), Reaction{Trouble: "node b refuses this node: no", Refusal: true}},
		{"refused by this node", self, "b", refusal(peer, "a", nil), Reaction{}},
		{"its key is not known", self, "b", refusal(transport.CodeKey, "b", nil), Reaction{Trouble: "node b refuses this node: no", Refusal: true}},
		{"it does not know that key", self, "b", refusal(transport.CodeKey, "a", nil), Reaction{Trouble: "no", Refusal: true}},
		{"unknown", self, "b", refusal(unknown, "b", nil), Reaction{Trouble: "node b refuses this node: no", Refusal: true}},
		{"another version", self, "b", refusal(transport.CodeVersion, "b", nil), Reaction{Trouble: "no", Refusal: true}},
	} {
		if diff := cmp.Diff(c.want, React(c.self, c.by, c.got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if r := React(later, "z", refusal(recovered, "z", recovery)); !strings.Contains(r.Trouble, `serves nothing until it is rebuilt: "quorate node rebuild z"`) {
		t.Errorf("by a former member: %+v", r)
	}
}

// TestRefusalBy: how a status shows the rejection by a peer. To rebuild the peer is named as the remedy only if the cluster,
// which runs, has given this node its data directory, and the peer does not copy its data.
func TestRefusalBy(t *testing.T) {
	const own, older = "02000000000000000000000000000000", "01000000000000000000000000000000"
	self := func(given string, kind, becomes cluster.Kind) Self {
		return Self{ID: 1, Name: "a", Instance: own, State: cluster.State{Members: []cluster.Member{
			{ID: 1, Name: "a", Kind: cluster.KindFull, Instance: given}, {ID: 2, Name: "b", Kind: kind, Becomes: becomes},
		}}}
	}
	rebuilt := self(own, cluster.KindFull, "")
	no := func(c transport.Code, by, instance string) *transport.RejectedError {
		return &transport.RejectedError{Code: c, Text: "no", By: by, Key: "k", Order: transport.Order{Instance: instance}}
	}
	const peer = transport.CodePeer
	data := status.Refusal{By: "b", Of: "a", Why: "no", Key: "k", Data: true}
	as := func(why string) status.Refusal {
		return status.Refusal{By: "b", Of: "a", Why: "no. The cluster has rebuilt node a since: " + why, Key: "k"}
	}
	again := as(`"quorate node rebuild b" takes node b in again`)
	for _, c := range []struct {
		name string
		self Self
		led  bool
		got  *transport.RejectedError
		want status.Refusal
	}{
		{"never rebuilt", self("", cluster.KindFull, ""), true, no(peer, "b", older), data},
		{"to be rebuilt", self("03", cluster.KindFull, ""), true, no(peer, "b", older), data},
		{"without a leader", rebuilt, false, no(peer, "b", older), data},
		{"rebuilt", rebuilt, true, no(peer, "b", older), again},
		{"by a learner", self(own, cluster.KindLearner, ""), true, no(peer, "b", older), again},
		{"by a node that joins", self(own, cluster.KindLearner, cluster.KindFull), true, no(peer, "b", older),
			as(`node b copies its data, and learns of that with them: wait until "quorate status" shows it as full`)},
		{"by a node that knows this directory", rebuilt, true, no(peer, "b", own), data},
		{"by a node whose disk is full", rebuilt, true, no(peer, "b", ""), data},
		{"by this node", rebuilt, true, no(peer, "a", older), status.Refusal{By: "a", Of: "b", Why: "no", Key: "k", Data: true}},
		{"by its key", rebuilt, true, no(transport.CodeKey, "b", ""), status.Refusal{By: "b", Of: "a", Why: "no", Key: "k"}},
		{"another node answers", rebuilt, true, no(transport.CodeTarget, "b", ""), status.Refusal{Why: "no"}},
		{"another cluster answers", rebuilt, true, no(transport.CodeCluster, "a", ""), status.Refusal{Why: "no"}},
	} {
		if diff := cmp.Diff(c.want, RefusalBy(c.self, "b", c.led, c.got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestFollow: a node leaves by the cluster state on its own disk, once a majority of the
// voters keeps that, too.
func TestFollow(t *testing.T) {
	p := cluster.StatePoint{Index: 9, State: cluster.State{Members: []cluster.Member{
		{ID: 1, Kind: cluster.KindLearner, Becomes: cluster.KindFull, Instance: "new"}, {ID: 2, Kind: cluster.KindFull}, {ID: 3, Kind: cluster.KindFull},
	}, Removed: []cluster.NodeID{4}}}
	all, one := map[cluster.NodeID]uint64{2: 9, 3: 9}, map[cluster.NodeID]uint64{2: 9, 3: 8}
	under := p
	under.Outgoing = []cluster.NodeID{1}
	for _, c := range []struct {
		name string
		p    cluster.StatePoint
		self Self
		kept map[cluster.NodeID]uint64
		want *Departure
	}{
		{"to be rebuilt", p, Self{ID: 1, Instance: "old"}, all, &Departure{Instance: "new"}},
		{"which it was", p, Self{ID: 1, Instance: "new"}, all, nil},
		{"which an operator holds back", p, Self{ID: 1, Instance: "old", Fenced: true}, all, nil},
		{"which one voter keeps", p, Self{ID: 1, Instance: "old"}, one, nil},
		{"while the change is under way", under, Self{ID: 1, Instance: "old"}, all, nil},
		{"a voter", p, Self{ID: 2, Instance: "old"}, all, nil},
		{"removed", p, Self{ID: 4, Fenced: true}, all, &Departure{}},
		{"never heard of", p, Self{ID: 5}, all, nil},
	} {
		if diff := cmp.Diff(c.want, Follow(c.p, c.self, c.kept)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestForPurge: nobody needs what a node has that is to begin again, except the node itself, and the others while the
// voters change.
func TestForPurge(t *testing.T) {
	nodes := []status.Node{{ID: 1, Leaving: true}, {ID: 2, Leaving: true}, {ID: 3}}
	for _, c := range []struct {
		outgoing []cluster.NodeID
		self     cluster.NodeID
		want     []bool
	}{
		{nil, 1, []bool{false, true, false}},
		{nil, 3, []bool{true, true, false}},
		{[]cluster.NodeID{9}, 3, []bool{false, false, false}},
	} {
		var got []bool
		for _, n := range ForPurge(cluster.StatePoint{Outgoing: c.outgoing}, c.self, nodes) {
			got = append(got, n.Leaving)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || !nodes[0].Leaving {
			t.Errorf("on node %d, outgoing %v (-want +got):\n%s", c.self, c.outgoing, diff)
		}
	}
}

// TestEmptyWeighsNothing: a node with an empty directory does not outweigh nodes that know something.
func TestEmptyWeighsNothing(t *testing.T) {
	empty := &transport.RejectedError{Code: transport.CodeEmpty}
	for _, c := range []transport.Code{transport.CodeRebuild, transport.CodeReseed, transport.CodeRemoved, transport.CodeUnknown} {
		if got := Weightiest([]*transport.RejectedError{empty, {Code: c}}); got.Code != c {
			t.Errorf("code %d and an empty node: %d counts", c, got.Code)
		}
	}
}
