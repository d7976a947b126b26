package consensus

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestInboxIsBoundedByBytes: the inbox takes only a few large messages. After that the readers wait for the
// turn.
func TestInboxIsBoundedByBytes(t *testing.T) {
	data := make([]byte, messagesBytesMax/4)
	m := &pb.Message{Type: pb.MsgApp.Enum(), Entries: []*pb.Entry{{Data: data}}}
	var in Inbox
	for range 2 { // the second time after a turn
		for i := range 5 {
			if full := in.Message(m); full != (i == 4) {
				t.Fatalf("full after %d messages: %t", i+1, full)
			}
		}
		in.Take(BootTime)
		in.stepped()
	}
}
