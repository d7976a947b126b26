package cluster

import (
	"cmp"
	"slices"
	"time"
)

// EventKind says what became of a node.
type EventKind string

// The kinds of events. Each is written by the node that it is about.
const (
	// EventPrimary: it opened for writes.
	EventPrimary EventKind = "primary"
	// EventLeft: it was the primary, and stopped to be it.
	EventLeft EventKind = "left"
	// EventLed: it was elected, and lost leadership without having opened.
	EventLed EventKind = "elected"
	// EventMysqld: its mysqld ended or was killed, while it was not the primary.
	EventMysqld EventKind = "mysqld"
	// EventFenced: no mysqld may run there; EventUnfenced: it may again.
	EventFenced   EventKind = "fenced"
	EventUnfenced EventKind = "unfenced"
	// EventErrant: its mysqld has what the committed log lacks.
	EventErrant EventKind = "errant"
	// EventRecovered: it was made a cluster of its own (quorate recover).
	EventRecovered EventKind = "recovered"
	// EventHealed: its log was damaged, and was copied from its peers.
	EventHealed EventKind = "log healed"
	// EventStarted and EventStopped are its agent's start, and its end in order.
	EventStarted EventKind = "agent started"
	EventStopped EventKind = "agent stopped"
)

// Event is what a line of a node's history.log says.
type Event struct {
	Kind EventKind `json:"kind"`
	// At is when it happened, if that was before it is told; the line has it.
	At time.Time `json:"-"`
	// Term is the epoch's, or of EventLed the leader's.
	Term uint64 `json:"term,omitempty"`
	// Why is a few words for people; "" = there is nothing to say.
	Why string `json:"why,omitempty"`
	// Planned: an operator wanted it.
	Planned bool `json:"planned,omitempty"`
	// Deposed, of EventLeft: it lost leadership, and the others know better why.
	Deposed bool `json:"deposed,omitempty"`

	// The rest is of EventPrimary. From is who was the primary before, as far as
	// this node knew.
	From string `json:"from,omitempty"`
	// NoPrimaryMs is how long there was no primary: since the newest sign of the old
	// one. 0 = it is not known.
	NoPrimaryMs int64 `json:"no_primary_ms,omitempty"`
	// LastWriteMs is how long no transaction was committed: before that, too, when
	// nobody wrote, or a primary looked well and acknowledged nothing. 0 = it is not
	// known.
	LastWriteMs int64 `json:"last_write_ms,omitempty"`
	// NoWritesMs is read only: it is of older agents, which told one of the two.
	NoWritesMs int64 `json:"no_writes_ms,omitempty"`
	// AppliedTransactions were applied before it opened, in AppliedMs.
	AppliedTransactions int64 `json:"applied_transactions,omitempty"`
	AppliedMs           int64 `json:"applied_ms,omitempty"`
}

// HistoryWhat says what a row of the history is.
type HistoryWhat string

// What a row is, where it is no event's kind.
const (
	// HistoryFirst: the cluster's first primary opened, or the first after a recovery.
	HistoryFirst HistoryWhat = "first primary"
	// HistoryFailover: another node took over because it had to.
	HistoryFailover HistoryWhat = "failover"
	// HistorySwitchover: an operator moved the primary, or stopped its agent.
	HistorySwitchover HistoryWhat = "switchover"
	// HistoryReopened: the same node opened again.
	HistoryReopened HistoryWhat = "reopened"
	// HistoryLost: the primary is gone, and no other node has opened.
	HistoryLost HistoryWhat = "no primary"
)

// HistoryRow is a line of the history as people read it.
type HistoryRow struct {
	// At is when it was over: of a failover, when the new primary opened.
	At   time.Time   `json:"at"`
	What HistoryWhat `json:"what"`
	// Node is whom it is about, of a failover the new primary; From the old one.
	Node string `json:"node"`
	From string `json:"from,omitempty"`
	Term uint64 `json:"term,omitempty"`
	Why  string `json:"why,omitempty"`
	// The others are Event's.
	NoPrimaryMs         int64 `json:"no_primary_ms,omitempty"`
	LastWriteMs         int64 `json:"last_write_ms,omitempty"`
	NoWritesMs          int64 `json:"no_writes_ms,omitempty"`
	AppliedTransactions int64 `json:"applied_transactions,omitempty"`
	AppliedMs           int64 `json:"applied_ms,omitempty"`
}

