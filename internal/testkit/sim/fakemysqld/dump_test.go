package fakemysqld

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

const (
	rotate    = binlog.TypeRotate
	format    = binlog.TypeFormatDescription
	previous  = binlog.TypePreviousGTIDs
	gtidEvent = binlog.TypeGTID
	queryText = binlog.TypeQuery
	tableMap  = binlog.TypeTableMap
	rows      = binlog.TypeWriteRows
	xid       = binlog.TypeXID
	heartbeat = binlog.TypeHeartbeatV2
)

// TestEvents: package binlog reads everything that a dump sends, byte for byte.
func TestEvents(t *testing.T) {
	w := newWorld(t, 1)
	w.Kill()
	w.start(func(o *Options) {
		o.RowEventBytesMax = 100
		o.Now = func() time.Duration { return 90 * time.Second }
	})
	w.open()
	w.commit(NoOp, "k", "")
	w.commit(Write, "k", "1")
	w.commit(DDL, "k", "2")
	w.Begin(Tx{ID: 99, Kind: Write, Key: "k", Value: "3", Bytes: 250})
	w.flush()
	events := w.dumpAll(&gtid.Set{})
	want(t, "types", types(events), []binlog.Type{rotate, format, previous,
		gtidEvent, queryText, gtidEvent, queryText, tableMap, rows, xid, gtidEvent, queryText,
		gtidEvent, queryText, tableMap, rows, rows, rows, rows, xid})
	var log []byte
	offset := uint64(binlogMagicBytes)
	for _, raw := range events {
		e, err := binlog.ParseEvent(raw)
		if err == nil {
			err = binlog.VerifyChecksum(e)
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Type() != rotate {
			offset += uint64(len(e))
			want(t, "log_pos", uint64(e.LogPos()), offset)
		}
		log = append(log, e...)
	}
	var infos []binlog.GTIDInfo
	for tx, err := range binlog.Transactions(log) {
		if err != nil {
			t.Fatal(err)
		}
		changes, err := binlog.HasRowEvents(tx.Raw)
		want(t, "row events", changes && err == nil, tx.GTID.N%2 == 0)
		infos = append(infos, tx.GTIDInfo)
		want(t, "length", tx.TransactionLength, uint64(len(tx.Raw)))
		want(t, "date", binlog.Event(tx.Raw).Timestamp(), uint32(epochSeconds+90))
	}
	for i, info := range infos {
		n := uint64(i) + 1
		want(t, "clock", info, binlog.GTIDInfo{GTID: gtid.GTID{UUID: testUUID, N: n},
			LastCommitted: int64(i), SequenceNumber: int64(n),
			ImmediateCommit: (epochSeconds + 90) * 1e6, OriginalCommit: (epochSeconds + 90) * 1e6,
			TransactionLength: info.TransactionLength})
	}
	fd, err := binlog.ParseFormatDescription(events[1])
	if err != nil || fd.ServerVersion != "9.7.4" || fd.Checksum != binlog.ChecksumCRC32 || len(fd.PostHeaderBytes) != eventTypes {
		t.Errorf("format description %+v, %v", fd, err)
	}
}

// TestDumpSeesTransactionsBeforeTheirAck: facts Q1.
func TestDumpSeesTransactionsBeforeTheirAck(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	d, err := w.OpenDump(&gtid.Set{})
	if err != nil {
		t.Fatal(err)
	}
	drain(d)
	w.begin(Write, "k", "1")
	want(t, "before the flush", len(drain(d)), 0)
	w.flush()
	want(t, "after the flush", len(drain(d)), 5)
	w.wantValues("k")
}

// TestDumpRefusals: facts Q7.
func TestDumpRefusals(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.commit(Write, "k", "1")
	w.begin(Write, "k", "2")
	w.flush()
	for _, c := range []struct {
		exclude string
		err     error
	}{{"1", nil}, {"1-2", nil}, {"1-3", ErrReplicaAhead}} {
		if _, err := w.OpenDump(set(t, c.exclude)); !errors.Is(err, c.err) {
			t.Errorf("exclude %s: %v, want %v", c.exclude, err, c.err)
		}
	}
	w.FlushEngineLogs()
	w.Kill()
	w.start(func(*Options) {})
	if _, err := w.OpenDump(&gtid.Set{}); !errors.Is(err, ErrSourcePurged) {
		t.Errorf("after a restart: %v, want %v", err, ErrSourcePurged)
	}
	if _, err := w.OpenDump(set(t, "1-2")); !errors.Is(err, ErrReplicaAhead) {
		t.Errorf("what was rolled back: %v, want %v", err, ErrReplicaAhead)
	}
	other := set(t, "1")
	other.Add(gtid.GTID{UUID: gtid.UUID{9}, N: 5})
	if _, err := w.OpenDump(other); err != nil {
		t.Errorf("a foreign GTID that is not executed: %v", err)
	}
}

// TestDumpStartFile: the newest file whose PREVIOUS_GTIDS are excluded.
func TestDumpStartFile(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	w.commit(Write, "k", "1")
	w.Rotate()
	w.commit(Write, "k", "2")
	first := []binlog.Type{rotate, format, previous, gtidEvent, queryText, tableMap, rows, xid}
	want(t, "from the second file", types(w.dumpAll(set(t, "1"))), first)
	want(t, "from the first file", types(w.dumpAll(&gtid.Set{})), slices.Concat(first, []binlog.Type{rotate}, first))
}

// TestHeartbeats: facts Q7, traces A1.
func TestHeartbeats(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	var ends []uint64
	for _, v := range []string{"1", "2", "3"} {
		w.begin(Write, "k", v)
		w.flush()
		ends = append(ends, w.file().end)
	}
	at := func(e []byte) uint64 {
		t.Helper()
		name, pos, err := binlog.ParseHeartbeat(e)
		if err != nil || name != "q0001.000001" {
			t.Fatalf("heartbeat for %q: %v", name, err)
		}
		return pos
	}
	d, err := w.OpenDump(set(t, "1"))
	if err != nil {
		t.Fatal(err)
	}
	if d.Heartbeat() != nil {
		t.Error("a heartbeat before the first event")
	}
	events := drain(d)
	want(t, "types", types(events)[:5], []binlog.Type{rotate, format, previous, heartbeat, gtidEvent})
	want(t, "behind the skipped one", at(events[3]), ends[0])
	want(t, "idle", at(d.Heartbeat()), ends[2]) // of what was sent, not of what is acknowledged

	d, err = w.OpenDump(set(t, "2-3"))
	if err != nil {
		t.Fatal(err)
	}
	events = drain(d)
	want(t, "types", types(events), []binlog.Type{rotate, format, previous, gtidEvent, queryText, tableMap, rows, xid, heartbeat})
	want(t, "at the end", at(events[8]), ends[2])
	want(t, "idle", at(d.Heartbeat()), ends[2])
	want(t, "once", len(drain(d)), 0)
}

// TestDumpFollowsRotation: a real ROTATE ends a file, an artificial one begins the next file.
func TestDumpFollowsRotation(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	d, err := w.OpenDump(&gtid.Set{})
	if err != nil {
		t.Fatal(err)
	}
	drain(d)
	w.Rotate()
	events := drain(d)
	want(t, "types", types(events), []binlog.Type{rotate, rotate, format, previous})
	for i, artificial := range []bool{false, true} {
		name, pos, err := binlog.ParseRotate(events[i])
		if err != nil || name != "q0001.000002" || pos != binlogMagicBytes {
			t.Errorf("rotation to %s:%d, %v", name, pos, err)
		}
		want(t, "artificial", binlog.Event(events[i]).Flags()&binlog.FlagArtificial != 0, artificial)
	}
}

// TestOneDump: kill_zombie_dump_threads, facts Q7.
func TestOneDump(t *testing.T) {
	w := newWorld(t, 1)
	first, _ := w.OpenDump(&gtid.Set{})
	second, _ := w.OpenDump(&gtid.Set{})
	if _, ok := first.Next(); ok || first.Open() || !second.Open() {
		t.Error("the first dump is still open")
	}
	first.Close() // without effect
	on, clients := w.SemiSync()
	if !on || clients != 1 {
		t.Errorf("semi-sync %t, %d clients", on, clients)
	}
	second.Close()
	if on, clients = w.SemiSync(); !on || clients != 0 { // wait_no_replica=ON
		t.Errorf("semi-sync %t, %d clients without a dump", on, clients)
	}
	third, _ := w.OpenDump(&gtid.Set{})
	w.Kill()
	if _, ok := third.Next(); ok || third.Heartbeat() != nil {
		t.Error("a dump outlived its server")
	}
}
