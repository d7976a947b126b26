package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"sort"
	"time"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// InspectOptions configure Inspect.
type InspectOptions struct {
	FS vfs.FS
	// Dir is the log's directory.
	Dir string
	// Uncommitted: entries above the state file's commit index are shown, too. Other entries may still take
	// their place.
	Uncommitted bool
}

// Inspector reads a log from outside: it takes no lock and writes nothing, so the log's own process may run.
// What Inspect found committed does not change, unless it is purged. Entries above may change while they are
// read, and are left out unless they were asked for.
type Inspector struct {
	options  InspectOptions
	identity [16]byte
	hs       HardState
	// stateProblem is why hs is not known; nil if it is.
	stateProblem error
	// names are the segments, in order.
	names []string
}

// Inspect looks at the log in o.Dir. It returns ErrFormat if there is no log, or one of a newer format. A
// damaged state file is an error only in calls that need the commit index; for Verify it is a finding.
func Inspect(o InspectOptions) (*Inspector, error) {
	in := &Inspector{options: o}
	// The state file is read first: then the entries that it calls committed are in the segments.
	in.stateProblem = in.readState()
	if errors.Is(in.stateProblem, ErrFormat) {
		return nil, fmt.Errorf("inspect log in %s: %w", o.Dir, in.stateProblem)
	}
	err := in.list()
	if err == nil && len(in.names) == 0 && errors.Is(in.stateProblem, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrFormat, ErrNoLog)
	}
	if err != nil {
		return nil, fmt.Errorf("inspect log in %s: %w", o.Dir, err)
	}
	if in.stateProblem == nil && len(in.names) > 0 {
		// Open does the same: what was before is purged.
		if first := firstOf(in.names[0]); first > 1 {
			in.hs.Commit = max(in.hs.Commit, first)
		}
	}
	return in, nil
}

// stateReadsMax is how often the state file is read before it counts as damaged: its owner writes a slot in
// some microseconds.
const stateReadsMax = 3

func (in *Inspector) readState() (err error) {
	for range stateReadsMax {
		var b []byte
		if b, err = in.stateBytes(); err != nil {
			return err
		}
		if len(b) >= identityBytes {
			in.identity = [16]byte(b[8:])
		}
		state, decodeErr := decodeState(b, in.identity)
		if err = decodeErr; err == nil {
			in.hs = state.current
			return nil
		}
	}
	return err
}

func (in *Inspector) stateBytes() ([]byte, error) {
	f, err := in.options.FS.Open(filepath.Join(in.options.Dir, stateName))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, stateBytes+1)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

func (in *Inspector) list() error {
	names, err := in.options.FS.List(in.options.Dir)
	if err != nil {
		return err
	}
	in.names = in.names[:0]
	for _, name := range names {
		if _, ok := parseSegmentName(name); ok {
			in.names = append(in.names, name)
		}
	}
	return nil
}

// HardState returns what the state file says, zero if that file is damaged. Its commit index is at least what
// the first segment proves.
func (in *Inspector) HardState() HardState { return in.hs }

// limit returns the last index that is shown.
func (in *Inspector) limit() (uint64, error) {
	if in.options.Uncommitted {
		return math.MaxUint64, nil
	}
	if in.stateProblem != nil {
		return 0, fmt.Errorf("read commit index: %w", in.stateProblem)
	}
	return in.hs.Commit, nil
}

// inspected is an open segment.
type inspected struct {
	*segmentHeader
	name   string
	window *window
}

// openSegment opens a segment and reads its header. It returns fs.ErrNotExist if the segment is gone, or a
// *CorruptError if it is damaged.
func (in *Inspector) openSegment(name string) (*inspected, error) {
	f, err := in.options.FS.Open(filepath.Join(in.options.Dir, name))
	if err != nil {
		return nil, err
	}
	s := &inspected{name: name}
	if s.window, err = newWindow(f); err == nil {
		s.segmentHeader, err = parseSegmentHeader(s.window)
	}
	if err == nil && segmentName(s.first) != name {
		err = fmt.Errorf("%w: header says that it begins at index %d", errDamage, s.first)
	}
	if err != nil {
		_ = f.Close()
		return nil, s.damage(0, firstOf(name), err)
	}
	return s, nil
}

