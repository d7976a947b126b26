package backups

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/log/seglog"
)

const (
	// readBytesMax is how much of the log is read at a time.
	readBytesMax = 1 << 20
	// pointEvery is how often the stream says up to which entry everything was sent.
	pointEvery = time.Second
)

// ErrBehind means that the log ends before the entry that is asked for.
var ErrBehind = errors.New("the log of this node does not go so far")

// Log writes the committed entries from first on to w, as a piece that has no end; 0 = those that are committed from now
// on. It waits for more entries until ctx ends.
func (s *Source) Log(ctx context.Context, w io.Writer, first uint64) error {
	log := s.c.Log()
	defer log.Close()
	commit := s.c.Commit()
	if first == 0 {
		first = commit + 1
	}
	switch {
	case first < log.FirstIndex():
		return fmt.Errorf("the log was purged up to entry %d, and is needed from entry %d on: %w", log.FirstIndex()-1, first, seglog.ErrCompacted)
	case first > commit+1:
		return fmt.Errorf("%w: it ends at entry %d, and is asked for from entry %d on", ErrBehind, commit, first)
	}
	buffered := bufio.NewWriterSize(w, 1<<18)
	out, err := archive.NewWriter(buffered, archive.Head{Cluster: s.c.Cluster, ClusterID: s.c.ClusterID, Generation: generation(s.c.State()), Node: s.c.Node, First: first})
	if err != nil {
		return err
	}
	for next := first; ; commit = s.c.Commit() {
		if next, err = s.send(ctx, out, log, next, commit); err != nil {
			return err
		}
		if err := errors.Join(out.Point(next-1), buffered.Flush()); err != nil {
			return err
		}
		// So many entries are sent at a time.
		if err := s.c.Clock.Wait(ctx, pointEvery, nil); err != nil {
			return err
		}
	}
}

// send writes the entries up to the commit index, and returns the next one.
func (s *Source) send(ctx context.Context, out *archive.Writer, log Log, next, commit uint64) (uint64, error) {
	for next <= commit && ctx.Err() == nil {
		found, ok, err := log.ReadCommitted(next, readBytesMax)
		if err != nil {
			return next, fmt.Errorf("read entry %d: %w", next, err)
		}
		if !ok || len(found) == 0 {
			break
		}
		for _, e := range found {
			if err := sendEntry(out, log, e); err != nil {
				return next, err
			}
			next = e.Index + 1
		}
	}
	return next, ctx.Err()
}

func sendEntry(out *archive.Writer, log Log, e seglog.Entry) error {
	s, staged := e.Staged()
	if !staged {
		return out.Entry(e, nil)
	}
	stage, err := log.ReadStage(s.ID)
	if err != nil {
		return fmt.Errorf("read the transaction of entry %d: %w", e.Index, err)
	}
	return errors.Join(out.Entry(e, stage), stage.Close())
}
