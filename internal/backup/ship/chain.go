package ship

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"filippo.io/age"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/log/seglog"
)

// Chain reads the pieces of a repository as one log. If a piece cannot be read, because it is damaged, or encrypted for another
// key, or because the store does not deliver it, Chain reads others that have the same entries.
// One goroutine uses it, and closes it.
type Chain struct {
	ctx        context.Context
	store      repository.Store
	identities []age.Identity
	cluster    string
	contents   archive.Contents // without the unread pieces
	pieces     []archive.Piece
	// next is the next entry, last the last one before a gap.
	next, last uint64
	in         *archive.Reader
	close      func() error
	piece      archive.Piece
	unread     []error
}

// NewChain returns a Chain of the entries from first on, up to the first gap (Contents.Chain). The pieces must be of the
// cluster clusterID.
func NewChain(ctx context.Context, store repository.Store, identities []age.Identity, clusterID string, contents archive.Contents, first uint64) *Chain {
	c := &Chain{ctx: ctx, store: store, identities: identities, cluster: clusterID, contents: contents, next: first}
	c.pieces, c.last = contents.Chain(first)
	return c
}

// Unread says which pieces could not be read, and were left out.
func (c *Chain) Unread() []error { return c.unread }

// Next returns the next entry, and io.EOF after the last one.
func (c *Chain) Next() (archive.Item, error) {
	for {
		item, err := c.item()
		switch {
		case errors.Is(err, io.EOF) && c.next <= c.last: // the pieces beside an unread one do not go so far
			return item, c.unread[len(c.unread)-1]
		case errors.Is(err, io.EOF):
			return item, io.EOF
		case err != nil:
			if err = fmt.Errorf("read %s: %w", c.piece.Name(), err); !c.around(err) {
				return item, err
			}
		case item.Entry.Index == c.next:
			c.next++
			return item, nil
		}
	}
}

// errName is returned for a piece that can be read, and is not what its name says. Where it is from is not known, nor
// what its entries are worth that were read before.
var errName = fmt.Errorf("%w: it is not what its name says", archive.ErrCorrupt)

// around leaves a piece out that cannot be read, if other pieces have the next entry. Each entry that was read of it before
// has a checksum of its own. A piece for which the key is missing is left out, too: that of another archive may be for
// other keys.
func (c *Chain) around(err error) bool {
	undelivered := errors.Is(err, repository.ErrGet) && c.ctx.Err() == nil
	if !Damaged(err) && !undelivered && !errors.Is(err, repository.ErrEncrypted) || errors.Is(err, errName) {
		return false
	}
	_ = c.Close() // an error of the piece is known
	rest := slices.DeleteFunc(slices.Clone(c.contents.Pieces), func(p archive.Piece) bool { return p == c.piece })
	c.contents.Pieces = rest
	c.pieces, _ = c.contents.Chain(c.next)
	if len(c.pieces) == 0 && c.next <= c.last {
		return false
	}
	c.unread = append(c.unread, err)
	return true
}

// item reads an item. It returns io.EOF behind the last piece.
func (c *Chain) item() (archive.Item, error) {
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
		if item.Stage != nil {
			item.Stage = &stage{chain: c, entry: item.Entry, in: item.Stage}
		}
		if !errors.Is(err, io.EOF) {
			return item, cmp.Or(err, c.check(item.Entry))
		}
		if err := c.Close(); err != nil {
			return item, err
		}
		if c.next <= c.piece.Last {
			return item, fmt.Errorf("%w: it ends before entry %d", errName, c.piece.Last)
		}
	}
}

// stage is the stage of the entry before next. If its piece cannot be read to the end of the stage, others are read.
type stage struct {
	chain *Chain
	entry seglog.Entry
	in    io.Reader
	read  int64
}

// Read implements io.Reader.
func (s *stage) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	for n == 0 && err != nil && !errors.Is(err, io.EOF) {
		if err = s.around(fmt.Errorf("read %s: %w", s.chain.piece.Name(), err)); err != nil {
			return 0, err
		}
		n, err = s.in.Read(p)
	}
	s.read += int64(n)
	return n, err
}

// around goes on in another piece that has the entry, behind what was read.
func (s *stage) around(err error) error {
	c := s.chain
	if c.next = s.entry.Index; !c.around(err) {
		return err
	}
	item, err := c.Next()
	if err != nil {
		return err
	}
	other, staged := item.Stage.(*stage)
	if !staged || archive.SumOf(item.Entry) != archive.SumOf(s.entry) {
		return fmt.Errorf("read %s: %w: entry %d is another one than in the piece that is damaged there", c.piece.Name(), errName, c.next-1)
	}
	_, err = io.CopyN(io.Discard, other, s.read)
	s.in = other.in // it is that of a further piece if other went around, too
	return err
}

// check compares an entry with the name of its piece, and with the entries before it.
func (c *Chain) check(e seglog.Entry) error {
	switch {
	case e.Index > c.next:
		return fmt.Errorf("%w: entry %d comes where entry %d is to come", errName, e.Index, c.next)
	case e.Index > c.piece.Last, e.Index == c.piece.Last && !sameEntry(c.piece, e):
		return fmt.Errorf("%w: entry %d", errName, e.Index)
	}
	return nil
}

func (c *Chain) open() error {
	c.piece, c.pieces = c.pieces[0], c.pieces[1:]
	object, err := c.store.Get(c.ctx, c.piece.Name())
	if err != nil {
		return err
	}
	plain, err := repository.Unseal(object, c.identities)
	if err != nil {
		return errors.Join(err, object.Close())
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
	return err
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
