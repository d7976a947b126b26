package consensus

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
)

// sourcedWorld is a group of three with a learner, node 4, whose source is node 2.
func sourcedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 4)
	w.node(1).g.campaign()
	w.settle()
	w.run(200 * time.Millisecond)
	w.change(1, testMembership("add", "n4"))
	w.change(1, cluster.Change{ID: "source", By: "ann@db1", Node: &cluster.NodeChange{Name: "n4", Source: new("n2")}})
	w.run(200 * time.Millisecond)
	if m, ok := memberIn(w.node(4).g.Committed().State().State, "n4"); !ok || m.Source != "n2" {
		t.Fatalf("node 4 knows of itself: %+v", m)
	}
	return w
}

func memberIn(s cluster.State, name string) (cluster.Member, bool) {
	m, err := s.Member(name)
	return m, err == nil
}

// relayed returns what a node would send to a learner that has everything up to an index.
func (w *world) relayed(from, index uint64) (Relayed, bool) {
	g := w.node(from).g
	p, ok := g.Committed().RelayPoint(g.Role())
	if !ok {
		return Relayed{}, false
	}
	found, ok, err := g.Committed().Read(w.node(from).log, index+1, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	return Relayed{RelayPoint: p, Entries: found}, ok
}

func (w *world) committed(id uint64) uint64 { return w.node(id).g.Committed().Mark().Index }

// TestLearnerIsFedByItsSource: the leader sends no entries to such a learner and knows how far it is. When the
// source ends, the leader goes on from there.
func TestLearnerIsFedByItsSource(t *testing.T) {
	w := sourcedWorld(t)
	leader := w.node(1).g
	leader.SetFed([]cluster.NodeID{4})
	before, had := w.appends[4], w.committed(4)
	w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: 1})
	for number := uint64(1); number <= 50; number++ {
		w.propose(1, entry.Header{Kind: entry.KindTransactions, Term: 1, Number: number})
	}
	w.run(2 * time.Second)
	if w.appends[4] != before || w.committed(4) != had {
		t.Errorf("the leader sent %d appends, node 4 has %d, had %d", w.appends[4]-before, w.committed(4), had)
	}
	r, ok := w.relayed(2, had)
	if !ok {
		t.Fatal("node 2 gives nothing")
	}
	if err := w.node(4).g.StepRelayed(r); err != nil {
		t.Fatal(err)
	}
	w.settle()
	match := leader.rn.Status().Progress[4].Match
	if w.committed(4) != w.committed(1) || match != w.committed(1) || w.appends[4] != before {
		t.Errorf("node 4 has %d of %d, the leader knows of %d, and sent %d appends", w.committed(4), w.committed(1), match, w.appends[4]-before)
	}
	w.propose(1, entry.Header{Kind: entry.KindTransactions, Term: 1, Number: 51})
	leader.SetFed(nil)
	w.run(500 * time.Millisecond)
	if w.committed(4) != w.committed(1) {
		t.Errorf("without its source node 4 has %d of %d", w.committed(4), w.committed(1))
	}
}

// TestRelayedIsRefused: a learner refuses relayed entries that are not committed, leave a gap, or come under
// another leader. A node that votes refuses all of them.
func TestRelayedIsRefused(t *testing.T) {
	w := sourcedWorld(t)
	w.node(1).g.SetFed([]cluster.NodeID{4})
	had := w.committed(4)
	w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: 1})
	for number := uint64(1); number <= 3; number++ {
		w.propose(1, entry.Header{Kind: entry.KindTransactions, Term: 1, Number: number})
	}
	w.run(200 * time.Millisecond)
	for name, c := range map[string]struct {
		to     uint64
		change func(*Relayed)
	}{
		"not committed":    {4, func(r *Relayed) { r.Commit = r.Entries[0].Index }},
		"a gap before":     {4, func(r *Relayed) { r.Entries = r.Entries[1:] }},
		"a gap":            {4, func(r *Relayed) { r.Entries = []seglog.Entry{r.Entries[0], r.Entries[2]} }},
		"another leader":   {4, func(r *Relayed) { r.Leader = 3 }},
		"no leader":        {4, func(r *Relayed) { r.Leader = 0 }},
		"an earlier term":  {4, func(r *Relayed) { r.Term = 0 }},
		"to one who votes": {3, func(*Relayed) {}},
	} {
		r, ok := w.relayed(2, had)
		if !ok {
			t.Fatal("node 2 gives nothing")
		}
		c.change(&r)
		if err := w.node(c.to).g.StepRelayed(r); !errors.Is(err, ErrNoRelay) {
			t.Errorf("%s: %v, want %v", name, err, ErrNoRelay)
		}
	}
	// Before the entry of its term is committed, a node gives nothing.
	w.heartbeats(3, 2, 2)
	if p, ok := w.node(2).g.Committed().RelayPoint(w.node(2).g.Role()); ok {
		t.Errorf("node 2, of term 2, gives what was committed in term 1: %+v", p)
	}
}

