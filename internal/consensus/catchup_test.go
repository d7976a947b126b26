package consensus

import (
	"context"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/seglog"
	"github.com/quorate/quorate/internal/vfs"
)

// slowReads lets reads pass, or stand until they may.
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

// TestCatchUpDoesNotStopCommits: what a peer lacks has to be read from a disk that
// does not answer; what the others commit meanwhile does not wait for that, and the
// peer gets it once the disk does.
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
	if err := leader.waitCommitted(ctx, 2); err != nil { // raft's own entry, and the epoch's
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
			if err := leader.waitCommitted(ctx, base+number); err != nil {
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
	if err := ns.all[late-1].waitCommitted(ctx, leader.Committed().Mark().Index); err != nil {
		t.Fatal(err)
	}
	stop()
	s := ns.logs[leader.cfg.Self-1].Stats()
	if s.PrefetchEntries == 0 {
		t.Errorf("nothing came from what was read ahead: %+v", s)
	}
}
