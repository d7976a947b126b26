package consensus

import (
	"context"
	"sync"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

// slowReads lets reads pass, or makes them wait until they may.
type slowReads struct {
	mu     sync.Mutex
	pass   chan struct{} // closed: reads pass
	waited chan struct{} // has room for one: a read stands
}

func newSlowReads() *slowReads {
	s := &slowReads{pass: make(chan struct{}), waited: make(chan struct{}, 1)}
	close(s.pass)
	return s
}

func (s *slowReads) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass = make(chan struct{})
}

func (s *slowReads) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.pass:
	default:
		close(s.pass)
	}
}

func (s *slowReads) hook(op vfs.Op, _ string) error {
	if op != vfs.OpRead {
		return nil
	}
	s.mu.Lock()
	pass := s.pass
	s.mu.Unlock()
	select {
	case <-pass:
		return nil
	default:
	}
	select {
	case s.waited <- struct{}{}:
	default:
	}
	<-pass
	return nil
}

// TestCatchUpDoesNotStopCommits: the entries that a peer lacks have to be read from a disk that does not
// answer. The commits of the others do not wait for that, and the peer gets the entries when the disk answers.
func TestCatchUpDoesNotStopCommits(t *testing.T) {
	ctx := testContext(t)
	reads := newSlowReads()
	ns := startNodesOn(t, seglog.Options{CacheBytesMax: 4 << 10}, reads.hook, reads.hook, reads.hook)
	ahead, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() { stop(); reads.goOn(); running.Wait() }()
	for _, l := range ns.logs {
		running.Go(func() { _ = l.Run(ahead) })
	}
	leader := ns.leader(ctx)
	term := ns.open(ctx, leader)
	if err := leader.barriers.await(ctx, 2); err != nil { // raft's own entry, and the epoch's
		t.Fatal(err)
	}
	base, number := leader.Committed().Mark().Index, uint64(0)
	commit := func(n int) {
		t.Helper()
		for range n {
			number++
			if err := leader.Propose(ctx, transactionsEntry(entry.Header{Term: term, Number: number, Count: 1}, number)); err != nil {
				t.Fatal(err)
			}
			if err := leader.barriers.await(ctx, base+number); err != nil {
				t.Fatal(err)
			}
		}
	}
	late := cluster.NodeID(1)
	if leader.cfg.Self == late {
		late = 2
	}
	commit(1)
	ns.dead[late].Store(true)
	commit(200) // ten times the cache
	reads.stop()
	ns.dead[late].Store(false)
	select {
	case <-reads.waited:
	case <-ctx.Done():
		t.Fatal("nothing was read for the peer that is late")
	}
	commit(5)
	if leader.Role().Term != term {
		t.Fatalf("term %d, was %d", leader.Role().Term, term)
	}
	if got := ns.all[late-1].Committed().Mark().Index; got >= leader.Committed().Mark().Index {
		t.Fatalf("the late peer has entry %d without what stands on disk", got)
	}
	reads.goOn()
	if err := ns.all[late-1].barriers.await(ctx, leader.Committed().Mark().Index); err != nil {
		t.Fatal(err)
	}
	stop()
	s := ns.logs[leader.cfg.Self-1].Stats()
	if s.PrefetchEntries == 0 {
		t.Errorf("nothing came from what was read ahead: %+v", s)
	}
}

// absent is a log that has nothing in memory.
type absent struct {
	*seglog.Log
	inMemory bool
}

func (l *absent) EntriesInMemory(lo, hi, bytesMax uint64) ([]seglog.Entry, error) {
	if !l.inMemory {
		return nil, seglog.ErrNotInMemory
	}
	return l.Entries(lo, hi, bytesMax)
}

// TestSendMore: entries that were not in memory are sent, once, when they are reported to be there. A peer that
// still owes an answer is sent nothing.
func TestSendMore(t *testing.T) {
	w := newWorld(t, 3)
	log := &absent{Log: w.node(1).log, inMemory: true}
	w.node(1).g.storage.log = log
	w.node(1).g.campaign()
	w.settle()
	w.cut[2], w.cut[3] = true, true
	g := w.node(1).g
	g.Propose(entry.EncodeEpoch(entry.Epoch{Term: 1, Primary: "a", FormatDescription: testFormatDescription()}))
	w.settle()
	// Both are probed from now on. Node 2 answers, but cannot be sent the entries that it lacks.
	g.Unreachable(2)
	g.Unreachable(3)
	log.inMemory = false
	answer := func(id uint64) {
		g.Step(w.now, &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: &id, To: new(uint64(1)), Term: new(uint64(1))})
	}
	appends := func() (to []uint64) {
		for {
			out, ok := g.Ready()
			if !ok {
				return to
			}
			for _, m := range out.Send {
				if m.GetType() == pb.MsgApp && len(m.GetEntries()) > 0 {
					to = append(to, m.GetTo())
				}
			}
		}
	}
	answer(2)
	if to := appends(); len(to) > 0 {
		t.Fatalf("sent to %v what is not in memory", to)
	}
	log.inMemory = true
	answer(3) // node 3 is sent a probe and owes the answer
	if to := appends(); len(to) != 1 || to[0] != 3 {
		t.Fatalf("sent to %v, want 3", to)
	}
	g.SendMore()
	if to := appends(); len(to) != 1 || to[0] != 2 {
		t.Fatalf("sent to %v, want 2", to)
	}
	g.SendMore()
	if to := appends(); len(to) != 0 {
		t.Fatalf("sent to %v again", to)
	}
}

// TestLostLogIsAsked: a peer that has lost its log is asked for purged entries, and is believed when it says
// that it does not have them.
func TestLostLogIsAsked(t *testing.T) {
	w := newWorld(t, 3)
	w.node(1).g.campaign()
	w.settle()
	g := w.node(1).g
	g.Propose(entry.EncodeEpoch(entry.Epoch{Term: 1, Primary: "a", FormatDescription: testFormatDescription()}))
	w.settle()
	g.Resign(1)
	w.settle()
	g.Propose(entry.EncodeEpoch(entry.Epoch{Term: g.Role().Term, Primary: "a", FormatDescription: testFormatDescription()}))
	w.settle()
	if removed, err := w.node(1).log.Purge(2); err != nil || len(removed) == 0 {
		t.Fatalf("purged %v, %v", removed, err)
	}
	w.node(3).fs = vfs.NewMem()
	w.start(3, true)
	asked := 0
	for range 50 {
		id, term := uint64(3), g.Role().Term
		g.Step(w.now, &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: &id, To: new(uint64(1)), Term: &term})
		for {
			out, ok := g.Ready()
			if !ok {
				break
			}
			for _, m := range out.Send {
				if m.GetTo() == 3 && m.GetType() == pb.MsgApp {
					asked++
				}
			}
			w.carryOut(w.node(1), out)
		}
		w.settle()
	}
	if got := w.node(3).log.LastIndex(); got != 0 {
		t.Errorf("the empty log has entry %d", got)
	}
	if asked > 200 {
		t.Errorf("%d messages for 50 answers", asked)
	}
}
