package replay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// fakeLog is a committed log in memory, cut into segments.
type fakeLog struct {
	entries  []seglog.Entry
	segments []seglog.SegmentInfo
	stages   map[entry.StageID][]byte
}

func (l *fakeLog) Segments() []seglog.SegmentInfo { return l.segments }
func (l *fakeLog) FirstIndex() uint64             { return l.segments[0].FirstIndex }
func (l *fakeLog) ReadCommitted(index, _ uint64) ([]seglog.Entry, bool, error) {
	switch {
	case index < l.FirstIndex():
		return nil, false, seglog.ErrCompacted
	case index > uint64(len(l.entries)):
		return nil, false, nil
	}
	return l.entries[index-1 : min(int(index)+1, len(l.entries))], true, nil
}

func (l *fakeLog) ReadStage(id entry.StageID) (io.ReadCloser, error) {
	if l.stages[id] == nil {
		return nil, seglog.ErrNoStage
	}
	return io.NopCloser(bytes.NewReader(l.stages[id])), nil
}

// purged returns the log without the segments that end at upTo or before.
func (l *fakeLog) purged(upTo uint64) *fakeLog {
	p := *l
	for len(p.segments) > 1 && p.segments[1].FirstIndex <= upTo+1 {
		p.segments = p.segments[1:]
	}
	return &p
}

// change is what a fake transaction does.
type change struct {
	kind byte // one of the constants below
	xid  byte
}

const (
	noOp      = 'n'
	rowChange = 'r'
	xaPrepare = 'p'
	xaEnd     = 'e'
)

// kept tells whether InnoDB keeps the GTID through a crash of a replica.
func (c change) kept() bool { return c.kind == rowChange || c.kind == xaEnd }

// fakeTransaction is a GTID event and the events for c.
func fakeTransaction(n uint64, c change) []byte {
	var id gtid.UUID
	body := append([]byte{1}, id[:]...)
	body = binary.LittleEndian.AppendUint64(body, n)
	body = append(body, 2)
	body = append(body, make([]byte, 16)...)
	raw := fakeEvent(33, body)
	rows := fakeEvent(30, make([]byte, 10))
	xid := fmt.Sprintf("X'%02x',X'',1", c.xid)
	switch c.kind {
	case rowChange:
		return slices.Concat(raw, fakeQuery("BEGIN"), rows, fakeEvent(16, make([]byte, 8)))
	case xaPrepare:
		prepare := fakeEvent(38, []byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, c.xid})
		return slices.Concat(raw, fakeQuery("XA START "+xid), rows, fakeQuery("XA END "+xid), prepare)
	case xaEnd:
		return append(raw, fakeQuery([]string{"XA COMMIT ", "XA ROLLBACK "}[n%2]+xid)...)
	}
	return append(raw, fakeQuery("DROP TABLE IF EXISTS t")...)
}

func fakeQuery(text string) []byte { return fakeEvent(2, append(make([]byte, 14), text...)) }

func fakeEvent(kind byte, body []byte) []byte {
	e := make([]byte, binlog.HeaderBytes)
	e[4] = kind
	e = append(append(e, body...), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(e[9:], uint32(len(e)))
	binlog.PutChecksum(e)
	return e
}

// stage adds the transaction raw as a stage, in one payload if it is compressed,
// and returns the entry that names it.
func (l *fakeLog) stage(number uint64, raw []byte, compressed bool) []byte {
	id := entry.StageID{Term: 1, Number: number}
	l.stages[id] = raw
	if !compressed {
		return fakeStaged(id, raw)
	}
	var head, data []byte
	for e := range binlog.Events(raw) {
		if head == nil {
			head = e
			continue
		}
		inner := slices.Clone(e[:len(e)-binlog.ChecksumBytes])
		binary.LittleEndian.PutUint32(inner[9:], uint32(len(inner)))
		data = append(data, inner...)
	}
	// Field, length of the value, value: no compression (255), the sizes; end.
	body := []byte{2, 3, 252, 255, 0}
	for _, field := range []byte{3, 1} {
		body = binary.LittleEndian.AppendUint16(append(body, field, 3, 252), uint16(len(data)))
	}
	body = append(append(body, 0), data...)
	l.stages[id] = slices.Concat(head, fakeEvent(40, body))
	return entry.EncodeStaged(entry.Staged{ID: id, Bytes: uint64(len(l.stages[id])), GTIDEvent: head, Rows: true})
}

// fakeStaged is the entry that names raw.
func fakeStaged(id entry.StageID, raw []byte) []byte {
	events := slices.Collect(func(yield func([]byte) bool) {
		for e := range binlog.Events(raw) {
			if !yield(e) {
				return
			}
		}
	})
	return entry.EncodeStaged(entry.Staged{
		ID: id, Bytes: uint64(len(raw)), GTIDEvent: events[0], EndEvent: events[len(events)-1], Rows: true,
	})
}

// buildLog makes entries with these counts of transactions; does says what each transaction
// does. A segment begins at every third entry. Some of the entries of one transaction are
// staged, and some of those compressed.
func buildLog(counts []int, does func(n uint64) change) *fakeLog {
	l := &fakeLog{stages: map[entry.StageID][]byte{}, segments: []seglog.SegmentInfo{{FirstIndex: 1, GTIDsBefore: &gtid.Set{}, FormatDescription: fakeFormat(1)}}}
	before, n := &gtid.Set{}, uint64(0)
	for i, count := range counts {
		index := uint64(i + 1)
		if i > 0 && i%3 == 0 {
			l.segments = append(l.segments, seglog.SegmentInfo{FirstIndex: index, GTIDsBefore: before.Clone(), FormatDescription: fakeFormat(index)})
		}
		if count == 1 && does(n+1).kind != noOp && does(n+1).kind != xaEnd && i%2 == 0 {
			n++
			l.entries = append(l.entries, seglog.Entry{Index: index, Term: 1, Data: l.stage(index, fakeTransaction(n, does(n)), i%4 == 2)})
			before.Add(gtid.GTID{N: n})
			continue
		}
		data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: uint32(count), Term: 1, Number: index})
		for range count {
			n++
			data = append(data, fakeTransaction(n, does(n))...)
			before.Add(gtid.GTID{N: n})
		}
		l.entries = append(l.entries, seglog.Entry{Index: index, Term: 1, Data: data})
	}
	return l
}

// fakeFormat is the format in force from an index on.
func fakeFormat(index uint64) []byte { return fmt.Appendf(nil, "format %d", index) }
