package fakemysqld

import (
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
)

// TestAckReleasesInOrder: facts Q1, binlog_order_commits. One group waits for its ACK, and all later ones are
// one group behind it.
func TestAckReleasesInOrder(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	var ends []uint64
	for _, v := range []string{"1", "2", "3"} {
		w.begin(Write, "k", v)
		w.flush()
		ends = append(ends, w.file().end)
	}
	name := w.file().name
	w.wantValues("k")
	w.wantExecuted("")
	want(t, "waiting", w.Waiting(), 3)
	w.Ack(name, ends[0]-1)
	want(t, "waiting", w.Waiting(), 3)
	w.Ack(name, ends[0])
	w.wantValues("k", "1")
	w.Ack(name, ends[1]) // the next group waits for its highest position
	w.wantValues("k", "1")
	w.Ack(name, ends[2])
	w.wantValues("k", "1", "2", "3")
	want(t, "outcomes", outcomes(w.Results()), []Outcome{OK, OK, OK})
	want(t, "engine log", numbers(w.EngineLog()), []uint64{1, 2, 3})
}

func TestAckOfALaterPositionReleasesAll(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.begin(Write, "k", "1")
	w.flush()
	w.begin(Write, "k", "2")
	w.flush()
	w.ackAll()
	w.wantValues("k", "1", "2")
}

// TestStaleAck: traces A7, facts Q2. mysqld believes an ACK blindly, keeps it, and compares the file names.
func TestStaleAck(t *testing.T) {
	for _, c := range []struct {
		name, ack string
		released  bool
	}{
		{"same name", "q0002.000001", true},
		{"earlier name", "q0001.000001", false},
		{"longer name", "./q0001.000001", true},
		{"shorter name", "z.000001", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.Kill()
			w.start(func(*Options) {})
			w.open()
			w.Ack(c.ack, 1<<20)
			w.Ack("q0001.000001", 5) // a lower position does not undo it
			w.begin(Write, "k", "1")
			w.flush()
			want(t, "waiting", w.Waiting() == 0, c.released)
		})
	}
}

func TestAckStateDiesWithTheProcess(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.Ack("q0001.000001", 1<<20)
	w.Kill()
	w.disk.RemoveBinlogs("")
	w.start(func(o *Options) { o.BinlogDir, o.BinlogBase = "1", "q0001" })
	w.open()
	want(t, "file", w.file().name, "q0001.000001")
	w.begin(Write, "k", "1")
	w.flush()
	want(t, "waiting", w.Waiting(), 1)
}

func TestFlushGroups(t *testing.T) {
	sizes := map[int]bool{}
	for seed := range uint64(30) {
		w := newWorld(t, seed)
		w.Kill()
		w.start(func(o *Options) { o.FlushGroupMax = 3 })
		w.open()
		for range 5 {
			w.begin(Write, "k", "v")
		}
		n := w.Flush()
		sizes[n] = true
		want(t, "queued", w.Queued(), 5-n)
		want(t, "waiting", w.Waiting(), n)
	}
	want(t, "sizes", sizes, map[int]bool{1: true, 2: true, 3: true})
}

// TestSuperReadOnly: facts Q1 and Q8.
func TestSuperReadOnly(t *testing.T) {
	w := newWorld(t, 1)
	w.begin(Write, "k", "1")
	want(t, "at boot", outcomes(w.Results()), []Outcome{ReadOnly})
	w.open()
	w.begin(Write, "k", "2")
	want(t, "done while one is queued", w.SetSuperReadOnly(true), false)
	w.flush()
	want(t, "done while one waits", w.SetSuperReadOnly(true), false)
	w.begin(Write, "k", "3")
	want(t, "queued behind it", w.Queued(), 0)
	w.ackAll()
	want(t, "done", w.SetSuperReadOnly(true), true)
	want(t, "outcomes", outcomes(w.Results()), []Outcome{OK, ReadOnly})
	w.wantValues("k", "2")

	w.open()
	w.begin(Write, "k", "4")
	w.SetSuperReadOnly(true)
	w.begin(Write, "k", "5")
	w.SetSuperReadOnly(false) // given up
	want(t, "queued", w.Queued(), 2)
	want(t, "super_read_only", w.SuperReadOnly(), false)
}

