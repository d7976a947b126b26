package sim

import (
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/transport"
)

// TestOldFileOfANodeThatEnds: an empty node whose configuration does not name those that could tell it that it was removed
// ends at each start. An operator names them nevertheless.
func TestOldFileOfANodeThatEnds(t *testing.T) {
	t.Parallel()
	runAll(t, []Options{{Nodes: 3, Seed: 700441, Members: 1, Loggers: -1}})
}

// TestHeldByVoters: the checker counts the nodes that have a vote. Until a change of the voters is complete it
// also counts the old voters, afterwards only the new ones.
func TestHeldByVoters(t *testing.T) {
	w := newWorld(Options{Nodes: 3, Members: 1, Seed: 3})
	c := w.check
	state := func(version uint64, kinds ...cluster.Kind) (s cluster.State) {
		s.Version = version
		for i, k := range kinds {
			s.Members = append(s.Members, cluster.Member{ID: cluster.NodeID(i + 1), Name: w.nodes[i].member.Name, Kind: k})
		}
		return s
	}
	disks := func(nodes ...int) {
		for i, n := range w.nodes {
			n.durable = durableLog{}
			if slices.Contains(nodes, i) {
				n.durable.appended(consensus.AppendRun{Entries: []seglog.Entry{{Index: 1, Term: 1}, {Index: 2, Term: 1}, {Index: 3, Term: 2}, {Index: 4, Term: 2}}})
			}
		}
	}
	wantHeld := func(name, want string, index, term uint64, nodes ...int) {
		t.Helper()
		disks(nodes...)
		wantFailure(t, name, want, func() { c.majority("OK", index, term) })
	}
	full, learner := cluster.KindFull, cluster.KindLearner
	c.policies = []policy{{0, state(0, full, full, full, learner)}}
	wantHeld("a learner does not count", "I1", 1, 1, 0, 3)
	wantHeld("two voters", "", 1, 1, 0, 1)
	change := cluster.StateChange{State: state(1, full, learner, full, full)}
	change.Change.Membership = &cluster.MembershipChange{}
	c.swap(2, change)
	wantHeld("not complete: its vote does not count alone", "I1", 1, 1, 0, 3)
	wantHeld("not complete: two of before", "", 1, 1, 0, 1)
	end, err := proto.Marshal(&pb.ConfChangeV2{})
	if err != nil {
		t.Fatal(err)
	}
	c.configuration(seglog.Entry{Index: 3, Term: 2, Type: uint8(pb.EntryConfChangeV2), Data: end})
	wantHeld("complete: up to its end those of before", "", 3, 2, 0, 1)
	wantHeld("complete: and those of now", "", 3, 2, 0, 3)
	wantHeld("complete: the old majority does not count", "I1", 4, 2, 0, 1)
	wantHeld("complete: the new majority", "", 4, 2, 0, 3)
	wantHeld("one of either", "I1", 3, 2, 0)
}

// pairSeeds is how many seeds are run of the world in which one of two votes comes and goes.
const pairSeeds = 80

// TestLastVoterTakesUpTheState: the last voter of two loses by a power loss that it is the last one. It must
// learn that from the other node, and the cluster must go on.
func TestLastVoterTakesUpTheState(t *testing.T) {
	t.Parallel()
	n := pairSeeds
	if testing.Short() {
		n = shortSeeds // too few for a state that is taken up
	}
	all := sum(runSeeds(t, n, Options{Nodes: 3, Members: MembersPair}))
	t.Logf("%d states taken up, %d joint changes", all.TakenUp, all.Joints)
	if !testing.Short() && all.TakenUp == 0 || all.Joints < 2*n {
		t.Errorf("%d states taken up, %d joint changes in %d runs: too few to mean anything", all.TakenUp, all.Joints, n)
	}
}

// TestWelcome: the product's code decides what a connecting node is told to do.
func TestWelcome(t *testing.T) {
	w := newWorld(Options{Nodes: 3, Members: 1, Seed: 3})
	p1, err := w.nodes[0].newHost(cluster.State{})
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{host: p1, conns: map[cluster.NodeID]*agent{}}
	a.Init(a.memberConfig())
	second, third, fourth := w.nodes[1], w.nodes[2], w.nodes[3]
	first := second.instance()
	members := []cluster.Member{{ID: 1, Name: "n1", Kind: cluster.KindFull}, {ID: 2, Name: "n2", Kind: cluster.KindFull}}
	a.Follower.Follow(cluster.StatePoint{State: cluster.State{Members: members, Removed: []cluster.NodeID{3}}}, true)
	judge := func(name string, n *node, instance string, want transport.Code) {
		t.Helper()
		n.home = datadir.NewHome(n.home.Dir, datadir.Identity{Instance: instance}, false)
		r := admits(a.host, n, false)
		if r == nil {
			r = &transport.RejectedError{}
		}
		if r.Code != want {
			t.Errorf("%s: %+v, want code %d", name, r, want)
		}
	}
	next := second.newInstance()
	judge("the first", second, first, 0)
	judge("another directory", second, next, transport.CodePeer)
	judge("removed", third, third.instance(), transport.CodeRemoved)
	judge("never added", fourth, fourth.instance(), transport.CodeUnknown)
	members[1] = cluster.Member{ID: 2, Name: "n2", Kind: cluster.KindLearner, Instance: next}
	p := cluster.StatePoint{State: cluster.State{Version: 1, Members: members}, Outgoing: []cluster.NodeID{1, 2}}
	a.Follower.Follow(p, true)
	judge("while the change is not complete", second, first, 0)
	p.Outgoing = nil
	a.Follower.Follow(p, false)
	judge("rebuilt, by a state that is not on disk", second, first, transport.CodePeer)
	a.Follower.Follow(p, true)
	judge("rebuilt, as it was", second, first, transport.CodeRebuild)
	judge("rebuilt", second, next, 0)
	judge("and again as it was", second, first, transport.CodePeer)
	a.Follower.Follow(cluster.StatePoint{}, true)
	judge("an older state changes nothing", second, next, 0)
}

// TestReseed: in these runs leaders must have rebuilt nodes that had lost their disk.
func TestReseed(t *testing.T) {
	if testing.Short() {
		t.Skip("few seeds have one")
	}
	t.Parallel()
	if all := sum(runSeeds(t, reseedSeeds, Options{Members: 1})); all.Reseeds < reseedSeeds/20 {
		t.Errorf("%d nodes rebuilt by leaders in %d runs: too few to mean anything", all.Reseeds, reseedSeeds)
	}
}

// reseedSeeds is how many seeds are run with lost disks.
const reseedSeeds = 40
