package consensus

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/sys/invariant"
)

const (
	// appendEntriesMax and appendBytesMax bound one group commit; a single
	// message may be longer. 8 MiB take a slow disk well below an election
	// timeout, beyond which it counts as stalled.
	appendEntriesMax = 1024
	appendBytesMax   = 8 << 20
	// handOverBytesMin is from when on a group commit is the writer's: the reader has the
	// next one to take in meanwhile, and then the two cost more than waking the writer.
	handOverBytesMin = 64 << 10
	// fullRetryInterval is the pause between two tries to append to a full disk.
	fullRetryInterval = 500 * time.Millisecond
)

// writes is what goes to the log: one write at a time, in order.
type writes struct {
	// waiting are raft's messages to the log that no write has taken.
	waiting []*pb.Message
	current *Write // under way; nil: none
	full    *fullDisk
	// begun is the boot time at which current began, 0 = there is none, or it is on disk.
	// Everybody may read it.
	begun atomic.Int64
}

// fullDisk is what waits for space: group, which did not fit, and held, which came later.
type fullDisk struct {
	*FullDisk
	group *Write
	held  []*pb.Message
	// votes came since the last write. due: look whether something must be stored for
	// them, or for what else came. Group is tried again at retryAt.
	votes   []*pb.Message
	due     bool
	retryAt time.Duration
}

// Write is one write to the log: a group commit, or what a full disk still takes.
type Write struct {
	log   Log
	begun *atomic.Int64
	// Runs are not on disk so far. vote is stored before them; it overtakes them.
	Runs []AppendRun
	vote *seglog.HardState
	// batch are the messages that this write is for, votes what may leave with it.
	batch, votes []*pb.Message
	bytes        int           // of the entries
	took         time.Duration // by Append, where somebody notes it
}

func (w *writes) add(ms []*pb.Message) { w.waiting = append(w.waiting, ms...) }

// queued is how many messages wait for a write.
func (w *writes) queued() int {
	if w.full != nil {
		return len(w.waiting) + len(w.full.held)
	}
	return len(w.waiting)
}

// began is when the write under way began; 0 = there is none, or it has ended.
func (w *writes) began() time.Duration { return time.Duration(w.begun.Load()) }

// nextWrite returns what is to be written now; nil: nothing is, or a write is under way.
func (d *Driver) nextWrite(now time.Duration) *Write {
	w := &d.writes
	switch {
	case w.current != nil:
		return nil
	case w.full != nil:
		w.current = w.full.next(w, now, d.cfg.Log)
	case len(w.waiting) > 0:
		w.current = w.group()
	}
	if w.current == nil {
		return nil
	}
	w.current.log, w.current.begun = d.cfg.Log, &w.begun
	w.begun.Store(int64(now))
	return w.current
}

// long tells whether a goroutine with work of its own should leave the write to another.
func (w *Write) long() bool { return w.bytes >= handOverBytesMin }

// group takes what waits, as much as one group commit may have.
func (w *writes) group() *Write {
	entries, bytes, n := 0, 0, 0
	for n < len(w.waiting) && (n == 0 || entries < appendEntriesMax && bytes < appendBytesMax) {
		for _, e := range w.waiting[n].GetEntries() {
			bytes += len(e.GetData())
		}
		entries += len(w.waiting[n].GetEntries())
		n++
	}
	batch := slices.Clone(w.waiting[:n])
	w.waiting = slices.Delete(w.waiting, 0, n)
	return &Write{Runs: AppendRuns(batch), batch: batch, bytes: bytes}
}

// next returns what to write while the disk is full: votes when they come, the group that
// did not fit when it is time to try again.
func (f *fullDisk) next(w *writes, now time.Duration, log Log) *Write {
	for _, m := range w.waiting {
		votes, waits := f.Take(m)
		f.votes = append(f.votes, votes...)
		if waits {
			f.held = append(f.held, m)
		}
		f.due = true
	}
	w.waiting = nil
	vote := f.Vote(log.HardState())
	if f.due {
		votes := f.votes
		f.votes, f.due = nil, false
		if vote != nil || len(votes) > 0 {
			return &Write{vote: vote, votes: votes}
		}
	}
	if now < f.retryAt {
		return nil
	}
	f.group.vote = vote
	return f.group
}

