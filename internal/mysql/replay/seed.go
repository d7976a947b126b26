package replay

import (
	"fmt"
	"slices"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// SeedSegment chooses the segment with which the log of a joining node begins: the newest
// segment that leaves out nothing that another member may still need, by the same rule as a
// purge. So the new node can give the others all that they may ask for later. nodes are the
// other members, own is what this node's cluster state needs, committed is the last committed
// index.
func SeedSegment(segments []seglog.SegmentInfo, nodes []status.Node, own Need, committed uint64) (at int) {
	if !slices.ContainsFunc(nodes, func(n status.Node) bool { return n.Mysqld != status.MysqldNone }) {
		return 0 // only loggers: there are no data of a mysqld to copy, so the node gets the whole log
	}
	needs, _ := Needs(nodes)
	needs = append(needs, own)
	for i, s := range segments {
		needed := slices.ContainsFunc(needs, func(n Need) bool { return !n.Known || n.From < s.FirstIndex })
		if needed || s.FirstIndex > committed {
			break
		}
		at = i
	}
	return at
}

// LogBegin is the beginning of the log that a joining node or a backup gets. It is part of the formats of
// both.
type LogBegin struct {
	First             uint64 `json:"first"`
	PreviousTerm      uint64 `json:"previous_term"`
	GTIDs             []byte `json:"gtids"`
	FormatDescription []byte `json:"format_description"`
}

// NewLogBegin returns the beginning of a log whose first segment is s. term returns the term of
// an entry.
func NewLogBegin(s seglog.SegmentInfo, term func(index uint64) (uint64, error)) (b LogBegin, err error) {
	b = LogBegin{First: s.FirstIndex, GTIDs: s.GTIDsBefore.AppendBinary(nil), FormatDescription: s.FormatDescription}
	if s.FirstIndex > 1 {
		if b.PreviousTerm, err = term(s.FirstIndex - 1); err != nil {
			return b, fmt.Errorf("read the term before the log's beginning: %w", err)
		}
	}
	return b, nil
}

// Log returns where the new log begins; nil = with entry 1.
func (b LogBegin) Log() (*seglog.Begin, error) {
	if b.First <= 1 {
		return nil, nil
	}
	gtids, err := gtid.DecodeBinary(b.GTIDs)
	if err != nil {
		return nil, fmt.Errorf("decode the transactions before the log: %w", err)
	}
	return &seglog.Begin{First: b.First, PreviousTerm: b.PreviousTerm, GTIDs: gtids, FormatDescription: b.FormatDescription}, nil
}

// MarkText is the durable mark of a copy of a mysqld's data. It is part of the same formats.
type MarkText struct {
	MarkIndex   uint64 `json:"mark_index"`
	MarkWitness string `json:"mark_witness,omitempty"`
}

// Text returns m in the form that goes with a copy.
func (m Mark) Text() (t MarkText) {
	if m.Index > 0 {
		t = MarkText{m.Index, m.Witness.String()}
	}
	return t
}

// Mark returns the mark; the zero Mark = there is none.
func (t MarkText) Mark() (Mark, error) {
	if t.MarkIndex == 0 {
		return Mark{}, nil
	}
	witness, err := gtid.ParseGTID(t.MarkWitness)
	if err != nil {
		return Mark{}, fmt.Errorf("parse the durable mark: %w", err)
	}
	return Mark{Index: t.MarkIndex, Witness: witness}, nil
}
