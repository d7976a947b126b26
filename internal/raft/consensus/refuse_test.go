package consensus

import (
	"errors"
	"math"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

// steps gives node id a message and returns the nodes that it calls broken. A panic fails the test.
func (w *world) steps(id uint64, m *pb.Message) []Broken {
	w.t.Helper()
	g := w.node(id).g
	var broken []Broken
	if what := panicOf(func() {
		g.Step(w.now, m)
		for {
			out, ok := g.Ready()
			broken = append(broken, out.Broken...)
			if !ok {
				return
			}
			w.carryOut(w.node(id), out)
		}
	}); what != "nothing" {
		w.t.Fatalf("node %d panics as %s at %v", id, what, m)
	}
	return broken
}

// writtenWorld has node 1 lead, with an epoch and one transaction committed.
func writtenWorld(t *testing.T) *world {
	w := ledWorld(t, 3)
	w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: 1})
	w.node(1).g.Propose(transactionsEntry(entry.Header{Term: 1, Number: 1, Count: 1}, 1))
	w.settle()
	if last := w.node(2).g.LastIndex(); w.node(2).g.Committed().Mark().Index != last {
		t.Fatalf("not all of %d entries is committed", last)
	}
	return w
}

// forged is a message from a peer, of term 1.
func forged(kind pb.MessageType, from, to uint64) *pb.Message {
	return &pb.Message{Type: kind.Enum(), From: &from, To: &to, Term: new(uint64(1))}
}

