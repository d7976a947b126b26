package replay

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// drain reads everything that is committed and returns the transactions' numbers.
func drain(t interface{ Fatal(...any) }, c *Cursor) (numbers []uint64, formats [][]byte) {
	for {
		p, ok, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return numbers, formats
		}
		switch {
		case p.FormatDescription != nil:
			formats = append(formats, p.FormatDescription)
		case p.Staged != nil:
			info, err := binlog.ParseGTID(p.Staged.GTIDEvent)
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, info.GTID.N)
		default:
			for tx, err := range binlog.Transactions(p.Events) {
				if err != nil {
					t.Fatal(err)
				}
				numbers = append(numbers, tx.GTID.N)
			}
		}
	}
}

// TestCursorServesWhatFollows (I4): a cursor returns exactly the transactions after the prefix,
// in order, each once, also those that are committed meanwhile.
func TestCursorServesWhatFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLife(t)
		l.log = buildLog(countsOf(l), rowsOnly)
		have := rapid.Uint64Range(0, l.total()).Draw(t, "have")
		log := l.log.purged(max(l.entryOf[have], 1) - 1)
		all := log.entries
		log.entries = all[:max(l.entryOf[have], uint64(rapid.IntRange(0, len(all)).Draw(t, "committed")))]
		p, err := FindPrefix(log, upTo(have), Mark{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewCursor(log, p)
		if err != nil {
			t.Fatal(err)
		}
		index, _ := c.Position()
		got, formats := drain(t, c)
		log.entries = all
		more, _ := drain(t, c)
		got = append(got, more...)
		for i, n := range got {
			if n != have+uint64(i)+1 {
				t.Fatalf("after %d came %v", have, got)
			}
		}
		if uint64(len(got)) != l.total()-have {
			t.Fatalf("%d transactions after %d of %d", len(got), have, l.total())
		}
		if index == 1 {
			if formats != nil {
				t.Fatalf("a format before the first epoch: %q", formats)
			}
			return
		}
		if len(formats) != 1 || !bytes.Equal(formats[0], fakeFormat(segmentOf(log, index))) {
			t.Fatalf("formats %q at entry %d", formats, index)
		}
	})
}

func countsOf(l life) []int {
	counts := make([]int, len(l.log.entries))
	for _, e := range l.entryOf[1:] {
		counts[e-1]++
	}
	return counts
}

func segmentOf(l *fakeLog, index uint64) (first uint64) {
	for _, s := range l.segments {
		if s.FirstIndex <= index {
			first = s.FirstIndex
		}
	}
	return first
}

// TestCursorBringsFormats: a cursor returns the formats of epoch and rotate entries.
func TestCursorBringsFormats(t *testing.T) {
	log := &fakeLog{segments: []seglog.SegmentInfo{{FirstIndex: 1, GTIDsBefore: &gtid.Set{}, FormatDescription: []byte("builtin")}}}
	add := func(data []byte) {
		log.entries = append(log.entries, seglog.Entry{Index: uint64(len(log.entries) + 1), Term: 1, Data: data})
	}
	add(nil)
	add(entry.EncodeEpoch(entry.Epoch{Term: 1, Primary: "a", FormatDescription: []byte("epoch")}))
	add(append(entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: 1, Term: 1, Number: 1}), fakeTransaction(1, change{kind: rowChange})...))
	add(append(entry.AppendHeader(nil, entry.Header{Kind: entry.KindRotate, Term: 1, Number: 2}), "rotate"...))
	c, err := NewCursor(log, Prefix{First: 1, Holes: Holes{Gone: &gtid.Set{}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"epoch", "", "rotate"}
	for i, format := range want {
		p, ok, err := c.Next()
		if !ok || err != nil || string(p.FormatDescription) != format || (len(p.Events) > 0) != (format == "") {
			t.Fatalf("piece %d: %+v %t %v", i, p, ok, err)
		}
	}
	if _, ok, err := c.Next(); ok || err != nil {
		t.Fatalf("after the end: %t %v", ok, err)
	}
}

// TestCursorSkipsWhatMysqldHas: two prepared transactions come again, each with its format, but
// nothing between them, however long the log is there.
func TestCursorSkipsWhatMysqldHas(t *testing.T) {
	counts := make([]int, 40)
	for i := range counts {
		counts[i] = 2
	}
	log := buildLog(counts, func(n uint64) change {
		switch n {
		case 3, 70:
			return change{kind: xaPrepare, xid: byte(n)}
		}
		return change{kind: rowChange}
	})
	executed := upTo(78)
	executed.Subtract(numbers(3, 70))
	p, err := FindPrefix(log, executed, Mark{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCursor(log, p)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		p, ok, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if p.FormatDescription != nil {
			got = append(got, fmt.Sprintf("%d: %s", p.Index, p.FormatDescription))
			continue
		}
		for tx, err := range binlog.Transactions(p.Events) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d: transaction %d", p.Index, tx.GTID.N))
		}
	}
	want := []string{"2: format 1", "2: transaction 3", "35: format 34", "35: transaction 70", "39: format 37", "40: transaction 79", "40: transaction 80"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCursorAfterAPurge: a purge between the search and the cursor gives an error; nothing is
// left out.
func TestCursorAfterAPurge(t *testing.T) {
	log := buildLog([]int{2, 2, 2, 2, 2, 2}, rowsOnly)
	for have := range uint64(7) {
		p, err := FindPrefix(log, upTo(have), Mark{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewCursor(log.purged(3), p)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Next(); !errors.Is(err, seglog.ErrCompacted) {
			t.Errorf("mysqld has %d: %v", have, err)
		}
	}
}
