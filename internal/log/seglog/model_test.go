package seglog

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

// model is the log as a slice.
type model struct {
	disk    *vfs.Mem
	options Options
	log     *Log
	entries []Entry
	hs      HardState
	term    uint64
	// stages are the bytes of all stages that were ever named. extra are stages that no entry names, growing or
	// complete.
	stages  map[entry.StageID][]byte
	extra   map[entry.StageID]*Stage
	numbers uint64
	looks   bool // inPlace asks the log
}

// Append appends some entries, perhaps over a conflict, and perhaps with a change of the hard state.
func (m *model) Append(t *rapid.T) {
	m.log.slackBytes = rapid.SampledFrom([]int64{200, -stageAlign}).Draw(t, "slack")
	first := rapid.Uint64Range(m.hs.Commit+1, uint64(len(m.entries))+1).Draw(t, "first")
	if rapid.Bool().Draw(t, "at the end") {
		first = uint64(len(m.entries)) + 1
	}
	if int(first) <= len(m.entries) || rapid.IntRange(0, 5).Draw(t, "election") == 0 {
		m.term++
	}
	var entries []Entry
	for i := range uint64(rapid.IntRange(0, 8).Draw(t, "count")) {
		index := first + i
		kind := rapid.IntRange(0, 6).Draw(t, "kind")
		if kind == 6 && index > 1 {
			entries = append(entries, m.stage(t, index))
			continue
		}
		switch kind {
		case 0:
			entries = append(entries, epoch(index, m.term, "9.7.4"))
		case 1:
			entries = append(entries, rotate(index, m.term, "9.7.4"))
		case 2:
			entries = append(entries, transactions(index, m.term, 1, index*10, 2, 5))
		default:
			entries = append(entries, plain(index, m.term, rapid.IntRange(0, 600).Draw(t, "bytes")))
		}
	}
	if len(entries) > 0 {
		m.entries = append(slices.Clone(m.entries[:first-1]), entries...)
	}
	var hs *HardState
	if rapid.Bool().Draw(t, "hard state") {
		next := HardState{Term: m.term, Vote: m.hs.Vote}
		if m.term > m.hs.Term {
			next.Vote = rapid.Uint64Range(0, 3).Draw(t, "vote")
		}
		next.Commit = rapid.Uint64Range(m.hs.Commit, uint64(len(m.entries))).Draw(t, "commit")
		m.hs, hs = next, &next
	}
	if err := m.log.Append(entries, hs); err != nil {
		t.Fatal(err)
	}
}

// stage puts a stage and returns the entry that names it.
func (m *model) stage(t *rapid.T, index uint64) Entry {
	e, raw := staged(index, m.term, 1, 1_000_000+index, rapid.IntRange(0, 900).Draw(t, "bytes"))
	id := entry.StageID{Term: m.term, Number: index}
	m.stages[id] = raw
	if err := putStage(m.log, id, raw); err != nil {
		t.Fatal(err)
	}
	return e
}

