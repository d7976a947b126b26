package ship

import (
	"context"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/log/seglog"
)

// Chain reads pieces as one log. One goroutine uses it, and closes it.
type Chain struct {
	ctx        context.Context
	store      repository.Store
	identities []age.Identity
	cluster    string
	pieces     []archive.Piece
	next       uint64
	in         *archive.Reader
	close      func() error
	piece      archive.Piece
}

// NewChain returns a Chain of the entries from first on. pieces must have all of them
// (Contents.Chain), and must be of the cluster clusterID.
func NewChain(ctx context.Context, store repository.Store, identities []age.Identity, clusterID string, pieces []archive.Piece, first uint64) *Chain {
	return &Chain{ctx: ctx, store: store, identities: identities, cluster: clusterID, pieces: pieces, next: first}
}

// Next returns the next entry, and io.EOF after the last one.
func (c *Chain) Next() (archive.Item, error) {
	for {
		if c.in == nil {
			if len(c.pieces) == 0 {
				return archive.Item{}, io.EOF
			}
			if err := c.open(); err != nil {
				return archive.Item{}, err
			}
		}
		item, err := c.in.Next()
		if errors.Is(err, io.EOF) {
			err := c.Close()
			if err == nil && c.next <= c.piece.Last {
				err = fmt.Errorf("%w: it ends before entry %d", archive.ErrCorrupt, c.piece.Last)
			}
			if err != nil {
				return item, fmt.Errorf("read %s: %w", c.piece.Name(), err)
			}
			continue
		}
		if err != nil {
			return item, fmt.Errorf("read %s: %w", c.piece.Name(), err)
		}
		if err := c.check(item.Entry); err != nil {
			return item, fmt.Errorf("read %s: %w", c.piece.Name(), err)
		}
		if item.Entry.Index == c.next {
			c.next++
			return item, nil
		}
	}
}

// check compares an entry with the name of its piece, and with the entries before it.
func (c *Chain) check(e seglog.Entry) error {
	switch {
	case e.Index > c.next:
		return fmt.Errorf("%w: entry %d comes where entry %d is to come", archive.ErrCorrupt, e.Index, c.next)
	case e.Index > c.piece.Last, e.Index == c.piece.Last && !sameEntry(c.piece, e):
		return fmt.Errorf("%w: entry %d is not what its name says", archive.ErrCorrupt, e.Index)
	}
	return nil
}

func (c *Chain) open() error {
	c.piece, c.pieces = c.pieces[0], c.pieces[1:]
	object, err := c.store.Get(c.ctx, c.piece.Name())
	if err != nil {
		return fmt.Errorf("read %s: %w", c.piece.Name(), err)
	}
	plain, err := repository.Unseal(object, c.identities)
	if err != nil {
		return fmt.Errorf("read %s: %w", c.piece.Name(), errors.Join(err, object.Close()))
	}
	c.close = func() error {
		_, err := io.Copy(io.Discard, plain) // only its end shows whether the object is whole
		return errors.Join(err, plain.Close(), object.Close())
	}
	c.in, err = archive.NewReader(plain)
	switch {
	case err != nil:
	case c.in.Head().First != c.piece.First:
		err = fmt.Errorf("%w: it begins with entry %d", archive.ErrCorrupt, c.in.Head().First)
	case c.in.Head().ClusterID != c.cluster:
		err = fmt.Errorf("it is of another cluster: %q", c.in.Head().Cluster)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", c.piece.Name(), err)
	}
	return nil
}

// Close closes the present piece. It may be called more than once.
func (c *Chain) Close() error {
	if c.close == nil {
		return nil
	}
	err := c.close()
	c.in, c.close = nil, nil
	return err
}
