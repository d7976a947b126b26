package seglog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/log/vfs"
)

// laggards is a log with entries of 64 KiB and a cache of almost nothing. Run runs in a bubble: synctest.Wait
// returns when Run has nothing to read.
type laggards struct {
	*Log
	disk *vfs.Mem
	// broken makes all reads fail. readTakes is how many nanoseconds a read lasts.
	broken    atomic.Bool
	readTakes atomic.Int64
	want      []Entry
	// one is the reader of read.
	one *Reader
}

const laggardBytes = 64 << 10

func newLaggards(t *testing.T, entries int, prefetchBytesMax int64) *laggards {
	l := &laggards{disk: vfs.NewMem()}
	errRead := errors.New("input/output error")
	fs := vfs.Wrap(l.disk, func(op vfs.Op, _ string) error {
		if op != vfs.OpOpen && op != vfs.OpRead {
			return nil
		}
		if takes := l.readTakes.Load(); takes > 0 {
			time.Sleep(time.Duration(takes))
		}
		if l.broken.Load() {
			return errRead
		}
		return nil
	})
	l.Log = mustOpen(t, Options{
		FS: fs, Dir: testDir, Identity: testIdentity(),
		SegmentBytesMax: 4 << 20, CacheBytesMax: 2 * laggardBytes, PrefetchBytesMax: prefetchBytesMax,
	})
	l.one = l.NewReader()
	for i := range entries {
		l.want = append(l.want, plain(uint64(i+1), 1, laggardBytes))
	}
	mustAppend(t, l.Log, nil, l.want...)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = l.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return l
}

// read is readBy with the reader one.
func (l *laggards) read(t *testing.T, lo uint64) uint64 {
	t.Helper()
	return l.readBy(t, l.one, lo)
}

// readBy lets r read a chunk from lo on, checks it, and returns where the next chunk begins.
func (l *laggards) readBy(t *testing.T, r *Reader, lo uint64) uint64 {
	t.Helper()
	got, err := r.Entries(lo, l.LastIndex()+1, chunkBytes)
	if err != nil || len(got) == 0 {
		t.Fatalf("read from %d: %d entries, %v", lo, len(got), err)
	}
	next := lo + uint64(len(got))
	for i, want := range l.want[lo-1 : next-1] {
		wantEntry(t, want, got[i])
	}
	return next
}

// wantEntry compares without cmp, because there is too much data for it.
func wantEntry(t *testing.T, want, got Entry) {
	t.Helper()
	if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) {
		t.Errorf("entry %d of term %d, want %d of %d; or other data", got.Index, got.Term, want.Index, want.Term)
	}
}

// held returns how many bytes the prefetch cache holds.
func (l *laggards) held() (bytes int64) {
	l.prefetch.mu.Lock()
	defer l.prefetch.mu.Unlock()
	for _, s := range l.prefetch.lagging {
		counted := int64(0)
		for i := range s.ahead {
			counted += cost(&s.ahead[i])
		}
		if counted != s.bytes {
			panic(fmt.Sprintf("reader holds %d bytes, says %d", counted, s.bytes))
		}
		bytes += counted
	}
	return bytes
}

// TestReaderThatLagsIsServedFromMemory: even if the disk cannot be read any more, a reader gets everything that
// was read ahead.
func TestReaderThatLagsIsServedFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLaggards(t, 320, 0)
		synctest.Wait()
		next := l.read(t, 1)
		synctest.Wait()
		if held := l.held(); held != 0 {
			t.Fatalf("one read is no sequence, %d bytes were read ahead", held)
		}
		next = l.read(t, next)
		synctest.Wait()
		l.broken.Store(true)
		begin := next
		for next < begin+7*chunkBytes/laggardBytes {
			next = l.read(t, next)
		}
		if s := l.Stats(); s.PrefetchEntries != next-begin || s.MissedEntries != begin-1 || s.WastedBytes != 0 {
			t.Fatalf("%d entries read from memory, stats %+v", next-begin, s)
		}
		// Entries that could not be read ahead are read by the reader that needs them.
		synctest.Wait()
		if _, err := l.one.Entries(next, l.LastIndex()+1, chunkBytes); err == nil && l.held() == 0 {
			t.Fatal("read from a broken disk")
		}
		l.broken.Store(false)
		for next <= l.LastIndex() {
			next = l.read(t, next)
			synctest.Wait()
		}
		if s := l.Stats(); s.CacheEntries == 0 || s.PrefetchEntries < 200 {
			t.Fatalf("read to the end: stats %+v", s)
		}
	})
}

