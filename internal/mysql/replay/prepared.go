package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// PreparedXA is an XA transaction of the log.
type PreparedXA struct {
	XID binlog.XID
	// Index is the entry of its XA PREPARE. At is when that was committed, by the clock of the
	// server that was the primary then.
	Index uint64
	At    time.Time
	// end is the entry with its XA COMMIT or XA ROLLBACK; 0 = there is none yet.
	end uint64
}

// Prepared follows the XA transactions of a log: which ones are prepared and have no end.
// mysqld cannot tell that: it shows an XA PREPARE later than its GTID, and does not show one
// that it must be given again. An XA transaction without rows is not in the log. The number of
// open ones is bounded by InnoDB's undo slots.
type Prepared struct {
	next  uint64 // the entry to look at next
	open  map[binlog.XID]PreparedXA
	ended []PreparedXA // those that ended behind asked, in the order of their ends
	asked uint64       // the highest index that before was called with, or Forget allows
}

// NewPrepared follows the log from an entry on. XA transactions that were prepared before it
// must have ended before it, too.
func NewPrepared(from uint64) *Prepared {
	return &Prepared{next: from, open: map[binlog.XID]PreparedXA{}}
}

// Read reads the entries up to index through, which must be committed.
func (p *Prepared) Read(log CommittedLog, through uint64) error {
	for {
		if done, err := p.ReadSome(log, through); done || err != nil {
			return err
		}
	}
}

// ReadSome does a part of Read: 1 MiB of the log, or one entry. done=false: there is more to
// read.
func (p *Prepared) ReadSome(log CommittedLog, through uint64) (done bool, err error) {
	// A copied log begins where every XA transaction before it has ended.
	p.next = max(p.next, log.FirstIndex())
	if p.next > through {
		return true, nil
	}
	found, ok, err := log.ReadCommitted(p.next, readBytesMax)
	if err == nil && !ok {
		err = fmt.Errorf("entry %d is not committed", p.next)
	}
	for _, e := range found {
		if err != nil || e.Index > through {
			break
		}
		if err = entryTransactions(e, func(tx transaction) error { return p.look(log, tx) }); err == nil {
			p.next = e.Index + 1
		}
	}
	if err != nil {
		return false, fmt.Errorf("look for XA transactions: %w", err)
	}
	return p.next > through, nil
}

// look notes what a transaction prepares or ends.
func (p *Prepared) look(log CommittedLog, tx transaction) error {
	xid, prepares, err := tx.prepares(log)
	if err != nil {
		return err
	}
	if prepares {
		at, err := tx.written()
		p.open[xid] = PreparedXA{XID: xid, Index: tx.index, At: at}
		return err
	}
	xid, ends, err := tx.ends()
	if xa, found := p.open[xid]; ends && found {
		xa.end = tx.index
		p.ended = append(p.ended, xa)
		delete(p.open, xid)
	}
	return err
}

// Forget drops what no later mark can ask for, given that mysqld has applied everything up to
// an index: the search for a witness does not go further back than witnessEntriesMax.
func (p *Prepared) Forget(applied uint64) {
	if applied > witnessEntriesMax {
		p.asked = max(p.asked, applied-witnessEntriesMax)
	}
	p.ended = slices.DeleteFunc(p.ended, func(xa PreparedXA) bool { return xa.end <= p.asked })
}

// PreparedIn updates open, the XA transactions that are prepared and have no end. It reads the
// log from an entry on, and takes into account the transactions that are in executed.
func PreparedIn(log CommittedLog, from uint64, executed *gtid.Set, open map[binlog.XID]gtid.GTID) error {
	err := eachTransaction(log, max(from, log.FirstIndex()), 0, func(tx transaction) error {
		if !executed.Contains(tx.gtid) {
			return nil
		}
		xid, prepares, err := tx.prepares(log)
		if err != nil {
			return err
		}
		if prepares {
			open[xid] = tx.gtid
			return nil
		}
		xid, ends, err := tx.ends()
		if ends {
			delete(open, xid)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("look for XA transactions: %w", err)
	}
	return nil
}

// Open returns the XA transactions that are prepared at the last entry read, the oldest first.
func (p *Prepared) Open() []PreparedXA {
	var all []PreparedXA
	for _, xa := range p.open {
		all = append(all, xa)
	}
	slices.SortFunc(all, func(a, b PreparedXA) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.XID.GTRID, b.XID.GTRID), cmp.Compare(a.XID.BQUAL, b.XID.BQUAL))
	})
	return all
}

// before returns the last entry in front of every XA PREPARE that had no end at index at. 0 =
// not known, because before was called with a later index already.
func (p *Prepared) before(at uint64) uint64 {
	if at < p.asked {
		return 0
	}
	p.asked = at
	p.Forget(0)
	oldest := uint64(math.MaxUint64)
	for _, xa := range p.open {
		oldest = min(oldest, xa.Index)
	}
	for _, xa := range p.ended {
		oldest = min(oldest, xa.Index)
	}
	return oldest - 1
}
