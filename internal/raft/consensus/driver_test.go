package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
)

// driven is a Driver whose leader, node 2, is the test.
type driven struct {
	t     *testing.T
	d     *Driver
	in    Inbox
	now   time.Duration
	full  bool
	trace []string
}

func newDriven(t *testing.T) *driven {
	v := &driven{t: t, now: time.Hour}
	log, err := seglog.Open(seglog.Options{FS: vfs.Wrap(vfs.NewMem(), v.hook), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	v.d, err = NewDriver(Config{
		Self: 1, Members: []cluster.Member{testMember(1), testMember(2), testMember(3)}, Heartbeat: 100 * time.Millisecond, ElectionTimeout: time.Second,
		Log: log, Fresh: true, Logger: slog.New(slog.DiscardHandler), OnRole: func(RoleState) {}, OnCommit: func(Mark) {},
		OnFull: func(err error) { v.note("full: %t", err != nil) },
		Send: func(ms []*pb.Message) {
			for _, m := range ms {
				v.note("%s of %d", m.GetType(), m.GetIndex())
			}
		},
	}, v.now)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *driven) hook(op vfs.Op, _ string) error {
	if v.full && (op == vfs.OpWrite || op == vfs.OpCreate) {
		return syscall.ENOSPC
	}
	return nil
}

func (v *driven) note(format string, args ...any) {
	v.trace = append(v.trace, fmt.Sprintf(format, args...))
}

func (v *driven) turn() (*Write, error) {
	v.in.Take(BootTime)
	return v.d.Turn(v.now, &v.in)
}

// turns runs turns and writes until nothing is left, and compares what was sent and reported.
func (v *driven) turns(what string, want ...string) {
	v.t.Helper()
	for {
		w, err := v.turn()
		if err != nil {
			v.t.Fatal(err)
		}
		if w == nil {
			break
		}
		v.write(w)
	}
	if !slices.Equal(v.trace, want) {
		v.t.Errorf("%s: %q, want %q", what, v.trace, want)
	}
	v.trace = nil
}

func (v *driven) write(w *Write) {
	err := w.Append()
	if err == nil {
		v.d.Answer(w)
	}
	v.in.Wrote(err)
}

// TestFullDiskGoesOn: a write that did not fit is tried again at intervals. Later writes wait behind it.
// Heartbeats are answered.
func TestFullDiskGoesOn(t *testing.T) {
	v := newDriven(t)
	v.in.Message(appendOf(1))
	v.turns("space", "MsgAppResp of 1")
	v.full = true
	v.in.Message(appendOf(2))
	v.turns("an entry that has no space", "full: true")
	if at := v.d.alarmAt(); at != v.now+fullRetryInterval {
		t.Errorf("the next try is at %v, now it is %v", at, v.now)
	}
	v.in.Message(appendOf(3))
	v.in.Message(heartbeatOf(6))
	v.turns("what comes meanwhile", "MsgHeartbeatResp of 0")
	v.now += fullRetryInterval
	v.turns("another try")
	v.full = false
	v.now += fullRetryInterval - 1
	v.turns("before the next try")
	v.now++
	v.turns("space again", "MsgAppResp of 2", "full: false", "MsgAppResp of 3")
	if v.d.Full() || v.d.alarmAt() != 0 {
		t.Errorf("full: %t, next try at %v", v.d.Full(), v.d.alarmAt())
	}
}

// TestOneWriteAtATime: the log gets no second write while one is under way. The next write has everything that
// came meanwhile.
func TestOneWriteAtATime(t *testing.T) {
	v := newDriven(t)
	v.in.Message(appendOf(1))
	first, err := v.turn()
	if err != nil || first == nil {
		t.Fatal(first, err)
	}
	for index := uint64(2); index <= 4; index++ {
		v.in.Message(appendOf(index))
		if w, err := v.turn(); w != nil || err != nil {
			t.Fatalf("while a write is under way: %v, %v", w, err)
		}
	}
	v.write(first)
	next, err := v.turn()
	if err != nil || next == nil || len(next.Runs) != 1 || len(next.Runs[0].Entries) != 3 {
		t.Fatalf("the next write: %+v, %v", next, err)
	}
}

// TestNoAnswerBeforeTheDisk: an answer for an entry that is not on the disk is a broken invariant.
func TestNoAnswerBeforeTheDisk(t *testing.T) {
	v := newDriven(t)
	v.in.Message(appendOf(1))
	w, err := v.turn()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("it is sent")
		}
	}()
	v.d.Answer(w)
}

