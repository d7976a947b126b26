package replay

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// sessionLog is a log with epochs, whose transactions have connection ids.
type sessionLog struct {
	*fakeLog
	before *gtid.Set
	term   uint64
}

func newSessionLog() *sessionLog {
	return &sessionLog{fakeLog: &fakeLog{stages: map[entry.StageID][]byte{}}, before: &gtid.Set{}}
}

func (l *sessionLog) next() uint64 { return uint64(len(l.entries)) + 1 }

func (l *sessionLog) segment() {
	l.segments = append(l.segments, seglog.SegmentInfo{FirstIndex: l.next(), GTIDsBefore: l.before.Clone()})
}

func (l *sessionLog) add(data []byte) {
	l.entries = append(l.entries, seglog.Entry{Index: l.next(), Term: l.term, Data: data})
}

// epoch opens an epoch of a server.
func (l *sessionLog) epoch(term uint64, server byte) {
	l.term = term
	l.add(nil) // Raft's own
	l.segment()
	l.add(entry.EncodeEpoch(entry.Epoch{Term: term, Primary: "p", ServerUUID: gtid.UUID{server}, ServerVersion: "9", FormatDescription: fakeFormat(1)}))
}

// written is a transaction: its number, and the connection that wrote it.
type written struct {
	n      uint64
	thread uint32
}

func (w written) raw() []byte {
	raw := fakeTransaction(w.n, change{kind: rowChange})
	for e := range binlog.Events(raw) {
		if e.Type() == binlog.TypeQuery {
			binary.LittleEndian.PutUint32(e[binlog.HeaderBytes:], w.thread)
			binlog.PutChecksum(e)
		}
	}
	return raw
}

// transactions adds transactions as one entry.
func (l *sessionLog) transactions(ws ...written) {
	data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: uint32(len(ws)), Term: l.term, Number: l.next()})
	for _, w := range ws {
		data = append(data, w.raw()...)
		l.before.Add(gtid.GTID{N: w.n})
	}
	l.add(data)
}

// staged adds a staged transaction.
func (l *sessionLog) staged(w written, compressed bool) {
	data := l.stage(l.next(), w.raw(), compressed)
	h, _, err := entry.Parse(data)
	if err != nil {
		panic(err)
	}
	h.Term = l.term
	id := entry.StageID{Term: h.Term, Number: h.Number}
	l.stages[id] = l.stages[entry.StageID{Term: 1, Number: h.Number}]
	entry.SetHeader(data, h)
	l.before.Add(gtid.GTID{N: w.n})
	l.add(data)
}

// buildSessions makes a log with two epochs of one server, which used the same connection ids
// in both.
func buildSessions() *sessionLog {
	l := newSessionLog()
	l.segments = []seglog.SegmentInfo{{FirstIndex: 1, GTIDsBefore: &gtid.Set{}}}
	l.epoch(3, 1)                                                   // entries 1, 2
	l.transactions(written{1, 10}, written{2, 11}, written{3, 10})  // 3
	l.transactions(written{4, 11})                                  // 4
	l.segment()                                                     //
	l.transactions(written{5, 12}, written{6, 10})                  // 5
	l.staged(written{7, 10}, false)                                 // 6
	l.staged(written{8, 11}, true)                                  // 7
	l.epoch(5, 1)                                                   // 8, 9
	l.transactions(written{9, 10}, written{10, 11}, written{11, 9}) // 10
	return l
}

func TestFindTransaction(t *testing.T) {
	l := buildSessions()
	for n, want := range map[uint64]Place{
		1: {3, 3, 10}, 3: {3, 3, 10}, 4: {4, 3, 11}, 5: {5, 3, 12}, 7: {6, 3, 10}, 8: {7, 3, 11}, 9: {10, 5, 10}, 11: {10, 5, 9},
	} {
		got, err := FindTransaction(l, gtid.GTID{N: n})
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("transaction %d: %v (-want +got):\n%s", n, err, d)
		}
	}
	if p, err := FindTransaction(l, gtid.GTID{N: 12}); !errors.Is(err, ErrNotCommitted) {
		t.Errorf("one that is not there: %v, %v", p, err)
	}
	purged := l.purged(4)
	if p, err := FindTransaction(purged, gtid.GTID{N: 4}); !errors.Is(err, ErrPurged) {
		t.Errorf("one that was purged: %v, %v", p, err)
	}
	if p, err := FindTransaction(purged, gtid.GTID{N: 5}); err != nil || p.Index != 5 {
		t.Errorf("the first that was not: %v, %v", p, err)
	}
}

