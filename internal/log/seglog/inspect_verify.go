package seglog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// Finding is one thing that Verify found wrong.
type Finding struct {
	// Segment and Offset say where it begins. Segment may be the state file.
	Segment string
	Offset  int64
	// Index is the index of the entry that is there, or should be; 0 = none.
	Index uint64
	// Torn: a crash left this behind the last sync. It was never acknowledged, and the next start of the node
	// cuts it. Every other finding is damage.
	Torn   bool
	Detail string
}

// Verified is the result of Verify.
type Verified struct {
	Segments              int
	Entries, Transactions uint64
	Bytes                 int64
	// FirstIndex and LastIndex are the entries that were found, Commit is the commit index of the state file.
	// LastIndex is 0 if there are no entries.
	FirstIndex, LastIndex, Commit uint64
	// Findings are in the order of the log, at most FindingsMax. More counts the findings that were left out.
	Findings []Finding
	More     uint64
}

// FindingsMax bounds the findings that are kept, of some 200 bytes each: a disk that lost a gigabyte causes
// millions.
const FindingsMax = 1000

// Damaged reports whether any finding is damage.
func (v *Verified) Damaged() bool {
	return slices.ContainsFunc(v.Findings, func(f Finding) bool { return !f.Torn })
}

// Verify reads the whole log, uncommitted entries too. It checks checksums and chains, that each segment
// follows the one before, that transactions are whole, each segment's PREVIOUS_GTIDS, and for committed entries
// the rules of their epochs. It continues behind damage where it can. Unless progress is nil, Verify tells it
// how many bytes it has read of how many.
//
// The log may be open: a finding above the commit index counts only if a second look finds it again. The error
// is one of reading, ErrFormat, or ctx's.
func (in *Inspector) Verify(ctx context.Context, progress func(done, total int64)) (*Verified, error) {
	v := &verifier{in: in, ctx: ctx, progress: progress, before: &scan{}}
	v.Commit = in.hs.Commit
	if c, ok := errors.AsType[*CorruptError](in.stateProblem); ok {
		v.find(stateName, c.Offset, 0, "%s", c.Detail)
	} else if in.stateProblem != nil {
		v.find(stateName, 0, 0, "%v", in.stateProblem)
	}
	for _, name := range in.names {
		if info, err := in.options.FS.Stat(filepath.Join(in.options.Dir, name)); err == nil {
			v.total += info.Size
		}
	}
	tail := in.holder(v.Commit + 1)
	for _, name := range in.names[:tail] {
		if err := v.segmentOrGone(name); err != nil {
			return nil, err
		}
	}
	if err := v.verifyTail(in.names[tail:]); err != nil {
		return nil, err
	}
	if v.LastIndex < v.Commit && !v.overtaken {
		v.find(v.last, 0, v.LastIndex+1, "log ends at index %d, but %d is committed", v.LastIndex, v.Commit)
	}
	return &v.Verified, nil
}

// verifier is a call of Verify that is under way.
type verifier struct {
	Verified
	in       *Inspector
	ctx      context.Context
	progress func(done, total int64)
	done     int64
	total    int64
	// before is the end of the segment before; nil if that is not known. number is that segment's number, which is
	// known behind damage, too; 0 if it is not.
	before *scan
	number uint64
	// last is the name of the segment before. overtaken: what followed it was purged before it was read.
	last      string
	overtaken bool
	rules     rules
}

// looksMax bounds the looks at a tail that changes all the time.
const looksMax = 5

// verifyTail verifies the segments from the first uncommitted entry on. While it reads, other entries and
// segments may take their place: the end of one segment and the beginning of the next may be from different
// times. So it looks at all of them again, and reports what two looks find.
func (v *verifier) verifyTail(names []string) error {
	var before []Finding
	for look := 1; ; look++ {
		now := *v
		now.Findings, now.rules = slices.Clone(v.Findings), v.rules.clone()
		for _, name := range names {
			if err := now.segmentOrGone(name); err != nil {
				return err
			}
		}
		unsteady := func(f Finding) bool { return f.Index > v.Commit && !slices.Contains(before, f) }
		if !slices.ContainsFunc(now.Findings, unsteady) || look == looksMax {
			now.Findings = slices.DeleteFunc(now.Findings, unsteady)
			*v = now
			return nil
		}
		before = now.Findings
		var err error
		if names, err = v.alsoNow(names); err != nil {
			return err
		}
	}
}