// isGone tells whether err means that a segment was purged, or cut off above the commit index, since the
// directory was listed.
func (in *Inspector) isGone(name string, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	now := Inspector{options: in.options}
	return firstOf(name) > in.hs.Commit || now.list() == nil && len(now.names) > 0 && now.names[0] > name
}

func firstOf(name string) uint64 {
	first, _ := parseSegmentName(name)
	return first
}

func (s *inspected) close() { _ = s.window.file.Close() }

// damage makes a *CorruptError of errDamage. To other errors it adds the segment's name.
func (s *inspected) damage(offset int64, index uint64, err error) error {
	if errors.Is(err, errDamage) {
		return &CorruptError{File: s.name, Offset: offset, Index: index, Detail: err.Error()}
	}
	return fmt.Errorf("read segment %s: %w", s.name, err)
}

// start returns the scan of a segment before its first record.
func (s *inspected) start() *scan {
	return &scan{end: s.segmentHeader.bytes, chain: s.seed, term: s.previousTerm, durable: s.segmentHeader.bytes}
}

// pass moves behind the record at s.end, whose head is r.
func (s *scan) pass(r *record) {
	s.index.add(place{offset: s.end, term: r.term, chain: s.chain})
	s.durable = max(s.durable, int64(r.durable))
	s.chain, s.term, s.end = r.chain, r.term, s.end+r.bytes()
	if r.staged {
		s.end = int64(r.durable)
	}
}

// heads calls visit for each intact record event between two offsets, in order, until visit returns false.
// Anything may be between the records. By seed and log pos it tells a record from a copy of one in a user's
// data.
func (s *inspected) heads(from, to int64, visit func(offset int64, r record) bool) error {
	for at := from; at < to; at += windowBytes {
		n := min(windowBytes+recordHeadBytes-1, to-at)
		b, err := s.window.bytes(at, n)
		if err != nil {
			return err
		}
		// The window is used again for the events, so the piece is copied.
		piece := bytes.Clone(b)
		for offset, r := range s.headsIn(piece, at) {
			event, err := s.window.bytes(offset, r.eventBytes())
			if errors.Is(err, errDamage) || err == nil && binlog.VerifyChecksum(event) != nil {
				continue
			}
			if err != nil {
				return err
			}
			if !visit(offset, r) {
				return nil
			}
		}
	}
	return nil
}

// SegmentSummary describes a segment.
type SegmentSummary struct {
	Name string
	// FirstIndex and LastIndex are the entries that the segment holds, FirstTerm and LastTerm their terms.
	// LastIndex is FirstIndex-1 while it holds none.
	FirstIndex, LastIndex, FirstTerm, LastTerm uint64
	// GTIDs is the set of the segment's transactions, Transactions their number.
	GTIDs        *gtid.Set
	Transactions uint64
	// FirstTime and LastTime are when the segment's first and last transaction were committed, by the primary's
	// clock; zero if there is none.
	FirstTime, LastTime time.Time
	// Bytes is the length of header and records.
	Bytes int64
	// ServerVersion is the version of the mysqld in whose format the file is.
	ServerVersion string
	// Sealed: the file will not change any more. Staged: it holds one staged
	// transaction.
	Sealed, Staged bool
	// Problem says why the rest is not known; nil if the rest is known.
	Problem error
}

