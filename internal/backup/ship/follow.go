package ship

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
)

// Agent gives the data and the log of a node. The caller closes the readers.
type Agent interface {
	Data(ctx context.Context) (io.ReadCloser, error)
	// Log gives the log from an entry on; 0 = what is committed from now on.
	Log(ctx context.Context, first uint64) (io.ReadCloser, error)
}

var (
	// ErrHistory is returned for a repository that has another history than the log.
	ErrHistory = errors.New("the repository is of another history: of a cluster before it was restored, recovered or made again. Use an empty one")
	// ErrNoFull is returned if a repository has no full backup.
	ErrNoFull = errors.New("the repository has no full backup: take one first (quorate backup)")
	// ErrNoChain is returned if the newest full backup lacks a part of its own log, so that no log can be continued.
	ErrNoChain = errors.New("the newest full backup cannot be restored, and the archive cannot go on from it: take a full backup (quorate backup)")
	// ErrGap is returned if the log was purged beyond the end of what the repository has.
	ErrGap = errors.New("the log was purged behind the end of the archive: take a full backup (quorate backup), from which it goes on")
)

// Follow ships the log from the end of what the repository has, until ctx ends. With once it ships
// up to what is committed now. It does not ship entries again that another process has shipped
// meanwhile.
func Follow(ctx context.Context, c Config, agent Agent, once bool) error {
	for {
		if err := follow(ctx, c, agent, once); !errors.Is(err, errOther) {
			return err
		}
	}
}

func follow(ctx context.Context, c Config, agent Agent, once bool) error {
	c.Beside = true
	contents, err := list(ctx, c.Store)
	if err != nil {
		return err
	}
	full, newest, err := chainEnd(ctx, c.Store, contents)
	if err != nil {
		return err
	}
	log, err := agent.Log(ctx, newest.Last) // the entry newest.Last shows whether the log has the same history
	if err != nil {
		return restored(ctx, full, agent, err)
	}
	defer func() { _ = log.Close() }()
	in, err := archive.NewReader(log)
	if err != nil {
		return err
	}
	if err := sameCluster(full, in.Head().ClusterID, in.Head().Generation); err != nil {
		return err
	}
	k := &cutter{c: c, agent: agent, head: in.Head(), newest: newest.Time, behind: newest, began: time.Now()}
	defer func() { _ = k.close() }()
	for seen := false; ; {
		item, err := in.Next()
		switch {
		case err != nil && ctx.Err() != nil:
			return k.last(ctx)
		case err != nil:
			return err
		case item.Entry.Index == 0:
			if err := k.point(ctx, once); err != nil || once {
				return err
			}
			if k.piece.First == 0 {
				c.reached(item.Commit)
			}
			continue
		case !seen:
			if !sameEntry(newest, item.Entry) {
				return fmt.Errorf("entry %d: %w", newest.Last, ErrHistory)
			}
			seen = true
			c.reached(newest.Last)
			continue
		}
		all, err := archive.Transactions(item.Entry)
		if err != nil {
			return err
		}
		if err := k.add(ctx, item, all); err != nil {
			return err
		}
	}
}

// restored returns ErrHistory in place of ErrBehind, if the log is that of a cluster which was restored to a point before the end
// of the repository: it would lag until it is as long, and is another one. A log of an older generation may just lag.
func restored(ctx context.Context, full archive.Manifest, agent Agent, err error) error {
	if !errors.Is(err, ErrBehind) {
		return err
	}
	log, e := agent.Log(ctx, 0)
	if e != nil {
		return err // it lags, as far as is known
	}
	defer func() { _ = log.Close() }()
	in, e := archive.NewReader(log)
	if e != nil || in.Head().ClusterID == full.ClusterID && in.Head().Generation <= full.Generation {
		return err
	}
	return sameCluster(full, in.Head().ClusterID, in.Head().Generation)
}

// chainEnd returns the newest full backup, and the last piece of its log before a gap. If pieces behind that were
// lost, they are shipped again, as long as the nodes have the entries.
func chainEnd(ctx context.Context, store repository.Store, contents archive.Contents) (full archive.Manifest, end archive.Piece, err error) {
	full, ok, err := newestManifest(ctx, store, contents)
	if err != nil {
		return full, end, err
	}
	if !ok {
		return full, end, ErrNoFull
	}
	pieces, last := contents.Chain(full.Begin.First)
	if len(pieces) == 0 || last < full.End.Index {
		return full, end, fmt.Errorf("the log is missing from entry %d on: %w", last+1, ErrNoChain)
	}
	return full, pieces[len(pieces)-1], nil
}

// lastTimeout bounds the work that is left when ctx has ended.
const lastTimeout = 30 * time.Second

// last ships the rest after ctx has ended, so that an archive that is stopped in order is
// complete.
func (k *cutter) last(ctx context.Context) error {
	if k.piece.First == 0 {
		return nil
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
	defer cancel()
	if err := k.ship(late); err != nil && !errors.Is(err, errOther) {
		return err
	}
	return nil
}

// point is called at a point of the log: it ships the piece if it is due, or in any case if
// last is set.
func (k *cutter) point(ctx context.Context, last bool) error {
	if !last {
		return k.due(ctx)
	}
	return k.ship(ctx)
}
