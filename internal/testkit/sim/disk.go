package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// Times of a disk.
const (
	appendMin    = 150 * time.Microsecond
	appendSpread = 200 * time.Microsecond
)

// errCrashed is returned by every call of a process that was ended in the middle of a call.
var errCrashed = errors.New("the process has ended")

// disk is the log disk of a machine: its durable content, its speed, and the call in whose middle the process
// ends.
type disk struct {
	rng *rand.Rand
	mem *vfs.Mem
	// slow is a factor for the times. No call ends before stalledUntil.
	slow         time.Duration
	stalledUntil time.Duration
	full         int // the number of faults that fill the disk

	// callsLeft is how many more changing calls succeed before the process ends; -1 = it does not end. onCrash
	// is called at that moment.
	callsLeft int
	onCrash   func()
	tear      *tear // nil = no write will be torn
	bad       *badSector
}

func newDisk(rng *rand.Rand) *disk {
	return &disk{rng: rng, mem: vfs.NewMem(), slow: 1, callsLeft: -1}
}

// appendTime is the duration of the next group commit.
func (d *disk) appendTime(now time.Duration) time.Duration {
	t := d.slow * (appendMin + around(d.rng, appendSpread))
	if chance(d.rng, 1) {
		t += around(d.rng, 5*time.Millisecond)
	}
	return max(t, d.stalledUntil-now)
}

// open returns the file system for one process.
func (d *disk) open() vfs.FS {
	d.callsLeft = -1
	return sectorFS{fullFS{vfs.Wrap(d.mem, d.hook), d}, d}
}

func (d *disk) hook(op vfs.Op, path string) error {
	if !op.Changes() {
		return nil
	}
	if t := d.tear; t.of(path) && d.callsLeft < 0 {
		d.tear = nil
		t.begins(d.rng)
	}
	if d.callsLeft < 0 {
		return nil
	}
	if d.callsLeft == 0 {
		if d.onCrash != nil {
			d.onCrash()
			d.onCrash = nil
		}
		return errCrashed
	}
	d.callsLeft--
	return nil
}

// files returns the data directory's small files for one process.
func (d *disk) files() datadir.Dir { return datadir.New(d.open(), ".") }

// losePower keeps everything that was synced. The seed decides which part of the rest stays.
func (d *disk) losePower() { d.mem = d.mem.CrashClone(d.rng.Uint64()) }

// fullFS is a file system. While its disk is full, it has no room for a new file, and hardly any for a longer
// file. Existing bytes can be overwritten.
type fullFS struct {
	vfs.FS
	d *disk
}

func (f fullFS) noRoom() error {
	if f.d.full > 0 {
		return syscall.ENOSPC
	}
	return nil
}

// Create implements vfs.FS.
func (f fullFS) Create(name string) (vfs.File, error) {
	if err := f.noRoom(); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name)
	return fullFile{file, f}, err
}

// OpenReadWrite implements vfs.FS.
func (f fullFS) OpenReadWrite(name string) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name)
	return fullFile{file, f}, err
}

type fullFile struct {
	vfs.File
	fs fullFS
}

// WriteAt implements vfs.File.
func (f fullFile) WriteAt(p []byte, offset int64) (int, error) {
	if err := f.room(offset + int64(len(p))); err != nil {
		n, _ := f.File.WriteAt(p[:f.fs.d.rng.IntN(len(p))], offset) // a part of it fits in the last free blocks
		return n, err
	}
	return f.File.WriteAt(p, offset)
}

// Truncate implements vfs.File.
func (f fullFile) Truncate(size int64) error {
	if err := f.room(size); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f fullFile) room(end int64) error {
	if f.fs.d.full == 0 {
		return nil
	}
	if size, err := f.Size(); err != nil || end <= size {
		return err
	}
	return f.fs.noRoom()
}

// smallWrite is a write of a small file. It waits for the disk.
type smallWrite struct{ do func() error }

// write makes a small file durable. It takes as long as an append.
func (n *node) write(l *life, do func() error) error {
	w := &smallWrite{do}
	n.writes = append(n.writes, w)
	l.sleep(n.disk.appendTime(n.w.sched.now))
	n.writes = slices.DeleteFunc(n.writes, func(other *smallWrite) bool { return other == w })
	return do()
}