// TestRelayedWhereRaftIsAhead: raft drops a message that begins before raft's commit index, and the commit
// check may not have reached that index yet. The entries after it are accepted all the same.
func TestRelayedWhereRaftIsAhead(t *testing.T) {
	w := sourcedWorld(t)
	had := w.committed(4)
	w.cut[4] = true
	w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: 1})
	for number := uint64(1); number <= 3; number++ {
		w.propose(1, entry.Header{Kind: entry.KindTransactions, Term: 1, Number: number})
	}
	w.run(200 * time.Millisecond)
	r, ok := w.relayed(2, had)
	if !ok || len(r.Entries) < 4 {
		t.Fatalf("node 2 gives %d entries", len(r.Entries))
	}
	g := w.node(4).g
	from, to, commit := uint64(1), uint64(4), had+2
	before, err := w.node(4).log.Term(had)
	if err != nil {
		t.Fatal(err)
	}
	step := func(m *pb.Message) {
		m.From, m.To, m.Term = &from, &to, &r.Term
		if err := g.rn.Step(m); err != nil {
			t.Fatal(err)
		}
	}
	step(&pb.Message{Type: pb.MsgApp.Enum(), Index: &had, LogTerm: &before, Entries: toRaft(r.Entries[:2]), Commit: &had})
	w.settle()
	step(&pb.Message{Type: pb.MsgHeartbeat.Enum(), Commit: &commit})
	if w.committed(4) != had || g.rn.BasicStatus().GetCommit() != commit {
		t.Fatal("raft is not ahead: the test has tested nothing")
	}
	if err := g.StepRelayed(r); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if last := r.Entries[len(r.Entries)-1].Index; w.committed(4) != last {
		t.Errorf("node 4 has %d of %d", w.committed(4), last)
	}
}

// TestRelayKeepsOneLog: whatever is relayed, late or twice, between elections, cuts and crashes, the learner's
// log stays a prefix of the committed log, and catches up.
func TestRelayKeepsOneLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := sourcedWorld(t)
		var under []Relayed // way
		numbers := map[uint64]uint64{}
		for range rapid.IntRange(10, 60).Draw(rt, "steps") {
			voter := rapid.Uint64Range(1, 3).Draw(rt, "voter")
			g := w.node(voter).g
			switch rapid.SampledFrom([]string{"write", "write", "write", "capture", "capture", "deliver", "deliver", "campaign", "cut", "heal", "run", "fed", "crash"}).Draw(rt, "step") {
			case "write":
				if term := g.Role().Term; g.Role().Leading && g.committed.term() == term {
					h := entry.Header{Kind: entry.KindTransactions, Term: term, Number: numbers[term]}
					if numbers[term] == 0 {
						h.Kind = entry.KindEpoch
					}
					numbers[term]++
					w.propose(voter, h)
				}
			case "capture":
				if r, ok := w.relayed(voter, rapid.Uint64Range(0, w.committed(4)).Draw(rt, "from")); ok {
					under = append(under, r)
				}
			case "deliver":
				if len(under) > 0 {
					// Its refusal is an answer, too.
					_ = w.node(4).g.StepRelayed(under[rapid.IntRange(0, len(under)-1).Draw(rt, "which")])
				}
			case "campaign":
				g.campaign()
			case "cut":
				w.cut[voter] = true
			case "heal":
				clear(w.cut)
			case "run":
				w.run(time.Duration(rapid.IntRange(1, 20).Draw(rt, "heartbeats")) * 100 * time.Millisecond)
			case "fed":
				g.SetFed([]cluster.NodeID{4})
			case "crash":
				p := w.node(4).g.Committed().State()
				w.node(4).point = &p
				w.node(4).fs = w.node(4).fs.CrashClone(1)
				w.start(4, false)
			}
			w.settle()
			w.oneLog(rt)
		}
		clear(w.cut)
		for id := uint64(1); id <= 3; id++ {
			w.node(id).g.SetFed(nil)
		}
		w.run(10 * time.Second)
		w.oneLog(rt)
		for id := uint64(2); id <= 4; id++ {
			if w.committed(id) != w.committed(1) {
				rt.Fatalf("node %d has committed %d, node 1 %d", id, w.committed(id), w.committed(1))
			}
		}
	})
}

