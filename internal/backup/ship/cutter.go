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
	// Recipients are whom objects are encrypted for; none = nobody.
	Recipients []string
	// Interval is how long a piece may wait for more.
	Interval time.Duration
	// Patience is how long a full backup waits for a node that lags the repository.
	Patience time.Duration
	// New: a full backup may be the first of its repository.
	New bool
	// Beside: others ship the log, too. What one has shipped is left out.
	Beside bool
	// Reached is told up to which entry the log is in the repository; nil = nobody is.
	Reached func(index uint64)
	// Shipped is told of each piece that is in the repository; nil = nobody is.
	Shipped func(archive.Piece)
}

// cutter makes pieces of a log.
type cutter struct {
	c     Config
	agent Agent
	head  archive.Head
	// behind is the piece behind which the next one goes, until it is known to be whole.
	behind archive.Piece
	// unreadable: it is encrypted. full: a full backup ends behind it, whether or not another piece comes.
	unreadable, full bool
	// piece is the one that is being made; its First is 0 where there is none.
	piece archive.Piece
	// newest is when the newest transaction of the log was committed, so far.
	newest time.Time
	spool  *os.File
	sealed io.WriteCloser
	out    *archive.Writer
	bytes  int64
	// began is when the piece was; before the first one, when the cutter was.
	began time.Time
}

func (k *cutter) close() error {
	if k.spool == nil {
		return nil
	}
	return k.spool.Close()
}

// put puts an entry into the piece.
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

// add puts an entry into the piece, and ships that if it is long enough.
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

// seen notes when transactions were committed.
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

// due ships a piece that has waited for long enough.
func (k *cutter) due(ctx context.Context) error {
	if time.Since(k.began) < k.c.Interval {
		return nil
	}
	return k.ship(ctx)
}

// errOther is returned where another one has shipped something of a piece: who goes on behind that has a
// new interval to wait, and so ships nothing while the other one lives.
var errOther = errors.New("another one has shipped it")

// ship stores the piece, if there is one, behind one that is whole.
func (k *cutter) ship(ctx context.Context) error {
	if k.piece.First == 0 {
		return k.sure(ctx)
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
	if err := k.sure(ctx); err != nil {
		return err
	}
	err := k.out.End()
	if err = errors.Join(err, k.sealed.Close()); err != nil {
		return err
	}
	err = k.c.Store.Put(ctx, k.piece.Name(), func(w io.Writer) error {
		if _, err := k.spool.Seek(0, io.SeekStart); err != nil {
			return err
		}
		_, err := io.Copy(w, k.spool)
		return err
	})
	if err != nil {
		return fmt.Errorf("store %s: %w", k.piece.Name(), err)
	}
	if k.c.Shipped != nil {
		k.c.Shipped(k.piece)
	}
	k.c.reached(k.piece.Last)
	k.piece = archive.Piece{}
	return nil
}

func (c Config) reached(index uint64) {
	if c.Reached != nil {
		c.Reached(index)
	}
}

// list reads what a repository has.
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

// sameEntry tells whether an entry is the last of a piece.
func sameEntry(p archive.Piece, e seglog.Entry) bool {
	return e.Index == p.Last && archive.SumOf(e) == p.Sum
}