// writtenLog is an agent's log as consensus writes it. The disk takes its time, and the checker is told what is
// durable.
type writtenLog struct {
	consensus.Log
	a       *agent
	slow    bool                 // the log is in use; false while the agent is being built
	writing *consensus.AppendRun // what the disk is writing; nil = nothing
	answers bool                 // a write has ended, and the goroutine that made it will answer it next
}

// Append implements consensus.Log. Other goroutines run while it sleeps: raft then handles messages although
// the log is longer than raft knows.
func (l *writtenLog) Append(entries []seglog.Entry, hs *seglog.HardState) error {
	n := l.a.n
	run := consensus.AppendRun{Entries: entries, HardState: hs}
	if l.slow {
		l.writing = &run
		if len(entries) > 0 {
			l.a.w.happened(pointAppending, n)
		}
		l.a.life.sleep(n.disk.appendTime(l.a.w.sched.now))
	}
	err := l.Log.Append(entries, hs)
	l.writing = nil
	n.log("append", "last %d, commit %d: %v", l.LastIndex(), l.HardState().Commit, err)
	if err != nil {
		n.durable.cut([]consensus.AppendRun{run})
		return err
	}
	n.durable.appended(run)
	if l.slow {
		l.a.w.happened(pointAppended, n)
		l.a.life.sleep(n.heldUp())
		l.answers = true
	}
	return nil
}

// slowLog is a log on a disk that takes its time.
type slowLog struct {
	*seglog.Log
	n    *node
	life *life
}

// Append implements logcopy.Log.
func (l slowLog) Append(entries []seglog.Entry, hs *seglog.HardState) error {
	l.life.sleep(l.n.disk.appendTime(l.n.w.sched.now))
	return l.Log.Append(entries, hs)
}

// heldUp returns for how long a goroutine does not run between two calls. Now and then that is long enough for
// some turns of other goroutines.
func (n *node) heldUp() time.Duration {
	if chance(n.rng, 10) {
		return around(n.rng, 2*time.Millisecond)
	}
	return 1 + around(n.rng, time.Microsecond) // a sleep of 0 would never end
}

// cutAppend ends the process while its log writes: before, in the middle of, or after the calls of the append.
// onCrash is called at the end of the process, if that is in the middle.
func (l *writtenLog) cutAppend(onCrash func()) {
	n := l.a.n
	if l.writing == nil || chance(n.rng, 20) {
		return
	}
	calls := n.rng.IntN(8)
	if chance(n.rng, 50) {
		calls = 1 // mostly between write and sync
	}
	n.disk.callsLeft, n.disk.onCrash = calls, onCrash
	n.durable.cut([]consensus.AppendRun{*l.writing})
	if err := l.Log.Append(l.writing.Entries, l.writing.HardState); err != nil {
		n.log("crash", "inside of the append")
	} else {
		n.log("crash", "after the append")
	}
}

// cutWrites ends the process while it writes small files: before, in the middle of, or after the calls for one
// of them.
func (n *node) cutWrites(onCrash func()) {
	for _, w := range n.writes {
		n.disk.callsLeft, n.disk.onCrash = n.rng.IntN(12), onCrash
		if err := w.do(); err != nil {
			n.w.struck.Torn++
			n.log("crash", "inside of a small file: %v", err)
			return
		}
	}
}

// durableMark reads the mark in durable.json.
func (n *node) durableMark() replay.Mark {
	var m datadir.Mark
	if err := m.Load(n.disk.files()); err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
	return m.Of(n.uuid.String())
}

// state reads cluster.json, for a log that begins at first.
func (n *node) state(first uint64) cluster.StatePoint {
	p, err := n.disk.files().State(n.w.initial.Members, true, first)
	if err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
	return p
}

// replaceMark replaces durable.json, or removes it if m is no mark.
func (n *node) replaceMark(m replay.Mark) {
	n.marked = max(n.marked, m.Index) // the peers purge by this mark, too
	err := n.disk.mem.RemoveAll(datadir.Durable)
	if m.Index > 0 {
		err = datadir.New(n.disk.mem, ".").WriteMark(n.uuid.String(), m)
	}
	err = errors.Join(err, n.disk.mem.SyncDir("."))
	if err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
}