// Segments calls visit for each segment with entries that are shown, oldest first, and for the segment of an
// empty log. It reads little of a segment that is complete, and verifies nothing; use Verify for that.
func (in *Inspector) Segments(visit func(SegmentSummary) error) error {
	limit, err := in.limit()
	if err != nil {
		return err
	}
	var before *inspected
	for i, name := range in.names {
		if firstOf(name) > limit && i > 0 {
			break
		}
		s, err := in.openSegment(name)
		gone := in.isGone(name, err)
		if before != nil {
			summary := in.summarize(before, s, limit)
			before.close()
			if err := visit(summary); err != nil {
				if s != nil {
					s.close()
				}
				return err
			}
		}
		if before = s; err == nil || gone {
			continue
		}
		if !errors.Is(err, ErrCorrupt) {
			return err
		}
		if err := visit(SegmentSummary{Name: name, FirstIndex: firstOf(name), Problem: err}); err != nil {
			return err
		}
	}
	if before == nil {
		return nil
	}
	defer before.close()
	// A next segment may exist, but is not shown.
	return visit(in.summarize(before, nil, limit))
}

// summarize describes s; next is the segment after it, nil if it is not known.
func (in *Inspector) summarize(s, next *inspected, limit uint64) SegmentSummary {
	sum := SegmentSummary{Name: s.name, FirstIndex: s.first, ServerVersion: s.serverVersion(), Staged: s.staged}
	if s.staged {
		sum.LastIndex, sum.Bytes, sum.Sealed = s.first, s.window.size, s.first <= in.hs.Commit
		sum.Problem = s.stagedSummary(&sum)
		return sum
	}
	lost := next != nil && next.number != s.number+1
	if lost || next == nil || next.first-1 > limit {
		in.scanSummary(&sum, s, limit)
		if lost && sum.Problem == nil && next.first-1 <= in.hs.Commit { // what is not committed may have changed meanwhile
			sum.Problem = &CorruptError{File: next.name, Index: next.first, Detail: fmt.Sprintf("a segment is missing before it: number %d after %d", next.number, s.number)}
		}
		return sum
	}
	sum.LastIndex, sum.LastTerm = next.first-1, next.previousTerm
	sum.Bytes, sum.Sealed = s.window.size, next.first-1 <= in.hs.Commit
	sum.GTIDs = next.gtidsBefore.Clone()
	sum.GTIDs.Subtract(s.gtidsBefore)
	sum.Transactions = sum.GTIDs.Count()
	sum.Problem = s.ends(&sum)
	return sum
}

func (s *inspected) serverVersion() string {
	format, err := binlog.ParseFormatDescription(s.formatDescription)
	if err != nil {
		return ""
	}
	return format.ServerVersion
}

// scanSummary describes a segment whose end is not known otherwise: it reads all of its entries that are shown.
func (in *Inspector) scanSummary(sum *SegmentSummary, s *inspected, limit uint64) {
	sum.GTIDs, sum.LastIndex = &gtid.Set{}, s.first-1
	c := s.start()
	defer func() { sum.Bytes = c.end }()
	for c.end < s.window.size && c.nextIndex(s.segmentHeader) <= limit {
		e, r, err := s.entry(c)
		if err != nil {
			if c.nextIndex(s.segmentHeader) <= in.hs.Commit {
				sum.Problem = s.damage(c.end, c.nextIndex(s.segmentHeader), err)
			}
			return
		}
		sum.add(e)
		c.pass(r)
	}
}

func (sum *SegmentSummary) add(e *InspectedEntry) {
	sum.LastIndex, sum.LastTerm = e.Index, e.Term
	if e.Index == sum.FirstIndex {
		sum.FirstTerm = e.Term
	}
	for i := range e.Transactions {
		t := &e.Transactions[i]
		sum.GTIDs.Add(t.GTID)
		sum.Transactions++
		if sum.FirstTime.IsZero() {
			sum.FirstTime = t.Time
		}
		sum.LastTime = t.Time
	}
}

// tailBytes is how much of a segment's end is read first to find its last transaction: some entries.
const tailBytes = 64 << 10

