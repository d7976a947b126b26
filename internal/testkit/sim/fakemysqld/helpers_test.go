package fakemysqld

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

var testUUID = gtid.UUID{0x11, 15: 1}

// world is the mysqld of one node, and what a test needs around it.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	disk *Disk
	*Server
	starts int
	lastID uint64
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 0)), disk: NewDisk(testUUID)}
	w.start(func(*Options) {})
	return w
}

// start starts a server with a binlog directory of its own, as an agent does.
func (w *world) start(change func(*Options)) {
	w.starts++
	o := Options{BinlogDir: fmt.Sprint(w.starts), BinlogBase: fmt.Sprintf("q%04d", w.starts), ServerID: 7, Rand: w.rng}
	change(&o)
	w.Server = Start(w.disk, o)
	w.disk.RemoveBinlogs(o.BinlogDir)
}

func (w *world) open() { w.SetSuperReadOnly(false) }

func (w *world) begin(k Kind, key, value string) uint64 {
	w.lastID++
	w.Begin(Tx{ID: w.lastID, Kind: k, Key: key, Value: value})
	return w.lastID
}

// flush flushes until nothing is left to flush.
func (w *world) flush() {
	for w.Flush() > 0 {
	}
}

// writeRedo writes the redo log, so that a kill loses nothing.
func (w *world) writeRedo() { w.disk.engine.write() }

// ackAll acknowledges the whole binlog.
func (w *world) ackAll() { w.Ack(w.file().name, w.file().end) }

// commit runs a transaction to its end.
func (w *world) commit(k Kind, key, value string) {
	w.t.Helper()
	id := w.begin(k, key, value)
	w.flush()
	w.ackAll()
	for _, r := range w.Results() {
		if r.TxID == id && r.Outcome == OK {
			return
		}
	}
	w.t.Fatalf("transaction %d has no OK", id)
}

func (w *world) dumpAll(exclude *gtid.Set) [][]byte {
	w.t.Helper()
	d, err := w.OpenDump(exclude)
	if err != nil {
		w.t.Fatal(err)
	}
	return drain(d)
}

func drain(d *Dump) [][]byte {
	var out [][]byte
	for e, ok := d.Next(); ok; e, ok = d.Next() {
		out = append(out, e)
	}
	return out
}

func types(events [][]byte) []binlog.Type {
	var out []binlog.Type
	for _, e := range events {
		out = append(out, binlog.Event(e).Type())
	}
	return out
}

// feed sends the log (transactions as a primary wrote them) to the replica.
func (w *world) feed(log []byte) {
	w.t.Helper()
	for _, e := range feedEvents(log) {
		if err := w.Receive(e); err != nil {
			w.t.Fatal(err)
		}
	}
}

// feedEvents returns the events that a feed sends for one piece of the log.
func feedEvents(log []byte) [][]byte {
	f := openFile("any", 9, 0, 0, &gtid.Set{})
	out := [][]byte{binlog.AppendFakeRotate(nil, 9, "feed.1", binlogMagicBytes), sent(f.events[0].raw)}
	for e := range binlog.Events(log) {
		out = append(out, e)
	}
	return out
}

// logOf returns the transactions of the current binlog.
func (w *world) logOf() []byte {
	var out []byte
	for _, e := range w.file().events {
		if e.inTransaction {
			out = append(out, e.raw...)
		}
	}
	return out
}

func want(t *testing.T, what string, got, expected any) {
	t.Helper()
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("%s: -want +got\n%s", what, diff)
	}
}

func set(t *testing.T, intervals string) *gtid.Set {
	t.Helper()
	s, err := gtid.ParseSet(testUUID.String() + ":" + intervals)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *world) wantExecuted(intervals string) {
	w.t.Helper()
	expected := ""
	if intervals != "" {
		expected = set(w.t, intervals).String()
	}
	want(w.t, "gtid_executed", w.GTIDExecuted().String(), expected)
}

func outcomes(results []Result) []Outcome {
	var out []Outcome
	for _, r := range results {
		out = append(out, r.Outcome)
	}
	return out
}

func numbers(gtids []gtid.GTID) []uint64 {
	var out []uint64
	for _, g := range gtids {
		out = append(out, g.N)
	}
	return out
}

func (w *world) wantValues(key string, values ...string) {
	w.t.Helper()
	if !slices.Equal(w.Values(key), values) {
		w.t.Errorf("values of %s: %v, want %v", key, w.Values(key), values)
	}
}
