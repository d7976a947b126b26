package consensus

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

// world is a few Groups on virtual time, with a network that the test controls.
type world struct {
	t     *testing.T
	now   time.Duration
	nodes []*member
	// cut holds the nodes that neither send nor receive.
	cut map[uint64]bool
	// checksLease: the world checks that no node is elected beside a lease. It is off if the script makes a
	// node stand against its promise, or reports a living node as gone.
	checksLease bool
	// dropTimeoutNow loses the message with which a transfer starts.
	dropTimeoutNow bool
	// mute holds the nodes whose answers to appends are lost.
	mute map[uint64]bool
	// appends counts the append messages to each node that a network carried.
	appends map[uint64]int
	// carries is called for each message on the network. It returns false if the message is lost. nil = no
	// message is lost.
	carries func(*pb.Message) bool
	// stores is called for each write of a node's log. delays returns true if the write has to wait. Both may
	// be nil.
	stores func(id uint64, m *pb.Message)
	delays func(id uint64, m *pb.Message) bool
}

type member struct {
	g       *Group
	log     *seglog.Log
	fs      *vfs.Mem
	inbox   []*pb.Message
	refused []string
	wanted  map[entry.StageID]bool
	// point is the cluster state that the node has kept. outcomes are the outcomes of changes since the last
	// status.
	point    *cluster.StatePoint
	outcomes []StateOutcome
	// acked is the index up to which the node may acknowledge in its term.
	acked     uint64
	ackEvents []string
	// sent counts the messages to peers, answered are its barriers.
	sent     int
	answered []Barrier

	// heartbeat and election are the node's settings. promised is what it has stored about its earlier
	// settings. old: its version answers heartbeats, but promises no lease.
	heartbeat, election, promised time.Duration
	old                           bool
}

func (m *member) tick() time.Duration { return m.heartbeat / testHeartbeat }

const (
	testTick      = 25 * time.Millisecond
	testHeartbeat = 4  // ticks
	testElection  = 40 // ticks
)

func newWorld(t *testing.T, nodes int) *world {
	w := &world{t: t, cut: map[uint64]bool{}, mute: map[uint64]bool{}, appends: map[uint64]int{}}
	for range nodes {
		w.nodes = append(w.nodes, &member{fs: vfs.NewMem(), heartbeat: testHeartbeat * testTick, election: testElection * testTick})
	}
	for i := range w.nodes {
		w.start(uint64(i+1), true)
	}
	return w
}

