package gtid

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
)

// Interval is a run of consecutive numbers, both ends included.
type Interval struct {
	Start, End uint64
}

// group has the GTIDs of one source: sorted intervals, at least one, with a gap of at least one
// number between neighbours.
type group struct {
	Source
	intervals []Interval
}

// Set is a set of GTIDs. The zero value is the empty set. Methods that only
// read, and arguments, take a nil *Set for the empty one.
type Set struct {
	groups []group // sorted by Source
	// recent is the index of the group that Add changed last. The GTIDs of a binlog nearly
	// always come from one source, so Add seldom needs a search.
	recent int
}

func (s *Set) all() []group {
	if s == nil {
		return nil
	}
	return s.groups
}

// find returns the index of src, or where it must be inserted.
func find(groups []group, src Source) (int, bool) {
	return slices.BinarySearchFunc(groups, src, func(g group, src Source) int { return g.compare(src) })
}

// Add adds g and reports whether it is new. It panics if g.N is outside of
// 1..MaxN: such a GTID cannot come out of this package or of an event. If g
// follows the set's last GTID of its source, Add allocates nothing.
func (s *Set) Add(g GTID) bool {
	if g.N == 0 || g.N > MaxN {
		panic(fmt.Sprintf("gtid: Add of %v, whose number is out of range", g))
	}
	if s.recent >= len(s.groups) || s.groups[s.recent].Source != g.Source() {
		s.recent = s.groupOf(g.Source())
	}
	gr := &s.groups[s.recent]
	if last := len(gr.intervals) - 1; last >= 0 && gr.intervals[last].End+1 == g.N {
		gr.intervals[last].End++
		return true
	}
	if contains(gr.intervals, g.N) {
		return false
	}
	gr.intervals = insert(gr.intervals, Interval{g.N, g.N})
	return true
}

// AddInterval adds start..end, both included, of a source. It returns ErrRange,
// and adds nothing, unless 1 <= start <= end <= MaxN.
func (s *Set) AddInterval(u UUID, t Tag, start, end uint64) error {
	iv, err := newInterval(start, end)
	if err != nil {
		return err
	}
	gr := &s.groups[s.groupOf(Source{u, t})]
	gr.intervals = insert(gr.intervals, iv)
	return nil
}

func newInterval(start, end uint64) (Interval, error) {
	if start == 0 || start > end || end > MaxN {
		return Interval{}, fmt.Errorf("add interval %d-%d: %w", start, end, ErrRange)
	}
	return Interval{start, end}, nil
}

// collect adds an interval at the end of s, which need not be sorted: normalize must follow. A text or an encoding may
// have a million intervals in any order. One insertion into a sorted list for each would move 8 TB.
func (s *Set) collect(src Source, start, end uint64) error {
	iv, err := newInterval(start, end)
	if err != nil {
		return err
	}
	if n := len(s.groups); n == 0 || s.groups[n-1].Source != src {
		s.groups = append(s.groups, group{Source: src})
	}
	gr := &s.groups[len(s.groups)-1]
	gr.intervals = append(gr.intervals, iv)
	return nil
}

// normalize sorts and merges what was collected.
func (s *Set) normalize() {
	slices.SortFunc(s.groups, func(a, b group) int { return a.compare(b.Source) })
	groups := s.groups[:0]
	for _, g := range s.groups {
		if last := len(groups) - 1; last >= 0 && groups[last].Source == g.Source {
			groups[last].intervals = append(groups[last].intervals, g.intervals...)
		} else {
			groups = append(groups, g)
		}
	}
	s.groups = groups
	for i, g := range s.groups {
		slices.SortFunc(g.intervals, func(a, b Interval) int { return cmp.Compare(a.Start, b.Start) })
		merged := g.intervals[:0]
		for _, iv := range g.intervals {
			merged = appendMerge(merged, iv)
		}
		s.groups[i].intervals = merged
	}
}

// groupOf returns the index of src's group. A new group has no interval yet: the caller must
// add one.
func (s *Set) groupOf(src Source) int {
	i, found := find(s.groups, src)
	if !found {
		s.groups = slices.Insert(s.groups, i, group{Source: src})
	}
	return i
}

// Contains reports whether g is in the set.
func (s *Set) Contains(g GTID) bool {
	i, found := find(s.all(), g.Source())
	return found && contains(s.groups[i].intervals, g.N)
}

// ContainsSet reports whether each GTID of o is in the set.
func (s *Set) ContainsSet(o *Set) bool {
	for _, og := range o.all() {
		i, found := find(s.all(), og.Source)
		if !found || !containsAll(s.groups[i].intervals, og.intervals) {
			return false
		}
	}
	return true
}

// Union adds each GTID of o.
func (s *Set) Union(o *Set) {
	for _, og := range o.all() {
		gr := &s.groups[s.groupOf(og.Source)]
		gr.intervals = union(gr.intervals, og.intervals)
	}
}

