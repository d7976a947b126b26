package consensus

import (
	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/sys/metrics"
)

// messageKind is how a message to a peer is counted.
type messageKind uint8

const (
	kindAppend messageKind = iota
	kindAppendEmpty
	kindAppendAnswer
	kindHeartbeat
	kindHeartbeatAnswer
	kindNotice
	kindOther
	messageKinds
)

func (k messageKind) String() string {
	return [messageKinds]string{"append", "append_empty", "append_answer", "heartbeat", "heartbeat_answer", "notice", "other"}[k]
}

func kindOf(m *pb.Message) messageKind {
	switch t := m.GetType(); {
	case t == pb.MsgApp && len(m.GetEntries()) > 0:
		return kindAppend
	case t == pb.MsgApp:
		return kindAppendEmpty
	case t == pb.MsgAppResp:
		return kindAppendAnswer
	case isNotice(m):
		return kindNotice
	case t == pb.MsgHeartbeat:
		return kindHeartbeat
	case t == pb.MsgHeartbeatResp:
		return kindHeartbeatAnswer
	}
	return kindOther // elections, read barriers, hand-overs
}

// messageCounts counts the messages to peers, by kind.
type messageCounts [messageKinds]prometheus.Counter

func newMessageCounts() (c messageCounts) {
	for k := range messageKinds {
		c[k] = metrics.Counter("quorate_raft_messages_sent_total", k.String())
	}
	return c
}
