package consensus

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// testTransaction is the smallest whole transaction: a GTID event and a
// statement.
func testTransaction(n uint64) []byte {
	id := append([]byte{1}, make([]byte, 16)...)
	id = binary.LittleEndian.AppendUint64(id, n)
	id = append(append(id, 2), make([]byte, 16)...)
	return append(testEvent(33, id), testEvent(2, append(make([]byte, 13), "\x00DROP TABLE t"...))...)
}

func testEvent(kind byte, body []byte) []byte {
	e := make([]byte, binlog.HeaderBytes)
	e[4] = kind
	e = append(append(e, body...), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(e[9:], uint32(len(e)))
	binlog.PutChecksum(e)
	return e
}

func transactionsEntry(h entry.Header, ns ...uint64) []byte {
	h.Kind = entry.KindTransactions
	data := entry.AppendHeader(nil, h)
	for _, n := range ns {
		data = append(data, testTransaction(n)...)
	}
	return data
}

// naming names a stage that holds transaction n.
func naming(term, number, n uint64) []byte {
	raw := testTransaction(n)
	event, _, err := binlog.CutEvent(raw)
	if err != nil {
		panic(err)
	}
	return entry.EncodeStaged(entry.Staged{
		ID: entry.StageID{Term: term, Number: number}, Bytes: uint64(len(raw)),
		CRC: crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli)), GTIDEvent: event, Rows: true,
	})
}

// broken returns the name of the invariant that f breaks; "" = none.
func broken(f func()) (name string) {
	defer func() {
		if v, ok := recover().(invariant.Violation); ok {
			name = v.Name
		}
	}()
	f()
	return ""
}

func epochEntry(term uint64) []byte {
	return entry.EncodeEpoch(entry.Epoch{Term: term, Primary: "a", FormatDescription: testFormatDescription()})
}

// TestCommitCheck: every way in which a committed entry can break I2 and I9 is noticed, and no correct entry is
// refused.
func TestCommitCheck(t *testing.T) {
	head := func(term, number uint64, count uint32) entry.Header {
		return entry.Header{Term: term, Number: number, Count: count}
	}
	for name, c := range map[string]struct {
		index, term uint64
		data        []byte
		want        string
	}{
		"next":                      {4, 1, transactionsEntry(head(1, 2, 2), 3, 4), ""},
		"empty":                     {4, 2, nil, ""},
		"new epoch":                 {4, 2, epochEntry(2), ""},
		"staged":                    {4, 1, naming(1, 2, 3), ""},
		"staged GTID again":         {4, 1, naming(1, 2, 2), "I9"},
		"staged out of order":       {4, 1, naming(1, 3, 3), "I2"},
		"staged of another term":    {4, 2, naming(1, 2, 3), "I2"},
		"index gap":                 {5, 1, transactionsEntry(head(1, 2, 1), 3), "I4"},
		"number gap":                {4, 1, transactionsEntry(head(1, 3, 1), 3), "I2"},
		"number again":              {4, 1, transactionsEntry(head(1, 1, 1), 3), "I2"},
		"of another term":           {4, 2, transactionsEntry(head(1, 2, 1), 3), "I2"},
		"no epoch in its term":      {4, 2, transactionsEntry(head(2, 1, 1), 3), "I2"},
		"second epoch in a term":    {4, 1, epochEntry(1), "I2"},
		"GTID committed before":     {4, 1, transactionsEntry(head(1, 2, 1), 2), "I9"},
		"GTID twice in one entry":   {4, 1, transactionsEntry(head(1, 2, 2), 3, 3), "I9"},
		"count is wrong":            {4, 1, transactionsEntry(head(1, 2, 2), 3), "I4"},
		"transaction is not whole":  {4, 1, transactionsEntry(head(1, 2, 1), 3)[:entry.HeaderBytes+60], "I4"},
		"data is no entry of ours":  {4, 1, []byte{9, 9, 9}, "I2"},
		"kind is unknown":           {4, 1, entry.AppendHeader(nil, entry.Header{Kind: 9, Term: 1}), "I2"},
		"epoch with another number": {4, 2, entry.AppendHeader(nil, entry.Header{Kind: entry.KindEpoch, Term: 2, Number: 1}), "I2"},
	} {
		t.Run(name, func(t *testing.T) {
			c2 := newCommitted(1, &gtid.Set{})
			c2.apply(2, 1, epochEntry(1))
			c2.apply(3, 1, transactionsEntry(head(1, 1, 2), 1, 2))
			if got := broken(func() { c2.apply(c.index, c.term, c.data) }); got != c.want {
				t.Fatalf("broke %q, want %q", got, c.want)
			}
		})
	}
}

// TestCommitCheckStartsInTheMiddle: after a restart the first entry's number is
// not known, from the second on every number is.
func TestCommitCheckStartsInTheMiddle(t *testing.T) {
	c := newCommitted(9, &gtid.Set{})
	c.apply(10, 3, transactionsEntry(entry.Header{Term: 3, Number: 7, Count: 1}, 1))
	if got := broken(func() {
		c.apply(11, 3, transactionsEntry(entry.Header{Term: 3, Number: 9, Count: 1}, 2))
	}); got != "I2" {
		t.Fatalf("broke %q", got)
	}
	m := c.Mark()
	if m.Number != 7 || m.Epoch != 3 || m.Last.N != 1 || m.Transactions != 1 {
		t.Fatalf("%+v", m)
	}
}

// TestTransactionsWakeNobodyWhoWaitsForAnEpoch: an epoch wakes all waiters. A transaction wakes only those that
// wait for any commit.
func TestTransactionsWakeNobodyWhoWaitsForAnEpoch(t *testing.T) {
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	c := newCommitted(1, &gtid.Set{})
	_, any := c.Changed()
	_, epochs := c.EpochChanged()
	c.apply(2, 1, epochEntry(1))
	c.publish()
	if !closed(any) || !closed(epochs) {
		t.Fatalf("an epoch wakes those who wait for any commit: %t, for an epoch: %t", closed(any), closed(epochs))
	}
	_, any = c.Changed()
	epoch, epochs := c.EpochChanged()
	c.apply(3, 1, transactionsEntry(entry.Header{Term: 1, Number: 1, Count: 1}, 1))
	c.publish()
	if epoch != 1 || !closed(any) || closed(epochs) {
		t.Fatalf("in epoch %d a transaction wakes those who wait for any commit: %t, for an epoch: %t", epoch, closed(any), closed(epochs))
	}
	c.apply(4, 1, transactionsEntry(entry.Header{Term: 1, Number: 2, Count: 1}, 2))
	c.publish() // nobody waits
	if m, later := c.Changed(); m.Index != 4 || closed(later) {
		t.Fatalf("at %+v a later commit is said to be there: %t", m, closed(later))
	}
}
