package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// aStage has the least length of a staged transaction.
var aStage = bytes.Repeat([]byte("stage"), 50)

// batch is an entry with transactions, one committed in each second from at on.
func batch(index uint64, w *binlogtest.Writer, count int, at time.Time) seglog.Entry {
	data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: uint32(count), Term: 2, Number: index})
	for i := range count {
		events := w.Rows(20)
		binary.LittleEndian.PutUint32(events[0], uint32(at.Add(time.Duration(i)*time.Second).Unix()))
		data = append(data, binlogtest.Join(events...)...)
	}
	return seglog.Entry{Index: index, Term: 2, Data: data}
}

// staged is an entry that names a transaction of so many bytes.
func staged(index uint64, w *binlogtest.Writer, stage []byte) seglog.Entry {
	s := entry.Staged{ID: entry.StageID{Term: 2, Number: index}, GTIDEvent: w.LongGTID(uint64(len(stage))), Bytes: uint64(len(stage)), Rows: true}
	return seglog.Entry{Index: index, Term: 2, Data: entry.EncodeStaged(s)}
}

// aPiece has five entries from index 7 on, one of which names the stage.
func aPiece(t testing.TB, stage []byte) (entries []seglog.Entry, piece []byte) {
	t.Helper()
	w := binlogtest.New("q.000001")
	entries = []seglog.Entry{{Index: 7, Term: 1}, batch(8, w, 3, noon), staged(9, w, stage), {Index: 10, Term: 2, Type: 2, Data: []byte("members")}, batch(11, w, 1, noon)}
	var out bytes.Buffer
	pw, err := NewWriter(&out, Head{Cluster: "c", ClusterID: "1f", Node: "b", First: 7})
	for _, e := range entries {
		err = errors.Join(err, pw.Entry(e, bytes.NewReader(stage)), pw.Point(e.Index))
	}
	if err = errors.Join(err, pw.End()); err != nil {
		t.Fatal(err)
	}
	return entries, out.Bytes()
}

// read reads a piece to its end.
func read(src io.Reader) (entries []seglog.Entry, stages []byte, err error) {
	r, err := NewReader(src)
	if err != nil {
		return nil, nil, err
	}
	for {
		item, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, stages, nil
		}
		if err != nil {
			return entries, stages, err
		}
		if item.Entry.Index > 0 {
			entries = append(entries, item.Entry)
		}
		if item.Stage != nil {
			b, err := io.ReadAll(item.Stage)
			if err != nil {
				return entries, stages, err
			}
			stages = append(stages, b...)
		}
	}
}

