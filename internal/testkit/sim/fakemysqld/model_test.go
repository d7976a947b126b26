package fakemysqld

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// life drives one mysqld through a random life, as a correct agent would, with a log of its own, and returns a
// trace. After each start it checks that the engine state is a prefix of the log, and at the end that nothing
// with an OK is missing.
func life(t *testing.T, seed uint64) string {
	w := newWorld(t, seed)
	trace := sha256.New()
	l := &agentLog{w: w, ok: map[string]bool{}}
	l.promote()
	for range 300 {
		switch n := w.rng.IntN(20); {
		case n < 8:
			l.begin()
		case n < 12:
			w.Flush()
		case n < 16:
			l.readTap(w.rng.IntN(30))
		case n < 17:
			w.Rotate()
		case n < 18:
			w.FlushEngineLogs()
		case w.rng.IntN(6) == 0:
			l.restart()
		}
		fmt.Fprintln(trace, l.collect(), w.GTIDExecuted(), numbers(w.EngineLog()))
	}
	l.restart()
	for value, key := range l.values {
		if l.ok[value] && !slices.Contains(w.Values(key), value) {
			t.Errorf("seed %d: %s had OK and is not in %s", seed, value, key)
		}
	}
	return fmt.Sprintf("%x", trace.Sum(nil))
}

// agentLog is the log of the only node: everything in it is committed.
type agentLog struct {
	w         *world
	dump      *Dump
	assembler binlog.Assembler
	partial   []byte
	log       []byte
	committed gtid.Set
	// values are all values that were written, with their keys. ok are those with an OK.
	values map[string]string
	ids    map[uint64]string
	ok     map[string]bool
	file   string
}

func (l *agentLog) begin() {
	if l.values == nil {
		l.values, l.ids = map[string]string{}, map[uint64]string{}
	}
	key := fmt.Sprint("k", l.w.lastID/4)
	switch l.w.rng.IntN(6) {
	case 0: // of a key that was never written
		l.w.begin(NoOp, fmt.Sprint("k", l.w.lastID/4+1), "")
	case 1:
		value := fmt.Sprint("d", l.w.lastID)
		l.values[value] = key
		l.ids[l.w.begin(DDL, key, value)] = value
	default:
		value := fmt.Sprint("v", l.w.lastID)
		l.values[value] = key
		l.ids[l.w.begin(Write, key, value)] = value
	}
}

// readTap reads up to n events of the dump, and acknowledges the whole transactions.
func (l *agentLog) readTap(n int) {
	for range n {
		raw, ok := l.dump.Next()
		if !ok {
			return
		}
		e, err := binlog.ParseEvent(raw)
		if err != nil {
			l.w.t.Fatal(err)
		}
		step, err := l.assembler.Feed(e)
		if err != nil {
			l.w.t.Fatal(err)
		}
		if e.Type() == binlog.TypeRotate {
			l.file, _, _ = binlog.ParseRotate(e)
		}
		if step != binlog.StepControl {
			l.partial = append(l.partial, e...)
		}
		if step == binlog.StepEnd {
			l.log = append(l.log, l.partial...)
			l.partial = nil
			if !l.committed.Add(l.assembler.Info().GTID) {
				l.w.t.Fatalf("%v came twice", l.assembler.Info().GTID)
			}
			l.w.Ack(l.file, uint64(e.LogPos()))
		}
	}
}

func (l *agentLog) collect() []Result {
	results := l.w.Results()
	for _, r := range results {
		if value, found := l.ids[r.TxID]; found && r.Outcome == OK {
			l.ok[value] = true
		}
	}
	return results
}

func (l *agentLog) restart() {
	l.collect()
	if l.w.rng.IntN(2) == 0 {
		l.w.Kill()
	} else {
		l.w.disk.PowerLoss(l.w.rng)
	}
	l.partial, l.assembler = nil, binlog.Assembler{}
	l.w.start(func(o *Options) { o.MaxBinlogBytes = 3000 })
	l.promote()
}

// promote brings mysqld up to date from the log, by the prefix rule, and opens it.
func (l *agentLog) promote() {
	executed := l.w.GTIDExecuted()
	holes, seen := &gtid.Set{}, &gtid.Set{}
	var after [][]byte
	for tx, err := range binlog.Transactions(l.log) {
		if err != nil {
			l.w.t.Fatal(err)
		}
		seen.Add(tx.GTID)
		after = append(after, tx.Raw)
		if executed.Contains(tx.GTID) {
			holes.Union(seen)
			after = nil
		}
	}
	if !seen.ContainsSet(executed) {
		l.w.t.Fatalf("mysqld has %v, the log %v", executed, seen)
	}
	holes.Subtract(executed)
	for tx := range binlog.Transactions(l.log) {
		if changes, _ := binlog.HasRowEvents(tx.Raw); changes && holes.Contains(tx.GTID) {
			l.w.t.Fatalf("mysqld holds no prefix: it lacks %v", tx.GTID)
		}
	}
	if !holes.IsEmpty() {
		if err := l.w.AddPurged(holes); err != nil {
			l.w.t.Fatal(err)
		}
	}
	l.w.StartReplica()
	l.w.feed(slices.Concat(after...))
	l.w.Apply(len(after))
	l.w.StopReplica()
	if !l.w.GTIDExecuted().Equal(&l.committed) {
		l.w.t.Fatalf("after catching up mysqld has %v, the log %v", l.w.GTIDExecuted(), &l.committed)
	}
	var err error
	if l.dump, err = l.w.OpenDump(&l.committed); err != nil {
		l.w.t.Fatal(err)
	}
	l.w.open()
}

func TestLives(t *testing.T) {
	for seed := range uint64(200) {
		first := life(t, seed)
		if seed < 10 {
			want(t, "the same life again", life(t, seed), first)
		}
	}
}