// TestRotationDrains: facts Q1 and Q8.
func TestRotationDrains(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.begin(Write, "k", "1")
	w.flush()
	w.Rotate()
	w.begin(Write, "k", "2")
	want(t, "flushed during a rotation", w.Flush(), 0)
	want(t, "file", w.file().name, "q0001.000001")
	w.ackAll()
	want(t, "file", w.file().name, "q0001.000002")
	w.flush()
	w.ackAll()
	w.wantValues("k", "1", "2")
	want(t, "previous", w.file().previous.String(), set(t, "1").String())
}

func TestRotationBySize(t *testing.T) {
	w := newWorld(t, 1)
	w.Kill()
	w.start(func(o *Options) { o.MaxBinlogBytes = 500 })
	w.open()
	for range 4 {
		w.commit(Write, "k", "v")
	}
	want(t, "files", len(w.dir.files), 3)
	want(t, "sequence", w.file().sequence, uint64(0))
}

// TestRotationBehindAWait: the third group fills the file, but the rotation waits until no session waits.
func TestRotationBehindAWait(t *testing.T) {
	w := newWorld(t, 1)
	w.Kill()
	w.start(func(o *Options) { o.MaxBinlogBytes = 700 })
	w.open()
	for range 3 {
		w.begin(Write, "k", "v")
		w.flush()
	}
	if end := w.file().end; end <= 700 {
		t.Fatalf("the file ends at %d", end)
	}
	want(t, "files", len(w.dir.files), 1)
	w.ackAll()
	want(t, "files", len(w.dir.files), 2)
}

// TestLogicalClock: a statement depends on everything before it. A row transaction depends on the
// engine-committed transactions of its file.
func TestLogicalClock(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.commit(Write, "k", "1")
	w.begin(Write, "k", "2")
	w.begin(Write, "k", "3")
	w.flush()
	w.begin(DDL, "d", "4")
	w.flush()
	var got []int64
	for tx, err := range binlog.Transactions(w.logOf()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, tx.LastCommitted)
	}
	want(t, "last committed", got, []int64{0, 1, 1, 3})
}

// TestTableLocks: a DROP never passes a waiting write of its table.
func TestTableLocks(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.commit(Write, "k", "0")
	w.begin(Write, "k", "1")
	w.flush()
	w.begin(NoOp, "k", "")
	w.begin(Write, "k", "2")
	w.begin(Write, "other", "3")
	w.flush()
	want(t, "queued", w.Queued(), 2)
	want(t, "waiting", w.Waiting(), 2)
	w.ackAll()
	w.flush()
	w.ackAll()
	w.wantValues("k") // the DROP found rows
	w.flush()
	w.ackAll()
	w.wantValues("k", "2")
}

// TestNumbersFillHoles: a hole that was not declared done is used again.
func TestNumbersFillHoles(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.commit(Write, "k", "1")
	w.commit(NoOp, "n", "")
	w.commit(Write, "k", "3")
	w.writeRedo()
	w.Kill()
	w.start(func(*Options) {})
	w.open()
	w.begin(Write, "k", "2")
	w.begin(Write, "k", "4")
	w.flush()
	w.ackAll()
	want(t, "engine log", numbers(w.EngineLog()), []uint64{1, 3, 2, 4})
}

// TestShutOut: a transaction that has no place in the binlog yet ends, and no new one comes in. After LetIn new
// ones come in again.
func TestShutOut(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.begin(Write, "k", "1")
	w.ShutOut()
	w.begin(Write, "k", "2")
	want(t, "outcomes", outcomes(w.Results()), []Outcome{Gone, Gone})
	w.LetIn()
	w.begin(Write, "k", "3")
	want(t, "queued", w.Queued(), 1)
}

// TestSemiSyncOffAndOn: waiting sessions are released when semi-sync is turned off, and later ones do not wait
// until it is on again. Then an earlier ACK no longer counts.
func TestSemiSyncOffAndOn(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.begin(Write, "k", "1")
	w.flush()
	w.Ack(w.file().name, 1<<20)
	w.begin(Write, "k", "2")
	w.flush()
	want(t, "behind the ACK", outcomes(w.Results()), []Outcome{OK, OK})
	w.DisableSemiSync()
	w.begin(Write, "k", "3")
	w.flush()
	want(t, "while it is off", outcomes(w.Results()), []Outcome{OK})
	w.EnableSemiSync()
	w.begin(Write, "k", "4")
	w.flush()
	want(t, "waiting", w.Waiting(), 1)
	w.DisableSemiSync()
	want(t, "let go", outcomes(w.Results()), []Outcome{OK})
}
