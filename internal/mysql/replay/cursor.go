package replay

import (
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/raft/entry"
)

// ErrGone is returned by NewCursor for a mysqld that lacks transactions which the log no longer
// has.
var ErrGone = errors.New("the log starts after what mysqld holds")

// Piece is the next stretch of the committed log. Exactly one of the fields
// beside Index is set.
type Piece struct {
	// Index is the entry that the piece comes from.
	Index uint64
	// FormatDescription is the format of what follows: at the beginning, at each
	// epoch and at each rotation of the primary's binlog.
	FormatDescription []byte
	// Events are whole transactions: raw events with their checksums.
	Events []byte
	// Staged names a transaction whose events are in a segment of their own. The reader streams
	// them from there.
	Staged *entry.Staged
}

// Cursor reads the committed log from the end of a mysqld's prefix on (I4). Before that it
// returns the transactions of Holes.Again, in log order, without those between them, which
// mysqld has.
type Cursor struct {
	log    CommittedLog
	again  []place
	next   uint64 // index of the next entry, after again
	skip   int    // how many transactions of that entry mysqld has already
	format []byte // to be handed out before the next events; nil = done
	read   []seglog.Entry
}

// NewCursor returns a cursor that begins where p ends. The caller must have declared p.Done to
// mysqld.
func NewCursor(log CommittedLog, p Prefix) (*Cursor, error) {
	if !p.Gone.IsEmpty() {
		return nil, fmt.Errorf("%w: it lacks %s", ErrGone, p.Gone)
	}
	c := &Cursor{log: log, again: p.again, next: max(p.Index, p.First), skip: p.Skip}
	c.format = c.formatNext()
	return c, nil
}

// formatNext returns the format of the next piece, which does not follow directly on the one
// before.
func (c *Cursor) formatNext() []byte {
	if len(c.again) > 0 {
		return formatAt(c.log, c.again[0].index)
	}
	return formatAt(c.log, c.next)
}

// Position returns the index of the next entry, without regard to Holes.Again, and how many of
// its transactions are left out.
func (c *Cursor) Position() (index uint64, skip int) { return c.next, c.skip }

// Next returns the next piece; ok=false if nothing more is committed yet. The caller must not
// change the piece: the log shares it.
func (c *Cursor) Next() (p Piece, ok bool, err error) {
	for {
		if c.format != nil {
			p := Piece{Index: c.next, FormatDescription: c.format}
			if len(c.again) > 0 {
				p.Index = c.again[0].index
			}
			c.format = nil
			return p, true, nil
		}
		if len(c.again) > 0 {
			p, err := readPlace(c.log, c.again[0])
			if err != nil {
				return Piece{}, false, err
			}
			c.again = c.again[1:]
			c.format = c.formatNext()
			return p, true, nil
		}
		e, ok, err := c.entry()
		if !ok || err != nil {
			return Piece{}, false, err
		}
		if c.format, err = formatOf(e); err != nil {
			return Piece{}, false, err
		}
		p, err := c.piece(e)
		if err != nil {
			return Piece{}, false, err
		}
		if len(p.Events) > 0 || p.Staged != nil {
			return p, true, nil
		}
	}
}

// entry returns the next committed entry.
func (c *Cursor) entry() (seglog.Entry, bool, error) {
	if len(c.read) == 0 {
		found, ok, err := c.log.ReadCommitted(c.next, readBytesMax)
		if !ok || err != nil {
			return seglog.Entry{}, false, err
		}
		c.read = found
	}
	e := c.read[0]
	if e.Index != c.next {
		return seglog.Entry{}, false, fmt.Errorf("log returned entry %d for %d: %w", e.Index, c.next, io.ErrUnexpectedEOF)
	}
	c.read = c.read[1:]
	c.next++
	return e, true, nil
}

// piece returns the entry's transactions without the ones to skip.
func (c *Cursor) piece(e seglog.Entry) (Piece, error) {
	skip := c.skip
	c.skip = 0
	if e.Type != 0 {
		return Piece{}, nil
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil {
		return Piece{}, fmt.Errorf("parse entry %d: %w", e.Index, err)
	}
	switch h.Kind {
	case entry.KindTransactions:
		body, err = cutTransactions(body, skip)
		if err != nil {
			return Piece{}, fmt.Errorf("read transactions of entry %d: %w", e.Index, err)
		}
		return Piece{Index: e.Index, Events: body}, nil
	case entry.KindStaged:
		tx, err := stagedTransaction(e.Index, h, body)
		if err != nil || skip > 0 {
			return Piece{}, err
		}
		return Piece{Index: e.Index, Staged: tx.staged}, nil
	}
	return Piece{}, nil
}

// readPlace returns the transaction at a place.
func readPlace(log CommittedLog, at place) (p Piece, err error) {
	found, ok, err := log.ReadCommitted(at.index, 1)
	if err == nil && !ok {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = entryTransactions(found[0], func(tx transaction) error {
			if tx.ordinal == at.ordinal {
				p = Piece{Index: at.index, Events: tx.raw, Staged: tx.staged}
			}
			return nil
		})
	}
	if err == nil && p.Index == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return Piece{}, fmt.Errorf("read transaction %d of entry %d: %w", at.ordinal, at.index, err)
	}
	return p, nil
}

// cutTransactions returns body without its first n transactions.
func cutTransactions(body []byte, n int) ([]byte, error) {
	if n == 0 {
		return body, nil
	}
	rest := body
	for tx, err := range binlog.Transactions(body) {
		if err != nil {
			return nil, err
		}
		rest = rest[len(tx.Raw):]
		if n--; n == 0 {
			break
		}
	}
	return rest, nil
}

// formatAt returns the FORMAT_DESCRIPTION in force at an index. It takes that of the segment,
// because the epoch or rotate entry may be purged. At the very first entry there is none: an
// epoch entry comes before any transaction.
func formatAt(log CommittedLog, index uint64) []byte {
	if index == 1 {
		return nil
	}
	var format []byte
	for _, s := range log.Segments() {
		if s.FirstIndex <= index {
			format = s.FormatDescription
		}
	}
	return format
}

// formatOf returns the FORMAT_DESCRIPTION that an entry carries, or nil.
func formatOf(e seglog.Entry) ([]byte, error) {
	if e.Type != 0 {
		return nil, nil
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil {
		return nil, fmt.Errorf("parse entry %d: %w", e.Index, err)
	}
	switch h.Kind {
	case entry.KindRotate:
		return body, nil
	case entry.KindEpoch:
		epoch, err := entry.ParseEpoch(h, body)
		return epoch.FormatDescription, err
	}
	return nil, nil
}
