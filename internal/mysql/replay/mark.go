package replay

import (
	"fmt"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// The witness is looked for this far back: a mark that cannot be had now is had
// later, when there is a transaction with rows again.
const (
	witnessBytesMax   = 1 << 20
	witnessEntriesMax = 1024
)

// Mark is a node's durable mark: its InnoDB, not only its log, holds every
// transaction up to Index, also after a loss of power, and no XA transaction of
// them was left prepared.
type Mark struct {
	// Index is the entry; 0 = nothing is known.
	Index uint64
	// Witness is a transaction whose presence shows that a data directory is as
	// new as the mark: InnoDB keeps its GTID, and everything up to Index was
	// engine committed before it. A mysqld without it is an older copy.
	Witness gtid.GTID
}

func (m Mark) covers(index uint64) bool { return m.Index != 0 && m.Index >= index }

// LaggedBy tells whether a mysqld with executed has less than what it was known
// to hold.
func (m Mark) LaggedBy(executed *gtid.Set) bool {
	return m.Index != 0 && !executed.Contains(m.Witness)
}

// Held is a mysqld's gtid_executed and the entry up to which it covers the log.
// Index may be too high: it only says where to look.
type Held struct {
	Index    uint64
	Executed *gtid.Set
}

// NewMark returns the mark of a mysqld whose engine commits were made durable
// after held was read. xa follows the log's XA transactions; nil: none of what
// mysqld holds is prepared. The mark ends in front of the first that had no end
// by its witness. ok=false where the log gives no witness.
//
// The mark ends at a transaction that InnoDB keeps the GTID of: behind it may be
// transactions that leave no trace, or a DDL, which looks like them in the log.
// A mysqld that has the witness might not have had those.
func NewMark(log CommittedLog, held Held, xa *Prepared) (m Mark, ok bool, err error) {
	k, ok, err := lastKept(log, held)
	if !ok || err != nil {
		return Mark{}, false, err
	}
	m = Mark{Index: k.through, Witness: k.last}
	if xa != nil {
		if err := xa.Read(log, k.index); err != nil {
			return Mark{}, false, err
		}
		m.Index = min(m.Index, xa.before(k.index))
	}
	return m, m.Index > 0, nil
}

// kept is the last transaction whose GTID InnoDB keeps for certain.
type kept struct {
	last    gtid.GTID
	index   uint64 // of its entry
	through uint64 // the last entry with nothing of the transactions behind it
}

// lastKept finds the last transaction of the log, up to h.Index, whose GTID is
// kept for certain. ok=false if there is none near, or h lacks it.
func lastKept(log CommittedLog, h Held) (k kept, ok bool, err error) {
	k.through = h.Index
	bytes := 0
	for n := uint64(0); n < witnessEntriesMax && bytes < witnessBytesMax; n++ {
		index := h.Index - n
		if index < log.FirstIndex() || index == 0 {
			break
		}
		found, committed, err := log.ReadCommitted(index, 1)
		if err != nil || !committed {
			return kept{}, false, err
		}
		bytes += len(found[0].Data)
		behind := false // there is a transaction behind the last one kept
		err = entryTransactions(found[0], func(tx transaction) error {
			keeps, err := tx.keepsGTID()
			if keeps {
				k.last, k.index, ok = tx.gtid, index, true
			}
			behind = !keeps
			return err
		})
		if err != nil {
			return kept{}, false, fmt.Errorf("look for a witness: %w", err)
		}
		if behind {
			k.through = index - 1
		}
		if ok {
			return k, h.Executed.Contains(k.last), nil
		}
	}
	return kept{}, false, nil
}
