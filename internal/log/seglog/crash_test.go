package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

// promise is what the log must hold after a crash: everything that returned calls of Append acknowledged, and
// perhaps some effects of the call in progress.
type promise struct {
	// acked is the acknowledged log. The call in progress keeps the first kept entries of it, and appends added
	// behind them.
	acked []Entry
	kept  int
	added []Entry
	// hs is acknowledged. next is being stored; it equals hs if nothing is being stored.
	hs, next HardState
	// purge is the highest index with which Purge was called.
	purge uint64
	// stages are the bytes of all stages that entries name or will name.
	stages map[entry.StageID][]byte
}

// check compares a log that was opened after a crash with the promise.
func (p *promise) check(l *Log) error {
	got, err := allOf(l)
	if err != nil {
		return err
	}
	first := l.FirstIndex()
	if first-1 > p.purge {
		return fmt.Errorf("log begins at %d, nothing behind %d was to be purged", first, p.purge)
	}
	got = append(slices.Clone(p.acked[:first-1]), got...)
	final := append(slices.Clone(p.acked[:p.kept]), p.added...)
	switch n := len(got); {
	case n >= p.kept && n <= len(p.acked) && sameEntries(got, p.acked[:n]) && (n == len(p.acked) || p.kept < len(p.acked)):
		// This is the old log, perhaps without some entries that the call removes.
	case n >= p.kept && n <= len(final) && sameEntries(got, final[:n]):
		// Some of the entries that the call adds are there.
	default:
		return fmt.Errorf("log has %d entries; %d were acknowledged, %d of them kept, %d added\n%s",
			n, len(p.acked), p.kept, len(p.added), cmp.Diff(final, got))
	}
	hs := l.HardState()
	type ballot struct{ term, vote uint64 }
	found := ballot{hs.Term, hs.Vote}
	if found != (ballot{p.hs.Term, p.hs.Vote}) && found != (ballot{p.next.Term, p.next.Vote}) {
		return fmt.Errorf("hard state %+v; %+v was acknowledged, %+v in progress", hs, p.hs, p.next)
	}
	if hs.Commit > p.next.Commit {
		return fmt.Errorf("commit index %d was never given, %d was", hs.Commit, p.next.Commit)
	}
	if err := p.checkStages(l, got[first-1:]); err != nil {
		return err
	}
	return checkSegments(l, got, hs.Commit)
}

// checkStages checks that the stages that entries name are there.
func (p *promise) checkStages(l *Log, entries []Entry) error {
	for _, e := range entries {
		s, ok := stagedOf(e)
		if !ok {
			continue
		}
		if raw, err := stageBytes(l, s.ID); err != nil || !bytes.Equal(raw, p.stages[s.ID]) || !l.HasStage(s.ID) {
			return fmt.Errorf("stage %v of entry %d has %d bytes, want %d: %w", s.ID, e.Index, len(raw), len(p.stages[s.ID]), err)
		}
	}
	return nil
}

// workload makes random but legal calls of Append.
type workload struct {
	rng     *rand.Rand
	term    uint64
	numbers uint64
	entries []Entry
	hs      HardState
	stages  map[entry.StageID][]byte
}

func newWorkload(seed, stream uint64) (*workload, *promise) {
	stages := map[entry.StageID][]byte{}
	return &workload{rng: rand.New(rand.NewPCG(seed, stream)), term: 1, stages: stages}, &promise{stages: stages}
}

// next returns the arguments of a call, and how many entries the call keeps.
func (w *workload) next() (entries []Entry, hs *HardState, kept int) {
	kept = len(w.entries)
	change := w.hs
	switch w.rng.IntN(8) {
	case 0: // a conflict
		if n := len(w.entries) - int(w.hs.Commit); n > 0 {
			kept -= 1 + w.rng.IntN(n)
			w.term++
			change.Term, change.Vote = w.term, 0
		}
	case 1: // an election
		w.term++
		change.Term, change.Vote = w.term, 1+w.rng.Uint64N(3)
	case 2: // a vote in a term that is known already
		if change.Term > 0 && change.Vote == 0 {
			change.Vote = 1 + w.rng.Uint64N(3)
		}
	}
	for i := range w.rng.IntN(6) {
		entries = append(entries, w.entry(uint64(kept+i+1)))
	}
	if kept < len(w.entries) && len(entries) == 0 {
		entries = append(entries, w.entry(uint64(kept+1)))
	}
	w.entries = append(slices.Clone(w.entries[:kept]), entries...)
	if last := uint64(len(w.entries)); w.rng.IntN(2) == 0 && last > w.hs.Commit {
		change.Commit += w.rng.Uint64N(last - w.hs.Commit + 1)
	}
	if change == w.hs {
		return entries, nil, kept
	}
	w.hs = change
	return entries, &change, kept
}

