package logcopy

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// groupBytes and groupEntries bound one write to the log.
	groupBytes   = 4 << 20
	groupEntries = 1024
	// retry is the pause before a peer is asked again.
	retry = 500 * time.Millisecond
	// askTimeout bounds the question to one peer for the tail of its log.
	askTimeout = 3 * time.Second
	// joinPatience: a join ends with an error once there has been no leader at its begin, or nothing new since its source
	// failed, for this long. It does not end sooner, because to begin again may mean to copy all of mysqld's data.
	joinPatience = 10 * time.Second
)

// Peers asks peers for what they have: see bulk.Bulk.
type Peers interface {
	AskTail(ctx context.Context, peer cluster.NodeID) (bulk.Tail, error)
	FetchEntries(ctx context.Context, from cluster.NodeID, index uint64, f func(seglog.Entry) error) error
	FetchStage(ctx context.Context, s entry.Staged, from cluster.NodeID) error
}

// Log is the log into which entries are copied: see seglog.Log.
type Log interface {
	LastIndex() uint64
	Term(index uint64) (uint64, error)
	Append(entries []seglog.Entry, hs *seglog.HardState) error
}

// Copy copies committed entries and stages from peers into a log.
type Copy struct {
	Log   Log
	Peers Peers
	Clock clock.Clock
	// Others returns the other members that are known now.
	Others func() []cluster.NodeID
	// Copied is the last index up to which the log is known to equal the committed log.
	Copied uint64
	// Progress is called whenever something was written.
	Progress func(from cluster.NodeID)
	// GroupBytesMax bounds one write, which may be one entry longer; 0 = 4 MiB.
	GroupBytesMax int

	// until is the index at which the copy ends. total counts the bytes that have come.
	until   uint64
	total   int64
	pending []seglog.Entry
	bytes   int
}

// Until is the index at which the copy ends, as far as it is known now.
func (c *Copy) Until() uint64 { return c.until }

// Total counts the bytes that were copied.
func (c *Copy) Total() int64 { return c.total }

// Join copies everything that is committed now, at least up to the index least, into a new log. Then the log
// can take part in Raft. If the source fails, or has no more, Join goes on where it was, and asks the others, too: all
// that is committed is the same there. The source closes its connection, for instance, if a long stage is being copied
// and nobody reads the entries for 30 s.
func (c *Copy) Join(ctx context.Context, self, from cluster.NodeID, least uint64) error {
	begun := c.Clock.Now()
	last, term, err := c.target(ctx)
	for ; err != nil; last, term, err = c.target(ctx) {
		if c.Clock.Now()-begun >= joinPatience {
			return err
		}
		if err := c.Clock.Wait(ctx, retry, nil); err != nil {
			return err
		}
	}
	failing, failed := false, begun // whether, and since when, the source has failed each time, and nothing new came
	for c.until = max(last, least); c.Copied < c.until; {
		before := c.Copied
		err := c.copyFrom(ctx, from)
		for _, peer := range c.Others() {
			if peer == from || c.Copied > before || errors.Is(err, seglog.ErrFailed) {
				continue
			}
			if e := c.copyFrom(ctx, peer); errors.Is(e, seglog.ErrFailed) { // else only the source's error counts
				err = e
			}
		}
		now := c.Clock.Now()
		switch {
		case c.Copied > before:
			failing = false
			continue
		case errors.Is(err, seglog.ErrFailed), err != nil && failing && now-failed >= joinPatience:
			return err
		case err == nil:
			failing = false
		case !failing:
			failing, failed = true, now
		}
		// The source has no more, because it lags itself, or it has failed, and no other has more either.
		if err := c.Clock.Wait(ctx, retry, nil); err != nil {
			return err
		}
		// Or the entries were lost with their leader. Then the last index of the new leader is enough: it
		// begins with a new belief about this node.
		if l, t, err := c.target(ctx); err == nil && t > term {
			term, c.until = t, max(l, least)
		}
	}
	newest, err := c.Log.Term(c.Copied)
	if err != nil {
		return err
	}
	// No vote in this term or an earlier one: a node of this name may have given one.
	return c.Log.Append(nil, &seglog.HardState{Term: newest, Vote: uint64(self), Commit: c.Copied})
}

// target returns the last index of the leader's log, and its term. No node had committed or purged more than
// that before this question. And the leader may believe, in its term, that a node which is rebuilt still has
// that much.
func (c *Copy) target(ctx context.Context) (last, term uint64, err error) {
	for _, peer := range c.Others() {
		t, err := c.ask(ctx, peer)
		if err == nil && t.Leading && t.Term >= term {
			last, term = t.Last, t.Term
		}
	}
	if term == 0 {
		return 0, 0, errors.New("no node leads")
	}
	return last, term, nil
}

// ask asks a peer for the tail of its log.
func (c *Copy) ask(ctx context.Context, peer cluster.NodeID) (bulk.Tail, error) {
	ctx, cancel := c.Clock.WithTimeout(ctx, askTimeout)
	defer cancel()
	return c.Peers.AskTail(ctx, peer)
}

// copyFrom copies committed entries from a peer, up to until.
func (c *Copy) copyFrom(ctx context.Context, from cluster.NodeID) error {
	c.pending, c.bytes = nil, 0
	err := c.Peers.FetchEntries(ctx, from, c.Copied+1, func(e seglog.Entry) error {
		if err := c.add(ctx, from, e); err != nil {
			return err
		}
		if c.Copied >= c.until && len(c.pending) == 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return errors.Join(err, c.flush(from)) // what has come before the error counts
}

// errEnough ends a copy that has reached its target: the source's log goes on.
var errEnough = errors.New("copied what is needed")

// add takes the next committed entry. If the log does not have the entry yet, it is written together with
// others, or at once if it names a stage.
func (c *Copy) add(ctx context.Context, from cluster.NodeID, e seglog.Entry) error {
	if term, err := c.Log.Term(e.Index); len(c.pending) == 0 && err == nil && term == e.Term {
		c.Copied = e.Index
		return nil
	}
	s, staged := e.Staged()
	if staged {
		if err := c.flush(from); err != nil {
			return err
		}
		if err := c.Peers.FetchStage(ctx, s, from); err != nil {
			return err
		}
	}
	c.pending, c.bytes = append(c.pending, e), c.bytes+len(e.Data)
	c.total += int64(len(e.Data)) + int64(s.Bytes)
	if staged || c.bytes >= c.groupBytesMax() || len(c.pending) >= groupEntries || e.Index >= c.until {
		return c.flush(from)
	}
	return nil
}

func (c *Copy) groupBytesMax() int {
	if c.GroupBytesMax > 0 {
		return c.GroupBytesMax
	}
	return groupBytes
}

func (c *Copy) flush(from cluster.NodeID) error {
	if len(c.pending) == 0 {
		return nil
	}
	if err := c.Log.Append(c.pending, nil); err != nil {
		return err
	}
	c.Copied = c.pending[len(c.pending)-1].Index
	c.pending, c.bytes = nil, 0
	c.Progress(from)
	return nil
}