func TestFollowSession(t *testing.T) {
	l := buildSessions()
	going := func() error { return nil }
	ids := func(ns ...uint64) (all []gtid.GTID) {
		for _, n := range ns {
			all = append(all, gtid.GTID{N: n})
		}
		return all
	}
	for token, want := range map[uint64]Session{
		1:  {Place{3, 3, 10}, 3, ids(3, 6, 7), gtid.GTID{N: 7}, 6},
		3:  {Place{3, 3, 10}, 2, ids(6, 7), gtid.GTID{N: 7}, 6},
		7:  {Place{6, 3, 10}, 0, nil, gtid.GTID{N: 7}, 6}, // what comes in the next epoch is another connection's
		2:  {Place{3, 3, 11}, 2, ids(4, 8), gtid.GTID{N: 8}, 7},
		5:  {Place{5, 3, 12}, 0, nil, gtid.GTID{N: 5}, 5},
		11: {Place{10, 5, 9}, 0, nil, gtid.GTID{N: 11}, 10},
	} {
		got, err := FollowSession(l, gtid.GTID{N: token}, going)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("after %d: %v (-want +got):\n%s", token, err, d)
		}
	}
	stop := errors.New("stop")
	if _, err := FollowSession(l, gtid.GTID{N: 1}, func() error { return stop }); !errors.Is(err, stop) {
		t.Errorf("told to stop: %v", err)
	}
	long := newSessionLog()
	long.segments = []seglog.SegmentInfo{{FirstIndex: 1, GTIDsBefore: &gtid.Set{}}}
	long.epoch(1, 1)
	for n := range uint64(300) {
		long.transactions(written{n + 1, 10})
	}
	s, err := FollowSession(long, gtid.GTID{N: 1}, going)
	if err != nil || s.Count != 299 || len(s.GTIDs) != sessionListMax || s.Last.N != 300 {
		t.Errorf("a long session: %d, %d listed, last %v, %v", s.Count, len(s.GTIDs), s.Last, err)
	}
}

func TestFindEpoch(t *testing.T) {
	l := buildSessions()
	e, index, ok, err := FindEpoch(l)
	if err != nil || !ok || index != 9 || e.Term != 5 || e.ServerUUID != (gtid.UUID{1}) {
		t.Errorf("epoch %+v at %d, %t, %v", e, index, ok, err)
	}
	// An epoch that is not committed yet does not count.
	l.segments = append(l.segments, seglog.SegmentInfo{FirstIndex: l.next(), GTIDsBefore: l.before})
	if e, _, ok, err := FindEpoch(l); err != nil || !ok || e.Term != 5 {
		t.Errorf("before the next is committed: %+v, %t, %v", e, ok, err)
	}
	l.segments = slices.Delete(l.segments, 0, len(l.segments)-1)
	if e, _, ok, err := FindEpoch(l); err != nil || ok {
		t.Errorf("where it was purged: %+v, %t, %v", e, ok, err)
	}
}

func TestHasEpochOf(t *testing.T) {
	l := newSessionLog()
	l.segments = []seglog.SegmentInfo{{FirstIndex: 1, GTIDsBefore: &gtid.Set{}}}
	l.epoch(3, 1)                  // entries 1, 2
	l.transactions(written{1, 10}) // 3
	l.segment()                    //
	l.transactions(written{2, 10}) // 4
	l.epoch(5, 2)                  // 5, 6
	has := func(log CommittedLog, server byte) bool {
		t.Helper()
		ok, err := HasEpochOf(log, gtid.UUID{server})
		if err != nil {
			t.Error(err)
		}
		return ok
	}
	if !has(l, 1) || !has(l, 2) || has(l, 3) {
		t.Error("the log has epochs of servers 1 and 2, and of no other")
	}
	// The transactions are of server 0, which never was a primary here: they came from a source.
	purged := l.purged(3)
	if has(l, 0) || has(purged, 0) || has(purged, 1) || !has(purged, 2) {
		t.Error("where the begin was purged")
	}
	for epoch, want := range map[uint64]byte{3: 1, 5: 2, 4: 0} {
		if server, ok, err := ServerOfEpoch(l, epoch); err != nil || ok != (want != 0) || server != (gtid.UUID{want}) {
			t.Errorf("epoch %d: %v, %t, %v, want server %d", epoch, server, ok, err, want)
		}
	}
	if server, ok, err := ServerOfEpoch(purged, 3); err != nil || ok {
		t.Errorf("where the begin was purged: %v, %t, %v", server, ok, err)
	}
	if has(&fakeLog{}, 1) {
		t.Error("an empty log has one")
	}
}