// Subtract removes each GTID of o.
func (s *Set) Subtract(o *Set) {
	for _, og := range o.all() {
		if i, found := find(s.groups, og.Source); found {
			s.groups[i].intervals = subtract(s.groups[i].intervals, og.intervals)
		}
	}
	s.groups = slices.DeleteFunc(s.groups, func(g group) bool { return len(g.intervals) == 0 })
}

// Intersects reports whether the sets have a GTID in common.
func (s *Set) Intersects(o *Set) bool {
	for _, og := range o.all() {
		i, found := find(s.all(), og.Source)
		if found && len(intersect(s.groups[i].intervals, og.intervals, 1)) > 0 {
			return true
		}
	}
	return false
}

// Intersect returns a new set of the GTIDs that a and b have in common.
func Intersect(a, b *Set) *Set {
	out := &Set{}
	for _, ag := range a.all() {
		i, found := find(b.all(), ag.Source)
		if !found {
			continue
		}
		if common := intersect(ag.intervals, b.groups[i].intervals, math.MaxInt); len(common) > 0 {
			out.groups = append(out.groups, group{ag.Source, common})
		}
	}
	return out
}

// Clone returns a copy that shares nothing with s.
func (s *Set) Clone() *Set {
	out := &Set{groups: slices.Clone(s.all())}
	for i := range out.groups {
		out.groups[i].intervals = slices.Clone(out.groups[i].intervals)
	}
	return out
}

// Equal reports whether the sets hold the same GTIDs.
func (s *Set) Equal(o *Set) bool {
	return slices.EqualFunc(s.all(), o.all(), func(a, b group) bool {
		return a.Source == b.Source && slices.Equal(a.intervals, b.intervals)
	})
}

// IsEmpty reports whether the set holds no GTID.
func (s *Set) IsEmpty() bool { return len(s.all()) == 0 }

// Count returns how many GTIDs the set holds, at most 2^64-1.
func (s *Set) Count() uint64 {
	var n uint64
	for _, iv := range s.Intervals() {
		sum := n + (iv.End - iv.Start + 1)
		if sum < n {
			return math.MaxUint64
		}
		n = sum
	}
	return n
}

// Intervals yields the set's intervals, sorted by source, then by number. The
// set must not change meanwhile.
func (s *Set) Intervals() iter.Seq2[Source, Interval] {
	return func(yield func(Source, Interval) bool) {
		for _, g := range s.all() {
			for _, iv := range g.intervals {
				if !yield(g.Source, iv) {
					return
				}
			}
		}
	}
}

// Below: the algebra on sorted interval lists. Ends stay at or below MaxN, so
// End+1 does not overflow.

func contains(list []Interval, n uint64) bool {
	i := sort.Search(len(list), func(i int) bool { return list[i].End >= n })
	return i < len(list) && list[i].Start <= n
}

func containsAll(list, sub []Interval) bool {
	i := 0
	for _, iv := range sub {
		for i < len(list) && list[i].End < iv.Start {
			i++
		}
		if i == len(list) || list[i].Start > iv.Start || list[i].End < iv.End {
			return false
		}
	}
	return true
}

// insert adds iv to list in place, merging what it overlaps or touches.
func insert(list []Interval, iv Interval) []Interval {
	from := sort.Search(len(list), func(i int) bool { return list[i].End+1 >= iv.Start })
	to := from + sort.Search(len(list)-from, func(i int) bool { return list[from+i].Start > iv.End+1 })
	if from < to {
		iv.Start = min(iv.Start, list[from].Start)
		iv.End = max(iv.End, list[to-1].End)
	}
	return slices.Replace(list, from, to, iv)
}

func union(a, b []Interval) []Interval {
	if len(b) == 1 {
		return insert(a, b[0])
	}
	out := make([]Interval, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && a[0].Start <= b[0].Start {
			out, a = appendMerge(out, a[0]), a[1:]
		} else {
			out, b = appendMerge(out, b[0]), b[1:]
		}
	}
	return out
}

// appendMerge appends iv, which must start at or after the start of out's last interval.
func appendMerge(out []Interval, iv Interval) []Interval {
	if last := len(out) - 1; last >= 0 && out[last].End+1 >= iv.Start {
		out[last].End = max(out[last].End, iv.End)
		return out
	}
	return append(out, iv)
}

func subtract(a, b []Interval) []Interval {
	var out []Interval
	for _, iv := range a {
		for len(b) > 0 && b[0].End < iv.Start {
			b = b[1:]
		}
		for i := 0; i < len(b) && b[i].Start <= iv.End && iv.Start <= iv.End; i++ {
			if b[i].Start > iv.Start {
				out = append(out, Interval{iv.Start, b[i].Start - 1})
			}
			iv.Start = b[i].End + 1
		}
		if iv.Start <= iv.End {
			out = append(out, iv)
		}
	}
	return out
}

// intersect returns the first limit intervals that a and b have in common.
func intersect(a, b []Interval, limit int) []Interval {
	var out []Interval
	for len(a) > 0 && len(b) > 0 && len(out) < limit {
		start, end := max(a[0].Start, b[0].Start), min(a[0].End, b[0].End)
		if start <= end {
			out = append(out, Interval{start, end})
		}
		if a[0].End < b[0].End {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}
