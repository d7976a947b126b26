package archive

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/log/seglog"
)

// timeLayout is the form of a time in names. Part of the format.
const timeLayout = "20060102T150405Z"

const (
	manifestSuffix = ".json"
	dataSuffix     = ".data"
)

// FullName returns the name of a full backup: the names of its manifest and data without their
// suffixes.
func FullName(at time.Time, node string) string {
	return fmt.Sprintf("full-%s-%s", at.UTC().Format(timeLayout), node)
}

// ManifestName returns the name of the object that has a full backup's manifest.
func ManifestName(full string) string { return full + manifestSuffix }

// DataName returns the name of the object that has a full backup's data.
func DataName(full string) string { return full + dataSuffix }

// Piece is what the name of a piece says.
type Piece struct {
	First, Last uint64
	// Time is when its newest transaction was committed, in whole seconds. A piece without
	// transactions has the time of the piece before it.
	Time time.Time
	// Sum is SumOf its last entry. Two logs that have an entry with this sum have the same
	// history up to it.
	Sum string
}

// Name returns the name of the piece.
func (p Piece) Name() string {
	return fmt.Sprintf("log-%020d-%020d-%s-%s.qlog", p.First, p.Last, p.Time.UTC().Format(timeLayout), p.Sum)
}

// sumBytes is how many bytes of the SHA-256 a name has.
const sumBytes = 8

// SumOf returns the beginning of the SHA-256 of an entry's index, term, type and data, in hex.
func SumOf(e seglog.Entry) string {
	head := binary.LittleEndian.AppendUint64(nil, e.Index)
	head = append(binary.LittleEndian.AppendUint64(head, e.Term), e.Type)
	sum := sha256.New()
	_, _ = sum.Write(head) // never fails
	_, _ = sum.Write(e.Data)
	return hex.EncodeToString(sum.Sum(nil)[:sumBytes])
}

var (
	pieceName    = regexp.MustCompile(`^log-(\d{20})-(\d{20})-(\d{8}T\d{6}Z)-([0-9a-f]{16})\.qlog$`)
	manifestName = regexp.MustCompile(`^(full-\d{8}T\d{6}Z-.+)\.json$`)
	dataName     = regexp.MustCompile(`^(full-\d{8}T\d{6}Z-.+)\.data$`)
)

// ParsePiece parses the name of a piece; false if it is no such name.
func ParsePiece(name string) (p Piece, ok bool) {
	m := pieceName.FindStringSubmatch(name)
	if m == nil {
		return p, false
	}
	first, err1 := strconv.ParseUint(m[1], 10, 64)
	last, err2 := strconv.ParseUint(m[2], 10, 64)
	at, err3 := time.Parse(timeLayout, m[3])
	if err1 != nil || err2 != nil || err3 != nil || first == 0 || last < first {
		return p, false
	}
	return Piece{First: first, Last: last, Time: at, Sum: m[4]}, true
}

// Contents are the objects of a repository that this package knows.
type Contents struct {
	// Fulls has the names of full backups, oldest first. Unfinished has those that have data but
	// no manifest.
	Fulls, Unfinished []string
	// Data has the names of the full backups that have their data.
	Data map[string]bool
	// Pieces are sorted by their first entry; of pieces with the same one, the longest comes
	// first.
	Pieces []Piece
}

// Sort sorts the names of a repository's objects by what they are.
func Sort(names []string) (c Contents) {
	data := map[string]bool{}
	c.Data = data
	for _, name := range names {
		if p, ok := ParsePiece(name); ok {
			c.Pieces = append(c.Pieces, p)
		} else if m := manifestName.FindStringSubmatch(name); m != nil {
			c.Fulls = append(c.Fulls, m[1])
		} else if m := dataName.FindStringSubmatch(name); m != nil {
			data[m[1]] = true
		}
	}
	for name := range data {
		if !slices.Contains(c.Fulls, name) {
			c.Unfinished = append(c.Unfinished, name)
		}
	}
	slices.Sort(c.Fulls)
	slices.Sort(c.Unfinished)
	slices.SortFunc(c.Pieces, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last), cmp.Compare(a.Sum, b.Sum))
	})
	return c
}