func (w *workload) entry(index uint64) Entry {
	term := w.term
	switch w.rng.IntN(14) {
	case 12, 13:
		if index == 1 {
			return epoch(index, term, "9.7.4")
		}
		w.numbers++
		e, raw := staged(index, term, 1, w.numbers, w.rng.IntN(1500))
		w.stages[entry.StageID{Term: term, Number: index}] = raw
		return e
	case 0:
		return epoch(index, term, "9.7."+strconv.Itoa(w.rng.IntN(10)))
	case 1:
		return rotate(index, term, "9.7.4")
	case 2:
		return plain(index, term, 0)
	case 3:
		return plain(index, term, w.rng.IntN(3000))
	case 4, 5:
		return plain(index, term, w.rng.IntN(200))
	}
	count := 1 + w.rng.IntN(3)
	w.numbers += uint64(count)
	return transactions(index, term, 1, w.numbers-uint64(count)+1, count, w.rng.IntN(100))
}

// beside does to the log what other callers do between two calls of Append: it puts the stages that entries
// name and some others, and purges.
func (w *workload) beside(l *Log, p *promise, entries []Entry) error {
	for _, e := range entries {
		// Sometimes too little room is reserved.
		l.slackBytes = []int64{200, -stageAlign}[w.rng.IntN(2)]
		s, ok := stagedOf(e)
		if !ok || l.HasStage(s.ID) {
			continue
		}
		if err := putStage(l, s.ID, w.stages[s.ID]); err != nil {
			return err
		}
	}
	if w.rng.IntN(4) == 0 {
		s, err := l.CreateStage(entry.StageID{Term: 1 << 40, Number: w.rng.Uint64()})
		if err != nil {
			return err
		}
		if _, err := s.Write(make([]byte, w.rng.IntN(2000))); err != nil {
			return errors.Join(err, s.Abort())
		}
		if w.rng.IntN(2) == 0 {
			if err := s.Abort(); err != nil {
				return err
			}
		} else if err := l.DropStages(func(id entry.StageID) bool { return id.Term < 1<<40 }); err != nil {
			return errors.Join(err, s.Abort())
		}
		if err := s.Abort(); err != nil {
			return err
		}
	}
	if w.rng.IntN(6) > 0 {
		return nil
	}
	upTo := w.rng.Uint64N(uint64(len(w.entries)) + 2)
	p.purge = max(p.purge, upTo)
	_, err := l.Purge(upTo)
	return err
}

// openSmall opens a log that reserves little room before a stage.
func openSmall(o Options) (*Log, error) {
	l, err := Open(o)
	if err == nil {
		l.slackBytes = 200
	}
	return l, err
}

// crashSeeds is how many random disks are tried at each call of the file
// system; QUORATE_CRASH_RUNS=n runs n times as many workloads.
const crashSeeds = 4

func crashRuns() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("QUORATE_CRASH_RUNS"), 10, 32); err == nil {
		return n
	}
	return 1
}

// TestCrashEverywhere loses the power before every call that changes something,
// in a random workload, also while Open recovers from an earlier crash.
func TestCrashEverywhere(t *testing.T) {
	for seed := range 4 * crashRuns() {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { t.Parallel(); crashWorkload(t, seed) })
	}
}

