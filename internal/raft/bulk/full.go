package bulk

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
)

// Disks without room for a stage.

const (
	// A stage that found no room is tried again after fullBackOffMin, then after
	// twice as long each time: every attempt begins anew and writes as much as
	// the disk takes, so more of them would keep network and disk busy with
	// gigabytes that are thrown away.
	fullBackOffMin = 5 * time.Second
	fullBackOffMax = time.Minute
	// noRoomFor is how long after its last failure this node's own disk is said
	// to be too small: every retry has happened by then.
	noRoomFor = 2 * fullBackOffMax
	// fullWarnInterval is the shortest time between two warnings of one kind.
	fullWarnInterval = 10 * time.Second
)

// Blocked is a stage for which disks have no room, or that cannot be copied to a
// majority for another reason.
type Blocked struct {
	ID entry.StageID
	// Bytes is how much of the stage there is so far on the node that names it,
	// or how much this node's disk took.
	Bytes uint64
	// Full are the voters that refused it, where without them it finds no
	// majority; this node alone where its own disk is meant.
	Full []cluster.NodeID
	// Failing are the voters to which copies fail otherwise, again and again, where
	// without them it finds no majority, and Why is one of the errors.
	Failing []cluster.NodeID
	Why     error
}

// noRoom is a stage for which this node's own disk had no room.
type noRoom struct {
	id    entry.StageID
	bytes uint64
	at    time.Duration // by the clock
}

// Blocked returns the stages that wait: those of this node that full disks, or copies
// that fail, keep from a majority, until they have it or are closed, and the last one
// for which this node's own disk had no room, until it has taken as much or two
// minutes have gone by.
func (b *Bulk) Blocked() []Blocked {
	b.mu.Lock()
	uploads := make([]*Upload, 0, len(b.uploads))
	for u := range b.uploads {
		uploads = append(uploads, u)
	}
	own := b.noRoom
	b.mu.Unlock()
	var all []Blocked
	for _, u := range uploads {
		if full, failing, why := u.blocked(); len(full)+len(failing) > 0 {
			all = append(all, Blocked{u.id, u.bytes.Load(), full, failing, why})
		}
	}
	slices.SortFunc(all, func(a, b Blocked) int {
		return cmp.Or(cmp.Compare(a.ID.Term, b.ID.Term), cmp.Compare(a.ID.Number, b.ID.Number))
	})
	if own != nil && b.cfg.Tasks.Now()-own.at < noRoomFor {
		all = append(all, Blocked{ID: own.id, Bytes: own.bytes, Full: []cluster.NodeID{b.cfg.Self}})
	}
	return all
}

// createStage begins a stage in this node's log, and notes it if there is no
// room, now or later.
func (b *Bulk) createStage(id entry.StageID) (StageWriter, error) {
	w, err := b.cfg.Stages.CreateStage(id)
	if err != nil {
		b.noteRoom(id, 0, err)
		return nil, err
	}
	return &roomWriter{StageWriter: w, b: b, id: id}, nil
}

// roomWriter is a stage's writer that notes whether its disk has room.
type roomWriter struct {
	StageWriter
	b     *Bulk
	id    entry.StageID
	bytes uint64
}

// Write implements io.Writer.
func (w *roomWriter) Write(p []byte) (int, error) {
	n, err := w.StageWriter.Write(p)
	w.bytes += uint64(n)
	if err != nil {
		w.b.noteRoom(w.id, w.bytes, err)
	}
	return n, err
}

// Finish implements StageWriter.
func (w *roomWriter) Finish(bytes uint64, crc uint32) error {
	err := w.StageWriter.Finish(bytes, crc)
	w.b.noteRoom(w.id, w.bytes, err)
	return err
}

// noteRoom takes it that this node's disk has taken a stage, or has failed to.
func (b *Bulk) noteRoom(id entry.StageID, bytes uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case errors.Is(err, seglog.ErrFull):
		b.noRoom = &noRoom{id, bytes, b.cfg.Tasks.Now()}
	case err == nil && b.noRoom != nil && bytes >= b.noRoom.bytes:
		b.noRoom = nil
	}
}

// seldom is a warning that is logged at most once in fullWarnInterval.
type seldom struct {
	ever   bool
	at     time.Duration // by the clock
	unsaid int
}

// warnSeldom logs that a disk is full, or that copies fail: for people, or if one of this kind was logged
// a moment ago for those who look closely.
func (b *Bulk) warnSeldom(kind *seldom, msg string, args ...any) {
	b.mu.Lock()
	now := b.cfg.Tasks.Now()
	said := kind.ever && now-kind.at < fullWarnInterval
	if said {
		kind.unsaid++
	} else {
		args = append(args, "unsaid", kind.unsaid)
		*kind = seldom{ever: true, at: now}
	}
	b.mu.Unlock()
	if said {
		b.cfg.Logger.Debug(msg, args...)
	} else {
		b.cfg.Logger.Warn(msg, args...)
	}
}

// backOff is how long to wait after so many failures, of which the last ones,
// full of them, were for want of space.
func backOff(failures, full int) time.Duration {
	if full > 0 {
		return min(fullBackOffMin<<min(full-1, 10), fullBackOffMax)
	}
	return min(backOffMin<<min(failures, 10), backOffMax)
}