// Newest returns the piece with the highest last entry; the zero Piece = there is none.
func (c Contents) Newest() (newest Piece) {
	for _, p := range c.Pieces {
		if p.Last > newest.Last {
			newest = p
		}
	}
	return newest
}

// Chain returns the fewest pieces that have all entries from first on, and the last entry before
// the first gap.
func (c Contents) Chain(first uint64) (pieces []Piece, last uint64) {
	last = first - 1
	best, rest := Piece{}, c.Pieces // in one pass: there may be hundreds of thousands
	for {
		for len(rest) > 0 && rest[0].First <= last+1 {
			if rest[0].Last > best.Last {
				best = rest[0]
			}
			rest = rest[1:]
		}
		if best.Last <= last {
			return pieces, last
		}
		pieces, last = append(pieces, best), best.Last
	}
}

// abandonedAfter: an unfinished backup that is older than the newest full backup by more than this is no longer
// being taken.
const abandonedAfter = 48 * time.Hour

// abandoned returns the data objects of full backups that were interrupted long ago. The newest backup may be of a
// clock that was ahead: it counts as taken now, at the latest.
func (c Contents) abandoned(now time.Time) (names []string) {
	if len(c.Fulls) == 0 {
		return nil
	}
	newest, ok := fullTime(c.Fulls[len(c.Fulls)-1])
	if newest.After(now) {
		newest = now
	}
	for _, name := range c.Unfinished {
		if at, known := fullTime(name); ok && known && newest.Sub(at) > abandonedAfter {
			names = append(names, DataName(name))
		}
	}
	return names
}

// fullTime returns when a full backup began, by its name.
func fullTime(name string) (time.Time, bool) {
	text, found := strings.CutPrefix(name, "full-")
	if !found || len(text) < len(timeLayout) {
		return time.Time{}, false
	}
	at, err := time.Parse(timeLayout, text[:len(timeLayout)])
	return at, err == nil
}

// Reach is which part of the log a full backup needs.
type Reach struct {
	First, End uint64
	// Whole says that the backup can be restored. Damaged says that its manifest cannot be read: nothing else is known.
	Whole, Damaged bool
}

// Prunable returns the objects that may be deleted, in the order in which to delete them. It keeps the full backups
// that go furthest until keep of them can be restored; if there are fewer that can, all stay. The names do not tell
// how far a backup goes: their times are those of several clocks. A damaged backup stays if its name is behind that of a kept
// one. A piece may go if all of its entries are before what the kept backups need. reach knows every full backup.
func (c Contents) Prunable(keep int, now time.Time, reach map[string]Reach) (names []string) {
	names = c.abandoned(now)
	kept := slices.DeleteFunc(slices.Clone(c.Fulls), func(full string) bool { return reach[full].Damaged })
	slices.Reverse(kept) // the newest first, of those that go equally far
	slices.SortStableFunc(kept, func(a, b string) int { return cmp.Compare(reach[b].End, reach[a].End) })
	left, need := keep, ^uint64(0)
	for i, full := range kept {
		need = min(need, reach[full].First)
		if reach[full].Whole {
			left--
		}
		if left == 0 {
			kept = kept[:i+1]
			break
		}
	}
	if left > 0 || len(kept) == 0 {
		return names
	}
	oldest := slices.Min(kept)
	gone := slices.DeleteFunc(slices.Clone(c.Fulls), func(full string) bool {
		return slices.Contains(kept, full) || reach[full].Damaged && full > oldest
	})
	for _, full := range gone {
		if c.Data[full] {
			names = append(names, DataName(full))
		}
	}
	for _, p := range c.Pieces {
		if p.Last < need && len(gone) > 0 {
			names = append(names, p.Name())
		}
	}
	for _, full := range gone { // last: while a manifest is there, the next prune finishes one that was interrupted
		names = append(names, ManifestName(full))
	}
	return names
}
