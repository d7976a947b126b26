package fakemysqld

import (
	"os"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

func (w *world) beginXA(k Kind, xid, key, value string) uint64 {
	w.lastID++
	w.Begin(Tx{ID: w.lastID, Kind: k, XID: xid, Key: key, Value: value})
	return w.lastID
}

// xa runs one part of an XA transaction to its end, and returns its outcome.
func (w *world) xa(k Kind, xid, key, value string) Outcome {
	w.t.Helper()
	id := w.beginXA(k, xid, key, value)
	w.flush()
	w.ackAll()
	for _, r := range w.Results() {
		if r.TxID == id {
			return r.Outcome
		}
	}
	return 0
}

func (w *world) wantPrepared(xids ...string) {
	w.t.Helper()
	want(w.t, "prepared", w.Prepared(), xids)
}

// shape returns the types, statements and XIDs of a transaction's events.
func shape(t *testing.T, raw []byte) (all []string) {
	t.Helper()
	for e, err := range binlog.Events(raw) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Type() {
		case binlog.TypeGTID, binlog.TypeTableMap, binlog.TypeWriteRows:
			all = append(all, string(rune('0'+e.Type())))
		case binlog.TypeQuery:
			q, err := binlog.ParseQuery(e)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, q.Text)
		default:
			all = append(all, string(rune('0'+e.Type()))+string(e.Body()))
		}
	}
	return all
}

// TestXALikeTheRealOne compares the events with those of a real mysqld 9.7.4 (internal/mysql/binlog/testdata).
func TestXALikeTheRealOne(t *testing.T) {
	file, err := os.ReadFile("../../../mysql/binlog/testdata/mysql-9.7.4.000001")
	if err != nil {
		t.Fatal(err)
	}
	real := map[uint64][]string{}
	for tx, err := range binlog.Transactions([]byte(strings.TrimPrefix(string(file), binlog.Magic))) {
		if err != nil {
			t.Fatal(err)
		}
		if tx.GTID.N >= 6 && tx.GTID.N <= 10 {
			real[tx.GTID.N] = shape(t, tx.Raw)
		}
	}
	w := newWorld(t, 1)
	w.open()
	w.xa(XAPrepare, "x1", "k", "1")
	w.xa(XACommit, "x1", "", "")
	w.xa(XAOnePhase, "x3", "k", "2")
	var model [][]string
	for tx, err := range binlog.Transactions(w.logOf()) {
		if err != nil {
			t.Fatal(err)
		}
		model = append(model, shape(t, tx.Raw))
	}
	want(t, "XA PREPARE, XA COMMIT, ONE PHASE", model, [][]string{real[6], real[7], real[10]})
}

// TestXA: a prepared transaction is not visible and keeps its lock. Once acknowledged, it survives a crash, and
// any session can end it (facts Q4).
func TestXA(t *testing.T) {
	w := newWorld(t, 1)
	w.open()
	want(t, "XA PREPARE", w.xa(XAPrepare, "a", "k", "1"), OK)
	w.wantValues("k")
	w.beginXA(XAPrepare, "b", "other", "2")
	w.flush() // but no ACK comes
	w.wantPrepared("a")
	w.begin(Write, "k", "3")
	w.flush()
	want(t, "flushable", w.Flushable(), false)
	w.writeRedo()
	w.Kill()
	for _, r := range w.Results() {
		want(t, "outcome", r.Outcome, Gone)
	}
	w.start(func(*Options) {})
	w.open()
	w.wantPrepared("a")
	w.wantExecuted("1")
	waits := w.begin(Write, "k", "3")
	w.flush()
	want(t, "XA COMMIT of another", w.xa(XACommit, "b", "", ""), NotPrepared)
	want(t, "XA COMMIT", w.xa(XACommit, "a", "", ""), OK)
	w.wantValues("k", "1")
	w.flush()
	w.ackAll()
	want(t, "who waited for the lock", w.Results()[0].TxID, waits)
	w.wantValues("k", "1", "3")
	want(t, "XA COMMIT again", w.xa(XACommit, "a", "", ""), NotPrepared)
	w.wantPrepared()
	want(t, "engine log", numbers(w.EngineLog()), []uint64{2, 3})
}

// TestXAEndIsForgotten: without its binlog, a commit that had no ACK is forgotten and the transaction stays
// prepared. With the binlog the commit counts.
func TestXAEndIsForgotten(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		w := newWorld(t, 1)
		w.open()
		w.xa(XAPrepare, "a", "k", "1")
		w.beginXA(XACommit, "a", "", "")
		w.flush()
		w.writeRedo()
		w.Kill()
		w.start(func(o *Options) {
			if keeps {
				o.BinlogDir, o.BinlogBase = "1", "q0001"
			}
		})
		if keeps {
			w.wantPrepared()
			w.wantValues("k", "1")
		} else {
			w.wantPrepared("a")
			w.wantValues("k")
		}
	}
}

// TestXAOfAnApplier: on an applier without a binlog, the GTID of an XA PREPARE is not kept, not even by FLUSH
// ENGINE LOGS. The transaction is rolled back at the next start. Its end would be in no binlog. With a binlog
// everything stays (docs/architecture.md, Promotion).
func TestXAOfAnApplier(t *testing.T) {
	p := newWorld(t, 1)
	p.open()
	p.xa(XAPrepare, "a", "k", "1")
	p.commit(Write, "other", "2")
	prepared := p.logOf()
	p.xa(XACommit, "a", "", "")
	all := p.logOf()

	w := newReplica(t, 1, func(*Options) {})
	w.feed(prepared)
	w.Apply(9)
	w.wantExecuted("1-2")
	w.wantPrepared("a")
	want(t, "in no binlog", w.Unbinlogged(), []string{"a"})
	w.FlushEngineLogs()
	w.Kill()
	w.start(func(*Options) {})
	w.wantPrepared()
	w.wantExecuted("2")
	w.StartReplica()
	w.feed(all)
	w.Apply(9)
	w.wantExecuted("1-3")
	w.wantValues("k", "1")
	w.FlushEngineLogs()
	w.Kill()
	w.start(func(*Options) {})
	w.wantExecuted("2-3")

	b := newReplica(t, 1, func(o *Options) { o.ReplicaBinlog = true })
	b.feed(prepared)
	for b.Apply(1) > 0 {
	}
	want(t, "in no binlog", len(b.Unbinlogged()), 0)
	b.writeRedo()
	b.Kill()
	b.start(func(*Options) {})
	b.wantPrepared("a")
	b.wantExecuted("1-2")
	want(t, "engine log", numbers(b.EngineLog()), []uint64{2})
}

// TestXAApplierStops: the applier stops at the end of a transaction that is not prepared (error 1397).
func TestXAApplierStops(t *testing.T) {
	p := newWorld(t, 1)
	p.open()
	p.xa(XAPrepare, "a", "k", "1")
	p.xa(XARollback, "a", "", "")
	w := newReplica(t, 1, func(*Options) {})
	set := &gtid.Set{}
	set.Add(gtid.GTID{UUID: testUUID, N: 1})
	if err := w.AddPurged(set); err != nil {
		t.Fatal(err)
	}
	w.feed(p.logOf())
	w.Apply(9)
	if w.ApplierError() == "" {
		t.Error("the applier did not stop")
	}
}
