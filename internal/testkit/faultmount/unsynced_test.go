package faultmount

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestUndoAgainstModel: whatever was written, cut and grown, undoing leaves what
// the last sync found.
func TestUndoAgainstModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		f, err := os.Create(filepath.Join(dir, "a"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		j := newJournal()
		var now, synced []byte
		const size = 64
		resize := func(n int) { now = append(now, make([]byte, max(0, n-len(now)))...)[:n] }
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				at := rapid.IntRange(0, size).Draw(t, "at")
				data := rapid.SliceOfN(rapid.Byte(), 1, size).Draw(t, "data")
				if err := j.change(f, int64(at), int64(len(data)), func() error {
					_, err := f.WriteAt(data, int64(at))
					return err
				}); err != nil {
					t.Fatal(err)
				}
				resize(max(len(now), at+len(data)))
				copy(now[at:], data)
			},
			"truncate": func(t *rapid.T) {
				to := rapid.IntRange(0, size).Draw(t, "to")
				if err := j.change(f, int64(to), int64(max(0, len(now)-to)), func() error { return f.Truncate(int64(to)) }); err != nil {
					t.Fatal(err)
				}
				resize(to)
			},
			"sync": func(t *rapid.T) {
				if err := j.sync(f); err != nil {
					t.Fatal(err)
				}
				synced = slices.Clone(now)
			},
			"undo": func(t *rapid.T) {
				if err := j.undo(); err != nil {
					t.Fatal(err)
				}
				now = slices.Clone(synced)
			},
			"": func(t *rapid.T) {
				got, err := os.ReadFile(f.Name())
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(string(now), string(got)); d != "" {
					t.Fatalf("the file (-want +got):\n%s", d)
				}
			},
		})
	})
}