// TestLogFails: an error of the log ends the node.
func TestLogFails(t *testing.T) {
	v := newDriven(t)
	v.in.Message(appendOf(1))
	if _, err := v.turn(); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken disk")
	v.in.Wrote(broken)
	if _, err := v.turn(); !errors.Is(err, broken) {
		t.Fatalf("it goes on: %v", err)
	}
}

// TestHangingDiskDropsAppends: a leader that sends appends again and again does not fill the memory of a node
// whose disk hangs.
func TestHangingDiskDropsAppends(t *testing.T) {
	v := newDriven(t)
	v.in.Message(appendOf(1))
	if _, err := v.turn(); err != nil {
		t.Fatal(err)
	}
	for range 2 * appendsMax {
		m := appendOf(2)
		m.Entries = nil
		v.in.Message(m)
		if _, err := v.turn(); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(v.d.writes.waiting); got != appendsMax {
		t.Errorf("%d messages wait for the log, at most %d may", got, appendsMax)
	}
}

// TestFullDiskDropsAppends: nor the memory of a node whose disk is full.
func TestFullDiskDropsAppends(t *testing.T) {
	v := newDriven(t)
	v.in.Message(appendOf(1))
	v.turns("space", "MsgAppResp of 1")
	v.full = true
	for index := range uint64(2 * appendsMax) {
		v.in.Message(appendOf(2 + index))
		for {
			w, err := v.turn()
			if err != nil {
				t.Fatal(err)
			}
			if w == nil {
				break
			}
			v.write(w)
		}
	}
	if got := v.d.writes.queued(); got != appendsMax {
		t.Errorf("%d messages wait for space, at most %d may", got, appendsMax)
	}
	v.full, v.trace = false, nil
	v.now += fullRetryInterval
	v.in.Message(heartbeatOf(6))
	for w, _ := v.turn(); w != nil; w, _ = v.d.Turn(v.now, &v.in) {
		v.write(w)
	}
	if want := fmt.Sprintf("MsgAppResp of %d", 2+appendsMax); !slices.Contains(v.trace, want) {
		t.Errorf("with space again what was held is not answered: no %s", want)
	}
}

// TestDiskWatch: a slow write of a leader is reported when it is seen for the second time, and once per
// election timeout.
func TestDiskWatch(t *testing.T) {
	cfg := Config{Heartbeat: 100 * time.Millisecond, ElectionTimeout: time.Second}
	const began = time.Hour
	type look struct {
		at      time.Duration
		leading bool
		want    time.Duration
	}
	for name, looks := range map[string][]look{
		"fast":        {{began + 900*time.Millisecond, true, 0}},
		"a follower":  {{began + 2*time.Second, false, 0}, {began + 3*time.Second, false, 0}},
		"once looked": {{began + time.Second, true, 0}, {began + 1050*time.Millisecond, true, 0}},
		"hangs": {
			{began + time.Second, true, 0}, {began + 1100*time.Millisecond, true, 1100 * time.Millisecond},
			{began + 2*time.Second, true, 0}, {began + 2100*time.Millisecond, true, 2100 * time.Millisecond},
		},
	} {
		var w diskWatch
		for _, l := range looks {
			if got := w.look(cfg, l.at, began, l.leading); got != l.want {
				t.Errorf("%s: at %v it tells %v, want %v", name, l.at-began, got, l.want)
			}
		}
		if got := w.look(cfg, 2*began, 0, true); got != 0 {
			t.Errorf("%s: no write is told of: %v", name, got)
		}
	}
}
