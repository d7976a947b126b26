package fakemysqld

import (
	"bytes"
	"errors"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// primaryLog returns the binlog of a primary that ran write, no-op, DDL, write.
func primaryLog(t *testing.T) []byte {
	w := newWorld(t, 1)
	w.open()
	w.commit(Write, "k", "1")
	w.commit(NoOp, "n", "")
	w.commit(DDL, "k", "2")
	w.Begin(Tx{ID: 9, Kind: Write, Key: "k", Value: "3", Bytes: 20_000})
	w.flush()
	return w.logOf()
}

// newReplica returns another node's mysqld, which replicates.
func newReplica(t *testing.T, seed uint64, change func(*Options)) *world {
	w := newWorld(t, seed)
	w.Kill()
	w.disk = NewDisk(gtid.UUID{0x22})
	w.start(change)
	w.StartReplica()
	return w
}

// TestApply: facts Q5, one-phase and without a binlog of its own.
func TestApply(t *testing.T) {
	w := newReplica(t, 1, func(*Options) {})
	w.feed(primaryLog(t))
	want(t, "relayed", w.Relayed(), 4)
	want(t, "request", w.RequestSet().String(), set(t, "1-4").String())
	w.wantExecuted("")
	want(t, "through with", w.Apply(1), 1)
	w.wantValues("k", "1")
	w.BlockApplier(true)
	want(t, "blocked", w.Apply(9), 0)
	w.BlockApplier(false)
	want(t, "through with", w.Apply(9), 3)
	w.wantValues("k", "1", "2", "3")
	w.wantExecuted("1-4")
	want(t, "gtid_purged", w.GTIDPurged().String(), set(t, "1-4").String())
	want(t, "binlog", len(w.logOf()), 0)
	want(t, "engine log", numbers(w.EngineLog()), []uint64{1, 3, 4})
	w.writeRedo()
	w.Kill()
	w.start(func(*Options) {})
	w.wantExecuted("1-4") // the applier saves the GTIDs of no-ops
}

// TestRelayLogIsLost: relay_log_recovery=ON with GTID_ONLY, facts Q5.
func TestRelayLogIsLost(t *testing.T) {
	w := newReplica(t, 1, func(*Options) {})
	log := primaryLog(t)
	w.feed(log)
	w.Apply(1)
	w.FlushEngineLogs()
	w.Kill()
	w.start(func(*Options) {})
	want(t, "relayed", w.Relayed(), 0)
	want(t, "request", w.RequestSet().String(), set(t, "1").String())
	if io, sql, _ := w.ReplicaRunning(); io || sql {
		t.Error("the replica runs after a start (skip_replica_start)")
	}
}

// TestAutoSkip: an executed transaction is skipped, also if it is in the relay log twice.
func TestAutoSkip(t *testing.T) {
	w := newReplica(t, 1, func(*Options) {})
	log := primaryLog(t)
	w.feed(log)
	w.Disconnect()
	w.feed(log)
	want(t, "through with", w.Apply(99), 8)
	w.wantValues("k", "1", "2", "3")
	w.StopReplica()
	if err := w.Receive(feedEvents(log)[0]); !errors.Is(err, ErrNotReplicating) {
		t.Errorf("a stopped replica received: %v", err)
	}
	w.StartReplica()
	w.feed(log)
	w.ResetReplica()
	want(t, "relayed", w.Relayed(), 0)
}

// TestOwnTransactionsComeBack: replicate-same-server-id=1, facts Q6.8. The events have the server id of this
// server.
func TestOwnTransactionsComeBack(t *testing.T) {
	w := newWorld(t, 1)
	w.StartReplica()
	w.feed(primaryLog(t))
	w.Apply(9)
	w.wantValues("k", "1", "2", "3")
}

// TestPartialTransactionIsDropped: facts Q6.
func TestPartialTransactionIsDropped(t *testing.T) {
	log := primaryLog(t)
	events := feedEvents(log)
	for cut := range events {
		w := newReplica(t, 1, func(*Options) {})
		for _, e := range events[:cut] {
			if err := w.Receive(e); err != nil {
				t.Fatal(err)
			}
		}
		w.Disconnect()
		w.feed(log)
		w.Apply(99)
		w.wantValues("k", "1", "2", "3")
	}
}

// TestReceiveRefuses: facts Q6, queue_event.
func TestReceiveRefuses(t *testing.T) {
	good := feedEvents(primaryLog(t))
	flip := func(e []byte, at int) []byte {
		e = bytes.Clone(e)
		e[at] ^= 1
		return e
	}
	end := uint64(binlogMagicBytes)
	for _, e := range good[1:] {
		end += uint64(len(e))
	}
	beat := func(name string, pos uint64) []byte { return binlog.AppendHeartbeatV2(nil, 9, name, pos) }
	incomplete := append([][]byte{}, good[:5]...)
	for _, c := range []struct {
		name   string
		events [][]byte
		err    error
	}{
		{"all", append(good[:len(good):len(good)], beat("feed.1", end), beat("feed.1", end+7)), nil},
		{"checksum", [][]byte{good[0], good[1], flip(good[2], 30)}, binlog.ErrChecksum},
		{"length", [][]byte{good[0], good[1], append(bytes.Clone(good[2]), 0)}, binlog.ErrMalformed},
		{"cut", [][]byte{good[0], good[1], good[2][:30]}, binlog.ErrMalformed},
		{"no format", [][]byte{good[0], good[2]}, ErrRelay},
		{"no file", [][]byte{good[1]}, ErrRelay},
		{"no format in the next file", [][]byte{good[0], good[1], good[0], good[2]}, ErrRelay},
		{"order", [][]byte{good[0], good[1], good[3]}, binlog.ErrStream},
		{"transaction within one", append(incomplete, good[2]), binlog.ErrStream},
		{"boundary within a transaction", append(incomplete, good[0]), binlog.ErrStream},
		{"heartbeat too early", [][]byte{good[0], good[1], beat("feed.1", 4)}, ErrHeartbeat},
		{"heartbeat of another file", [][]byte{good[0], good[1], beat("feed.2", end)}, ErrHeartbeat},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newReplica(t, 1, func(*Options) {})
			var err error
			for _, e := range c.events {
				if err = w.Receive(e); err != nil {
					break
				}
			}
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			io, sql, text := w.ReplicaRunning()
			if io != (err == nil) || !sql || (text == "") != io {
				t.Errorf("running %t, %t, %q after %v", io, sql, text, err)
			}
		})
	}
}

