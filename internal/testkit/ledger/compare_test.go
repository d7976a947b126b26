package ledger

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	acked := Attempt{Writer: 1, First: 1, Rows: 1, Outcome: Acknowledged}
	pair := Attempt{Writer: 1, First: 2, Rows: 2, Outcome: Acknowledged}
	unknown := Attempt{Writer: 2, First: 1, Rows: 2}
	failed := Attempt{Writer: 2, First: 3, Rows: 1, Outcome: Failed}
	history := []Attempt{failed, unknown, pair, acked}
	a1, p1, p2 := acked.id(0), pair.id(0), pair.id(1)
	u1, u2, f1 := unknown.id(0), unknown.id(1), failed.id(0)
	// on builds the rows of nodes a, b, …
	on := func(nodes ...[]ID) (rows []NodeRows) {
		for i, ids := range nodes {
			rows = append(rows, NodeRows{Node: string(rune('a' + i)), IDs: ids})
		}
		return rows
	}
	for _, tc := range []struct {
		name           string
		rows           []NodeRows
		lost, diverged []Finding
		unknownPresent int
	}{
		{name: "unknown nowhere", rows: on([]ID{a1, p1, p2}, []ID{a1, p1, p2})},
		{name: "unknown everywhere", rows: on([]ID{a1, p1, p2, u1, u2}, []ID{a1, p1, p2, u1, u2}), unknownPresent: 2},
		{name: "acknowledged missing on one", rows: on([]ID{a1, p1, p2}, []ID{p1, p2}),
			lost: []Finding{{a1, "acknowledged, missing on b"}}},
		{name: "acknowledged missing on all", rows: on([]ID{p1, p2}, []ID{p1, p2}),
			lost: []Finding{{a1, "acknowledged, missing on a, b"}}},
		{name: "acknowledged transaction torn", rows: on([]ID{a1, p1, p2}, []ID{a1, p1}),
			lost: []Finding{{p2, "acknowledged, missing on b"}}},
		{name: "one empty node", rows: on([]ID{a1, p1, p2}, nil), lost: []Finding{
			{a1, "acknowledged, missing on b"}, {p1, "acknowledged, missing on b"}, {p2, "acknowledged, missing on b"}}},
		{name: "unknown on some", rows: on([]ID{a1, p1, p2, u1, u2}, []ID{a1, p1, p2}),
			diverged: []Finding{{u1, "of unknown outcome, missing only on b"}}},
		{name: "unknown torn alike on all", rows: on([]ID{a1, p1, p2, u1}, []ID{a1, p1, p2, u1}),
			diverged: []Finding{{u1, "transaction torn: a has 1 of 2, b has 1 of 2"}}},
		{name: "unknown torn on one", rows: on([]ID{a1, p1, p2}, []ID{a1, p1, p2, u2}),
			diverged: []Finding{{u1, "transaction torn: b has 1 of 2"}}},
		{name: "failed is there", rows: on([]ID{a1, p1, p2, f1}, []ID{a1, p1, p2}),
			diverged: []Finding{{f1, "failed, but it is on a"}}},
		{name: "nobody wrote it", rows: on([]ID{a1, p1, p2}, []ID{a1, p1, p2, MakeID(9, 1)}),
			diverged: []Finding{{MakeID(9, 1), "nobody wrote it, but it is on b"}}},
		{name: "a seq that was never used", rows: on([]ID{a1, p1, p2, MakeID(1, 4)}, []ID{a1, p1, p2}),
			diverged: []Finding{{MakeID(1, 4), "nobody wrote it, but it is on a"}}},
		{name: "twice", rows: on([]ID{a1, a1, p1, p2}, []ID{a1, p1, p2}),
			diverged: []Finding{{a1, "twice on a"}}},
		{name: "wrong content", rows: []NodeRows{{Node: "a", IDs: []ID{a1, p1, p2}, Wrong: []ID{p2}}},
			diverged: []Finding{{p2, "wrong content on a"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Compare(history, tc.rows)
			want := Verdict{Acknowledged: 3, Unknown: 2, UnknownPresent: tc.unknownPresent, Failed: 1,
				Lost: tc.lost, Diverged: tc.diverged}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("verdict (-want +got):\n%s", d)
			}
			if bad := len(tc.lost)+len(tc.diverged) > 0; got.OK() == bad {
				t.Errorf("OK() = %v", got.OK())
			}
		})
	}
}

// world is a history and what nodes hold when nothing went wrong.
type world struct {
	history []Attempt
	nodes   []NodeRows
}

func drawWorld(t *rapid.T) world {
	w := world{nodes: make([]NodeRows, rapid.IntRange(1, 5).Draw(t, "nodes"))}
	for i := range w.nodes {
		w.nodes[i].Node = string(rune('a' + i))
	}
	for writer := range uint32(rapid.IntRange(1, 4).Draw(t, "writers")) {
		seq := uint32(1)
		for range rapid.IntRange(1, 12).Draw(t, "attempts") {
			a := Attempt{Writer: writer, First: seq, Rows: uint8(rapid.IntRange(1, rowsPerTransactionMax).Draw(t, "rows")),
				Outcome: rapid.SampledFrom([]Outcome{Acknowledged, Unknown, Failed}).Draw(t, "outcome")}
			seq += uint32(a.Rows)
			w.history = append(w.history, a)
			if a.Outcome == Acknowledged || a.Outcome == Unknown && rapid.Bool().Draw(t, "committed") {
				for i := range w.nodes {
					for r := range int(a.Rows) {
						w.nodes[i].IDs = append(w.nodes[i].IDs, a.id(r))
					}
				}
			}
		}
	}
	return w
}

func TestCompareAcceptsWhatIsRight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		shuffled := rapid.Permutation(w.history).Draw(t, "order")
		if v := Compare(shuffled, w.nodes); !v.OK() {
			t.Fatalf("a right world is judged %+v", v)
		}
	})
}

// TestCompareSeesEveryDefect damages a right world in one place.
func TestCompareSeesEveryDefect(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		node := &w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node")]
		a := rapid.SampledFrom(w.history).Draw(t, "attempt")
		id := a.id(rapid.IntRange(0, int(a.Rows)-1).Draw(t, "row"))
		at := slices.Index(node.IDs, id)
		switch {
		case at >= 0 && rapid.Bool().Draw(t, "double"):
			node.IDs = slices.Insert(node.IDs, at, id)
		case at >= 0:
			if a.Outcome == Unknown && a.Rows == 1 && len(w.nodes) == 1 {
				return // on the only node, its only row: all or nothing still holds
			}
			node.IDs = slices.Delete(node.IDs, at, at+1)
		default: // not committed, so it must not be there
			if a.Outcome == Unknown && a.Rows == 1 && len(w.nodes) == 1 {
				return
			}
			node.IDs = append(node.IDs, id)
		}
		v := Compare(w.history, w.nodes)
		if v.OK() {
			t.Fatalf("defect at %v on %s was not seen", id, node.Node)
		}
		if gone := at >= 0 && !slices.Contains(node.IDs, id); gone && a.Outcome == Acknowledged && len(v.Lost) != 1 {
			t.Fatalf("acknowledged row %v is missing on %s, reported as %+v", id, node.Node, v)
		}
	})
}