// Append makes the write durable.
func (w *Write) Append() error {
	defer w.begun.Store(0)
	if w.vote != nil {
		if err := w.log.Append(nil, w.vote); err != nil {
			return err
		}
		w.vote = nil
	}
	for ; len(w.Runs) > 0; w.Runs = w.Runs[1:] {
		run := w.Runs[0]
		if err := w.log.Append(run.Entries, run.Newest(w.log.HardState())); err != nil {
			return err
		}
	}
	return nil
}

// Answer sends peers what they wait for, of a write that is on disk. As Append, it needs no
// turn.
func (d *Driver) Answer(w *Write) {
	invariant.Check(w.vote == nil && len(w.Runs) == 0, "I7", "a write is answered that is not on disk")
	answers := slices.Clone(w.votes)
	for _, m := range w.batch {
		for _, r := range m.GetResponses() {
			if r.GetTo() != uint64(d.cfg.Self) {
				answers = append(answers, r)
			}
		}
	}
	if len(answers) > 0 {
		CheckAnswers(answers, d.cfg.Log.HardState())
		d.send(answers)
	}
}

// ended says that the write under way has ended, and how. It returns an error if the log
// failed.
func (d *Driver) ended(now time.Duration, err error) error {
	w := d.writes.current
	d.writes.current = nil
	switch {
	case errors.Is(err, seglog.ErrFull):
		d.hasNoSpace(now, w, err)
	case err != nil:
		return err
	case len(w.batch) > 0:
		d.hasSpace()
		d.timings.appended(now, w)
		for _, m := range w.batch {
			for _, r := range m.GetResponses() {
				if r.GetTo() == uint64(d.cfg.Self) {
					d.group.Step(now, r)
				}
			}
		}
	}
	return nil
}

// hasNoSpace notes that w did not fit. Votes that did not are not given: the candidate asks
// again.
func (d *Driver) hasNoSpace(now time.Duration, w *Write, err error) {
	f := d.writes.full
	if f == nil {
		f = &fullDisk{FullDisk: NewFullDisk(d.cfg.Self, w.Runs), group: w, due: true}
		d.writes.full = f
		d.cfg.OnFull(err)
	}
	if w == f.group {
		f.retryAt = now + fullRetryInterval
	}
}

// hasSpace notes that a group commit was made.
func (d *Driver) hasSpace() {
	if f := d.writes.full; f != nil {
		d.writes.waiting = append(f.held, d.writes.waiting...)
		d.writes.full = nil
		d.cfg.OnFull(nil)
	}
}

// retryAt is when there is something to write though nothing has happened: a full disk is
// tried again; 0 = not.
func (w *writes) retryAt() time.Duration {
	if w.full == nil || w.current != nil {
		return 0
	}
	return w.full.retryAt
}

// Full tells whether the log's disk has no space: what Config.OnFull was told last.
func (d *Driver) Full() bool { return d.writes.full != nil }

// Stalled returns for how long the log's disk has been at one write, where that
// is an election timeout or longer; else 0. A leader's OnStalled is told as well. Everybody
// may call it.
func (d *Driver) Stalled(now time.Duration) time.Duration {
	if began := d.writes.began(); began != 0 && now-began >= d.cfg.ElectionTimeout {
		return now - began
	}
	return 0
}

// diskWatch finds a leader's log that does not answer: followers still append
// and raft still commits, but nothing that this node does not have on its own
// disk is acknowledged, so every writer hangs.
type diskWatch struct {
	after   time.Duration // look again then
	suspect time.Duration // the write that took too long when it was first looked at
}

// look returns how long the write has taken that began at a time, if a leader is to be told.
func (w *diskWatch) look(cfg Config, now, began time.Duration, leading bool) time.Duration {
	if began == 0 || now-began < cfg.ElectionTimeout || now < w.after || !leading {
		return 0
	}
	if w.suspect != began { // not at the first look: the agent may have been stopped itself
		w.suspect, w.after = began, now+cfg.Heartbeat
		return 0
	}
	w.after = now + cfg.ElectionTimeout
	return now - began
}