// TestReplicaBinlog: the applier writes a binlog. Semi-sync is off until it is enabled.
func TestReplicaBinlog(t *testing.T) {
	w := newReplica(t, 1, func(o *Options) { o.ReplicaBinlog = true })
	log := primaryLog(t)
	w.feed(log)
	want(t, "through with", w.Apply(3), 3)
	w.wantExecuted("1-3")
	want(t, "gtid_purged", w.GTIDPurged().String(), "")
	var got []gtid.GTID
	for tx, err := range binlog.Transactions(w.logOf()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, tx.GTID)
	}
	want(t, "binlog", numbers(got), []uint64{1, 2, 3})
	want(t, "dump", types(w.dumpAll(set(t, "1-3"))), []binlog.Type{rotate, format, previous, heartbeat})

	w.EnableSemiSync() // the applier now waits for an ACK, too (facts Q5)
	w.Apply(1)
	want(t, "waiting", w.Waiting(), 1)
	w.wantExecuted("1-3")
	w.feed(log)
	want(t, "applied behind it", w.Apply(9), 0)
	w.ackAll()
	w.wantExecuted("1-4")
	want(t, "results", len(w.Results()), 0)
	want(t, "skipped", w.Apply(9), 4)
}

// TestApplierWaitsForOwner: a session that owns a GTID keeps the applier from it.
func TestApplierWaitsForOwner(t *testing.T) {
	w := newWorld(t, 1)
	w.StartReplica()
	w.feed(primaryLog(t)) // GTIDs of this very server
	w.open()
	w.begin(Write, "k", "other 1")
	w.flush()
	want(t, "through with", w.Apply(9), 0)
	w.ackAll()
	want(t, "through with", w.Apply(9), 4)
	w.wantValues("k", "other 1", "2", "3")
}

// TestApplierWaitsForRotation: every flush waits for a rotation, that of the applier, too.
func TestApplierWaitsForRotation(t *testing.T) {
	w := newReplica(t, 1, func(o *Options) { o.ReplicaBinlog = true })
	w.feed(primaryLog(t))
	w.EnableSemiSync()
	w.open()
	w.begin(Write, "o", "1")
	w.flush()
	w.Rotate()
	want(t, "through with", w.Apply(9), 0)
	w.ackAll()
	want(t, "file", w.file().name, "q0002.000002")
	w.Apply(1)
	want(t, "waiting", w.Waiting(), 1)
}

// TestApplierWritesRedo: a kill loses at most the last applied transaction.
func TestApplierWritesRedo(t *testing.T) {
	p := newWorld(t, 1)
	p.open()
	for range 4 {
		p.commit(Write, "k", "v")
	}
	log := p.logOf()
	left := map[int]bool{}
	for seed := range uint64(20) {
		w := newReplica(t, seed, func(*Options) {})
		w.feed(log)
		w.Apply(4)
		w.Kill()
		left[len(w.disk.Values("k"))] = true
	}
	want(t, "values left", left, map[int]bool{3: true, 4: true})
}

// TestWithoutSemiSyncNobodyWaits shows why EnableSemiSync is needed.
func TestWithoutSemiSyncNobodyWaits(t *testing.T) {
	w := newReplica(t, 1, func(o *Options) { o.ReplicaBinlog = true })
	w.open()
	w.begin(Write, "k", "1")
	w.flush()
	want(t, "outcomes", outcomes(w.Results()), []Outcome{OK})
}