// TestPrefetchIsBounded: if there are more readers than places, only the first ones have chunks read ahead,
// until they are closed.
func TestPrefetchIsBounded(t *testing.T) {
	const shares = readersMax + peersMax
	for _, bytesMax := range []int64{shares * 3 << 20, shares * chunkBytes / 2} {
		synctest.Test(t, func(t *testing.T) {
			l := newLaggards(t, 240, bytesMax)
			synctest.Wait()
			var readers []*Reader
			for n := range uint64(2 * readersMax) {
				r := l.NewReader()
				readers = append(readers, r)
				l.readBy(t, r, l.readBy(t, r, 1+n*10))
				synctest.Wait()
				if held := l.held(); held > bytesMax {
					t.Fatalf("%d bytes are held, at most %d", held, bytesMax)
				}
			}
			if held := l.held(); (held > 0) != (bytesMax/shares > chunkBytes) {
				t.Fatalf("%d bytes are held, a reader may have %d", held, bytesMax/shares)
			}
			if n := len(l.prefetch.lagging); n != readersMax {
				t.Fatalf("%d readers", n)
			}
			for _, r := range readers {
				r.Close()
			}
			if n, held := len(l.prefetch.lagging), l.held(); n > 0 || held > 0 {
				t.Fatalf("%d readers and %d bytes are left", n, held)
			}
		})
	}
}

// TestReaderThatHasCaughtUpKeepsNoPlace: a reader that has caught up gets new entries from the cache of the
// log.
func TestReaderThatHasCaughtUpKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLaggards(t, 40, 0)
		synctest.Wait()
		for next := uint64(1); next <= l.LastIndex(); synctest.Wait() {
			next = l.read(t, next)
		}
		if n := len(l.prefetch.lagging); n != 0 {
			t.Errorf("%d readers lag", n)
		}
	})
}

// TestTruncationTakesWhatWasReadAhead: a truncation drops the chunks that were read ahead, because they are of
// the old log.
func TestTruncationTakesWhatWasReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLaggards(t, 320, 0)
		synctest.Wait()
		next := l.read(t, l.read(t, 1))
		synctest.Wait()
		l.want = l.want[:next+10]
		for i := range 100 {
			l.want = append(l.want, plain(next+11+uint64(i), 2, laggardBytes))
		}
		mustAppend(t, l.Log, nil, l.want[next+10:]...)
		for next <= l.LastIndex() {
			next = l.read(t, next)
			synctest.Wait()
		}
		if s := l.Stats(); s.WastedBytes == 0 || s.PrefetchEntries == 0 {
			t.Fatalf("stats %+v", s)
		}
	})
}

// TestDamageIsFoundByTheReader: the reader gets the error, whether the entry was read ahead or not.
func TestDamageIsFoundByTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLaggards(t, 320, 0)
		synctest.Wait()
		s := l.Segments()[2]
		f, err := l.disk.OpenReadWrite(filepath.Join(testDir, s.Name))
		if err == nil {
			_, err = f.WriteAt([]byte("damage"), s.Bytes/2)
		}
		if err != nil {
			t.Fatal(err)
		}
		for next := uint64(1); next <= s.LastIndex; {
			got, err := l.one.Entries(next, l.LastIndex()+1, chunkBytes)
			synctest.Wait()
			if err == nil {
				next += uint64(len(got))
				continue
			}
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || corrupt.File != s.Name || corrupt.Index < next {
				t.Fatalf("reading from %d: %v", next, err)
			}
			if l.Stats().PrefetchEntries == 0 {
				t.Fatal("nothing was read ahead before the damage")
			}
			return
		}
		t.Fatal("the damage was not found")
	})
}

// TestPrefetchBesideConflicts: everything that a reader gets is from one version of the log, whatever is
// removed and purged at the same time.
func TestPrefetchBesideConflicts(t *testing.T) {
	l := newLaggards(t, 200, 0)
	var readers sync.WaitGroup
	var stop atomic.Bool
	for reader := range 3 {
		readers.Go(func() {
			r := l.NewReader()
			defer r.Close()
			for lo := uint64(1 + 7*reader); !stop.Load(); {
				got, err := r.Entries(lo, min(lo+40, 150), chunkBytes)
				if errors.Is(err, ErrUnavailable) || len(got) == 0 {
					lo = uint64(1 + 7*reader)
					continue
				}
				if err != nil {
					t.Errorf("read from %d: %v", lo, err)
					return
				}
				for i, e := range got {
					wantEntry(t, plain(lo+uint64(i), e.Term, laggardBytes), e)
					if i > 0 && e.Term < got[i-1].Term {
						t.Errorf("entry %d of term %d after term %d", e.Index, e.Term, got[i-1].Term)
					}
				}
				lo += uint64(len(got))
			}
		})
	}
	for term := uint64(2); term < 5; term++ {
		var again []Entry
		for index := 40 + 10*term; index <= 200; index++ {
			again = append(again, plain(index, term, laggardBytes))
		}
		mustAppend(t, l.Log, nil, again...)
	}
	stop.Store(true)
	readers.Wait()
}

