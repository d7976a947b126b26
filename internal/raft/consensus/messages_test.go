package consensus

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/raft/v3/raftpb"
)

func TestKindOf(t *testing.T) {
	for want, m := range map[messageKind]*pb.Message{
		kindAppend:          {Type: pb.MsgApp.Enum(), Entries: []*pb.Entry{{}}},
		kindAppendEmpty:     {Type: pb.MsgApp.Enum()},
		kindAppendAnswer:    {Type: pb.MsgAppResp.Enum()},
		kindHeartbeat:       {Type: pb.MsgHeartbeat.Enum(), Context: make([]byte, roundBytes)},
		kindHeartbeatAnswer: {Type: pb.MsgHeartbeatResp.Enum()},
		kindNotice:          {Type: pb.MsgHeartbeat.Enum(), Context: noticeContext[:]},
		kindOther:           {Type: pb.MsgVote.Enum()},
	} {
		if got := kindOf(m); got != want {
			t.Errorf("%v is %v, want %v", m, got, want)
		}
	}
}

// TestMessagesAreCounted: each node has counters for all kinds of messages, and the leader has sent two kinds.
func TestMessagesAreCounted(t *testing.T) {
	ctx := testContext(t)
	ns := startNodes(t)
	l := ns.leader(ctx)
	ns.open(ctx, l)
	if err := l.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	for _, n := range ns.all {
		registry := prometheus.NewRegistry()
		registry.MustRegister(n.Collectors()...)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		sent := map[string]float64{}
		for _, f := range families {
			if f.GetName() == "quorate_raft_messages_sent_total" {
				for _, m := range f.GetMetric() {
					sent[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		if len(sent) != int(messageKinds) || n == l && (sent["append"] < 2 || sent["heartbeat"] == 0) {
			t.Errorf("node %d has sent %v", n.cfg.Self, sent)
		}
	}
}