// alsoNow adds the names of segments that have appeared between the first and the last of names.
func (v *verifier) alsoNow(names []string) ([]string, error) {
	now := Inspector{options: v.in.options}
	if err := now.list(); err != nil {
		return nil, fmt.Errorf("list directory: %w", err)
	}
	first, last := names[0], names[len(names)-1]
	for _, name := range now.names {
		if name > first && name < last && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return slices.Sorted(slices.Values(names)), nil
}

// segmentOrGone verifies a segment, unless it was purged, or cut off, since the directory was listed.
func (v *verifier) segmentOrGone(name string) error {
	err := v.segment(name)
	if v.in.isGone(name, err) {
		// The next segment cannot be compared with this one.
		v.before, v.number, v.rules, v.overtaken = nil, 0, rules{}, true
		return nil
	}
	return err
}

func (v *verifier) find(s string, offset int64, index uint64, format string, args ...any) {
	v.add(Finding{Segment: s, Offset: offset, Index: index, Detail: fmt.Sprintf(format, args...)})
}

func (v *verifier) torn(s string, offset int64, index uint64, format string, args ...any) {
	v.add(Finding{Segment: s, Offset: offset, Index: index, Torn: true, Detail: fmt.Sprintf(format, args...)})
}

func (v *verifier) add(f Finding) {
	if len(v.Findings) == FindingsMax {
		v.More++
		return
	}
	f.Detail = strings.TrimPrefix(f.Detail, errDamage.Error()+": ")
	v.Findings = append(v.Findings, f)
}

// isLast tells whether there is no segment after name at the moment.
func (v *verifier) isLast(name string) (bool, error) {
	now := Inspector{options: v.in.options}
	err := now.list()
	return len(now.names) > 0 && now.names[len(now.names)-1] == name, err
}

func (v *verifier) segment(name string) error {
	s, err := v.in.openSegment(name)
	if c, ok := errors.AsType[*CorruptError](err); ok {
		v.find(name, c.Offset, firstOf(name), "%s", c.Detail)
		if v.Segments == 0 {
			v.FirstIndex, v.LastIndex = firstOf(name), firstOf(name)-1
		}
		v.Segments, v.before, v.rules = v.Segments+1, nil, rules{}
		if v.number > 0 {
			v.number++
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer s.close()
	v.header(s)
	v.Segments, v.number, v.last, v.overtaken = v.Segments+1, s.number, name, false
	c := s.start()
	intact := true
	for c.end < s.window.size {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		e, r, err := s.entry(c)
		if err == nil {
			v.entry(e)
			v.pass(c, r)
			continue
		}
		if !errors.Is(err, errDamage) {
			return s.damage(c.end, 0, err)
		}
		more, err := v.damage(s, c, r, err)
		if err != nil {
			return err
		}
		if intact = intact && more == noDamage; more != segmentGoesOn {
			break
		}
	}
	v.done += s.window.size - s.segmentHeader.bytes
	if v.before = c; !intact {
		v.before = nil
	}
	return nil
}

// pass moves behind a record and reports the progress.
func (v *verifier) pass(c *scan, r *record) {
	c.pass(r)
	v.Bytes += r.bytes()
	if v.progress != nil {
		v.progress(min(v.done+c.end, v.total), v.total)
	}
}

// header checks how a segment follows the segment before.
func (v *verifier) header(s *inspected) {
	find := func(format string, args ...any) { v.find(s.name, 0, s.first, format, args...) }
	if v.in.stateProblem == nil && s.identity != v.in.identity {
		find("it has identity %x, the log %x", s.identity, v.in.identity)
	}
	if v.Segments == 0 {
		v.FirstIndex, v.LastIndex = s.first, s.first-1
		if s.first > 1 {
			v.before = nil // purged
		}
	}
	switch {
	case v.before != nil && s.first != v.LastIndex+1:
		find("it begins at index %d, the segment before ends at %d", s.first, v.LastIndex)
		v.rules = rules{}
	case v.before == nil:
		v.rules = rules{}
		if v.number > 0 && s.number != v.number+1 {
			find("a segment is missing before it: number %d after %d", s.number, v.number)
		}
	case s.number != v.number+1 || s.previousTerm != v.before.term || !s.follows(v.before.chain):
		find("it does not follow the segment before: number %d after %d, term %d after %d, or not chained to it",
			s.number, v.number, s.previousTerm, v.before.term)
	}
	if v.rules.gtids == nil {
		v.rules.gtids = s.gtidsBefore.Clone()
	}
	if !v.rules.gtids.Equal(s.gtidsBefore) {
		find("PREVIOUS_GTIDS is %v, but the transactions before are %v", s.gtidsBefore, v.rules.gtids)
		v.rules.gtids = s.gtidsBefore.Clone()
	}
}

// entry checks an entry whose bytes are intact.
func (v *verifier) entry(e *InspectedEntry) {
	v.Entries++
	v.Transactions += uint64(len(e.Transactions))
	v.LastIndex = e.Index
	if problem := v.rules.check(e); problem != "" && e.Index <= v.Commit {
		v.find(e.Segment, e.Offset, e.Index, "%s", problem)
	}
}

// afterDamage says how a segment continues behind damage.
type afterDamage uint8

const (
	// noDamage: the log ends here, perhaps with a torn tail.
	noDamage afterDamage = iota
	// segmentEnds: nothing more of the segment can be read.
	segmentEnds
	// segmentGoesOn: there is another record.
	segmentGoesOn
)

// damage judges the problem at c.end and moves c to the next record behind it. r is the head of the record, if
// the head is intact.
func (v *verifier) damage(s *inspected, c *scan, r *record, problem error) (afterDamage, error) {
	index := c.nextIndex(s.segmentHeader)
	isLast, err := v.isLast(s.name)
	if err != nil {
		return segmentEnds, fmt.Errorf("list directory: %w", err)
	}
	// A stage was durable before its file became a segment: such a segment has no tail.
	if isLast && !s.staged && index > v.Commit {
		durable, nonZeroEnd, err := s.searchBehind(s.window, c.end)
		switch {
		case errors.Is(err, errDamage): // it became shorter meanwhile
			return noDamage, nil
		case err != nil:
			return segmentEnds, s.damage(c.end, index, err)
		case durable <= c.end && nonZeroEnd == c.end:
			return noDamage, nil // these are zeros, prepared for later entries
		case durable <= c.end:
			v.torn(s.name, c.end, index, "%v; %d bytes that were not known to be durable", problem, nonZeroEnd-c.end)
			return noDamage, nil
		}
	}
	v.rules = rules{}
	if r != nil { // only what follows the head is damaged
		v.find(s.name, c.end, index, "%v", problem)
		v.LastIndex = index
		v.pass(c, r)
		return segmentGoesOn, nil
	}
	return v.resume(s, c, problem)
}

// resume reports damage at c.end and continues at the next record behind it. The chain value before that record
// is not known, so the record is accepted without it.
func (v *verifier) resume(s *inspected, c *scan, problem error) (afterDamage, error) {
	index := c.nextIndex(s.segmentHeader)
	var next int64
	var r record
	err := s.heads(c.end+1, s.window.size, func(offset int64, found record) bool {
		if found.index > index {
			next, r = offset, found
		}
		return next == 0
	})
	// If bytes behind the damage cannot be read either, there is nothing more to say.
	if err != nil && !errors.Is(err, errDamage) {
		return segmentEnds, s.damage(c.end, index, err)
	}
	if next == 0 {
		v.find(s.name, c.end, index, "%v", problem)
		return segmentEnds, nil
	}
	v.find(s.name, c.end, index, "%v; entries can be read again from %d on, at offset %d", problem, r.index, next)
	c.end, c.index.count = next, uint32(r.index-s.first)
	e, err := s.readEntry(next, &r)
	switch {
	case err == nil:
		v.entry(e)
	case errors.Is(err, errDamage):
		v.find(s.name, next, r.index, "%v", err)
		v.LastIndex = r.index
	default:
		return segmentEnds, s.damage(next, r.index, err)
	}
	v.pass(c, &r)
	return segmentGoesOn, nil
}

// rules are the rules for committed entries: the commit check of package consensus, without its panics. If the
// entries before are not known, gtids is nil and order is not known.
type rules struct {
	order entry.Order
	gtids *gtid.Set
}

func (r *rules) clone() rules {
	c := *r
	if c.gtids != nil {
		c.gtids = c.gtids.Clone()
	}
	return c
}

// check takes the next entry and says what is wrong with it; "" = nothing.
func (r *rules) check(e *InspectedEntry) (problem string) {
	for i := range e.Transactions {
		if r.gtids != nil && !r.gtids.Add(e.Transactions[i].GTID) {
			problem = fmt.Sprintf("transaction %v is in an entry before, too", e.Transactions[i].GTID)
		}
	}
	if e.Type != raftNormal || e.Problem == nil && e.Header.Kind == entry.KindEmpty {
		return problem
	}
	h := e.Header
	switch {
	case e.Problem != nil:
		return e.Problem.Error()
	case h.Term != e.Term:
		problem = fmt.Sprintf("entry of term %d says term %d", e.Term, h.Term)
	case h.Kind == entry.KindState:
		return problem // it belongs to no epoch
	default:
		if _, err := r.order.Next(h); err != nil {
			problem = err.Error()
		}
	}
	r.order = entry.OrderAt(h)
	return problem
}