// TestEntriesInMemory: a caller that must not wait is told to come back, is called when there are entries, and
// gets all of them in order.
func TestEntriesInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLaggards(t, 100, 0)
		synctest.Wait()
		refused, next := 0, uint64(1)
		for next <= l.LastIndex() {
			got, err := l.EntriesInMemory(next, l.LastIndex()+1, chunkBytes)
			if errors.Is(err, ErrNotInMemory) {
				refused++
				<-l.Arrived()
				continue
			}
			if err != nil || len(got) == 0 {
				t.Fatalf("read from %d: %d entries, %v", next, len(got), err)
			}
			for i, e := range got {
				wantEntry(t, l.want[next-1+uint64(i)], e)
			}
			next += uint64(len(got))
		}
		if s := l.Stats(); refused == 0 || s.MissedEntries != 0 {
			t.Fatalf("refused %d times, stats %+v", refused, s)
		}
	})
}

// TestEntriesInMemoryReadsAtLast: if nothing can be read ahead, the caller reads the disk itself after all, and
// gets the error.
func TestEntriesInMemoryReadsAtLast(t *testing.T) {
	for _, c := range []struct {
		name     string
		bytesMax int64
		broken   bool
	}{
		{"without room", (readersMax + peersMax) * chunkBytes / 2, false},
		{"broken", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLaggards(t, 100, c.bytesMax)
				synctest.Wait()
				l.broken.Store(c.broken)
				got, err := l.EntriesInMemory(1, 100, chunkBytes)
				if errors.Is(err, ErrNotInMemory) {
					<-l.Arrived()
					got, err = l.EntriesInMemory(1, 100, chunkBytes)
				}
				if errors.Is(err, ErrNotInMemory) || (err != nil) != c.broken || (len(got) > 0) == c.broken {
					t.Fatalf("%d entries, %v", len(got), err)
				}
			})
		})
	}
	l := mustOpen(t, Options{FS: vfs.NewMem(), Dir: testDir, Identity: testIdentity(), CacheBytesMax: 1})
	mustAppend(t, l, nil, plain(1, 1, 100), plain(2, 1, 100))
	if _, err := l.EntriesInMemory(1, 2, 1); err != nil {
		t.Fatalf("without Run: %v", err)
	}
}

// TestPurgeFreesWhoWaits: purged entries will never be read ahead, so a caller that waits for them is called.
func TestPurgeFreesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLaggards(t, 320, 0)
		synctest.Wait()
		p := &l.prefetch
		p.mu.Lock()
		waits := make(chan struct{})
		p.lagging = append(p.lagging, &Reader{log: l.Log, next: 1, chunkBytes: chunkBytes, sequential: true, arriving: waits})
		p.mu.Unlock()
		mustAppend(t, l.Log, &HardState{Term: 1, Commit: l.LastIndex()})
		if removed, err := l.Purge(l.LastIndex()); err != nil || len(removed) == 0 {
			t.Fatalf("removed %v, %v", removed, err)
		}
		<-waits
		if _, err := l.Entries(1, 10, chunkBytes); !errors.Is(err, ErrCompacted) {
			t.Fatal(err)
		}
	})
}

