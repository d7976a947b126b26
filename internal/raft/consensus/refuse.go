package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// A member with broken memory, or under the control of an attacker, can lie. Raft is not made for that, and
// such a member's own vote cannot be saved. But it must not end the other nodes. So a message that no sound
// member sends is refused before raft sees it: a message at which raft would panic, a message that would drive
// the terms up, and entries at which each node would panic once they are committed. After that, nothing of that
// member is taken for refusedElections, not even heartbeats, so that a broken leader is replaced. The caller
// ends its connections.
//
// What is already committed is not refused. There the commit check panics, because no node may go on with it.

const (
	// termsAheadMax is how far a message may bring this node's term forward: a million elections that it has
	// missed. Larger steps could use up all terms.
	termsAheadMax = 1 << 20
	// refusedElections is for how many election timeouts messages of a member are refused after a refusal:
	// enough for an election without that member.
	refusedElections = 4
	// soundElections: a leader that is heard this many election timeouts after this node's start has led after
	// that start. A leader without a majority steps down within two.
	soundElections = 3
)

// ErrBroken refuses a message that no sound member sends.
var ErrBroken = errors.New("no sound member sends this")

// Broken says that a member has sent a message that is refused.
type Broken struct {
	From cluster.NodeID
	Err  error
}

// guard is what a Group knows about the soundness of its members and of its own log.
type guard struct {
	// until is when messages of a member are accepted again.
	until map[uint64]time.Duration
	// soundAfter: a leader that is heard at this time or later has led after this node's start. So every leader
	// of a later term was elected after this start, too.
	soundAfter time.Duration
	// This node has acknowledged entries in term soundIn, and in all terms from soundFrom on, only since its
	// start, with the log that it has now. 0 = not known.
	soundIn, soundFrom uint64
	// tail is the end of the log, as far as it was seen.
	tail tail
	// ends is the last entry that raft's log has for certain. An append since the last Ready may have cut
	// raft's log while the disk still has the rest. Raft panics at a heartbeat with a later commit index.
	ends uint64
}

// tail is the end of a log: its last entry, and what must follow.
type tail struct {
	index, term uint64
	order       entry.Order
}

// refuses tells whether raft may not see a peer's message. It reports a broken peer to the caller.
func (g *Group) refuses(m *pb.Message) bool {
	from := m.GetFrom()
	if g.now < g.guard.until[from] {
		return true
	}
	if err := g.examine(m); err != nil {
		g.broken(from, fmt.Errorf("%w: %v: %w", ErrBroken, m.GetType(), err))
		return true
	}
	return false
}

func (g *Group) broken(from uint64, err error) {
	g.guard.until[from] = g.now + refusedElections*time.Duration(g.cfg.ElectionTicks)*g.cfg.Tick
	g.out.Broken = append(g.out.Broken, Broken{From: cluster.NodeID(from), Err: err})
}

// examine says what is wrong with a peer's message. The transport has already checked what the message alone
// can show.
func (g *Group) examine(m *pb.Message) error {
	term, from := m.GetTerm(), cluster.NodeID(m.GetFrom())
	own := max(g.role.Term, g.stored.Term)
	current := term == g.role.Term
	if term > own && term-own > termsAheadMax {
		return fmt.Errorf("it is of term %d, here it is term %d", term, own)
	}
	switch m.GetType() {
	case pb.MsgApp, pb.MsgHeartbeat, pb.MsgTimeoutNow, pb.MsgReadIndexResp:
		if current && g.role.Leader != 0 && g.role.Leader != from {
			return fmt.Errorf("it speaks as leader of term %d, which is node %d", term, g.role.Leader)
		}
	}
	switch m.GetType() {
	case pb.MsgAppResp:
		if current && g.role.Leading && m.GetIndex() > g.last {
			return fmt.Errorf("it answers for entry %d, the log ends at %d", m.GetIndex(), g.last)
		}
	case pb.MsgHeartbeatResp:
		if c := m.GetContext(); current && g.role.Leading && len(c) == promiseBytes {
			if seq := binary.LittleEndian.Uint64(c[raftContextBytes:]); seq > g.lease.seq {
				return fmt.Errorf("it answers round %d, the newest is %d", seq, g.lease.seq)
			}
		}
	case pb.MsgHeartbeat:
		return g.mustHave(m)
	}
	return nil
}

// examineEntries says which entry of a MsgApp would break an invariant at its commit. If none does, it notes
// where the log will end. m is the message that raft will get.
func (g *Group) examineEntries(m *pb.Message) error {
	if m.GetTerm() < g.role.Term || m.GetIndex() < g.rn.BasicStatus().GetCommit() {
		return nil // raft appends nothing of it
	}
	entries := m.GetEntries()
	g.guard.ends = min(g.guard.ends, entries[len(entries)-1].GetIndex())
	at, follows := g.endsAt(m.GetIndex(), m.GetLogTerm())
	fresh := &gtid.Set{}
	known := g.guard.tail
	for _, e := range entries {
		h, err := g.examineEntry(e, fresh)
		switch {
		case err != nil:
		// This node has this entry and everything before it.
		case e.GetIndex() == known.index && e.GetTerm() == known.term:
			at.order = known.order
		case e.GetIndex() == 1 && h.Kind == entry.KindStaged:
			err = errors.New("a log begins with no stage")
		case h.Counts():
			at.order, err = at.order.Next(h)
		}
		if err != nil {
			return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
		}
		at.index, at.term = e.GetIndex(), e.GetTerm()
	}
	if follows {
		g.guard.tail = at // raft sees the same end of the log, so it appends them
		g.guard.soundIn = m.GetTerm()
	}
	return nil
}

