package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nodes are a group of Nodes in one process. Messages that meet a full queue are lost, as raft allows.
type nodes struct {
	t       *testing.T
	all     []*Runner
	logs    []*seglog.Log
	running sync.WaitGroup
	ended   []chan error
	mu      sync.Mutex
	refuse  []Refusal
	stall   chan uint64
	full    chan error
	dead    [4]atomic.Bool // by id: nothing comes or goes
	// wires lead to each node: one for appends, one for everything else.
	wires [3][2]chan *pb.Message
}

func startNodes(t *testing.T, hooks ...vfs.Hook) *nodes {
	return startNodesOn(t, seglog.Options{}, hooks...)
}

// startNodesOn starts nodes whose logs have the given options.
func startNodesOn(t *testing.T, o seglog.Options, hooks ...vfs.Hook) *nodes {
	ns := &nodes{t: t, stall: make(chan uint64, 1), full: make(chan error, 16)}
	for i := range ns.wires {
		ns.wires[i] = [2]chan *pb.Message{make(chan *pb.Message, 1024), make(chan *pb.Message, 1024)}
	}
	var members []cluster.Member
	for i := range 3 {
		members = append(members, testMember(i+1))
	}
	for i := range 3 {
		fs := vfs.FS(vfs.NewMem())
		if i < len(hooks) {
			fs = vfs.Wrap(fs, hooks[i])
		}
		o.FS, o.Dir, o.Identity = fs, "log", [16]byte{byte(i)}
		log, err := seglog.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		ns.logs = append(ns.logs, log)
		n, err := New(Config{
			Self: members[i].ID, Members: members, Heartbeat: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond,
			Log: log, Fresh: true, Logger: slog.New(slog.DiscardHandler), Send: ns.send,
			OnRole: func(RoleState) {}, OnCommit: func(Mark) {}, OnRefused: ns.refused,
			OnFull: func(err error) { ns.full <- err },
			OnStalled: func(term uint64, _ time.Duration) {
				select {
				case ns.stall <- term:
				default:
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ns.all = append(ns.all, n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	for i, n := range ns.all {
		end := make(chan error, 1)
		ns.ended = append(ns.ended, end)
		ns.running.Go(func() { end <- n.Run(ctx) })
		for _, wire := range ns.wires[i] {
			ns.running.Go(func() { ns.carry(ctx, wire, n) })
		}
	}
	t.Cleanup(func() {
		cancel()
		ns.running.Wait()
	})
	return ns
}

func (ns *nodes) send(msgs []*pb.Message) {
	for _, m := range msgs {
		if ns.dead[m.GetTo()].Load() || ns.dead[m.GetFrom()].Load() {
			continue
		}
		class := 0
		if m.GetType() == pb.MsgApp {
			class = 1
		}
		select {
		case ns.wires[m.GetTo()-1][class] <- m:
		default:
		}
	}
}

// carry is the reader of a connection.
func (ns *nodes) carry(ctx context.Context, wire <-chan *pb.Message, n *Runner) {
	for {
		select {
		case m := <-wire:
			n.Step(m, len(wire) > 0)
		case <-ctx.Done():
			return
		}
	}
}

func (ns *nodes) refused(r Refusal) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.refuse = append(ns.refuse, r)
}

// leader waits until a node leads and has passed a barrier, and returns it.
func (ns *nodes) leader(ctx context.Context) *Runner {
	ns.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, n := range ns.all {
			if n.Role().Leading && n.Leads() {
				return n
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			ns.t.Fatal("no leader")
		}
	}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (ns *nodes) open(ctx context.Context, n *Runner) (term uint64) {
	term = n.Role().Term
	data := entry.EncodeEpoch(entry.Epoch{Term: term, Primary: "a", FormatDescription: testFormatDescription()})
	if err := n.Propose(ctx, data); err != nil {
		ns.t.Fatal(err)
	}
	return term
}

// TestNodeCommits: proposals of one node are committed on all nodes, in order, and a barrier on any node covers
// them.
func TestNodeCommits(t *testing.T) {
	ctx := testContext(t)
	ns := startNodes(t)
	l := ns.leader(ctx)
	term := ns.open(ctx, l)
	const count = 200
	for i := uint64(1); i <= count; i++ {
		if err := l.Propose(ctx, transactionsEntry(entry.Header{Term: term, Number: i, Count: 1}, i)); err != nil {
			t.Fatal(err)
		}
	}
	for m := l.Committed().Mark(); m.Number < count; m = l.Committed().Mark() {
		if err := l.barriers.await(ctx, m.Index+1); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range ns.all {
		if err := n.Barrier(ctx); err != nil {
			t.Fatal(err)
		}
		if got := n.Committed().GTIDs().Count(); got != count {
			t.Errorf("node %d has %d transactions behind a barrier, want %d", i+1, got, count)
		}
	}
	found, ok, err := l.Committed().Read(l.cfg.Log, l.Committed().Mark().Index, 1)
	if err != nil || !ok || len(found) != 1 {
		t.Fatalf("read the last entry: %v %t %v", found, ok, err)
	}
	if _, ok, err := l.Committed().Read(l.cfg.Log, l.Committed().Mark().Index+1, 1); ok || err != nil {
		t.Fatalf("read beyond the commit index: %t %v", ok, err)
	}
}

// TestAskLeader: a node that is cut off gets no answer, even while it still knows a leader, or believes that it
// leads itself.
func TestAskLeader(t *testing.T) {
	ctx := testContext(t)
	ns := startNodes(t)
	l := ns.leader(ctx)
	for _, n := range ns.all {
		if index, err := n.AskLeader(ctx); err != nil || index == 0 {
			t.Fatal(index, err)
		}
	}
	for _, n := range ns.all {
		ns.dead[n.cfg.Self].Store(true)
	}
	for i, n := range ns.all {
		short, cancel := context.WithTimeout(ctx, 2*l.cfg.Heartbeat)
		if _, err := n.AskLeader(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("node %d, cut off: %v", i+1, err)
		}
		cancel()
	}
}

// TestAckComesFirst: the ACK comes before everything else that the same turn sends, here the news of that
// commit.
func TestAckComesFirst(t *testing.T) {
	log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log", Identity: [16]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	var trace []string
	n, err := New(Config{
		Self: 1, Members: []cluster.Member{testMember(1), testMember(2), testMember(3)}, Heartbeat: time.Second, ElectionTimeout: 10 * time.Second,
		Log: log, Fresh: true, Logger: slog.New(slog.DiscardHandler), OnRole: func(RoleState) {}, OnCommit: func(Mark) {},
		OnAcknowledge: func(index uint64) { trace = append(trace, fmt.Sprintf("ack of %d", index)) },
		Send: func(ms []*pb.Message) {
			for _, m := range ms {
				if m.GetTo() == 2 && len(m.GetEntries()) == 0 && m.GetCommit() > 0 {
					trace = append(trace, fmt.Sprintf("news of %d", m.GetCommit()))
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	turn := func() { // until nothing is left
		for {
			w, err := n.driver.Turn(n.inbox.Take(BootTime), &n.inbox)
			if err != nil {
				t.Fatal(err)
			}
			if w == nil {
				return
			}
			n.beside.Add(1)
			n.make(w)
		}
	}
	n.group.campaign()
	turn()
	for _, kind := range []pb.MessageType{pb.MsgPreVoteResp, pb.MsgVoteResp, pb.MsgAppResp} {
		n.group.Step(BootTime(), &pb.Message{
			Type: kind.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(1)), Index: new(uint64(1)),
		})
		turn()
	}
	if want := []string{"ack of 1", "news of 1"}; !slices.Equal(trace[:min(2, len(trace))], want) {
		t.Errorf("%q, want %q", trace, want)
	}
}

// TestNodeTransfer: the lease is gone when TransferTo returns, and later proposals of the old epoch are
// refused.
func TestNodeTransfer(t *testing.T) {
	ctx := testContext(t)
	ns := startNodes(t)
	l := ns.leader(ctx)
	term := ns.open(ctx, l)
	to := cluster.NodeID(uint64(l.cfg.Self)%3 + 1)
	l.TransferTo(ctx, term+1, to)
	if !l.Leads() {
		t.Fatal("a transfer in another term ended the lease")
	}
	l.TransferTo(ctx, term, to)
	if l.Leads() {
		t.Fatal("the lease outlives TransferTo")
	}
	next := ns.leader(ctx)
	if next == l && l.Role().Term == term {
		t.Fatal("the lease came back in the old term")
	}
	if err := l.Propose(ctx, transactionsEntry(entry.Header{Term: term, Number: 1, Count: 1}, 1)); err != nil {
		t.Fatal(err)
	}
	if err := l.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if len(ns.refuse) != 1 || ns.refuse[0].Term != term || !errors.Is(ns.refuse[0].Err, ErrEpochEnded) {
		t.Fatalf("refused: %v", ns.refuse)
	}
}

// TestNodeEndsWithItsDisk: a failed write ends the node with an error.
func TestNodeEndsWithItsDisk(t *testing.T) {
	ctx := testContext(t)
	broken := errors.New("broken disk")
	failing := make(chan struct{})
	ns := startNodes(t, func(op vfs.Op, _ string) error {
		select {
		case <-failing:
			if op == vfs.OpSync || op == vfs.OpSyncData {
				return broken
			}
		default:
		}
		return nil
	})
	l := ns.leader(ctx)
	close(failing)
	ns.open(ctx, l)
	select {
	case err := <-ns.ended[0]:
		if !errors.Is(err, broken) {
			t.Fatalf("ended with %v", err)
		}
	case <-ctx.Done():
		t.Fatal("the node goes on with a broken disk")
	}
	if err := ns.all[0].Propose(ctx, nil); err != nil && !errors.Is(err, ErrStopped) {
		t.Fatal(err)
	}
}

// brokenReads is a log whose entries cannot be read any more.
type brokenReads struct {
	*seglog.Log
	broken atomic.Bool
}

func (l *brokenReads) Entries(lo, hi, bytesMax uint64) ([]seglog.Entry, error) {
	if l.broken.Load() {
		return nil, &seglog.CorruptError{File: "quorate.1", Offset: 7, Index: lo}
	}
	return l.Log.Entries(lo, hi, bytesMax)
}

// TestNodeEndsWithADamagedLog: raft cannot read an entry. The node ends and says which entry.
func TestNodeEndsWithADamagedLog(t *testing.T) {
	ctx := testContext(t)
	log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	reads := &brokenReads{Log: log}
	leads := make(chan uint64, 16)
	n, err := New(Config{
		Self: 1, Members: []cluster.Member{{ID: 1, Kind: cluster.KindFull}}, Heartbeat: 20 * time.Millisecond,
		ElectionTimeout: 200 * time.Millisecond, Log: reads, Fresh: true, Logger: slog.New(slog.DiscardHandler),
		Send: func([]*pb.Message) {}, OnCommit: func(Mark) {}, OnRefused: func(Refusal) {},
		OnRole: func(r RoleState) {
			if r.Leading {
				leads <- r.Term
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ended <- n.Run(runCtx) }()
	term := <-leads
	reads.broken.Store(true)
	data := entry.EncodeEpoch(entry.Epoch{Term: term, Primary: "a", FormatDescription: testFormatDescription()})
	if err := n.Propose(ctx, data); err != nil && !errors.Is(err, ErrStopped) { // its own first entry may have been read by then
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, seglog.ErrCorrupt) {
			t.Fatalf("ended with %v", err)
		}
	case <-ctx.Done():
		t.Fatal("the node goes on with a damaged log")
	}
}

// TestNodeWaitsForSpace: while the disk is full nothing is answered. When there is space again, everything goes
// on.
func TestNodeWaitsForSpace(t *testing.T) {
	ctx := testContext(t)
	var full atomic.Bool
	ns := startNodes(t, func(op vfs.Op, _ string) error {
		if full.Load() && (op == vfs.OpWrite || op == vfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	})
	l := ns.leader(ctx)
	for l != ns.all[0] {
		l.TransferTo(ctx, l.Role().Term, ns.all[0].cfg.Self)
		l = ns.leader(ctx)
	}
	term := ns.open(ctx, l)
	if err := l.barriers.await(ctx, 2); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	if err := l.Propose(ctx, transactionsEntry(entry.Header{Term: term, Number: 1, Count: 1}, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-ns.full; err == nil {
		t.Fatal("there is space before there was none")
	}
	if m := l.Committed().Mark(); m.Epoch == term && m.Number == 1 {
		t.Error("the leader counts an entry as committed that its own disk has not")
	}
	full.Store(false)
	select {
	case err := <-ns.full:
		if err != nil {
			t.Fatalf("still full: %v", err)
		}
	case <-ctx.Done():
		t.Fatal("nobody was told of the space")
	}
	for m := l.Committed().Mark(); m.Number < 1; m = l.Committed().Mark() {
		if err := l.barriers.await(ctx, m.Index+1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullNodeVotes: a node whose disk is full still votes. Otherwise one dead node of three would stop the
// cluster.
func TestFullNodeVotes(t *testing.T) {
	ctx := testContext(t)
	var full atomic.Bool
	ns := startNodes(t, func(op vfs.Op, name string) error {
		if full.Load() && (op == vfs.OpWrite || op == vfs.OpCreate) && !strings.HasSuffix(name, "state") {
			return syscall.ENOSPC
		}
		return nil
	})
	l := ns.leader(ctx)
	for l == ns.all[0] {
		l.TransferTo(ctx, l.Role().Term, ns.all[1].cfg.Self)
		l = ns.leader(ctx)
	}
	term := ns.open(ctx, l)
	if err := ns.all[0].barriers.await(ctx, 2); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	if err := l.Propose(ctx, transactionsEntry(entry.Header{Term: term, Number: 1, Count: 1}, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-ns.full; err == nil {
		t.Fatal("there is space before there was none")
	}
	// The node that stays must have the entries that the full node has in memory, or it could not lead.
	for _, n := range ns.all[1:] {
		for m, changed := n.Committed().Changed(); m.Number == 0; m, changed = n.Committed().Changed() {
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatal("nothing is committed: the full node is one of three")
			}
		}
	}
	ns.dead[l.cfg.Self].Store(true)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ns.all[1].Role().Leading && !ns.all[2].Role().Leading || l.Role().Leading {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("nobody was elected: the full node does not vote")
		}
	}
}

// TestNodeReportsAStalledDisk: a leader whose write hangs says so.
func TestNodeReportsAStalledDisk(t *testing.T) {
	ctx := testContext(t)
	hang, free := make(chan struct{}), make(chan struct{})
	hook := func(op vfs.Op, _ string) error {
		select {
		case <-hang:
			if op == vfs.OpSync || op == vfs.OpSyncData {
				<-free
			}
		default:
		}
		return nil
	}
	ns := startNodes(t, hook, hook, hook)
	t.Cleanup(func() { close(free) })
	l := ns.leader(ctx)
	term := ns.open(ctx, l)
	close(hang)
	if err := l.Propose(ctx, transactionsEntry(entry.Header{Term: term, Number: 1, Count: 1}, 1)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ns.stall:
	case <-ctx.Done():
		t.Fatal("nobody was told")
	}
}