// Stage begins, ends, aborts or drops stages that no entry names.
func (m *model) Stage(t *rapid.T) {
	if len(m.extra) == 0 || rapid.Bool().Draw(t, "another") {
		m.numbers++
		id := entry.StageID{Term: 1 << 40, Number: m.numbers}
		s, err := m.log.CreateStage(id)
		if err == nil {
			_, err = s.Write([]byte("abandoned"))
		}
		if err != nil {
			t.Fatal(err)
		}
		m.extra[id] = s
		return
	}
	ids := slices.SortedFunc(maps.Keys(m.extra), func(a, b entry.StageID) int { return cmp.Compare(a.Number, b.Number) })
	id := rapid.SampledFrom(ids).Draw(t, "stage")
	s := m.extra[id]
	var err error
	switch rapid.IntRange(0, 2).Draw(t, "end") {
	case 0:
		err = s.Abort() // perhaps of a complete stage
		if !m.log.HasStage(id) {
			delete(m.extra, id)
		}
	case 1:
		if !m.log.HasStage(id) {
			err = s.Finish(9, s.crc)
		}
	case 2:
		err = m.log.DropStages(func(other entry.StageID) bool { return other.Term < 1<<40 || other != id })
		delete(m.extra, id)
		_ = s.Abort()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Purge purges up to a random index.
func (m *model) Purge(t *rapid.T) {
	upTo := rapid.Uint64Range(0, uint64(len(m.entries))+1).Draw(t, "index")
	infos := m.log.Segments()
	first := m.log.FirstIndex()
	for i, s := range infos[:len(infos)-1] {
		if s.LastIndex <= upTo && infos[i+1].FirstIndex <= m.hs.Commit && infos[i+1].LastIndex >= infos[i+1].FirstIndex {
			first = s.LastIndex + 1
		}
	}
	if _, err := m.log.Purge(upTo); err != nil || m.log.FirstIndex() != first {
		t.Fatalf("purge to %d with %d committed: first %d, want %d: %v", upTo, m.hs.Commit, m.log.FirstIndex(), first, err)
	}
}

// Read reads a random range.
func (m *model) Read(t *rapid.T) {
	lo := rapid.Uint64Range(m.log.FirstIndex(), uint64(len(m.entries))+1).Draw(t, "lo")
	hi := rapid.Uint64Range(lo, uint64(len(m.entries))+1).Draw(t, "hi")
	bytesMax := rapid.Uint64Range(0, 2000).Draw(t, "bytes")
	got, err := m.log.Entries(lo, hi, bytesMax)
	if err != nil {
		t.Fatal(err)
	}
	want, size := m.entries[lo-1:hi-1], uint64(0)
	for i, e := range want {
		if size += uint64(len(e.Data)); size > bytesMax && i > 0 {
			want = want[:i]
			break
		}
	}
	if !sameEntries(want, got) {
		t.Fatalf("entries %d-%d in %d bytes: %d, want %d", lo, hi, bytesMax, len(got), len(want))
	}
}

// Reopen closes and opens the log, perhaps with a power loss between.
func (m *model) Reopen(t *rapid.T) {
	if err := m.log.Close(); err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "power loss") {
		m.disk = m.disk.CrashClone(rapid.Uint64Range(0, 100).Draw(t, "seed"))
		m.options.FS = m.disk
	}
	clear(m.extra)
	m.open(t)
	// A commit index that was stored alone may be lost.
	commit := m.log.HardState().Commit
	if commit > m.hs.Commit {
		t.Fatalf("commit index %d was never given", commit)
	}
	m.hs.Commit = commit
}

func (m *model) open(t *rapid.T) {
	o, err := m.options, error(nil)
	o.Indexed = rapid.IntRange(0, 3).Draw(t, "indexed") > 0
	o.FS = vfs.Wrap(o.FS, m.inPlace)
	m.log = nil
	if m.log, err = Open(o); err != nil {
		t.Fatal(err)
	}
}

// inPlace is before each call of the file system: the log finds its files in place between any two.
func (m *model) inPlace(vfs.Op, string) error {
	if m.log == nil || m.looks || m.log.lock == nil {
		return nil
	}
	m.looks = true
	defer func() { m.looks = false }()
	return m.log.InPlace()
}

// Check compares the whole log with the model.
func (m *model) Check(t *rapid.T) {
	got, err := allOf(m.log)
	want := m.entries[m.log.FirstIndex()-1:]
	if err != nil || !sameEntries(want, got) {
		t.Fatalf("log has %d entries, want %d: %v", len(got), len(want), err)
	}
	if err := (&promise{stages: m.stages}).checkStages(m.log, want); err != nil {
		t.Fatal(err)
	}
	for id, s := range m.extra {
		if s.gone() {
			t.Fatalf("stage %v is gone", id)
		}
	}
	if hs := m.log.HardState(); hs != m.hs {
		t.Fatalf("hard state %+v, want %+v", hs, m.hs)
	}
	if err := checkSegments(m.log, m.entries, m.hs.Commit); err != nil {
		t.Fatal(err)
	}
	if s := m.log.Stats(); s.CacheBytes > m.options.CacheBytesMax || s.Segments != len(m.log.Segments()) {
		t.Fatalf("stats %+v", s)
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := vfs.NewMem()
		m := &model{
			disk: disk, options: smallOptions(disk), term: 1,
			stages: map[entry.StageID][]byte{}, extra: map[entry.StageID]*Stage{},
		}
		m.options.SegmentBytesMax = rapid.Int64Range(1, 3000).Draw(t, "segment bytes")
		m.options.CacheBytesMax = rapid.Int64Range(1, 3000).Draw(t, "cache bytes")
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){"append": m.Append, "read": m.Read, "reopen": m.Reopen, "purge": m.Purge, "stage": m.Stage, "": m.Check})
		if err := m.log.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReadersBesideTruncation reads all the time while entries are appended and cut off: everything that a
// reader gets was in the log at some time, as a whole.
func TestReadersBesideTruncation(t *testing.T) {
	l := mustOpen(t, Options{FS: vfs.OS{}, Dir: t.TempDir(), Identity: testIdentity(), SegmentBytesMax: 4000, CacheBytesMax: 2000})
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				last := l.LastIndex()
				got, err := l.Entries(1, last+1, 1<<20)
				if errors.Is(err, ErrUnavailable) {
					continue // it was cut between the two calls
				}
				if err != nil {
					t.Error(err)
					return
				}
				for i, e := range got {
					if e.Index != uint64(i+1) || (i > 0 && e.Term < got[i-1].Term) || !sameEntries(got[i:i+1], []Entry{plain(e.Index, e.Term, 300)}) {
						t.Errorf("entry %d of term %d in place %d", e.Index, e.Term, i+1)
						return
					}
				}
				l.Segments()
				l.Stats()
				if err := l.InPlace(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	last := uint64(0)
	for term := uint64(1); term <= 60; term++ {
		first := last + 1
		if term%2 == 0 {
			first = max(1, last-min(last, term%17))
		}
		var entries []Entry
		for last = first - 1; last < first+10; last++ {
			entries = append(entries, plain(last+1, term, 300))
		}
		mustAppend(t, l, nil, entries...)
	}
	close(done)
	wg.Wait()
}
