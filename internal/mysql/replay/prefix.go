package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Prefix is the part of the log that a mysqld holds.
type Prefix struct {
	// First was the log's first entry when the prefix was found. If a purge removes that entry
	// later, a read from there is an error, not a gap.
	First uint64
	// Index is the entry of the last transaction that mysqld has; 0 = it has no transaction of
	// the log.
	Index uint64
	// Skip is how many transactions of that entry mysqld has.
	Skip int
	// Through holds every transaction up to the last that mysqld has.
	Through *gtid.Set
	Holes
}

// Holes are the transactions before the prefix's end that are not in gtid_executed. A hole is
// declared done only if the log shows that it may be, or if it is older than the log and below
// the durable mark.
type Holes struct {
	// Done has transactions that changed nothing, so that InnoDB keeps no trace of them, and XA
	// PREPAREs whose transaction was committed or rolled back since: a replica
	// (log_replica_updates=OFF) does not keep their GTIDs.
	Done *gtid.Set
	// Again has the XA PREPAREs whose transaction had no end in the prefix. A replica that
	// starts rolls such a transaction back and loses its GTID (only a primary, which binlogs
	// it, marks it to be kept). It may be applied after later transactions of the log with the
	// same result, because its locks kept them away from its rows.
	Again *gtid.Set
	// again has the places of Again in the log, in log order.
	again []place
	// Broken has holes with rows, or with the end of an XA transaction: this mysqld breaks the
	// prefix rule.
	Broken *gtid.Set
	// Gone has holes that are older than the log's first entry, where no durable mark shows
	// that mysqld held them.
	Gone *gtid.Set
}

// place is where a transaction is in the log.
type place struct {
	index   uint64 // of its entry
	ordinal int    // among that entry's transactions, from 0
}

// FindPrefix finds the last transaction of the committed log that is in executed. Engine
// commits follow log order everywhere, so mysqld holds everything before it, too (the prefix
// rule). It classifies the transactions that executed lacks there (see Holes).
func FindPrefix(log CommittedLog, executed *gtid.Set, durable Mark) (Prefix, error) {
	segments := log.Segments()
	p, err := findEnd(log, segments, executed)
	if err != nil {
		return Prefix{}, err
	}
	p.First = segments[0].FirstIndex
	if err := p.findHoles(log, segments, executed, durable); err != nil {
		return Prefix{}, err
	}
	return p, nil
}

// findEnd is FindPrefix without the holes.
func findEnd(log CommittedLog, segments []seglog.SegmentInfo, executed *gtid.Set) (Prefix, error) {
	for i := len(segments) - 1; i >= 0; i-- {
		last := uint64(0) // no bound: the newest segment
		if i+1 < len(segments) {
			inside := segments[i+1].GTIDsBefore.Clone()
			inside.Subtract(segments[i].GTIDsBefore)
			if !inside.Intersects(executed) {
				continue
			}
			last = segments[i+1].FirstIndex - 1
		}
		p, err := lastExecuted(log, segments[i], last, executed)
		if err != nil || p.Index != 0 {
			return p, err
		}
	}
	return Prefix{Through: &gtid.Set{}}, nil
}

// lastExecuted looks for the prefix's end inside one segment, up to index last.
func lastExecuted(log CommittedLog, s seglog.SegmentInfo, last uint64, executed *gtid.Set) (Prefix, error) {
	p := Prefix{}
	seen := s.GTIDsBefore.Clone()
	err := eachTransaction(log, s.FirstIndex, last, func(tx transaction) error {
		seen.Add(tx.gtid)
		if executed.Contains(tx.gtid) {
			p.Index, p.Skip = tx.index, tx.ordinal+1
			if p.Through == nil {
				p.Through = s.GTIDsBefore.Clone()
			}
			p.Through.Union(seen)
			seen = &gtid.Set{}
		}
		return nil
	})
	if err != nil {
		return Prefix{}, err
	}
	return p, nil
}

