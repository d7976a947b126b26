package replay

import (
	"fmt"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// How far back a witness is looked for. If there is none, the next transaction with rows gives
// a mark later.
const (
	witnessBytesMax   = 1 << 20
	witnessEntriesMax = 1024
)

// Mark is a node's durable mark: its InnoDB, not only its log, holds every transaction up to
// Index, also after a loss of power, and none of them is an XA transaction that was still
// prepared.
type Mark struct {
	// Index is the entry; 0 = nothing is known.
	Index uint64
	// Witness is a transaction whose presence shows that a data directory is as
	// new as the mark: InnoDB keeps its GTID, and everything up to Index was
	// engine committed before it. A mysqld without it is an older copy.
	Witness gtid.GTID
}

func (m Mark) covers(index uint64) bool { return m.Index != 0 && m.Index >= index }

// LaggedBy tells whether a mysqld with executed lacks transactions that it is known to have
// held.
func (m Mark) LaggedBy(executed *gtid.Set) bool {
	return m.Index != 0 && !executed.Contains(m.Witness)
}

// Held is a mysqld's gtid_executed and the entry up to which it covers the log.
// Index may be too high: it only says where to look.
type Held struct {
	Index    uint64
	Executed *gtid.Set
}

// NewMark returns the mark of a mysqld whose engine commits were made durable after held was
// read. xa follows the log's XA transactions; nil = mysqld holds no prepared one. The mark ends
// in front of the first XA transaction that is still prepared at the witness. ok=false where
// the log has no witness.
//
// The mark ends at a transaction whose GTID InnoDB keeps. Behind it there may be transactions
// that leave no trace, or a DDL, which looks the same in the log: a mysqld that has the witness
// may lack those.
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
	through uint64 // the last entry that has no transaction behind last
}

// lastKept finds the last transaction of the log, up to h.Index, whose GTID InnoDB keeps for
// certain. ok=false if there is none near h.Index, or h.Executed lacks it.
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
		behind := false // the entry has a transaction behind the last kept one
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
