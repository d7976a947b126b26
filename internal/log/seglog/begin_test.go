package seglog

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestBegin makes the log of a node that got the earlier transactions from elsewhere. The log begins where a
// segment of the source's log begins.
func TestBegin(t *testing.T) {
	source := mustOpen(t, smallOptions(vfs.NewMem()))
	var want []Entry
	for i := range uint64(60) {
		e := transactions(i+1, 3+i/40, 1, i+1, 1, 50)
		mustAppend(t, source, &HardState{Term: 9, Commit: i}, e)
		want = append(want, e)
	}
	segments := source.Segments()
	at := segments[len(segments)/2]
	term, err := source.Term(at.FirstIndex - 1)
	if err != nil {
		t.Fatal(err)
	}
	o := smallOptions(vfs.NewMem())
	o.Begin = &Begin{First: at.FirstIndex, PreviousTerm: term, GTIDs: at.GTIDsBefore, FormatDescription: at.FormatDescription}
	l := mustOpen(t, o)
	if l.FirstIndex() != at.FirstIndex || l.LastIndex() != at.FirstIndex-1 || l.HardState() != (HardState{}) {
		t.Fatalf("a new log begins at %d and ends at %d, with %+v", l.FirstIndex(), l.LastIndex(), l.HardState())
	}
	want = want[at.FirstIndex-1:]
	mustAppend(t, l, nil, want[:7]...)
	mustAppend(t, l, &HardState{Term: 9, Commit: 60}, want[7:]...)
	for range 2 { // as it was made, and after a restart
		wantEntries(t, l, want)
		if got, err := l.Term(at.FirstIndex - 1); err != nil || got != term {
			t.Errorf("the term before the log is %d, %v, want %d", got, err, term)
		}
		if got := l.Segments()[0]; got.FirstIndex != at.FirstIndex || !got.GTIDsBefore.Equal(at.GTIDsBefore) {
			t.Errorf("the log begins with %+v", got)
		}
		if diff := cmp.Diff(source.HardState().Term, l.HardState().Term); diff != "" || l.HardState().Commit != 60 {
			t.Errorf("hard state %+v", l.HardState())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		o.Begin = nil
		l = mustOpen(t, o)
	}
}

// TestBeginWithoutEntries: a node that was killed before its log had any entry has no log.
func TestBeginWithoutEntries(t *testing.T) {
	o := smallOptions(vfs.NewMem())
	o.Begin = &Begin{First: 100, PreviousTerm: 7, GTIDs: &gtid.Set{}, FormatDescription: builtinFormatDescription()}
	l := mustOpen(t, o)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o); !errors.Is(err, ErrCorrupt) {
		t.Errorf("open: %v", err)
	}
}

// TestBeginBeforeAnyEpoch: the log begins with a database that is older than the cluster, so there is no event
// of an epoch to begin with.
func TestBeginBeforeAnyEpoch(t *testing.T) {
	before, err := gtid.ParseSet("00000000-0000-0000-0000-000000000001:1-7")
	if err != nil {
		t.Fatal(err)
	}
	o := smallOptions(vfs.NewMem())
	o.Begin = &Begin{First: 2, PreviousTerm: 1, GTIDs: before}
	l := mustOpen(t, o)
	mustAppend(t, l, &HardState{Term: 1, Commit: 2}, Entry{Index: 2, Term: 1})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o.Begin = nil
	l = mustOpen(t, o)
	got := l.Segments()[0]
	if diff := cmp.Diff(builtinFormatDescription(), got.FormatDescription); diff != "" {
		t.Errorf("the log begins with another event (-want +got):\n%s", diff)
	}
	if !got.GTIDsBefore.Equal(before) || got.FirstIndex != 2 || l.LastIndex() != 2 {
		t.Errorf("the log begins with %+v and ends at %d", got, l.LastIndex())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
