package seglog

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
)

// TestOpenTellsProgress: Open says before each segment how far it is, and an error of whom it tells ends it before it
// has changed anything.
func TestOpenTellsProgress(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{FS: fs, Dir: testDir, Identity: testIdentity(), SegmentBytesMax: 4000}
	l := mustOpen(t, o)
	for i := range uint64(20) {
		mustAppend(t, l, &HardState{Term: 1, Commit: i + 1}, plain(i+1, 1, 1000))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	before := content(t, fs)
	type step struct{ done, total int64 }
	var want, got []step
	var total int64
	for _, s := range l.Segments() {
		want = append(want, step{done: total})
		total += int64(len(before[s.Name]))
	}
	for i := range want {
		want[i].total = total
	}
	if len(want) < 4 {
		t.Fatalf("%d segments", len(want))
	}
	stop := errors.New("stopped")
	o.Progress = func(done, total int64) error {
		if got = append(got, step{done, total}); len(got) == 3 {
			return stop
		}
		return nil
	}
	if _, err := Open(o); !errors.Is(err, stop) {
		t.Fatalf("%v, want %v", err, stop)
	}
	if d := cmp.Diff(before, content(t, fs)); d != "" {
		t.Errorf("a start that was stopped changed the log:\n%s", d)
	}
	got = append(got[:0:0], step{-1, -1}, step{-1, -1}, step{-1, -1}) // no stop any more
	_ = mustOpen(t, o).Close()
	if d := cmp.Diff(want, got[3:], cmp.AllowUnexported(step{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
