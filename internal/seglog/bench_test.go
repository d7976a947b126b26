package seglog

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/vfs"
)

// benchSizes are the data of one entry, in bytes.
func benchSizes() []int { return []int{1 << 10, 16 << 10, 1 << 20} }

// benchFileBytesMax bounds what a benchmark leaves on the disk: then it goes on
// in a new log.
const benchFileBytesMax = 512 << 20

// report adds the quantiles of single calls to the benchmark's mean.
func report(b *testing.B, took []time.Duration, bytes int) {
	slices.Sort(took)
	quantile := func(q float64) float64 {
		return float64(took[int(q*float64(len(took)-1))].Microseconds())
	}
	b.ReportMetric(quantile(0.5), "p50-µs")
	b.ReportMetric(quantile(0.99), "p99-µs")
	b.SetBytes(int64(bytes))
}

// benchDir is a directory on a real disk: QUORATE_BENCH_DIR, or the usual one.
func benchDir(b *testing.B) string {
	if dir := os.Getenv("QUORATE_BENCH_DIR"); dir != "" {
		sub, err := os.MkdirTemp(dir, "seglog")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = os.RemoveAll(sub) })
		return sub
	}
	return b.TempDir()
}

// BenchmarkAppend is one entry per call, on a real disk. The entries are of
// transactions, so their events are checked and their GTIDs kept.
func BenchmarkAppend(b *testing.B) {
	for _, size := range benchSizes() {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			dir := benchDir(b)
			var l *Log
			var took []time.Duration
			index, written, logs := uint64(0), 0, 0
			for b.Loop() {
				if l == nil || written > benchFileBytesMax {
					b.StopTimer()
					if l != nil {
						_ = l.Close()
						_ = os.RemoveAll(filepath.Join(dir, fmt.Sprint(logs)))
					}
					logs++
					index, written = 0, 0
					l = mustOpen(b, Options{FS: vfs.OS{}, Dir: filepath.Join(dir, fmt.Sprint(logs)), Identity: testIdentity()})
					b.StartTimer()
				}
				index++
				// The events' overhead is some hundred bytes.
				e := transactions(index, 1, 1, index, 1, size-200)
				begin := time.Now()
				if err := l.Append([]Entry{e}, nil); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
				written += size
			}
			report(b, took, size)
		})
	}
}

// BenchmarkBareWrite is what the disk can do: pwrite and fdatasync, once behind
// the end of the file and once into zeros that were written before.
func BenchmarkBareWrite(b *testing.B) {
	for _, prepared := range []bool{false, true} {
		for _, size := range benchSizes() {
			b.Run(fmt.Sprintf("prepared=%v/%dKiB", prepared, size>>10), func(b *testing.B) {
				const fileBytes = 64 << 20
				f, err := vfs.OS{}.Create(filepath.Join(benchDir(b), "bare"))
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = f.Close() }()
				reset := func() {
					err := f.Truncate(0)
					if prepared && err == nil {
						_, err = f.WriteAt(make([]byte, fileBytes), 0)
					}
					if err == nil {
						err = f.Sync()
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				data := make([]byte, size)
				var took []time.Duration
				at := int64(fileBytes)
				for b.Loop() {
					if at+int64(size) > fileBytes {
						b.StopTimer()
						reset()
						at = 0
						b.StartTimer()
					}
					begin := time.Now()
					_, err := f.WriteAt(data, at)
					if err == nil {
						err = f.SyncData()
					}
					if err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(begin))
					at += int64(size)
				}
				report(b, took, size)
			})
		}
	}
}

// BenchmarkAppendMemory is the cost of Append without a disk: 64 transactions
// of 1 KiB per call.
func BenchmarkAppendMemory(b *testing.B) {
	l := mustOpen(b, Options{FS: nullFS{vfs.NewMem()}, Dir: testDir, Identity: testIdentity(), SegmentBytesMax: 1 << 30})
	group := make([]Entry, 64)
	for i := range group {
		group[i] = transactions(0, 1, 1, uint64(i+1), 1, 800)
	}
	index := uint64(0)
	b.SetBytes(64 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if l.tail().end > 1<<29 {
			index = 0 // cut everything off: the memory of places is bounded
		}
		for i := range group {
			index++
			group[i].Index = index
		}
		if err := l.Append(group, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// nullFS forgets what is written to files that were there before, as segments
// are once they have their names.
type nullFS struct{ vfs.FS }

type nullFile struct{ vfs.File }

func (n nullFS) OpenReadWrite(name string) (vfs.File, error) {
	f, err := n.FS.OpenReadWrite(name)
	return nullFile{f}, err
}

func (n nullFile) WriteAt(p []byte, offset int64) (int, error) {
	return len(p), nil
}

// BenchmarkOpen reads a log of 64 MiB in two segments.
func BenchmarkOpen(b *testing.B) {
	o := Options{FS: vfs.OS{}, Dir: benchDir(b), Identity: testIdentity(), SegmentBytesMax: 32 << 20}
	l := mustOpen(b, o)
	for index := uint64(1); l.Stats().Bytes < 63<<20; {
		var group []Entry
		for range 256 {
			group = append(group, transactions(index, 1, 1, index, 1, 4000-entry.HeaderBytes))
			index++
		}
		mustAppend(b, l, nil, group...)
	}
	_ = l.Close()
	b.SetBytes(64 << 20)
	for b.Loop() {
		l, err := Open(o)
		if err != nil {
			b.Fatal(err)
		}
		_ = l.Close()
	}
}
