package agent

import (
	"context"
	"errors"

	"github.com/quorate/quorate/internal/bulk"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/seglog"
)

const (
	// A group of what was fetched is written at once. The memory of a copy is this,
	// and one entry.
	copyGroupBytes   = 4 << 20
	copyGroupEntries = 1024
)

// logCopy brings committed entries, and stages, from peers into a log that takes no
// part in Raft meanwhile.
type logCopy struct {
	log  *seglog.Log
	bulk *bulk.Bulk
	// copied is the last index that is known to be as committed; until is where the
	// copy ends.
	copied, until uint64
	// total counts the bytes of what came.
	total   int64
	pending []seglog.Entry
	bytes   int
	// progress is called whenever something was written.
	progress func(from cluster.NodeID)
}

// copyFrom copies what is committed on a peer, as far as it is needed.
func (c *logCopy) copyFrom(ctx context.Context, from cluster.NodeID) error {
	c.pending, c.bytes = nil, 0
	err := c.bulk.FetchEntries(ctx, from, c.copied+1, func(e seglog.Entry) error {
		if err := c.add(ctx, from, e); err != nil {
			return err
		}
		if c.copied >= c.until && len(c.pending) == 0 {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return c.flush(from)
}

// errEnough ends a copy that has reached its target: the source's log goes on.
var errEnough = errors.New("copied what is needed")

// add takes the next committed entry: it is there already, or is written with
// others, or at once if it names a stage.
func (c *logCopy) add(ctx context.Context, from cluster.NodeID, e seglog.Entry) error {
	if term, err := c.log.Term(e.Index); len(c.pending) == 0 && err == nil && term == e.Term {
		c.copied = e.Index
		return nil
	}
	s, staged := stagedOf(e)
	if staged {
		if err := c.flush(from); err != nil {
			return err
		}
		if err := c.bulk.FetchStage(ctx, s, from); err != nil {
			return err
		}
	}
	c.pending, c.bytes = append(c.pending, e), c.bytes+len(e.Data)
	c.total += int64(len(e.Data)) + int64(s.Bytes)
	if staged || c.bytes >= copyGroupBytes || len(c.pending) >= copyGroupEntries || e.Index >= c.until {
		return c.flush(from)
	}
	return nil
}

func (c *logCopy) flush(from cluster.NodeID) error {
	if len(c.pending) == 0 {
		return nil
	}
	if err := c.log.Append(c.pending, nil); err != nil {
		return err
	}
	c.copied = c.pending[len(c.pending)-1].Index
	c.pending, c.bytes = nil, 0
	c.progress(from)
	return nil
}

func stagedOf(e seglog.Entry) (entry.Staged, bool) {
	if e.Type != 0 {
		return entry.Staged{}, false
	}
	return entry.StagedIn(e.Data)
}
