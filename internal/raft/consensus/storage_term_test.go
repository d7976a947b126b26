package consensus

import (
	"log/slog"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
)

// TestTermOfTheLastEntry: a node whose log has an entry of a later term than its hard state,
// as a crash between the two leaves it, stores that term before it answers anybody.
func TestTermOfTheLastEntry(t *testing.T) {
	log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if err := log.Append([]seglog.Entry{{Index: 1, Term: 1}}, nil); err != nil {
		t.Fatal(err)
	}
	var sent []*pb.Message
	d, err := NewDriver(Config{
		Self: 1, Members: []cluster.Member{testMember(1), testMember(2), testMember(3)}, Heartbeat: 100 * time.Millisecond, ElectionTimeout: time.Second,
		Log: log, Logger: slog.New(slog.DiscardHandler), OnRole: func(RoleState) {}, OnCommit: func(Mark) {},
		Send: func(ms []*pb.Message) { sent = append(sent, ms...) },
	}, time.Hour)
	if hs := log.HardState(); err != nil || hs != (seglog.HardState{Term: 1}) {
		t.Fatalf("%+v: %v", hs, err)
	}
	d.Group().Step(2*time.Hour, &pb.Message{
		Type: pb.MsgPreVote.Enum(), To: new(uint64(1)), From: new(uint64(2)), Term: new(uint64(2)), Index: new(uint64(0)), LogTerm: new(uint64(0)),
	})
	w, err := d.Turn(2*time.Hour, &Inbox{})
	if err != nil {
		t.Fatal(err)
	}
	if w != nil {
		if err := w.Append(); err != nil {
			t.Fatal(err)
		}
		d.Answer(w)
	}
	if len(sent) != 1 || sent[0].GetType() != pb.MsgPreVoteResp || !sent[0].GetReject() || sent[0].GetTerm() != 1 {
		t.Errorf("a candidate without the entry is answered %v", sent)
	}
}
