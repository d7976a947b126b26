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
	// appendEntriesMax and appendBytesMax bound one group commit; a single message may be longer. Even a slow
	// disk writes 8 MiB well within an election timeout, the time after which it counts as stalled.
	appendEntriesMax = 1024
	appendBytesMax   = 8 << 20
	// handOverBytesMin is the size from which the writer makes a group commit. Meanwhile the goroutine that
	// read the entries takes the next ones in: for so much data that gains more than waking the writer costs.
	handOverBytesMin = 64 << 10
	// fullRetryInterval is the pause between two tries to append to a full disk.
	fullRetryInterval = 500 * time.Millisecond
)

// writes holds what goes to the log: one write at a time, in order.
type writes struct {
	// waiting are raft's messages to the log that are in no write yet.
	waiting []*pb.Message
	current *Write // the write under way; nil: none
	full    *fullDisk
	// begun is the boot time at which current began; 0 = there is no current, or it is on disk. Any goroutine
	// may read it.
	begun atomic.Int64
}

// fullDisk holds what waits for space: group, the write that did not fit, and held, the messages that came
// later.
type fullDisk struct {
	*FullDisk
	group *Write
	held  []*pb.Message
	// votes are the vote answers that came since the last write. due: messages came; look whether something
	// must be stored for them. group is tried again at retryAt.
	votes   []*pb.Message
	due     bool
	retryAt time.Duration
}

// Write is one write to the log: a group commit, or what a full disk still takes.
type Write struct {
	log   Log
	begun *atomic.Int64
	// Runs are the appends that are not on disk yet. vote is a hard state that is stored before them; it
	// overtakes them.
	Runs []AppendRun
	vote *seglog.HardState
	// batch are the messages for which this write is made. votes are the vote answers that may leave once it is
	// on disk.
	batch, votes []*pb.Message
	bytes        int           // of the entries
	took         time.Duration // the time that Append took; set only where it is measured
}

func (w *writes) add(ms []*pb.Message) { w.waiting = append(w.waiting, ms...) }

// queued returns how many messages wait for a write.
func (w *writes) queued() int {
	if w.full != nil {
		return len(w.waiting) + len(w.full.held)
	}
	return len(w.waiting)
}

// began is when the write under way began; 0 = no write is under way, or it has ended.
func (w *writes) began() time.Duration { return time.Duration(w.begun.Load()) }

// nextWrite returns the write to make now; nil = there is nothing to write, or a write is under way.
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

// long tells whether a goroutine that has other work should leave the write to the writer.
func (w *Write) long() bool { return w.bytes >= handOverBytesMin }

// group makes a write of the messages that wait, up to the bounds of a group commit.
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

// next returns what to write while the disk is full: votes when they come, and the group that did not fit when
// it is time to try again.
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

// Answer sends peers the answers that wait for w, which must be on disk. Like Append, it needs no turn.
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

// ended handles the end of the write under way. It returns an error if the log failed.
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

// hasNoSpace notes that w did not fit. If its votes did not fit, they are not given: the candidate asks again.
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

// retryAt is when a full disk is tried again, even if nothing has happened; 0 = no retry is due.
func (w *writes) retryAt() time.Duration {
	if w.full == nil || w.current != nil {
		return 0
	}
	return w.full.retryAt
}

// Full tells whether the log's disk has no space, as Config.OnFull was told last.
func (d *Driver) Full() bool { return d.writes.full != nil }

// Stalled returns for how long the write under way has taken, if that is an election timeout or longer; else 0.
// A leader's OnStalled is told as well. Any goroutine may call it.
func (d *Driver) Stalled(now time.Duration) time.Duration {
	if began := d.writes.began(); began != 0 && now-began >= d.cfg.ElectionTimeout {
		return now - began
	}
	return 0
}

// diskWatch finds out that a leader's log does not answer. Followers still append and raft still commits. But
// what is not on this node's own disk is not acknowledged, so every writer hangs.
type diskWatch struct {
	after   time.Duration // do not look again before then
	suspect time.Duration // when the write began that was too slow at the first look
}

// look returns how long the write has taken that began at `began`, if a leader has to be told; else 0.
func (w *diskWatch) look(cfg Config, now, began time.Duration, leading bool) time.Duration {
	if began == 0 || now-began < cfg.ElectionTimeout || now < w.after || !leading {
		return 0
	}
	// The first look does not count: the agent itself may have been stopped.
	if w.suspect != began {
		w.suspect, w.after = began, now+cfg.Heartbeat
		return 0
	}
	w.after = now + cfg.ElectionTimeout
	return now - began
}
