package consensus

import (
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestCommitIsNoWrite: a commit wakes no node's append goroutine. The log gets the commit index with the next
// entries, or within a heartbeat interval.
func TestCommitIsNoWrite(t *testing.T) {
	w := newWriting(t)
	appends := map[uint64][]*pb.Message{}
	w.stores = func(id uint64, m *pb.Message) { appends[id] = append(appends[id], m) }
	for range 3 {
		clear(appends)
		before := w.committed(1)
		w.commit()
		for id := uint64(1); id <= 3; id++ {
			if len(appends[id]) != 1 || len(appends[id][0].GetEntries()) != 1 {
				t.Fatalf("node %d writes %v for one commit", id, appends[id])
			}
			if got := w.node(id).log.HardState(); got.Term != 1 || got.Commit != before {
				t.Fatalf("node %d has stored %+v with an entry, %d are committed before it", id, got, before)
			}
		}
	}
	clear(appends)
	w.notify()
	for w.turn() {
	}
	if len(appends) != 0 {
		t.Fatalf("a commit notice makes nodes write: %v", appends)
	}
	w.run(testHeartbeat * testTick)
	for id := uint64(1); id <= 3; id++ {
		if got := w.node(id).log.HardState().Commit; len(appends[id]) != 1 || got != w.committed(id) {
			t.Errorf("node %d has stored commit index %d of %d, with %d writes", id, got, w.committed(id), len(appends[id]))
		}
	}
	clear(appends)
	w.run(time.Second)
	if len(appends) != 0 {
		t.Errorf("an idle group writes: %v", appends)
	}
}

// TestCommitBeforeOwnFsync: the followers commit entries that this leader's slow disk does not have yet, and
// the log gets no message for a commit alone. The leader still hands the entries out when they are on its disk,
// because of the answer to the message that brought them.
func TestCommitBeforeOwnFsync(t *testing.T) {
	w := newWriting(t)
	var slow []*pb.Message
	w.delays = func(id uint64, m *pb.Message) bool {
		if id == 1 {
			slow = append(slow, m)
		}
		return id == 1
	}
	before := w.committed(1)
	for range 3 {
		w.commit()
	}
	if len(slow) != 3 || w.committed(1) != before {
		t.Fatalf("%d messages to the slow log, %d entries committed before they are on it", len(slow), w.committed(1)-before)
	}
	w.delays = nil
	for _, m := range slow {
		w.store(w.node(1), m)
	}
	for w.turn() {
	}
	if w.committed(1) != before+3 {
		t.Errorf("%d of 3 entries committed", w.committed(1)-before)
	}
}