// ends finds the first term and the two times of a complete segment, by reading only its beginning and its end.
func (s *inspected) ends(sum *SegmentSummary) error {
	c := s.start()
	if r, err := s.scanHead(s.window, c); err == nil {
		sum.FirstTerm = r.term
	} else {
		return s.damage(c.end, s.first, err)
	}
	if sum.Transactions == 0 {
		return nil
	}
	for sum.FirstTime.IsZero() && c.end < s.window.size {
		e, r, err := s.entry(c)
		if err != nil {
			return s.damage(c.end, c.nextIndex(s.segmentHeader), err)
		}
		if len(e.Transactions) > 0 {
			sum.FirstTime, sum.LastTime = e.Transactions[0].Time, e.Transactions[len(e.Transactions)-1].Time
		}
		c.pass(r)
	}
	// Records are recognised by seed and place, so they can be found from the end, too.
	for n := int64(tailBytes); ; n *= 4 {
		from := max(c.end, s.window.size-n)
		found, err := s.lastTime(from)
		if err != nil || !found.IsZero() || from == c.end {
			if !found.IsZero() {
				sum.LastTime = found
			}
			return err
		}
	}
}

// stagedSummary describes a staged segment by its naming entry only: the transaction itself may be long.
func (s *inspected) stagedSummary(sum *SegmentSummary) error {
	c := s.start()
	r, err := s.scanHead(s.window, c)
	if err != nil {
		return s.damage(c.end, s.first, err)
	}
	n, err := s.naming(c.end, &r)
	if err != nil {
		return s.damage(c.end, s.first, err)
	}
	sum.GTIDs, sum.Transactions = &gtid.Set{}, 1
	sum.GTIDs.Add(n.gtid)
	sum.FirstTerm, sum.LastTerm = r.term, r.term
	sum.FirstTime = n.time()
	sum.LastTime = sum.FirstTime
	return nil
}

// lastTime returns the time of the last transaction in records that begin at or behind from; zero if there is
// none.
func (s *inspected) lastTime(from int64) (last time.Time, err error) {
	type found struct {
		offset int64
		record record
	}
	var records []found
	if err := s.heads(from, s.window.size, func(offset int64, r record) bool {
		records = append(records, found{offset, r})
		return true
	}); err != nil {
		return time.Time{}, s.damage(from, 0, err)
	}
	for i := len(records) - 1; i >= 0; i-- {
		e, err := s.readEntry(records[i].offset, &records[i].record)
		if err != nil {
			return time.Time{}, s.damage(records[i].offset, records[i].record.index, err)
		}
		if n := len(e.Transactions); n > 0 {
			return e.Transactions[n-1].Time, nil
		}
	}
	return time.Time{}, nil
}

// holder returns the position of the segment that would hold index.
func (in *Inspector) holder(index uint64) int {
	return max(0, sort.Search(len(in.names), func(i int) bool { return firstOf(in.names[i]) > index })-1)
}

// ErrNoTransaction is returned for a transaction that is not in the log.
var ErrNoTransaction = errors.New("transaction is not in the log")

// Find returns the index of the entry that holds a transaction. It returns ErrCompacted if that entry was
// purged, ErrNoTransaction if the transaction is not in the log.
func (in *Inspector) Find(g gtid.GTID) (uint64, error) {
	from := uint64(0)
	for i, name := range in.names {
		s, err := in.openSegment(name)
		if err != nil {
			return 0, err
		}
		before := s.gtidsBefore.Contains(g)
		s.close()
		if before && i == 0 {
			return 0, fmt.Errorf("find transaction %v: %w", g, ErrCompacted)
		}
		if before {
			break
		}
		from = s.first
	}
	index := uint64(0)
	err := in.Entries(from, 0, func(e *InspectedEntry) error {
		for i := range e.Transactions {
			if e.Transactions[i].GTID == g {
				index = e.Index
				return errStop
			}
		}
		return nil
	})
	if err == nil {
		err = fmt.Errorf("%w: %v", ErrNoTransaction, g)
	}
	if errors.Is(err, errStop) {
		err = nil
	}
	return index, err
}

// errStop ends a walk over entries early.
var errStop = errors.New("stop")