// endsAt returns the tail at an entry; ok=false: that entry is not known to be the last one of the log.
func (g *Group) endsAt(index, term uint64) (at tail, ok bool) {
	if t := g.guard.tail; t.index == index && t.term == term {
		return t, true
	}
	if at = g.committed.tail(); at.index == index && at.term == term {
		return at, true
	}
	return tail{}, false
}

// tail returns the newest committed entry.
func (c *Committed) tail() tail {
	c.mu.Lock()
	defer c.mu.Unlock()
	return tail{index: c.mark.Index, term: c.markTerm, order: c.order()}
}

// examineEntry checks one entry as the commit check will. fresh holds the transactions of the earlier entries
// in the message.
func (g *Group) examineEntry(e *pb.Entry, fresh *gtid.Set) (h entry.Header, err error) {
	switch e.GetType() {
	case pb.EntryNormal:
	case pb.EntryConfChangeV2:
		return h, examineMembers(e.GetData())
	default:
		return h, fmt.Errorf("its type is %d", e.GetType())
	}
	h, body, err := entry.Parse(e.GetData())
	if err != nil || h.Kind == entry.KindEmpty {
		return h, err
	}
	if h.Term != e.GetTerm() {
		return h, fmt.Errorf("it is of term %d and says term %d", e.GetTerm(), h.Term)
	}
	switch h.Kind {
	case entry.KindState:
		_, err = entry.ParseState(h, body)
	case entry.KindEpoch:
		_, err = entry.ParseEpoch(h, body)
	case entry.KindTransactions:
		count := uint32(0)
		for tx, err := range binlog.Transactions(body) {
			if err == nil {
				err = g.examineGTID(e.GetIndex(), tx.GTID, fresh)
			}
			if err != nil {
				return h, err
			}
			count++
		}
		if count != h.Count {
			return h, fmt.Errorf("it holds %d transactions, its header says %d", count, h.Count)
		}
	case entry.KindStaged:
		var id gtid.GTID
		if _, id, err = stagedTransaction(h, body); err == nil {
			err = g.examineGTID(e.GetIndex(), id, fresh)
		}
	}
	return h, err
}

// examineGTID refuses a transaction that is committed already (I9), or that came earlier in the message.
func (g *Group) examineGTID(index uint64, id gtid.GTID, fresh *gtid.Set) error {
	c := g.committed
	c.mu.Lock()
	defer c.mu.Unlock()
	if index > c.mark.Index && (c.gtids.Contains(id) || !fresh.Add(id)) {
		return fmt.Errorf("transaction %s comes again", id)
	}
	return nil
}

// examineMembers checks a change of the members as raft and the commit check will take it.
func examineMembers(data []byte) error {
	cc := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(data, cc); err != nil {
		return fmt.Errorf("read a change of the members: %w", err)
	}
	if cc.LeaveJoint() {
		return nil
	}
	c, err := entry.UnmarshalState(cc.GetContext())
	if err != nil {
		return err
	}
	if len(cc.GetChanges()) != 1 || len(c.State.Voters()) == 0 {
		return fmt.Errorf("a change of the members with %d steps leaves %d voters", len(cc.GetChanges()), len(c.State.Voters()))
	}
	if hasLocalID(c.State) {
		return errors.New("a change of the members brings an id that no node can have")
	}
	return nil
}

// noteTail notes the new end of the log when entries go to it.
func (g *Group) noteTail(entries []*pb.Entry) {
	first := entries[0].GetIndex() - 1
	at := tail{}
	if t := g.guard.tail; t.index == first {
		at = t
	} else if last := entries[len(entries)-1]; t.index == last.GetIndex() && t.term == last.GetTerm() {
		return // examineEntries has noted them
	} else if c := g.committed.tail(); c.index == first {
		at = c
	}
	for _, e := range entries {
		if h, _, err := entry.Parse(e.GetData()); err == nil && e.GetType() == pb.EntryNormal && h.Counts() {
			at.order = entry.OrderAt(h)
		}
		at.index, at.term = e.GetIndex(), e.GetTerm()
	}
	g.guard.tail = at
}

// soundFromTerm notes that all leaders from a term on were elected after this node's start.
func (g *guard) soundFromTerm(term uint64) {
	if g.soundFrom == 0 || term < g.soundFrom {
		g.soundFrom = term
	}
}

// isSound tells whether this node's log is known to have everything that it has acknowledged in a term.
func (g *Group) isSound(term uint64) bool {
	return term == g.guard.soundIn || g.guard.soundFrom != 0 && term >= g.guard.soundFrom
}
