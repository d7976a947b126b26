package transport

import (
	"cmp"
	"slices"

	"github.com/quorate/quorate/internal/cluster"
)

// Stats is a snapshot of the counters, all counted since New.
type Stats struct {
	// Peers is sorted by id.
	Peers []PeerStats
	// HandshakesRejected counts accepted connections answered with a rejection.
	HandshakesRejected uint64
	// HandshakesFailed counts accepted connections that ended, or made no
	// sense, before their handshake was complete; probes are among them.
	HandshakesFailed uint64
	// HandshakesExpelled counts those of them that had to make room for others.
	HandshakesExpelled uint64
	// HandshakesTurnedAway counts those of them that found too many others waiting for TLS.
	HandshakesTurnedAway uint64
	// Misaddressed counts messages to nodes that are not peers.
	Misaddressed uint64
	// Unexpected counts connections that were ended for a Raft message that no agent sends.
	Unexpected uint64
	// StatusTooLarge counts blobs that SendStatus dropped.
	StatusTooLarge uint64
}

// PeerStats are the counters of one peer.
type PeerStats struct {
	ID cluster.NodeID
	// Version is the protocol version of this node's control connection to the peer; 0 = there is none.
	Version uint16
	// Plain: one of this node's connections to the peer is without TLS, or the last one was and there is no next one yet.
	Plain   bool
	Control ClassStats
	Append  ClassStats
	// BulkStreams is the number of open streams that the peer dialled. BulkRefused counts streams that were
	// closed because the peer had too many.
	BulkStreams int64
	BulkRefused uint64
	// CallStreams and CallRefused are the same for calls.
	CallStreams int64
	CallRefused uint64
}

// ClassStats are the counters of one peer and class. The first group is about this node's connection to the
// peer, Received… about the peer's connection to this node.
type ClassStats struct {
	Connected        bool
	Connects, Losses uint64
	// SentMessages and SentBytes were written to the connection.
	SentMessages, SentBytes uint64
	// DroppedMessages counts messages that found no connection or a full queue, that were too large, or that
	// were lost with the connection (some of these may have arrived).
	DroppedMessages uint64
	// QueuedMessages and QueuedBytes wait or are being written.
	QueuedMessages, QueuedBytes int64

	ReceivedMessages, ReceivedBytes uint64
	// CorruptFrames is the number of connections that were closed for a corrupt frame.
	CorruptFrames uint64
}

// Stats returns a snapshot of the counters.
func (t *Transport) Stats() Stats {
	waiting := t.strangers.Stats()
	s := Stats{
		HandshakesRejected:   t.handshakesRejected.Load(),
		HandshakesFailed:     t.handshakesFailed.Load(),
		HandshakesExpelled:   waiting.Expelled,
		HandshakesTurnedAway: waiting.TurnedAway,
		Misaddressed:         t.misaddressed.Load(),
		Unexpected:           t.unexpected.Load(),
		StatusTooLarge:       t.statusTooLarge.Load(),
	}
	for _, p := range t.allPeers() {
		s.Peers = append(s.Peers, PeerStats{
			ID: p.ID, Version: uint16(p.version.Load()), Control: p.classStats(classControl), Append: p.classStats(classAppend),
			BulkStreams: p.bulk.open.Load(), BulkRefused: p.bulk.refused.Load(),
			Plain:       slices.ContainsFunc(p.links[:], (*link).isPlain),
			CallStreams: p.calls.open.Load(), CallRefused: p.calls.refused.Load(),
		})
	}
	slices.SortFunc(s.Peers, func(a, b PeerStats) int { return cmp.Compare(a.ID, b.ID) })
	return s
}

func (p *peer) classStats(c class) ClassStats {
	l, in := p.links[c-1], p.received(c)
	open, messages, bytes := l.q.size()
	return ClassStats{
		Connected: open, Connects: l.connects.Load(), Losses: l.losses.Load(),
		SentMessages: l.sent.Load(), SentBytes: l.sentBytes.Load(), DroppedMessages: l.dropped.Load(),
		QueuedMessages: int64(messages), QueuedBytes: bytes,
		ReceivedMessages: in.messages.Load(), ReceivedBytes: in.bytes.Load(), CorruptFrames: in.corrupt.Load(),
	}
}

func (l *link) isPlain() bool { return l.plain.Load() }
