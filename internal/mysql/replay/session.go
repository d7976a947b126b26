package replay

import (
	"errors"
	"fmt"
	"sort"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// sessionListMax bounds how many transactions of a session are listed. A client that lost its
// connection misses one, seldom more.
const sessionListMax = 100

// Errors of a search for a transaction.
var (
	// ErrNotCommitted: no committed entry holds it.
	ErrNotCommitted = errors.New("it is in no committed entry")
	// ErrPurged: it was committed, and the log does not reach back to it.
	ErrPurged = errors.New("it was committed, and the log does not reach back to it any more")
)

// Place is where a committed transaction is, and who wrote it.
type Place struct {
	// Index is the index of its entry, Epoch the term that names its epoch.
	Index, Epoch uint64
	// Thread is the connection's id in the mysqld of that epoch.
	Thread uint32
}

// Session is what one connection committed after one of its transactions.
type Session struct {
	Place
	// Count is how many transactions came after it; GTIDs has the first of them.
	Count uint64
	GTIDs []gtid.GTID
	// Last is the last of them, and LastIndex the index of its entry. If Count is 0 they are
	// the transaction itself and Index.
	Last      gtid.GTID
	LastIndex uint64
}

// FindTransaction finds a committed transaction in the log.
func FindTransaction(log CommittedLog, id gtid.GTID) (p Place, err error) {
	segments := log.Segments()
	// GTIDsBefore only grows: the transaction is in the segment before the first
	// one that counts it.
	next := sort.Search(len(segments), func(i int) bool { return segments[i].GTIDsBefore.Contains(id) })
	if next == 0 {
		return Place{}, fmt.Errorf("find %s: %w", id, ErrPurged)
	}
	last := uint64(0)
	if next < len(segments) {
		last = segments[next].FirstIndex - 1
	}
	err = eachEntry(log, segments[next-1].FirstIndex, last, func(e seglog.Entry, h entry.Header) (bool, error) {
		err := entryTransactions(e, func(tx transaction) error {
			if tx.gtid != id {
				return nil
			}
			thread, err := tx.thread(log)
			p = Place{Index: tx.index, Epoch: h.Term, Thread: thread}
			return err
		})
		return p.Index == 0, err
	})
	switch {
	case errors.Is(err, seglog.ErrCompacted):
		return Place{}, fmt.Errorf("find %s: %w", id, ErrPurged)
	case err != nil:
		return Place{}, fmt.Errorf("find %s: %w", id, err)
	case p.Index == 0:
		return Place{}, fmt.Errorf("find %s: %w", id, ErrNotCommitted)
	}
	return p, nil
}

// FollowSession finds what a connection committed after one of its transactions: the
// transactions of the same connection id in the same epoch. An epoch has one mysqld, which uses
// an id once. FollowSession calls going after each entry, and ends with its error.
func FollowSession(log CommittedLog, id gtid.GTID, going func() error) (s Session, err error) {
	p, err := FindTransaction(log, id)
	if err != nil {
		return Session{}, err
	}
	s = Session{Place: p, Last: id, LastIndex: p.Index}
	after := false
	err = eachEntry(log, p.Index, 0, func(e seglog.Entry, h entry.Header) (bool, error) {
		if h.Kind == entry.KindEpoch && h.Term > p.Epoch {
			return false, nil
		}
		err := entryTransactions(e, func(tx transaction) error {
			if !after {
				after = tx.gtid == id
				return nil
			}
			thread, err := tx.thread(log)
			if err != nil || thread != p.Thread {
				return err
			}
			s.Count++
			if len(s.GTIDs) < sessionListMax {
				s.GTIDs = append(s.GTIDs, tx.gtid)
			}
			s.Last, s.LastIndex = tx.gtid, tx.index
			return nil
		})
		if err == nil {
			err = going()
		}
		return err == nil, err
	})
	if err != nil {
		return Session{}, fmt.Errorf("follow the session of %s: %w", id, err)
	}
	return s, nil
}

// FindEpoch returns the newest epoch of the log, and the index of its entry. ok=false: the log
// does not reach back to its beginning.
func FindEpoch(log CommittedLog) (e entry.Epoch, index uint64, ok bool, err error) {
	return findEpoch(log, func(entry.Epoch) bool { return true })
}

// HasEpochOf tells whether the log has the beginning of an epoch of a server. Transactions with the server's GTIDs
// do not count: they may come from a source that is followed, and such a server never writes here.
func HasEpochOf(log CommittedLog, server gtid.UUID) (bool, error) {
	_, _, ok, err := findEpoch(log, func(e entry.Epoch) bool { return e.ServerUUID == server })
	return ok, err
}

// ServerOfEpoch returns the server that wrote in an epoch; ok=false: the log does not have the epoch's beginning.
func ServerOfEpoch(log CommittedLog, epoch uint64) (server gtid.UUID, ok bool, err error) {
	e, _, ok, err := findEpoch(log, func(e entry.Epoch) bool { return e.Term == epoch })
	return e.ServerUUID, ok, err
}

// findEpoch returns the newest epoch that is wanted, and the index of its entry; ok=false: the log does not have it.
func findEpoch(log CommittedLog, wanted func(entry.Epoch) bool) (e entry.Epoch, index uint64, ok bool, err error) {
	segments := log.Segments()
	for i := len(segments) - 1; i >= 0; i-- { // each epoch entry begins a segment
		e, ok, err := epochAt(log, segments[i].FirstIndex)
		switch {
		case errors.Is(err, seglog.ErrCompacted): // it was purged just now, and so were the older ones
			return entry.Epoch{}, 0, false, nil
		case err != nil:
			return entry.Epoch{}, 0, false, fmt.Errorf("look for an epoch: %w", err)
		case ok && wanted(e):
			return e, segments[i].FirstIndex, true, nil
		}
	}
	return entry.Epoch{}, 0, false, nil
}

// epochAt returns the epoch that a committed entry opens; ok=false: it opens none.
func epochAt(log CommittedLog, index uint64) (e entry.Epoch, ok bool, err error) {
	found, committed, err := log.ReadCommitted(index, 1)
	if err != nil || !committed || found[0].Type != 0 {
		return entry.Epoch{}, false, err
	}
	h, body, err := entry.Parse(found[0].Data)
	if err != nil {
		return entry.Epoch{}, false, fmt.Errorf("parse entry %d: %w", found[0].Index, err)
	}
	if h.Kind != entry.KindEpoch {
		return entry.Epoch{}, false, nil
	}
	e, err = entry.ParseEpoch(h, body)
	return e, err == nil, err
}

// eachEntry calls f for the committed entries from index first to index last (0 = to the end),
// until it returns false. Entries of Raft itself have the zero Header.
func eachEntry(log CommittedLog, first, last uint64, f func(seglog.Entry, entry.Header) (bool, error)) error {
	for index := first; last == 0 || index <= last; {
		found, ok, err := log.ReadCommitted(index, readBytesMax)
		if err != nil || !ok {
			return err
		}
		for _, e := range found {
			if last != 0 && e.Index > last {
				return nil
			}
			h := entry.Header{}
			if e.Type == 0 {
				if h, _, err = entry.Parse(e.Data); err != nil {
					return fmt.Errorf("parse entry %d: %w", e.Index, err)
				}
			}
			if more, err := f(e, h); err != nil || !more {
				return err
			}
			index = e.Index + 1
		}
	}
	return nil
}

// thread returns the id of the connection that wrote tx.
func (tx transaction) thread(log CommittedLog) (uint32, error) {
	if tx.staged == nil {
		return binlog.ThreadID(tx.raw)
	}
	r, err := log.ReadStage(tx.staged.ID)
	if err != nil {
		return 0, fmt.Errorf("read staged transaction of entry %d: %w", tx.index, err)
	}
	defer func() { _ = r.Close() }()
	return binlog.ReadThreadID(r)
}
