package transport

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
)

// contextBytesMax bounds what a message says beside its numbers: a round, a promise, the node that asks for a
// barrier. None of these has 64 bytes.
const contextBytesMax = 256

// roundBytesMin is how many bytes raft reads of the context of an answer to a heartbeat, if there is a context.
const roundBytesMin = 8

// take gives a message to the handler, if it is one that agents send.
func (t *Transport) take(m *pb.Message, more bool) error {
	if err := unsent(m); err != nil {
		t.unexpected.Add(1)
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	t.cfg.Handler.Raft(m, more)
	return nil
}

// unsent says why no agent sends such a message; nil = agents do, as far as the message itself shows (consensus
// judges it by what its node knows). Raft accepts more than this. Some of that would end the process, pass by
// the gate of invariant I2, or make a log that no node can read. For example, a message without a term is local
// to raft, and no node sends a proposal or a snapshot.
func unsent(m *pb.Message) error {
	entries, term := m.GetEntries(), m.GetTerm()
	switch m.GetType() {
	case pb.MsgApp:
		if err := unsentEntries(m); err != nil {
			return err
		}
	case pb.MsgReadIndex:
		if len(entries) != 1 || len(entries[0].GetData()) > contextBytesMax || term != 0 {
			return fmt.Errorf("%v of term %d with %d entries", m.GetType(), term, len(entries))
		}
		term = 1 // it has no term
	case pb.MsgReadIndexResp:
		if len(entries) != 1 || len(entries[0].GetData()) > contextBytesMax {
			return fmt.Errorf("%v with %d entries", m.GetType(), len(entries))
		}
	case pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp,
		pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow:
		if len(entries) > 0 {
			return fmt.Errorf("%v with entries", m.GetType())
		}
	default:
		return fmt.Errorf("a message of type %d", int32(m.GetType()))
	}
	switch {
	case term == 0:
		return fmt.Errorf("%v without a term", m.GetType())
	case m.GetLogTerm() > term:
		return fmt.Errorf("%v of term %d names an entry of term %d", m.GetType(), term, m.GetLogTerm())
	case m.GetType() == pb.MsgHeartbeatResp && len(m.GetContext()) > 0 && len(m.GetContext()) < roundBytesMin:
		return fmt.Errorf("%v with a context of %d bytes", m.GetType(), len(m.GetContext()))
	case m.Snapshot != nil || len(m.GetResponses()) > 0 || len(m.GetContext()) > contextBytesMax:
		return fmt.Errorf("%v with a snapshot, responses or a long context", m.GetType())
	}
	return nil
}

// unsentEntries is unsent for the entries of an append. Each entry must have the index after the entry before
// it, a term that is not lower, and no higher term than the message.
func unsentEntries(m *pb.Message) error {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		if e.GetIndex() != index+1 || e.GetIndex() == 0 || e.GetTerm() < max(term, 1) || e.GetTerm() > m.GetTerm() {
			return fmt.Errorf("%v of term %d has entry %d of term %d behind entry %d of term %d",
				m.GetType(), m.GetTerm(), e.GetIndex(), e.GetTerm(), index, term)
		}
		if t := e.GetType(); t != pb.EntryNormal && t != pb.EntryConfChangeV2 {
			return fmt.Errorf("entry %d is of type %d", e.GetIndex(), int32(t))
		}
		index, term = e.GetIndex(), e.GetTerm()
	}
	return nil
}