func TestPauseAfter(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		took, busy, since time.Duration
		growth            float64
		want              time.Duration
	}{
		{ms, 0, 10 * ms, 0, 0},                 // nothing is appended
		{2 * ms, 10 * ms, 10 * ms, 0, 20 * ms}, // appends all the time: the longest pause
		{ms / 10, 10 * ms, 10 * ms, 0, pauseShare * ms / 10},
		{ms / 10, 5 * ms, 10 * ms, 0, pauseShare * ms / 20},
		{ms / 10, 50 * ms, 10 * ms, 0, pauseShare * ms / 10},
		{ms, ms, 0, 0, 0},
		{ms, -ms, ms, 0, 0}, // the clock was set back
		// The log grows: a chunk every 2 ms is twice the growth.
		{ms, 10 * ms, 10 * ms, chunkBytes * 250, ms},
		{3 * ms, 10 * ms, 10 * ms, chunkBytes * 250, 0}, // the disk is too slow for that
		{ms / 10, 10 * ms, 10 * ms, chunkBytes, pauseShare * ms / 10},
	} {
		if got := pauseAfter(c.took, c.busy, c.since, c.growth); got != c.want {
			t.Errorf("after %v, %v of %v, growth %v: %v, want %v", c.took, c.busy, c.since, c.growth, got, c.want)
		}
	}
}

// TestReadingAheadGivesWay: while an append lasts, a pause follows a chunk that took 1 ms. But the reader must
// not fall behind a log that grows.
func TestReadingAheadGivesWay(t *testing.T) {
	for _, c := range []struct {
		name     string
		busy     bool
		growth   int64 // bytes each millisecond
		min, max time.Duration
	}{
		{"idle", false, 0, 0, 100 * time.Millisecond},
		{"busy", true, 0, 400 * time.Millisecond, time.Second},
		{"growing", true, chunkBytes / 8, 100 * time.Millisecond, 300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLaggards(t, 320, 0)
				l.readTakes.Store(int64(time.Millisecond))
				if c.busy {
					l.busy.start()
					defer l.busy.stop()
				}
				stop := make(chan struct{})
				defer close(stop)
				go func() {
					tick := time.NewTicker(time.Millisecond)
					defer tick.Stop()
					for {
						select {
						case <-tick.C:
							l.grown.Add(c.growth)
						case <-stop:
							return
						}
					}
				}()
				time.Sleep(2 * gainWindow)
				begin := time.Now()
				for next := uint64(1); next <= 160; { // 10 MiB, 40 chunks
					next = l.read(t, next)
				}
				if took := time.Since(begin); took < c.min || took > c.max {
					t.Errorf("took %v, want %v to %v", took, c.min, c.max)
				}
			})
		})
	}
}

// TestReaderOfFailedChunkIsNotForgotten: for a moment the file cannot be opened for the chunk that a reader
// waits for. Or the reader is closed meanwhile.
func TestReaderOfFailedChunkIsNotForgotten(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLaggards(t, 320, 0)
			synctest.Wait()
			l.readTakes.Store(int64(time.Millisecond))
			next := l.read(t, l.read(t, 1))
			l.broken.Store(true)
			var reader sync.WaitGroup
			reader.Go(func() { _, _ = l.one.Entries(next, l.LastIndex()+1, chunkBytes) })
			if closed {
				time.Sleep(time.Millisecond / 2)
				l.one.Close()
			}
			time.Sleep(time.Minute)
			reader.Wait() // otherwise the bubble would be deadlocked
		})
	}
}

// TestManyPeersLag: if more raft peers lag than there are places, all still get their entries, and no entry is
// read inside the call.
func TestManyPeersLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLaggards(t, 320, 0)
		synctest.Wait()
		next := make([]uint64, 2*peersMax)
		for i := range next {
			next[i] = uint64(1 + 20*i)
		}
		for got := 0; got < len(next)*100; {
			before := got
			for i := range next {
				found, err := l.EntriesInMemory(next[i], l.LastIndex()+1, chunkBytes)
				if err != nil && !errors.Is(err, ErrNotInMemory) {
					t.Fatal(err)
				}
				next[i] += uint64(len(found))
				got += len(found)
			}
			if got == before {
				<-l.Arrived()
			}
		}
		if s := l.Stats(); s.MissedEntries != 0 {
			t.Errorf("%d entries were waited for", s.MissedEntries)
		}
	})
}

// TestProbesReadOneChunk: for a caller that asks for the same entries again and again, little more than those
// entries is read.
func TestProbesReadOneChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLaggards(t, 320, 0)
		synctest.Wait()
		const probes = 10
		for range probes {
			for {
				_, err := l.EntriesInMemory(1, l.LastIndex()+1, chunkBytes)
				if err == nil {
					break
				}
				<-l.Arrived()
			}
			synctest.Wait()
		}
		if s := l.Stats(); s.PrefetchBytes > probes*2*chunkBytes {
			t.Errorf("%d bytes were read ahead for %d probes of a chunk of %d", s.PrefetchBytes, probes, chunkBytes)
		}
	})
}