// oneLog checks that the committed logs are prefixes of one.
func (w *world) oneLog(rt *rapid.T) {
	for id := uint64(2); id <= 4; id++ {
		for i := uint64(1); i <= min(w.committed(1), w.committed(id)); i++ {
			a, errA := w.node(1).log.Term(i)
			b, errB := w.node(id).log.Term(i)
			if a != b || errA != nil || errB != nil {
				rt.Fatal(fmt.Sprintf("entry %d: node 1 has term %d (%v), node %d term %d (%v)", i, a, errA, id, b, errB))
			}
		}
	}
}

// TestWhoVotesIsFedByTheLeader: this includes a node that had a source, and a node that has lost its vote
// again, as long as a majority of the old voters may need it.
func TestWhoVotesIsFedByTheLeader(t *testing.T) {
	w := sourcedWorld(t)
	g := w.node(1).g
	g.SetFed([]cluster.NodeID{4})
	w.change(1, testMembership("promote", "n4"))
	w.run(200 * time.Millisecond)
	if g.isFed(4) || w.committed(4) != w.committed(1) {
		t.Errorf("with a vote: left to its source %t, it has %d of %d", g.isFed(4), w.committed(4), w.committed(1))
	}
	w.change(1, testMembership("demote", "n4"))
	w.run(200 * time.Millisecond)
	if g.isFed(4) || w.committed(4) != w.committed(1) {
		t.Errorf("demoted: left to its source %t, it has %d of %d", g.isFed(4), w.committed(4), w.committed(1))
	}
}

// TestSiteMajorityIsKept: no voter is removed if it is the last one that is there at its site.
func TestSiteMajorityIsKept(t *testing.T) {
	w := newWorld(t, 4)
	w.node(1).g.campaign()
	w.settle()
	w.run(200 * time.Millisecond)
	w.change(1, testMembership("add", "n4"))
	w.run(200 * time.Millisecond)
	w.change(1, testMembership("promote", "n4"))
	w.run(200 * time.Millisecond)
	for i, site := range []string{"x", "x", "y", "y"} {
		w.change(1, cluster.Change{ID: site, By: "ann@db1", Node: &cluster.NodeChange{Name: fmt.Sprint("n", i+1), Site: &site}})
	}
	w.change(1, cluster.Change{ID: "policy", By: "ann@db1", Durability: new(cluster.DurabilitySiteMajority)})
	w.cut[4] = true
	w.run(2 * time.Second)
	g := w.node(1).g
	demote := testMembership("demote", "n3")
	if _, err := g.CheckState(w.now, demote); err == nil || !strings.Contains(err.Error(), "only voters of one site") {
		t.Errorf("without the other voter of its site: %v", err)
	}
	clear(w.cut)
	w.run(2 * time.Second)
	if _, err := g.CheckState(w.now, demote); err != nil {
		t.Errorf("with it: %v", err)
	}
}

// TestFedByItsSourceAlone: a learner that is cut off from the leader and fed by its source keeps its leader as
// long as the source knows that leader, and forgets it when nothing more comes.
func TestFedByItsSourceAlone(t *testing.T) {
	w := sourcedWorld(t)
	w.node(1).g.SetFed([]cluster.NodeID{4})
	w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: 1})
	w.cut[4] = true
	learner, before, changes := w.node(4).g, w.committed(4), 0
	last := learner.Role()
	pass := func(d time.Duration) {
		for end := w.now + d; w.now < end; {
			w.run(testTick)
			if role := learner.Role(); role != last {
				last = role
				changes++
			}
		}
	}
	for number := uint64(1); number <= 40; number++ {
		w.propose(1, entry.Header{Kind: entry.KindTransactions, Term: 1, Number: number})
		w.run(100 * time.Millisecond)
		r, ok := w.relayed(2, w.committed(4))
		if !ok {
			t.Fatal("node 2 gives nothing")
		}
		if err := learner.StepRelayed(r); err != nil {
			t.Fatal(err)
		}
		pass(100 * time.Millisecond)
	}
	if changes > 0 || last.Leader != 1 || w.committed(4) <= before+40 {
		t.Errorf("%d changes of its role, now %+v, with %d committed, %d before", changes, last, w.committed(4), before)
	}
	pass(5 * time.Second)
	if changes != 1 || last.Leader != 0 {
		t.Errorf("with nothing fed: %d changes of its role, now %+v", changes, last)
	}
}