// findHoles fills in p.Holes.
func (p *Prefix) findHoles(log CommittedLog, segments []seglog.SegmentInfo, executed *gtid.Set, durable Mark) error {
	p.Holes = Holes{Done: &gtid.Set{}, Again: &gtid.Set{}, Broken: &gtid.Set{}, Gone: &gtid.Set{}}
	before := segments[0].GTIDsBefore
	p.holesBefore(before, executed, durable)
	missing := p.Through.Clone()
	missing.Subtract(before)
	missing.Subtract(executed)
	if missing.IsEmpty() {
		return nil
	}
	look := holeSearch{log: log, holes: &p.Holes, executed: executed, missing: missing, seen: &gtid.Set{}, prepared: map[binlog.XID]transaction{}}
	for i, s := range segments {
		if s.FirstIndex > p.Index {
			break
		}
		last := p.Index
		if i+1 < len(segments) && segments[i+1].FirstIndex <= p.Index {
			last = segments[i+1].FirstIndex - 1
			inside := segments[i+1].GTIDsBefore.Clone()
			inside.Subtract(s.GTIDsBefore)
			if len(look.prepared) == 0 && !inside.Intersects(missing) {
				continue
			}
		}
		if err := eachTransaction(log, s.FirstIndex, last, look.at); err != nil {
			return fmt.Errorf("look at the holes in gtid_executed: %w", err)
		}
	}
	if !look.seen.ContainsSet(missing) {
		return fmt.Errorf("the log no longer holds all of %s: they cannot be looked at", missing)
	}
	for _, tx := range look.prepared {
		p.Again.Add(tx.gtid)
		p.again = append(p.again, place{tx.index, tx.ordinal})
	}
	slices.SortFunc(p.again, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.ordinal, b.ordinal))
	})
	return nil
}

// holesBefore classifies the holes before the log's first entry, which cannot be read. If the
// durable mark says that InnoDB held everything up to there, and mysqld still has the mark's
// witness, they are no-ops or XA PREPAREs that have ended. Otherwise they may be anything.
func (p *Prefix) holesBefore(before, executed *gtid.Set, durable Mark) {
	missing := before.Clone()
	missing.Subtract(executed)
	if missing.IsEmpty() {
		return
	}
	if durable.covers(p.First-1) && executed.Contains(durable.Witness) {
		p.Done.Union(missing)
	} else {
		p.Gone.Union(missing)
	}
}

// holeSearch is one pass through the log that classifies the holes.
type holeSearch struct {
	log               CommittedLog
	holes             *Holes
	executed, missing *gtid.Set
	seen              *gtid.Set                  // the part of missing that was read
	prepared          map[binlog.XID]transaction // XA PREPAREs of missing that have no end yet
}

// at takes the next transaction of the log.
func (l *holeSearch) at(tx transaction) error {
	if l.missing.Contains(tx.gtid) {
		l.seen.Add(tx.gtid)
		return l.hole(tx)
	}
	if len(l.prepared) == 0 || !l.executed.Contains(tx.gtid) {
		return nil
	}
	xid, ends, err := tx.ends()
	if p, found := l.prepared[xid]; ends && found {
		l.holes.Done.Add(p.gtid)
		delete(l.prepared, xid)
	}
	return err
}

// hole classifies one missing transaction.
func (l *holeSearch) hole(tx transaction) error {
	xid, prepares, err := tx.prepares(l.log)
	if err != nil {
		return err
	}
	if prepares {
		if before, found := l.prepared[xid]; found { // the end of the first one is missing
			l.holes.Broken.Add(before.gtid)
		}
		l.prepared[xid] = tx
		return nil
	}
	changes, err := tx.changes()
	if err != nil {
		return err
	}
	if changes {
		l.holes.Broken.Add(tx.gtid)
	} else {
		l.holes.Done.Add(tx.gtid)
	}
	return nil
}
