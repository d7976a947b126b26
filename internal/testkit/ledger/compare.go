package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// NodeRows is what one node's table holds.
type NodeRows struct {
	Node string
	// IDs in the order of the primary key.
	IDs []ID
	// Wrong holds the ids of rows whose other columns are not what was written.
	Wrong []ID
}

// Verdict is the outcome of a comparison. The counts are rows.
type Verdict struct {
	Acknowledged   int `json:"acknowledged"`
	Unknown        int `json:"unknown"`
	UnknownPresent int `json:"unknown_present"`
	Failed         int `json:"failed"`
	// Lost holds each acknowledged row that at least one node lacks.
	Lost []Finding `json:"lost,omitempty"`
	// Diverged holds everything else that must not be: a row on only some nodes,
	// a part of a transaction, a row that nobody wrote or whose write failed, a
	// row that is there twice, a wrong content, and (ID 0) nodes that differ as a whole.
	Diverged []Finding `json:"diverged,omitempty"`
}

// OK says whether nothing was lost and nothing diverged.
func (v Verdict) OK() bool { return len(v.Lost) == 0 && len(v.Diverged) == 0 }

// Finding is one thing that must not be.
type Finding struct {
	// ID is the row; 0 stands for the table or the node as a whole.
	ID     ID     `json:"id,omitempty"`
	Detail string `json:"detail"`
}

// String prints the finding as one line.
func (f Finding) String() string {
	if f.ID == 0 {
		return f.Detail
	}
	return fmt.Sprintf("row %v: %s", f.ID, f.Detail)
}

// Compare compares what the nodes hold against what the writers were told. The
// order of history does not matter; an id may belong to one attempt only.
func Compare(history []Attempt, nodes []NodeRows) Verdict {
	history = slices.Clone(history)
	slices.SortFunc(history, func(a, b Attempt) int { return cmp.Compare(a.id(0), b.id(0)) })
	sorted := make([]NodeRows, len(nodes))
	for i, n := range nodes {
		sorted[i] = NodeRows{Node: n.Node, IDs: slices.Clone(n.IDs), Wrong: n.Wrong}
		slices.Sort(sorted[i].IDs)
	}
	var v Verdict
	for _, a := range history {
		v.check(a, sorted)
	}
	for _, n := range sorted {
		v.checkNode(n, history)
	}
	return v
}

// check compares one attempt with all nodes.
func (v *Verdict) check(a Attempt, nodes []NodeRows) {
	rows := int(a.Rows)
	missing := make([][]string, rows) // per row, the nodes that lack it
	held, partial := 0, []string{}
	for _, n := range nodes {
		have := 0
		for r := range rows {
			if _, ok := slices.BinarySearch(n.IDs, a.id(r)); ok {
				have++
			} else {
				missing[r] = append(missing[r], n.Node)
			}
		}
		if have == rows {
			held++
		} else if have > 0 {
			partial = append(partial, fmt.Sprintf("%s has %d of %d", n.Node, have, rows))
		}
	}
	switch a.Outcome {
	case Acknowledged:
		v.Acknowledged += rows
		for r, lacking := range missing {
			if len(lacking) > 0 {
				v.Lost = append(v.Lost, Finding{a.id(r), "acknowledged, missing on " + strings.Join(lacking, ", ")})
			}
		}
	case Failed:
		v.Failed += rows // checkNode reports rows that are there nevertheless
	default:
		v.Unknown += rows
		switch {
		case len(partial) > 0:
			v.Diverged = append(v.Diverged, Finding{a.id(0), "transaction torn: " + strings.Join(partial, ", ")})
		case held == len(nodes):
			v.UnknownPresent += rows
		case held > 0:
			v.Diverged = append(v.Diverged, Finding{a.id(0), "of unknown outcome, missing only on " + strings.Join(missing[0], ", ")})
		}
	}
}

// checkNode looks for rows that one node has and should not have. history and n.IDs
// are sorted.
func (v *Verdict) checkNode(n NodeRows, history []Attempt) {
	for i, id := range n.IDs {
		if i > 0 && n.IDs[i-1] == id {
			v.Diverged = append(v.Diverged, Finding{id, "twice on " + n.Node})
			continue
		}
		at, ok := find(history, id)
		switch {
		case !ok:
			v.Diverged = append(v.Diverged, Finding{id, "nobody wrote it, but it is on " + n.Node})
		case at.Outcome == Failed:
			v.Diverged = append(v.Diverged, Finding{id, "failed, but it is on " + n.Node})
		}
	}
	for _, id := range n.Wrong {
		v.Diverged = append(v.Diverged, Finding{id, "wrong content on " + n.Node})
	}
}

// find returns the attempt to which id belongs. history is sorted by id.
func find(history []Attempt, id ID) (Attempt, bool) {
	at, exact := slices.BinarySearchFunc(history, id, func(a Attempt, id ID) int { return cmp.Compare(a.id(0), id) })
	if exact {
		return history[at], true
	}
	if at == 0 {
		return Attempt{}, false
	}
	a := history[at-1]
	return a, id < a.id(int(a.Rows))
}