func crashWorkload(t *testing.T, seed uint64) {
	disk := vfs.NewMem()
	w, p := newWorkload(seed, 1)
	calls := uint64(0)
	hook := func(op vfs.Op, path string) error {
		if !op.Changes() {
			return nil
		}
		calls++
		for i := range uint64(crashSeeds) {
			checkCrash(t, disk.CrashClone(calls*crashSeeds+i), p, fmt.Sprintf("crash %d.%d before %s of %s", calls, i, op, path))
		}
		return nil
	}
	open := func() *Log {
		l, err := openSmall(indexedOptions(vfs.Wrap(disk, hook)))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	defer func() { _ = l.Close() }()
	for range 30 {
		entries, hs, kept := w.next()
		if err := w.beside(l, p, entries); err != nil {
			t.Fatal(err)
		}
		p.kept, p.added = kept, entries
		if hs != nil {
			p.next = *hs
		}
		mustAppend(t, l, hs, entries...)
		p.acked, p.hs = slices.Clone(w.entries), w.hs
		p.kept, p.added = len(p.acked), nil
		if w.rng.IntN(10) == 0 {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = open()
		}
	}
	wantEntries(t, l, w.entries[l.FirstIndex()-1:])
	if calls < 100 {
		t.Fatalf("only %d calls were seen", calls)
	}
}

// checkCrash opens a disk after a crash, with a second crash in the middle of the recovery, and checks the log.
func checkCrash(t *testing.T, disk *vfs.Mem, p *promise, when string) {
	t.Helper()
	var second *vfs.Mem
	hook := func(op vfs.Op, _ string) error {
		if op == vfs.OpSync {
			second = disk.CrashClone(3)
		}
		return nil
	}
	for range 2 {
		l, err := Open(indexedOptions(vfs.Wrap(disk, hook)))
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if err := p.check(l); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		checkDurable(t, l, disk.CrashClone(0), when)
		if err := l.Close(); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if second == nil {
			return
		}
		disk, when = second, when+", then in the recovery"
		hook = func(vfs.Op, string) error { return nil }
	}
}

// checkDurable checks that a disk that lost all unsynced data holds everything that l shows. An agent goes on
// with l, so others rely on it.
func checkDurable(t *testing.T, l *Log, disk *vfs.Mem, when string) {
	t.Helper()
	again, err := Open(indexedOptions(disk))
	if err != nil {
		t.Fatalf("%s, then a power loss: %v", when, err)
	}
	want, err := allOf(l)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	got, err := allOf(again)
	if err != nil || !sameEntries(want, got) || again.HardState() != l.HardState() {
		t.Fatalf("%s, then a power loss: %d entries and %+v, were %d and %+v: %v",
			when, len(got), again.HardState(), len(want), l.HardState(), err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFailEverywhere lets each call of the file system fail once: everything that was acknowledged stays, and
// the log accepts nothing after the error.
func TestFailEverywhere(t *testing.T) {
	for seed := range 2 * crashRuns() {
		for n := int64(1); failWorkload(t, seed, n); n++ {
		}
	}
}

// failWorkload fails the nth call and reports whether there were so many calls.
func failWorkload(t *testing.T, seed uint64, n int64) bool {
	disk := vfs.NewMem()
	errDisk := errors.New("input/output error")
	failed := ""
	inject := vfs.FailNth(n, errDisk, func(vfs.Op, string) bool { return true })
	o := indexedOptions(vfs.Wrap(disk, func(op vfs.Op, path string) error {
		err := inject(op, path)
		if err != nil {
			failed = fmt.Sprintf("seed %d, failed call %d: %s of %s", seed, n, op, path)
		}
		if err != nil && (op == vfs.OpSync || op == vfs.OpSyncData) {
			if err := disk.ForgetUnsynced(path); err != nil {
				t.Error(err)
			}
		}
		return err
	}))
	w, p := newWorkload(seed, 2)
	l, err := openSmall(o)
	for range 12 {
		if err != nil {
			break
		}
		entries, hs, kept := w.next()
		if err = w.beside(l, p, entries); err != nil {
			break
		}
		p.kept, p.added = kept, entries
		if hs != nil {
			p.next = *hs
		}
		if err = l.Append(entries, hs); err != nil {
			if !errors.Is(err, ErrFailed) {
				t.Fatalf("%s: append: %v", failed, err)
			}
			if again := l.Append(nil, nil); !errors.Is(again, ErrFailed) {
				t.Fatalf("%s: append after a failure: %v", failed, again)
			}
			break
		}
		p.acked, p.hs = slices.Clone(w.entries), w.hs
		p.kept, p.added = len(p.acked), nil
	}
	if l != nil {
		_ = l.Close()
	}
	if err != nil && !errors.Is(err, errDisk) {
		t.Fatalf("%s: %v", failed, err)
	}
	if failed != "" && err == nil && !strings.Contains(failed, savedPrefix) { // nothing relies on a saved index
		t.Fatalf("%s: nobody noticed", failed)
	}
	for i := range uint64(3) {
		checkCrash(t, disk.CrashClone(i), p, failed+", then a crash")
	}
	checkCrash(t, disk, p, failed)
	return failed != ""
}
