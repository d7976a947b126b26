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

// This file handles disks without room for a stage.

const (
	// A stage that found no room is tried again after fullBackOffMin, and then after twice as long each time.
	// Every attempt begins from the start and writes as much as the disk takes. More attempts would keep
	// network and disk busy with gigabytes that are thrown away.
	fullBackOffMin = 5 * time.Second
	fullBackOffMax = time.Minute
	// noRoomFor is for how long after its last failure this node's own disk is reported as full: every retry
	// has happened by then.
	noRoomFor = 2 * fullBackOffMax
	// fullWarnInterval is the shortest time between two warnings of one kind.
	fullWarnInterval = 10 * time.Second
)

// Blocked is a stage for which disks have no room, or that cannot be copied to a majority for another reason.
type Blocked struct {
	ID entry.StageID
	// Bytes is how much of the stage was written on the node that writes it; for this node's own full disk, how
	// much the disk took.
	Bytes uint64
	// Full are the voters whose disks are full, if the stage finds no majority without them. For this node's
	// own full disk it is only this node.
	Full []cluster.NodeID
	// Failing are the voters to which copies fail again and again for another reason, if the stage finds no
	// majority without them. Why is one of the errors.
	Failing []cluster.NodeID
	Why     error
}

// noRoom is a stage for which this node's own disk had no room.
type noRoom struct {
	id    entry.StageID
	bytes uint64
	at    time.Duration // by the clock
}

// Blocked returns the stages that wait. These are the stages of this node that full disks or failing copies
// keep from a majority, until a majority holds them or they are closed. The last stage for which this node's
// own disk had no room is reported, too, until the disk has taken as much as then, or for two minutes.
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

// createStage begins a stage in this node's log. It notes if the disk has no room, now or during a later write.
func (b *Bulk) createStage(id entry.StageID) (StageWriter, error) {
	w, err := b.cfg.Stages.CreateStage(id)
	if err != nil {
		b.noteRoom(id, 0, err)
		return nil, err
	}
	return &roomWriter{StageWriter: w, b: b, id: id}, nil
}

// roomWriter is the writer of a stage. It notes whether the disk has room.
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

// noteRoom notes whether this node's disk has taken a stage, by err.
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

// warnSeldom logs that a disk is full, or that copies fail: as a warning, or for debugging if there was a
// warning of this kind a moment ago.
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

// backOff is how long to wait after a number of failures, of which the last full ones were for want of space.
func backOff(failures, full int) time.Duration {
	if full > 0 {
		return min(fullBackOffMin<<min(full-1, 10), fullBackOffMax)
	}
	return min(backOffMin<<min(failures, 10), backOffMax)
}
