package consensus

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
)

// TestLogBehind: a node comes back with an older copy of its log, but the leader counts on an acknowledgement
// for more. The node ends with an error that says what to do.
func TestLogBehind(t *testing.T) {
	ctx := testContext(t)
	log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	node, err := New(Config{
		Self: 1, Members: []cluster.Member{testMember(1), testMember(2), testMember(3)}, Heartbeat: time.Minute, ElectionTimeout: time.Hour,
		Log: log, Fresh: true, Logger: slog.New(slog.DiscardHandler), Send: func([]*pb.Message) {},
		OnRole: func(RoleState) {}, OnCommit: func(Mark) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	last := log.LastIndex()
	for _, m := range []struct{ term, commit uint64 }{{7, last}, {6, last + 6}, {7, last + 6}} {
		select {
		case err := <-ended:
			t.Fatalf("ended before the heartbeat of term %d, commit %d: %v", m.term, m.commit, err)
		default:
		}
		node.do(ctx, func(now time.Duration) {
			node.group.Step(now, &pb.Message{
				Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(m.term), Commit: new(m.commit),
			})
		})
		node.do(ctx, func(time.Duration) {}) // the turn is over
	}
	if err := <-ended; !errors.Is(err, ErrLogBehind) || !strings.Contains(err.Error(), `"quorate node rebuild `) {
		t.Errorf("it ended with %v", err)
	}
}
