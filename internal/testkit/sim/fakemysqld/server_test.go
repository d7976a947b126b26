package fakemysqld

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestTrap shows the worst trap: a no-op leaves a hole in the GTIDs, and running it again after later
// transactions destroys data.
func TestTrap(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.commit(Write, "a", "1")
	w.commit(NoOp, "b", "")
	w.commit(Write, "b", "2")
	w.commit(Write, "b", "3")
	w.writeRedo()
	w.wantExecuted("1-4")
	log := w.logOf()
	w.Kill()
	w.start(func(*Options) {})
	w.wantExecuted("1:3-4")
	w.wantValues("b", "2", "3")

	w.StartReplica()
	w.feed(log)
	w.Apply(4)
	w.wantValues("b")
	w.wantExecuted("1-4")
}

func TestPrefixRuleDeclaresHoles(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.commit(NoOp, "b", "")
	w.commit(Write, "b", "1")
	w.writeRedo()
	log := w.logOf()
	w.Kill()
	w.start(func(*Options) {})
	if err := w.AddPurged(set(t, "1")); err != nil {
		t.Fatal(err)
	}
	if err := w.AddPurged(set(t, "1")); err == nil {
		t.Error("gtid_purged took what is executed")
	}
	w.StartReplica()
	w.feed(log)
	want(t, "gtid_purged", w.GTIDPurged().String(), set(t, "1-2").String())
	want(t, "through with", w.Apply(9), 2) // both transactions are skipped
	w.wantValues("b", "1")
	w.FlushEngineLogs()
	w.Kill()
	w.start(func(*Options) {})
	w.wantExecuted("1-2") // gtid_purged is kept
}

// TestNoOpsThatAreKept: facts Q3 (write_other_gtids) and Q5 (gtid_state->save).
func TestNoOpsThatAreKept(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *world)
		want string
	}{
		{"forgotten", func(*world) {}, ""},
		{"rotation", func(w *world) { w.Rotate() }, "1"},
		{"clean stop", func(w *world) { w.StopGracefully() }, "1"},
		{"flush", func(w *world) { w.FlushEngineLogs() }, "1"},
		{"flush while it waits", func(w *world) {
			w.begin(NoOp, "other", "")
			w.flush()
			w.FlushEngineLogs()
		}, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.open()
			w.commit(NoOp, "k", "")
			c.do(w)
			w.writeRedo()
			w.Kill()
			w.start(func(*Options) {})
			w.wantExecuted(c.want)
			want(t, "engine log", len(w.EngineLog()), 0)
		})
	}
}

// TestRecovery: facts Q2.6 and Q4.
func TestRecovery(t *testing.T) {
	run := func(t *testing.T, keep bool, before func(w *world)) *world {
		w := newWorld(t, 1)
		w.open()
		w.commit(Write, "k", "acked")
		w.FlushEngineLogs()
		w.begin(Write, "k", "waiting")
		w.begin(NoOp, "n", "")
		w.flush()
		before(w)
		w.Kill()
		want(t, "outcomes", outcomes(w.Results()), []Outcome{Gone, Gone})
		w.start(func(o *Options) {
			if keep {
				o.BinlogDir, o.BinlogBase = "1", "q0001"
			}
		})
		return w
	}
	t.Run("binlog removed", func(t *testing.T) {
		w := run(t, false, func(*world) {})
		w.wantExecuted("1")
		w.wantValues("k", "acked")
		want(t, "gtid_purged", w.GTIDPurged().String(), set(t, "1").String())
		want(t, "file", w.file().name, "q0002.000001")
		want(t, "previous", w.file().previous.String(), "") // without the purged GTIDs
		w.open()
		w.commit(Write, "k", "other") // reuses number 2
		want(t, "engine log", numbers(w.EngineLog()), []uint64{1, 2})
	})
	t.Run("binlog kept", func(t *testing.T) {
		w := run(t, true, func(*world) {})
		w.wantExecuted("1-3")
		w.wantValues("k", "acked", "waiting")
		want(t, "gtid_purged", w.GTIDPurged().String(), "")
		want(t, "file", w.file().name, "q0001.000002")
	})
	t.Run("binlog kept, engine lost", func(t *testing.T) {
		w := run(t, true, func(w *world) { w.disk.engine.written = w.disk.engine.synced })
		w.wantExecuted("1-3") // the GTIDs in the binlog count, with or without their data
	})
}

