package ship

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/log/seglog"
)

// PieceBytesMax is the length at which a piece ends, in bytes of the log.
const PieceBytesMax = 64 << 20

// Config says how objects are stored. Store is required.
type Config struct {
	Store repository.Store
	// Recipients are the public keys that objects are encrypted for; none = not encrypted.
	Recipients []string
	// Interval is how long a piece may wait for more entries.
	Interval time.Duration
	// Patience is how long a full backup waits for a node whose log is behind the repository.
	Patience time.Duration
	// New says that a full backup may be the first of its repository.
	New bool
	// Beside says that others may ship the log, too. Entries that another one has shipped are
	// left out.
	Beside bool
	// Reached is called with the last entry up to which the repository has the log; it may be
	// nil.
	Reached func(index uint64)
	// Shipped is called with each piece that was stored; it may be nil.
	Shipped func(archive.Piece)
	// Again is called when the store has failed at a step of a full backup that is now repeated for StorePatience; it may be nil.
	Again func(error)
}

// cutter cuts a log into pieces.
type cutter struct {
	c     Config
	agent Agent
	head  archive.Head
	// behind is the piece that the next one follows, until it is known to be whole.
	behind archive.Piece
	// unreadable says that behind is encrypted, so it cannot be checked. full says that a full backup
	// depends on behind, even if no further piece comes, and that it is worth some patience.
	unreadable, full bool
	// piece is the piece in the making; its First is 0 if there is none.
	piece archive.Piece
	// newest is the latest commit time of a transaction of the log up to now.
	newest time.Time
	spool  *os.File
	sealed io.WriteCloser
	out    *archive.Writer
	bytes  int64
	// began is when the piece was begun; before the first piece, when the cutter was made.
	began time.Time
}

func (k *cutter) close() error {
	if k.spool == nil {
		return nil
	}
	return k.spool.Close()
}

// put adds an entry to the piece, and begins a piece if there is none.
func (k *cutter) put(item archive.Item) error {
	if k.piece.First == 0 {
		if err := k.begin(item.Entry.Index); err != nil {
			return err
		}
	}
	if err := k.out.Entry(item.Entry, item.Stage); err != nil {
		return err
	}
	k.bytes += int64(len(item.Entry.Data))
	if s, staged := item.Entry.Staged(); staged {
		k.bytes += int64(s.Bytes)
	}
	return nil
}

// add adds an entry to the piece, and ships the piece if it is long enough.
func (k *cutter) add(ctx context.Context, item archive.Item, all []archive.Transaction) error {
	if err := k.put(item); err != nil {
		return err
	}
	k.seen(all)
	k.piece.Last, k.piece.Time, k.piece.Sum = item.Entry.Index, k.newest, archive.SumOf(item.Entry)
	if k.bytes >= PieceBytesMax {
		return k.ship(ctx)
	}
	return nil
}

// seen notes the commit times of transactions.
func (k *cutter) seen(all []archive.Transaction) {
	for _, tx := range all {
		if tx.Time.After(k.newest) {
			k.newest = tx.Time
		}
	}
}

func (k *cutter) begin(first uint64) (err error) {
	if k.spool == nil {
		if k.spool, err = os.CreateTemp("", "quorate-piece-*"); err == nil {
			err = os.Remove(k.spool.Name())
		}
	} else {
		_, err = k.spool.Seek(0, io.SeekStart)
		err = errors.Join(err, k.spool.Truncate(0))
	}
	if err != nil {
		return fmt.Errorf("make a temporary file for a piece of the log: %w", err)
	}
	if k.sealed, err = repository.Seal(k.spool, k.c.Recipients); err != nil {
		return err
	}
	k.head.First = first
	if k.out, err = archive.NewWriter(k.sealed, k.head); err != nil {
		return err
	}
	k.piece, k.bytes, k.began = archive.Piece{First: first}, 0, time.Now()
	return nil
}

// due ships the piece if it has waited for Interval.
func (k *cutter) due(ctx context.Context) error {
	if time.Since(k.began) < k.c.Interval {
		return nil
	}
	return k.ship(ctx)
}

// errOther is returned if another process has shipped entries of the piece. The caller begins again
// behind those entries, with a new interval to wait. So it ships nothing while the other process is
// alive.
var errOther = errors.New("another one has shipped it")

// ship stores the piece, if there is one. First it makes sure that the piece before is whole.
func (k *cutter) ship(ctx context.Context) error {
	sure := func() error { return k.sure(ctx) }
	if k.piece.First == 0 {
		return k.step(ctx, sure)
	}
	if k.c.Beside {
		contents, err := list(ctx, k.c.Store)
		if err != nil {
			return err
		}
		if _, last := contents.Chain(k.piece.First); last >= k.piece.First {
			return errOther
		}
	}
	if k.full && k.left(ctx) {
		return nil
	}
	if err := k.step(ctx, sure); err != nil {
		return err
	}
	err := k.out.End()
	if err = errors.Join(err, k.sealed.Close()); err != nil {
		return err
	}
	err = k.step(ctx, func() error {
		return putObject(ctx, k.c.Store, k.piece.Name(), func(w io.Writer) error {
			if _, err := k.spool.Seek(0, io.SeekStart); err != nil {
				return err
			}
			_, err := io.Copy(w, k.spool)
			return err
		})
	})
	if err != nil {
		return err
	}
	if k.c.Shipped != nil {
		k.c.Shipped(k.piece)
	}
	k.c.reached(k.piece.Last)
	k.piece = archive.Piece{}
	return nil
}

// step does a step that depends on the store. A full backup is patient; an archive begins again as a whole.
func (k *cutter) step(ctx context.Context, step func() error) error {
	if k.full {
		return k.c.patient(ctx, step)
	}
	return step()
}

// left leaves the piece out if an archive has stored all of it meanwhile. The last piece there becomes the one that the next one
// follows.
func (k *cutter) left(ctx context.Context) bool {
	contents, err := list(ctx, k.c.Store)
	if err != nil {
		return false // the piece is stored twice
	}
	pieces, last := contents.Chain(k.piece.First)
	if last < k.piece.Last {
		return false
	}
	k.behind, k.unreadable = pieces[len(pieces)-1], false
	k.piece = archive.Piece{}
	return true
}

func (c Config) reached(index uint64) {
	if c.Reached != nil {
		c.Reached(index)
	}
}

// putObject stores an object. Its error has the name.
func putObject(ctx context.Context, to repository.Store, name string, fill func(io.Writer) error) error {
	if err := to.Put(ctx, name, fill); err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	return nil
}

// list reads the names of a repository.
func list(ctx context.Context, store repository.Store) (archive.Contents, error) {
	objects, err := store.List(ctx)
	if err != nil {
		return archive.Contents{}, err
	}
	names := make([]string, len(objects))
	for i, o := range objects {
		names[i] = o.Name
	}
	return archive.Sort(names), nil
}

// sameEntry tells whether an entry is the last entry of a piece.
func sameEntry(p archive.Piece, e seglog.Entry) bool {
	return e.Index == p.Last && archive.SumOf(e) == p.Sum
}