// ChangesPrimary tells whether the row is about who is the primary.
func (r HistoryRow) ChangesPrimary() bool {
	switch r.What {
	case HistoryFirst, HistoryFailover, HistorySwitchover, HistoryReopened, HistoryLost:
		return true
	}
	return false
}

// History makes rows of all nodes' events, oldest first. What the old primary said of
// its end and what the new one said of its beginning become one row.
func History(lines []AuditEntry) []HistoryRow {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l AuditEntry) bool { return l.Event == nil })
	slices.SortStableFunc(lines, func(a, b AuditEntry) int { return a.At.Compare(b.At) })
	primaries := ofKind(lines, EventPrimary)
	// Terms order epochs, whatever the hosts' clocks say.
	slices.SortStableFunc(primaries, func(a, b AuditEntry) int { return cmp.Compare(a.Event.Term, b.Event.Term) })
	left := map[uint64]AuditEntry{}
	for _, l := range ofKind(lines, EventLeft) {
		left[l.Event.Term] = l
	}
	rows := make([]HistoryRow, 0, len(lines))
	for i, l := range primaries {
		row := rowOf(l)
		row.From = l.Event.From
		var end *Event
		if i > 0 {
			before := primaries[i-1]
			row.From = before.Node
			end = left[before.Event.Term].Event
			if recoveredBetween(lines, before, l) { // who was the primary then it may not know
				row.From, end = "", nil
			}
		}
		row.What = changeOf(row, *l.Event, end)
		if end != nil && (!end.Deposed || row.Why == "") {
			row.Why = cmp.Or(end.Why, row.Why)
		}
		rows = append(rows, row)
	}
	for _, l := range lines {
		last := len(primaries) == 0 || l.Event.Term >= primaries[len(primaries)-1].Event.Term
		switch {
		case l.Event.Kind == EventPrimary, l.Event.Kind == EventLeft && !last:
			continue
		case l.Event.Kind == EventLeft:
			row := rowOf(l)
			row.What, row.Node, row.From = HistoryLost, "", l.Node
			rows = append(rows, row)
		default:
			rows = append(rows, rowOf(l))
		}
	}
	slices.SortStableFunc(rows, func(a, b HistoryRow) int { return a.At.Compare(b.At) })
	return rows
}

// recoveredBetween tells whether the cluster was made anew on a node after before, and
// before that node opened as its primary.
func recoveredBetween(lines []AuditEntry, before, opened AuditEntry) bool {
	return slices.ContainsFunc(ofKind(lines, EventRecovered), func(l AuditEntry) bool {
		return l.Node == opened.Node && l.At.After(before.At) && !l.At.After(opened.At)
	})
}

// Change says what the opening of a primary was as far as the new one, node, knows.
func (e Event) Change(node string) HistoryWhat {
	return changeOf(HistoryRow{Node: node, From: e.From}, e, nil)
}

// changeOf says what the opening of a primary was; end is what the old one said.
func changeOf(row HistoryRow, opened Event, end *Event) HistoryWhat {
	switch {
	case row.From == "":
		return HistoryFirst
	case row.From == row.Node:
		return HistoryReopened
	case opened.Planned, end != nil && end.Planned:
		return HistorySwitchover
	}
	return HistoryFailover
}

func rowOf(l AuditEntry) HistoryRow {
	return HistoryRow{
		At: l.At, What: HistoryWhat(l.Event.Kind), Node: l.Node, Term: l.Event.Term, Why: l.Event.Why,
		NoPrimaryMs: l.Event.NoPrimaryMs, LastWriteMs: l.Event.LastWriteMs, NoWritesMs: l.Event.NoWritesMs,
		AppliedTransactions: l.Event.AppliedTransactions, AppliedMs: l.Event.AppliedMs,
	}
}

func ofKind(lines []AuditEntry, kind EventKind) (of []AuditEntry) {
	for _, l := range lines {
		if l.Event.Kind == kind {
			of = append(of, l)
		}
	}
	return of
}