func TestPiece(t *testing.T) {
	stage := bytes.Repeat([]byte("stage"), 500_000) // three frames
	want, piece := aPiece(t, stage)
	got, stages, err := read(bytes.NewReader(piece))
	if err != nil || !bytes.Equal(stages, stage) {
		t.Fatalf("%d bytes of the stage, %v", len(stages), err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// A reader that does not read the stage goes on behind it.
	r, err := NewReader(bytes.NewReader(piece))
	for n := 0; err == nil; n++ {
		if _, err = r.Next(); errors.Is(err, io.EOF) && n != 2*len(want) {
			t.Errorf("%d items", n)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// TestPieceDamaged: a part of a piece is never taken for a whole one, and a change is always
// noticed.
func TestPieceDamaged(t *testing.T) {
	_, piece := aPiece(t, aStage)
	for at := range piece {
		if _, _, err := read(bytes.NewReader(piece[:at])); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", at, err)
		}
		bad := bytes.Clone(piece)
		bad[at] ^= 0x10
		if _, _, err := read(bytes.NewReader(bad)); err == nil {
			t.Fatalf("changed at %d, and read", at)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	w, err := NewWriter(io.Discard, Head{First: 7})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []seglog.Entry{{Index: 6, Term: 1}, {Index: 8, Term: 1}, {Index: 7, Data: make([]byte, entryBytesMax+1)}} {
		if err := w.Entry(e, nil); err == nil {
			t.Errorf("entry %d with %d bytes was written first", e.Index, len(e.Data))
		}
	}
	short := staged(7, binlogtest.New("q.000001"), aStage)
	if err := w.Entry(short, strings.NewReader("sta")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a stage that is too short: %v", err)
	}
}

func FuzzPiece(f *testing.F) {
	_, piece := aPiece(f, aStage)
	f.Add(piece)
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, _, err := read(bytes.NewReader(b))
		for i := 1; i < len(entries); i++ {
			if entries[i].Index != entries[i-1].Index+1 || entries[i].Term < entries[i-1].Term {
				t.Fatalf("entry %d behind entry %d, %v", entries[i].Index, entries[i-1].Index, err)
			}
		}
	})
}

func TestNames(t *testing.T) {
	p := Piece{First: 7, Last: 11, Time: noon, Sum: SumOf(seglog.Entry{Index: 11, Term: 2})}
	if got, ok := ParsePiece(p.Name()); !ok || got != p {
		t.Errorf("%s is read as %+v", p.Name(), got)
	}
	for _, e := range []seglog.Entry{{Index: 12, Term: 2}, {Index: 11, Term: 3}, {Index: 11, Term: 2, Type: 1}, {Index: 11, Term: 2, Data: []byte("x")}} {
		if SumOf(e) == p.Sum {
			t.Errorf("%+v has the sum of another entry", e)
		}
	}
	full := FullName(noon, "db-1.eu")
	c := Sort([]string{"README", p.Name(), DataName(full), ManifestName(full), DataName(FullName(noon, "x")), "log-1-2.qlog",
		strings.Replace(p.Name(), "0011-", "0006-", 1)})
	want := Contents{Fulls: []string{full}, Unfinished: []string{FullName(noon, "x")}, Data: map[string]bool{full: true, FullName(noon, "x"): true}, Pieces: []Piece{p}}
	if d := cmp.Diff(want, c); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestChain: the pieces of a chain have every entry, and no other pieces go further without a
// gap.
func TestChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		has := map[uint64]bool{}
		for range rapid.IntRange(0, 8).Draw(t, "pieces") {
			first := rapid.Uint64Range(1, 20).Draw(t, "first")
			p := Piece{First: first, Last: first + rapid.Uint64Range(0, 6).Draw(t, "more"), Sum: strings.Repeat("0", 16)}
			names = append(names, p.Name())
			for i := p.First; i <= p.Last; i++ {
				has[i] = true
			}
		}
		from := rapid.Uint64Range(1, 20).Draw(t, "from")
		want := from - 1
		for has[want+1] {
			want++
		}
		pieces, last := Sort(names).Chain(from)
		next := from
		for _, p := range pieces {
			if p.First > next || p.Last < next {
				t.Fatalf("entry %d is not in %+v", next, p)
			}
			next = p.Last + 1
		}
		if last != want || next != want+1 {
			t.Fatalf("it goes to %d, and its pieces to %d, want %d", last, next-1, want)
		}
	})
}

// TestPrunable: everything that the kept full backups need stays.
func TestPrunable(t *testing.T) {
	var names []string
	for i := range 3 {
		full := FullName(noon.Add(time.Duration(i)*time.Hour), "b")
		names = append(names, ManifestName(full), DataName(full))
	}
	for first := uint64(1); first < 50; first += 10 {
		names = append(names, Piece{First: first, Last: first + 9, Time: noon, Sum: strings.Repeat("0", 16)}.Name())
	}
	c := Sort(names)
	reach := map[string]Reach{c.Fulls[0]: {First: 1, End: 20, Whole: true}, c.Fulls[1]: {First: 25, End: 30, Whole: true}, c.Fulls[2]: {First: 21, End: 40, Whole: true}}
	got := c.Prunable(2, noon, reach)
	want := []string{DataName(c.Fulls[0]), c.Pieces[0].Name(), c.Pieces[1].Name(), ManifestName(c.Fulls[0])}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := c.Prunable(3, noon, reach); got != nil {
		t.Errorf("of three, three are kept: %v", got)
	}
}

// TestAbandoned: data of a backup that was interrupted long ago are removed; those of one that
// may be under way stay.
func TestAbandoned(t *testing.T) {
	newest := FullName(noon, "b")
	old, young := FullName(noon.Add(-49*time.Hour), "b"), FullName(noon.Add(-47*time.Hour), "b")
	c := Sort([]string{ManifestName(newest), DataName(newest), DataName(old), DataName(young)})
	if d := cmp.Diff([]string{DataName(old)}, c.Prunable(7, noon, nil)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	ahead := FullName(noon.AddDate(5, 0, 0), "b") // the backup of a clock that was ahead makes no other one old
	c = Sort([]string{ManifestName(ahead), DataName(ahead), DataName(old), DataName(young)})
	if d := cmp.Diff([]string{DataName(old)}, c.Prunable(7, noon, nil)); d != "" {
		t.Errorf("with a clock ahead (-want +got):\n%s", d)
	}
}

// TestCut: which part of an entry belongs to a target.
func TestCut(t *testing.T) {
	w := binlogtest.New("q.000001")
	e := batch(8, w, 3, noon) // transactions 1 to 3, at 12:00:00, :01 and :02
	long := staged(9, w, aStage)
	for _, c := range []struct {
		what  string
		t     Target
		e     seglog.Entry
		count int
		done  bool
	}{
		{"all", Target{}, e, 3, false},
		{"a time before", Target{Time: noon.Add(-time.Second)}, e, 0, true},
		{"a time within", Target{Time: noon.Add(time.Second)}, e, 2, true},
		{"a time between", Target{Time: noon.Add(1500 * time.Millisecond)}, e, 2, true},
		{"a time behind", Target{Time: noon.Add(time.Minute)}, e, 3, false},
		{"through the first", Target{Through: binlogtest.GTID(1)}, e, 1, true},
		{"through the last", Target{Through: binlogtest.GTID(3)}, e, 3, true},
		{"before the first", Target{Before: binlogtest.GTID(1)}, e, 0, true},
		{"before the last", Target{Before: binlogtest.GTID(3)}, e, 2, true},
		{"another", Target{Before: binlogtest.GTID(9)}, e, 3, false},
		{"before a staged one", Target{Before: binlogtest.GTID(4)}, long, 0, true},
		{"through a staged one", Target{Through: binlogtest.GTID(4)}, long, 1, true},
		{"no transactions", Target{Time: noon}, seglog.Entry{Index: 9, Term: 2}, 0, false},
	} {
		got, done, err := c.t.Cut(c.e)
		if err != nil || done != c.done {
			t.Errorf("%s: done %v, %v", c.what, done, err)
		}
		all, err := Transactions(got)
		if err != nil || len(all) != c.count || c.count == 0 && c.done && got.Index != 0 {
			t.Errorf("%s: entry %d with %d transactions, %v", c.what, got.Index, len(all), err)
		}
		if h, _, err := entry.Parse(got.Data); err != nil || int(h.Count) != c.count {
			t.Errorf("%s: the header says %d transactions, %v", c.what, h.Count, err)
		}
	}
}

// TestChoose: it returns a full backup that has nothing of what the target leaves out.
func TestChoose(t *testing.T) {
	uuid := binlogtest.GTID(1).UUID.String()
	var all []Manifest
	for i, last := range []int{10, 20, 30} {
		all = append(all, Manifest{GTIDs: fmt.Sprintf("%s:1-%d", uuid, last), Time: noon.Add(time.Duration(i) * time.Hour), End: End{Index: uint64(last)}})
	}
	for _, c := range []struct {
		what string
		t    Target
		want uint64
	}{
		{"all", Target{}, 30},
		{"a time", Target{Time: noon.Add(90 * time.Minute)}, 20},
		{"the very time", Target{Time: noon.Add(time.Hour)}, 20},
		{"too early", Target{Time: noon.Add(-time.Second)}, 0},
		{"before one", Target{Before: gtid.GTID{UUID: binlogtest.GTID(1).UUID, N: 20}}, 10},
		{"before the next", Target{Before: gtid.GTID{UUID: binlogtest.GTID(1).UUID, N: 21}}, 20},
		{"through one", Target{Through: gtid.GTID{UUID: binlogtest.GTID(1).UUID, N: 31}}, 30},
		{"through an old one", Target{Through: gtid.GTID{UUID: binlogtest.GTID(1).UUID, N: 3}}, 0},
	} {
		got, err := Choose(c.t, all)
		if c.want == 0 {
			if !errors.Is(err, ErrTooNew) {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		if err != nil || got.End.Index != c.want {
			t.Errorf("%s: the one that ends at %d, %v", c.what, got.End.Index, err)
		}
	}
	if _, err := Choose(Target{}, nil); err == nil {
		t.Error("there is none, and one was chosen")
	}
}