// TestLosses: facts, summary 14. The rest is always a prefix.
func TestLosses(t *testing.T) {
	kept := map[int]bool{}
	killLostMost := 0
	for seed := range uint64(60) {
		w := newWorld(t, seed)
		w.open()
		for _, v := range []string{"1", "2", "3", "4", "5"} {
			if v == "3" {
				w.FlushEngineLogs()
			}
			w.commit(Write, "k", v)
		}
		full := slices.Clone(w.Values("k"))
		if seed%2 == 0 {
			w.disk.PowerLoss(w.rng)
			n := len(w.disk.Values("k"))
			kept[n] = true
			w.disk.PowerLoss(w.rng)
			want(t, "values after a second loss", len(w.disk.Values("k")), n)
		} else {
			w.Kill()
			killLostMost = max(killLostMost, 5-len(w.disk.Values("k")))
		}
		w.start(func(*Options) {})
		n := len(w.Values("k"))
		want(t, "values", w.Values("k"), full[:n])
		want(t, "engine log", numbers(w.EngineLog()), []uint64{1, 2, 3, 4, 5}[:n])
		want(t, "executed", w.GTIDExecuted().Count(), uint64(n))
	}
	want(t, "what power losses left", kept, map[int]bool{2: true, 3: true, 4: true, 5: true})
	want(t, "commits a kill lost", killLostMost, 1)
}

// TestDDLIsSynced: facts Q1.
func TestDDLIsSynced(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		w.open()
		w.commit(Write, "k", "1")
		w.commit(DDL, "k", "2")
		w.disk.PowerLoss(w.rng)
		w.wantValues("k", "1", "2")
	}
}

// TestPowerLossOfBinlog: sync_binlog=0, but a rotation syncs the old file.
func TestPowerLossOfBinlog(t *testing.T) {
	lost := false
	for seed := range uint64(30) {
		w := newWorld(t, seed)
		w.open()
		w.commit(Write, "k", "1")
		w.Rotate()
		w.commit(Write, "k", "2")
		w.disk.PowerLoss(w.rng)
		if n := len(w.file().events); n < 2 {
			t.Fatalf("the newest file has %d events left, its head was synced", n)
		}
		w.start(func(o *Options) { o.BinlogDir, o.BinlogBase = "1", "q0001" })
		if !w.GTIDExecuted().ContainsSet(set(t, "1")) {
			t.Fatal("the rotated file lost a transaction")
		}
		lost = lost || !w.GTIDExecuted().ContainsSet(set(t, "2"))
		w.open()
		w.commit(Write, "k", "3")
		for _, err := range binlog.Transactions(slices.Concat(w.dumpAll(w.GTIDPurged())...)) {
			if err != nil {
				t.Fatalf("a torn transaction was not cut: %v", err)
			}
		}
	}
	if !lost {
		t.Error("no seed lost the newest transaction")
	}
}

// TestGracefulStop: facts Q2, KILLER #1.
func TestGracefulStop(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.begin(Write, "k", "1")
	w.flush()
	w.begin(Write, "k", "2")
	want(t, "outcomes", outcomes(w.StopGracefully()), []Outcome{OK, Gone})
	if w.Alive() {
		t.Error("alive after a stop")
	}
	w.disk.PowerLoss(w.rng) // a clean stop synced everything
	w.start(func(*Options) {})
	w.wantValues("k", "1")
	w.wantExecuted("1")
}

func TestDeadServer(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.Kill()
	w.begin(Write, "k", "1")
	w.Ack("q0001.000009", 4)
	want(t, "outcomes", outcomes(w.Results()), []Outcome{Gone})
	if w.SetSuperReadOnly(true) || w.Flush() != 0 || w.Apply(1) != 0 || w.Read("k") != nil {
		t.Error("a dead server did something")
	}
	if _, err := w.OpenDump(&gtid.Set{}); err != ErrGone {
		t.Errorf("OpenDump: %v, want %v", err, ErrGone)
	}
	if err := w.AddPurged(set(t, "1")); err != ErrGone {
		t.Errorf("AddPurged: %v, want %v", err, ErrGone)
	}
}

func TestOneServerPerDisk(t *testing.T) {
	w := newWorld(t, 1)
	defer func() {
		if recover() == nil {
			t.Error("two servers on one disk")
		}
	}()
	Start(w.disk, Options{Rand: rand.New(rand.NewPCG(1, 1))})
}