// TestBrokenMemberIsRefused: a message at which raft would panic, or that drives its terms up, ends no process
// and changes nothing. For a while nothing more is accepted from that member, not even heartbeats.
func TestBrokenMemberIsRefused(t *testing.T) {
	const last = 3 // of writtenWorld's log
	for name, c := range map[string]struct {
		to     uint64
		forge  func(m *pb.Message)
		kind   pb.MessageType
		passes bool
	}{
		"commit beyond the log":           {to: 2, kind: pb.MsgHeartbeat, forge: func(m *pb.Message) { m.Commit = new(uint64(last + 9)) }},
		"commit beyond the leader's log":  {to: 1, kind: pb.MsgHeartbeat, forge: func(m *pb.Message) { m.Commit, m.Term = new(uint64(last+9)), new(uint64(2)) }},
		"the last term":                   {to: 2, kind: pb.MsgVote, forge: func(m *pb.Message) { m.Term = new(uint64(math.MaxUint64)) }},
		"a term far ahead":                {to: 2, kind: pb.MsgAppResp, forge: func(m *pb.Message) { m.Term = new(uint64(termsAheadMax + 2)) }},
		"a term that may be":              {to: 2, kind: pb.MsgAppResp, passes: true, forge: func(m *pb.Message) { m.Term = new(uint64(termsAheadMax + 1)) }},
		"a second leader":                 {to: 2, kind: pb.MsgHeartbeat, forge: func(m *pb.Message) { m.From = new(uint64(3)) }},
		"a leader beside this one":        {to: 1, kind: pb.MsgApp, forge: func(*pb.Message) {}},
		"an election that nobody ordered": {to: 2, kind: pb.MsgTimeoutNow, forge: func(m *pb.Message) { m.From = new(uint64(3)) }},
		"an answer for what is not there": {to: 1, kind: pb.MsgAppResp, forge: func(m *pb.Message) { m.Index = new(uint64(last + 1)) }},
		"an answer beyond all":            {to: 1, kind: pb.MsgAppResp, forge: func(m *pb.Message) { m.Index = new(uint64(math.MaxUint64)) }},
		"an answer":                       {to: 1, kind: pb.MsgAppResp, passes: true, forge: func(m *pb.Message) { m.Index = new(uint64(last)) }},
		"a promise for no round": {to: 1, kind: pb.MsgHeartbeatResp, forge: func(m *pb.Message) {
			m.Context = append(make([]byte, raftContextBytes), "\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f"...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := writtenWorld(t)
			if got := w.node(2).g.LastIndex(); got != last {
				t.Fatalf("the log ends at %d", got)
			}
			from := uint64(1)
			if c.to == 1 {
				from = 2
			}
			m := forged(c.kind, from, c.to)
			c.forge(m)
			before := w.node(c.to).g.Role()
			broken := w.steps(c.to, m)
			if c.passes {
				if len(broken) != 0 {
					t.Fatalf("refused: %v", broken)
				}
				return
			}
			if len(broken) != 1 || uint64(broken[0].From) != m.GetFrom() || !errors.Is(broken[0].Err, ErrBroken) {
				t.Fatalf("broken: %v", broken)
			}
			if after := w.node(c.to).g.Role(); after != before {
				t.Errorf("it was %+v and is %+v", before, after)
			}
			if again := w.steps(c.to, m); len(again) != 0 {
				t.Errorf("told again: %v", again)
			}
		})
	}
}

// TestPoisonIsNotAppended: entries at which every node would panic when they are committed get into no log.
// Correct entries pass.
func TestPoisonIsNotAppended(t *testing.T) {
	head := func(term, number uint64, count uint32) entry.Header {
		return entry.Header{Term: term, Number: number, Count: count}
	}
	normal := func(index, term uint64, data []byte) *pb.Entry {
		return &pb.Entry{Index: &index, Term: &term, Type: pb.EntryNormal.Enum(), Data: data}
	}
	next := transactionsEntry(head(1, 2, 1), 2)
	members, err := proto.Marshal(&pb.ConfChangeV2{Context: []byte("{}"), Changes: []*pb.ConfChangeSingle{{NodeId: new(uint64(2))}}})
	if err != nil {
		t.Fatal(err)
	}
	typed := func(kind pb.EntryType, data []byte) *pb.Entry {
		e := normal(4, 1, data)
		e.Type = kind.Enum()
		return e
	}
	for name, c := range map[string]struct {
		entries []*pb.Entry
		passes  bool
	}{
		"next":                        {[]*pb.Entry{normal(4, 1, next)}, true},
		"next two":                    {[]*pb.Entry{normal(4, 1, next), normal(5, 1, transactionsEntry(head(1, 3, 1), 3))}, true},
		"empty":                       {[]*pb.Entry{normal(4, 1, nil)}, true},
		"no entry of ours":            {[]*pb.Entry{normal(4, 1, []byte{9, 9, 9})}, false},
		"says another term":           {[]*pb.Entry{normal(4, 1, transactionsEntry(head(2, 2, 1), 2))}, false},
		"number left out":             {[]*pb.Entry{normal(4, 1, transactionsEntry(head(1, 3, 1), 2))}, false},
		"number left out behind next": {[]*pb.Entry{normal(4, 1, next), normal(5, 1, transactionsEntry(head(1, 4, 1), 3))}, false},
		"epoch again":                 {[]*pb.Entry{normal(4, 1, epochEntry(1))}, false},
		"a GTID that is committed":    {[]*pb.Entry{normal(4, 1, transactionsEntry(head(1, 2, 1), 1))}, false},
		"a GTID twice":                {[]*pb.Entry{normal(4, 1, next), normal(5, 1, transactionsEntry(head(1, 3, 1), 2))}, false},
		"a wrong count":               {[]*pb.Entry{normal(4, 1, transactionsEntry(head(1, 2, 2), 2))}, false},
		"half a transaction":          {[]*pb.Entry{normal(4, 1, next[:entry.HeaderBytes+60])}, false},
		"a state that is none":        {[]*pb.Entry{normal(4, 1, entry.AppendHeader(nil, entry.Header{Kind: entry.KindState, Term: 1}))}, false},
		"members that are none":       {[]*pb.Entry{typed(pb.EntryConfChangeV2, members)}, false},
		"a member that means the log": {[]*pb.Entry{typed(pb.EntryConfChangeV2, localMember(t))}, false},
		"members in an old way":       {[]*pb.Entry{typed(pb.EntryConfChange, nil)}, false},
		"a type that is none":         {[]*pb.Entry{typed(7, nil)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := writtenWorld(t)
			m := forged(pb.MsgApp, 1, 2)
			m.Index, m.LogTerm, m.Entries, m.Commit = new(uint64(3)), new(uint64(1)), c.entries, new(uint64(3))
			broken, last := w.steps(2, m), w.node(2).g.LastIndex()
			if c.passes != (len(broken) == 0) || c.passes != (last == 3+uint64(len(c.entries))) {
				t.Errorf("the log ends at %d, broken: %v", last, broken)
			}
		})
	}
}

// TestNewerStateIsRefused: a state that this quorate does not know all of gets into no log, so it is not acknowledged. The
// error is not only that the member is broken.
func TestNewerStateIsRefused(t *testing.T) {
	newer := []byte(`{"state":{"version":1,"members":[{"id":1}],"format":10,"fence":true}}`)
	members, err := proto.Marshal(&pb.ConfChangeV2{Context: newer, Changes: []*pb.ConfChangeSingle{{NodeId: new(uint64(2))}}})
	if err != nil {
		t.Fatal(err)
	}
	for kind, data := range map[pb.EntryType][]byte{
		pb.EntryNormal:       append(entry.AppendHeader(nil, entry.Header{Kind: entry.KindState, Term: 1}), newer...),
		pb.EntryConfChangeV2: members,
	} {
		w := writtenWorld(t)
		m := forged(pb.MsgApp, 1, 2)
		m.Index, m.LogTerm, m.Commit = new(uint64(3)), new(uint64(1)), new(uint64(4))
		m.Entries = []*pb.Entry{{Index: new(uint64(4)), Term: new(uint64(1)), Type: kind.Enum(), Data: data}}
		broken, last := w.steps(2, m), w.node(2).g.LastIndex()
		if len(broken) != 1 || last != 3 {
			t.Errorf("%v: the log ends at %d, broken: %v", kind, last, broken)
			continue
		}
		if _, ok := errors.AsType[*cluster.NewerError](broken[0].Err); !ok {
			t.Errorf("%v: %v", kind, broken[0].Err)
		}
	}
}

// TestPoisonBehindWhatIsThere: the numbers are also checked behind entries that are sent a second time.
func TestPoisonBehindWhatIsThere(t *testing.T) {
	for number, passes := range map[uint64]bool{4: true, 77: false} {
		w := writtenWorld(t)
		m := forged(pb.MsgApp, 1, 2)
		m.Index, m.LogTerm = new(uint64(3)), new(uint64(1))
		for i := range 3 {
			n := uint64(i) + 2
			m.Entries = append(m.Entries, &pb.Entry{
				Index: new(n + 2), Term: new(uint64(1)), Type: pb.EntryNormal.Enum(), Data: transactionsEntry(entry.Header{Term: 1, Number: n, Count: 1}, n),
			})
		}
		behind := proto.CloneOf(m)
		m.Entries = m.Entries[:2]
		if broken := w.steps(2, m); len(broken) > 0 {
			t.Fatal(broken)
		}
		behind.Index, behind.Entries = new(uint64(4)), behind.Entries[1:]
		behind.Entries[1].Data = transactionsEntry(entry.Header{Term: 1, Number: number, Count: 1}, 4)
		if broken := w.steps(2, behind); passes != (len(broken) == 0) {
			t.Errorf("number %d behind 3: %v", number, broken)
		}
	}
}

// localMember is a change of the members that adds the id that raft uses for its own log.
func localMember(t *testing.T) []byte {
	t.Helper()
	local := cluster.NodeID(raft.LocalApplyThread)
	c := cluster.StateChange{State: cluster.NewState([]cluster.Member{testMember(1), testMember(2), testMember(3), testMember(4)})}
	c.State.Version, c.State.Members[3].ID, c.State.Members[3].Kind = 1, local, cluster.KindLearner
	c.Change = cluster.Change{ID: "x", Membership: &cluster.MembershipChange{Op: cluster.OpAdd, Name: c.State.Members[3].Name}}
	context, err := entry.MarshalState(c)
	if err != nil {
		t.Fatal(err)
	}
	data, err := proto.Marshal(&pb.ConfChangeV2{
		Context: context, Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(local))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestCommitBehindACut: a leader removes entries and says, before that is on the disk, that one of them is
// committed. Raft's log already ends before it, and raft would panic.
func TestCommitBehindACut(t *testing.T) {
	w := writtenWorld(t)
	g := w.node(2).g
	entries := func(term uint64, count int) (es []*pb.Entry) {
		for i := range count {
			es = append(es, &pb.Entry{Index: new(uint64(4 + i)), Term: &term, Type: pb.EntryNormal.Enum()})
		}
		return es
	}
	m := forged(pb.MsgApp, 1, 2)
	m.Index, m.LogTerm, m.Entries = new(uint64(3)), new(uint64(1)), entries(1, 6)
	w.steps(2, m)
	if last := g.LastIndex(); last != 9 {
		t.Fatalf("the log ends at %d", last)
	}
	later := forged(pb.MsgApp, 3, 2)
	later.Term, later.Index, later.LogTerm, later.Entries = new(uint64(2)), new(uint64(3)), new(uint64(1)), entries(2, 1)
	commit := forged(pb.MsgHeartbeat, 3, 2)
	commit.Term, commit.Commit = new(uint64(2)), new(uint64(8))
	if what := panicOf(func() {
		g.Step(w.now, later)
		g.Step(w.now, commit)
	}); what != "nothing" {
		t.Fatalf("before the cut is handed out, it panics as %s", what)
	}
	out, _ := g.Ready()
	if what := panicOf(func() { g.Step(w.now, commit) }); what != "nothing" {
		t.Fatalf("before the cut is on disk, it panics as %s", what)
	}
	w.carryOut(w.node(2), out)
	w.steps(2, commit)
	if mark := g.Committed().Mark().Index; mark > 4 || g.LastIndex() != 4 {
		t.Errorf("%d is committed, the log ends at %d", mark, g.LastIndex())
	}
}

// TestBrokenLeaderIsReplaced: a leader whose appends are refused is no longer heard, so the others elect a new
// one.
func TestBrokenLeaderIsReplaced(t *testing.T) {
	w := writtenWorld(t)
	for id := uint64(2); id <= 3; id++ {
		m := forged(pb.MsgApp, 1, id)
		m.Index, m.LogTerm = new(uint64(3)), new(uint64(1))
		m.Entries = []*pb.Entry{{Index: new(uint64(4)), Term: new(uint64(1)), Data: []byte{9}}}
		if broken := w.steps(id, m); len(broken) != 1 {
			t.Fatalf("node %d: %v", id, broken)
		}
	}
	w.run(refusedElections * testElection * testTick)
	if r := w.node(2).g.Role(); r.Leader == 1 || r.Leader == 0 {
		t.Errorf("%+v", r)
	}
	w.run(2 * time.Second) // then its messages are accepted again
	if r := w.node(1).g.Role(); r.Leader != w.node(2).g.Role().Leader {
		t.Errorf("%+v", r)
	}
}

// TestMadeUpCommitAfterAStart: a node that has just started cannot tell a leader that makes up what is committed from
// a log of its own that lacks what it has acknowledged. So it ends, each time; nothing is lost, and once another node
// leads it takes part again, and then refuses the same message. Not so a node whose log lacks something: it goes on
// under no leader that has its acknowledgement for more.
func TestMadeUpCommitAfterAStart(t *testing.T) {
	const last = 3 // of writtenWorld's log
	again := func(w *world, disk *vfs.Mem) {
		n := w.node(2)
		_ = n.log.Close()
		n.fs = disk
		w.start(2, false)
	}
	w := writtenWorld(t)
	beyond := func(from, term uint64) *pb.Message {
		m := forged(pb.MsgHeartbeat, from, 2)
		m.Term, m.Commit = &term, new(uint64(last+9))
		return m
	}
	for range 2 {
		again(w, w.node(2).fs)
		if what := panicOf(func() { w.node(2).g.Step(w.now, beyond(1, 1)) }); what != "log is behind: true" {
			t.Fatalf("it ends as %s", what)
		}
	}
	again(w, w.node(2).fs)
	w.cut[1] = true // the service manager, or an operator, has stopped that one
	w.run(5 * testElection * testTick)
	leader := w.node(2).g.Role().Leader
	if leader == 0 || leader == 1 || w.node(2).g.LastIndex() <= last {
		t.Fatalf("node 2 does not take part: %+v, its log ends at %d", w.node(2).g.Role(), w.node(2).g.LastIndex())
	}
	if broken := w.steps(2, beyond(1, w.node(2).g.Role().Term+1)); len(broken) != 1 {
		t.Errorf("the same message is not refused now: %v", broken)
	}

	w = writtenWorld(t)
	again(w, vfs.NewMem()) // it has lost all
	for range 3 {
		if what := panicOf(func() { w.run(testElection * testTick) }); what != "log is behind: true" {
			t.Fatalf("without its log, under a leader that has its acknowledgement: %s", what)
		}
		if role := w.node(2).g.Role(); role.Leading || w.node(2).log.HardState().Vote != 0 {
			t.Errorf("it leads, or has voted: %+v", role)
		}
		again(w, w.node(2).fs)
	}
}

// TestForgedAckIsOneVote: whatever a member claims to have, an entry is committed only if a majority has it in
// which that member's claim counts as one vote.
func TestForgedAckIsOneVote(t *testing.T) {
	w := writtenWorld(t)
	w.cut[2], w.cut[3] = true, true
	w.propose(1, entry.Header{Kind: entry.KindRotate, Term: 1, Number: 2})
	g := w.node(1).g
	for _, kind := range []pb.MessageType{pb.MsgAppResp, pb.MsgHeartbeatResp} {
		for range 3 { // again and again
			m := forged(kind, 2, 1)
			m.Index = new(uint64(math.MaxUint64))
			w.steps(1, m)
		}
	}
	if got := g.Committed().Mark().Index; got != 3 {
		t.Fatalf("%d entries are committed, a majority has 3", got)
	}
}

// TestReadIsNotPassedOn: raft on a node that does not lead would pass a question on in the name of the node
// that asked.
func TestReadIsNotPassedOn(t *testing.T) {
	w := ledWorld(t, 3)
	m := forged(pb.MsgReadIndex, 3, 2)
	m.Term, m.Entries = nil, []*pb.Entry{{Data: readContext(contextBarrier, 3, 9)}}
	sent := w.node(2).sent
	if broken := w.steps(2, m); len(broken) != 0 || w.node(2).sent != sent {
		t.Errorf("broken: %v, %d messages sent", broken, w.node(2).sent-sent)
	}
}

// TestChangesThatRaftCannotFollow: a change of the cluster state by which raft would have other members than
// the state, now or after a restart, is ignored, and so is the end of no change. The outcome says so: it was not
// overtaken.
func TestChangesThatRaftCannotFollow(t *testing.T) {
	nobody := func(s *cluster.State) { s.Members[2].ID = 0 }
	twice := func(s *cluster.State) { s.Members[2] = s.Members[1] }
	demoted := func(s *cluster.State) { s.Members[2].Kind, s.Members[2].Weight = cluster.KindLearner, 0 }
	joint, simple := pb.ConfChangeTransitionJointImplicit, pb.ConfChangeTransitionAuto
	learner := &pb.ConfChangeSingle{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(3))}
	for name, c := range map[string]struct {
		change func(s *cluster.State)
		by     *pb.ConfChangeV2 // nil = a change of the state alone
		counts bool
	}{
		"a weight":                 {change: func(s *cluster.State) { s.Members[2].Weight = 7 }, counts: true},
		"a member without an id":   {change: nobody},
		"a member twice":           {change: twice},
		"a vote, by the state":     {change: demoted},
		"a vote":                   {change: demoted, by: &pb.ConfChangeV2{Transition: &joint, Changes: []*pb.ConfChangeSingle{learner}}, counts: true},
		"a vote, in one step":      {change: demoted, by: &pb.ConfChangeV2{Transition: &simple, Changes: []*pb.ConfChangeSingle{learner}}},
		"a vote, in no known way":  {change: demoted, by: &pb.ConfChangeV2{Transition: pb.ConfChangeTransition(9).Enum(), Changes: []*pb.ConfChangeSingle{learner}}},
		"another one's vote":       {change: demoted, by: &pb.ConfChangeV2{Transition: &joint, Changes: []*pb.ConfChangeSingle{{Type: learner.Type, NodeId: new(uint64(2))}}}},
		"nothing":                  {change: func(*cluster.State) {}, by: &pb.ConfChangeV2{Transition: &joint, Changes: []*pb.ConfChangeSingle{{NodeId: new(uint64(0))}}}},
		"the end of what is not":   {by: &pb.ConfChangeV2{}},
		"a vote that nobody knows": {change: demoted, by: &pb.ConfChangeV2{Transition: &joint, Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeType(9).Enum(), NodeId: new(uint64(3))}}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := writtenWorld(t)
			next := w.node(2).g.Committed().State().State
			e := &pb.Entry{Index: new(uint64(4)), Term: new(uint64(1)), Type: pb.EntryNormal.Enum()}
			var err error
			if c.change != nil {
				next.Version++
				c.change(&next)
			}
			change := cluster.StateChange{Change: cluster.Change{ID: "x"}, State: next}
			if e.Data, err = entry.EncodeState(1, change); c.by != nil && err == nil {
				e.Type = pb.EntryConfChangeV2.Enum()
				if !c.by.LeaveJoint() {
					c.by.Context, err = entry.MarshalState(change)
				}
				if err == nil {
					e.Data, err = proto.Marshal(c.by)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			m := forged(pb.MsgApp, 1, 2)
			m.Index, m.LogTerm, m.Entries, m.Commit = new(uint64(3)), new(uint64(1)), []*pb.Entry{e}, new(uint64(4))
			w.steps(2, m)
			n := w.node(2)
			w.settle()
			point := n.g.Committed().State()
			if mark := n.g.Committed().Mark().Index; mark != 4 || (point.State.Version == 1) != c.counts {
				t.Errorf("entry %d is committed, the state is of version %d", mark, point.State.Version)
			}
			for _, o := range n.outcomes {
				if (o.Ignored == nil) != c.counts || !c.counts && !errors.Is(o.Ignored, ErrUnfit) {
					t.Errorf("the proposer is told %v", o.Ignored)
				}
			}
			if want := c.change != nil && (c.by == nil || !c.by.LeaveJoint()); (len(n.outcomes) == 1) != want {
				t.Errorf("%d outcomes", len(n.outcomes))
			}
			n.point = &point
			_ = n.log.Close()
			w.start(2, false)
		})
	}
}