// start opens node id on its disk.
func (w *world) start(id uint64, fresh bool) {
	m := w.nodes[id-1]
	var err error
	m.log, err = seglog.Open(seglog.Options{FS: m.fs, Dir: "log", Identity: [16]byte{byte(id)}, CacheBytesMax: 1 << 16})
	if err != nil {
		w.t.Fatal(err)
	}
	var members []cluster.Member
	for i := range w.nodes {
		if i < 3 || id > 3 { // later nodes are added as learners: only they know of themselves
			members = append(members, testMember(i+1))
		}
	}
	m.g, err = NewGroup(GroupConfig{
		Self: cluster.NodeID(id), Members: members, Tick: m.tick(), HeartbeatTicks: testHeartbeat,
		ElectionTicks: int(m.election / m.tick()), Log: m.log, HasStage: m.log.HasStage, Fresh: fresh, Promised: m.promised,
		Logger: slog.New(slog.DiscardHandler), Now: w.now, State: m.point,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	m.promised = max(m.promised, m.election)
	m.inbox, m.wanted = nil, map[entry.StageID]bool{}
}

func (w *world) node(id uint64) *member { return w.nodes[id-1] }

// settle runs everything that is ready, until nothing is left, including the notices.
func (w *world) settle() {
	for w.turn() || w.notify() {
	}
}

// notify ends the timers of the notices. busy: there was a timer.
func (w *world) notify() (busy bool) {
	for _, m := range w.nodes {
		if at := m.g.NoticeAt(); at != 0 {
			m.g.Notify(at)
			busy = true
		}
	}
	return busy
}

// turn runs one turn of each node's loop. busy: some node had something to do.
func (w *world) turn() (busy bool) {
	for id := uint64(1); id <= uint64(len(w.nodes)); id++ {
		m := w.node(id)
		inbox := m.inbox
		m.inbox = nil
		for _, msg := range inbox {
			m.g.Step(w.now, msg)
		}
		for {
			out, ok := m.g.Ready()
			if !ok {
				break
			}
			busy = true
			w.carryOut(m, out)
		}
	}
	return busy
}

func (w *world) carryOut(m *member, out Output) {
	m.sent, m.answered = m.sent+len(out.Send), append(m.answered, out.Barriers...)
	w.send(out.Send)
	for _, a := range out.Append {
		id := uint64(m.g.cfg.Self)
		if w.stores != nil {
			w.stores(id, a)
		}
		if w.delays == nil || !w.delays(id, a) {
			w.store(m, a)
		}
	}
	for _, r := range out.Refused {
		m.refused = append(m.refused, r.Err.Error())
	}
	for _, s := range out.Wanted {
		m.wanted[s.ID] = true
	}
	m.outcomes = append(m.outcomes, out.States...)
	m.takeAcks(out)
}

// store does a write of a node's log, and delivers its answers.
func (w *world) store(m *member, a *pb.Message) {
	for _, run := range AppendRuns([]*pb.Message{a}) {
		if err := m.log.Append(run.Entries, run.HardState); err != nil {
			w.t.Fatal(err)
		}
	}
	w.send(a.GetResponses())
}

func (w *world) send(msgs []*pb.Message) {
	for _, msg := range msgs {
		from, to := msg.GetFrom(), msg.GetTo()
		local := from == to || from > uint64(len(w.nodes))
		if !local && (w.cut[from] || w.cut[to] || w.dropTimeoutNow && msg.GetType() == pb.MsgTimeoutNow) {
			continue
		}
		if !local && w.mute[from] && msg.GetType() == pb.MsgAppResp {
			continue
		}
		if !local && w.carries != nil && !w.carries(msg) {
			continue
		}
		if !local && msg.GetType() == pb.MsgApp {
			w.appends[to]++
		}
		if !local && w.node(from).old && msg.GetType() == pb.MsgHeartbeatResp && len(msg.Context) == promiseBytes {
			msg.Context = msg.Context[:roundBytes] // what the leader had sent
		}
		m := w.node(to)
		m.inbox = append(m.inbox, msg)
	}
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.now += testTick
		for _, m := range w.nodes {
			if w.now%m.tick() == 0 {
				spare, rounds := m.g.spareTicks() > 0 && !m.g.rn.HasReady(), m.g.lease.seq
				m.g.Tick(w.now)
				if spare {
					w.changesNothing(m, rounds)
				}
			}
		}
		w.settle()
		if w.checksLease {
			w.checkLease()
		}
	}
}

// changesNothing checks a tick that a node could have slept over. Heartbeats that raft sends besides those of
// the rounds say nothing new, and notices have a timer of their own.
func (w *world) changesNothing(m *member, rounds uint64) {
	if m.g.lease.seq != rounds {
		w.t.Fatalf("at %v a spare tick of node %d begins a round", w.now, m.g.cfg.Self)
	}
	for {
		out, ok := m.g.Ready()
		heartbeats := slices.DeleteFunc(slices.Clone(out.Send), func(m *pb.Message) bool { return m.GetType() != pb.MsgHeartbeat })
		w.send(heartbeats)
		if len(heartbeats) < len(out.Send) || len(out.Append) > 0 || len(out.Refused) > 0 || len(out.AckEvents) > 0 || out.Role != nil || out.Committed {
			w.t.Fatalf("at %v a spare tick of node %d asks for %+v", w.now, m.g.cfg.Self, out)
		}
		if !ok {
			return
		}
	}
}

// checkLease checks that no other node is elected while a leader has its lease (I5).
func (w *world) checkLease() {
	for i, a := range w.nodes {
		for j, b := range w.nodes {
			if w.now < a.g.LeaseUntil() && b.g.Role().Leading && b.g.Role().Term > a.g.Role().Term {
				w.t.Fatalf("at %v node %d leads in term %d, and node %d has the lease of term %d until %v",
					w.now, j+1, b.g.Role().Term, i+1, a.g.Role().Term, a.g.LeaseUntil())
			}
		}
	}
}

// set changes a node's settings. They count from its next start, or at once if it is fresh.
func (w *world) set(d *datadriven.TestData, id uint64) {
	m := w.node(id)
	for key, value := range map[string]*time.Duration{"heartbeat": &m.heartbeat, "election": &m.election} {
		if !d.HasArg(key) {
			continue
		}
		var text string
		var err error
		d.ScanArgs(w.t, key, &text)
		if *value, err = time.ParseDuration(text); err != nil {
			w.t.Fatal(err)
		}
	}
	m.old = d.HasArg("old")
	if d.HasArg("fresh") { // the node never ran with other settings
		m.fs, m.promised = vfs.NewMem(), 0
		w.start(id, true)
	}
}

func (w *world) propose(id uint64, h entry.Header) {
	data := entry.AppendHeader(nil, h)
	if h.Kind == entry.KindEpoch {
		data = entry.EncodeEpoch(entry.Epoch{Term: h.Term, Primary: "n", FormatDescription: testFormatDescription()})
	}
	w.node(id).g.Propose(data)
	w.settle()
}

func (w *world) status() string {
	var b strings.Builder
	for i, m := range w.nodes {
		r, mark := m.g.Role(), m.g.Committed().Mark()
		fmt.Fprintf(&b, "%d: term=%d leader=%d leading=%t lease=%t committed=%d epoch=%d number=%d blocked=%t",
			i+1, r.Term, r.Leader, r.Leading, w.now < m.g.LeaseUntil(), mark.Index, mark.Epoch, mark.Number, m.g.Blocked())
		for _, text := range m.refused {
			fmt.Fprintf(&b, "\n   refused: %s", strings.TrimPrefix(text, ErrEpochEnded.Error()+": "))
		}
		m.refused = nil
		for _, id := range slices.SortedFunc(maps.Keys(m.wanted), func(a, b entry.StageID) int { return cmp.Compare(a.Number, b.Number) }) {
			fmt.Fprintf(&b, "\n   wants stage %d of term %d", id.Number, id.Term)
		}
		clear(m.wanted)
		m.describeState(&b)
		b.WriteByte('\n')
	}
	return b.String()
}

// elected says whether the connected nodes agree on one leader.
func (w *world) elected() string {
	leaders := map[cluster.NodeID]bool{}
	for i, m := range w.nodes {
		if !w.cut[uint64(i+1)] {
			leaders[m.g.Role().Leader] = true
		}
	}
	return fmt.Sprintf("one leader: %t, lease of node 1: %t\n", len(leaders) == 1 && !leaders[0], w.now < w.node(1).g.LeaseUntil())
}

func (w *world) do(d *datadriven.TestData) {
	var id, to, term, late, number uint64
	d.MaybeScanArgs(w.t, "node", &id)
	d.MaybeScanArgs(w.t, "to", &to)
	d.MaybeScanArgs(w.t, "term", &term)
	d.MaybeScanArgs(w.t, "late", &late)
	d.MaybeScanArgs(w.t, "number", &number)
	switch d.Cmd {
	case "campaign":
		w.node(id).g.campaign()
		w.settle()
	case "epoch":
		w.propose(id, entry.Header{Kind: entry.KindEpoch, Term: term})
	case "propose":
		w.propose(id, entry.Header{Kind: entry.KindTransactions, Term: term, Number: number})
	case "stage":
		w.stage(id, entry.StageID{Term: term, Number: number})
	case "name":
		w.node(id).g.Propose(naming(term, number, number))
		w.settle()
	case "run":
		var text string
		d.ScanArgs(w.t, "for", &text)
		dur, err := time.ParseDuration(text)
		if err != nil {
			w.t.Fatal(err)
		}
		w.run(dur)
	case "cut", "mute", "heal", "heal-but", "drop-timeout-now":
		w.rule(d.Cmd, id)
	case "purge":
		w.purge(id)
	case "heartbeats":
		w.heartbeats(id, to, term, late)
	case "transfer":
		w.node(id).g.TransferTo(w.node(id).g.Role().Term, cluster.NodeID(to))
		w.settle()
	case "resign":
		w.node(id).g.Resign(w.node(id).g.Role().Term)
		w.settle()
	case "gone":
		for i, m := range w.nodes {
			if uint64(i+1) != id {
				m.g.LeaderGone(w.now, cluster.NodeID(id))
			}
		}
		w.settle()
	case "set":
		w.set(d, id)
	case "crash":
		w.node(id).fs = w.node(id).fs.CrashClone(1)
		w.start(id, false)
	case "lose-and-regain":
		// Both happen before the next turn takes a proposal.
		g := w.node(id).g
		g.Resign(g.Role().Term)
		w.settle()
	case "change", "keep", "members":
		w.doState(d, id)
	default:
		w.t.Fatalf("unknown command %s", d.Cmd)
	}
}

// rule changes the network.
func (w *world) rule(what string, id uint64) {
	switch what {
	case "cut":
		w.cut[id] = true
	case "mute":
		w.mute[id] = true
	case "heal-but": // this node stays cut off
		clear(w.cut)
		w.cut[id] = true
	case "heal":
		clear(w.cut)
		clear(w.mute)
		w.dropTimeoutNow = false
	case "drop-timeout-now":
		w.dropTimeoutNow = true
	}
}

// heartbeats sends a node heartbeats of a leader, in this order.
func (w *world) heartbeats(leader, to uint64, terms ...uint64) {
	for _, term := range terms {
		m := &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: &leader, To: &to, Term: &term}
		w.node(to).inbox = append(w.node(to).inbox, m)
	}
	w.settle()
}

// purge removes the part of a node's log that may be purged.
func (w *world) purge(id uint64) {
	m := w.node(id)
	removed, err := m.log.Purge(m.g.Committed().Mark().Index)
	if err != nil || len(removed) == 0 {
		w.t.Fatalf("purge: %v, %v", removed, err)
	}
}

// stage puts a whole stage beside the log of a node.
func (w *world) stage(id uint64, stage entry.StageID) {
	s, err := w.node(id).log.CreateStage(stage)
	if err != nil {
		w.t.Fatal(err)
	}
	raw := testTransaction(stage.Number)
	if _, err := s.Write(raw); err != nil {
		w.t.Fatal(err)
	}
	if err := s.Finish(uint64(len(raw)), crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli))); err != nil {
		w.t.Fatal(err)
	}
}

func TestGroupScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t, nodesOf(path))
		w.checksLease = strings.HasPrefix(filepath.Base(path), "timings_")
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			if d.Cmd == "elect" { // by timers, which are random, so any node may lead
				w.run(5 * time.Second)
				return w.elected()
			}
			w.do(d)
			return w.status()
		})
	})
}
