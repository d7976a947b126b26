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
	// Index is the entry of its XA PREPARE, At when that was committed, by the clock
	// of the server that was the primary.
	Index uint64
	At    time.Time
	// end is the entry with its XA COMMIT or XA ROLLBACK; 0 = there is none so far.
	end uint64
}

// Prepared follows the XA transactions of a log: which are prepared, and without
// an end. mysqld is not asked: it shows an XA PREPARE later than its GTID, and
// one that it has to be given again not at all. What prepared nothing with rows is
// in no log. There are no more of them at once than InnoDB has undo slots for.
type Prepared struct {
	next  uint64 // the entry to look at next
	open  map[binlog.XID]PreparedXA
	ended []PreparedXA // behind asked, in the order of their ends
	asked uint64       // the last index that before was asked of
}

// NewPrepared follows the log from an entry on: what was prepared before it must
// have had its end before it, too.
func NewPrepared(from uint64) *Prepared {
	return &Prepared{next: from, open: map[binlog.XID]PreparedXA{}}
}

// Read looks at the entries up to an index, all committed.
func (p *Prepared) Read(log CommittedLog, through uint64) error {
	for {
		if done, err := p.ReadSome(log, through); done || err != nil {
			return err
		}
	}
}

// ReadSome goes on with Read, by 1 MiB of the log or one entry; done=false: there is more.
func (p *Prepared) ReadSome(log CommittedLog, through uint64) (done bool, err error) {
	// A log that was copied begins behind what was prepared and ended.
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

// Forget lets go of what no later mark asks for, where mysqld has applied all up to an
// index: none looks for its witness further back.
func (p *Prepared) Forget(applied uint64) {
	if applied > witnessEntriesMax {
		p.asked = max(p.asked, applied-witnessEntriesMax)
	}
	p.ended = slices.DeleteFunc(p.ended, func(xa PreparedXA) bool { return xa.end <= p.asked })
}

// PreparedIn brings open, the XA transactions that are prepared and have no end, forward
// by what a mysqld with these GTIDs has applied of a log, from an entry on.
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

// Open returns what is prepared at the end of what was read, the oldest first.
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

// before returns the last entry in front of every XA PREPARE that had no end at an
// index; 0 = it does not know, because it was asked of a later one before.
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
