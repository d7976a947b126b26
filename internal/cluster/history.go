package cluster

import (
	"cmp"
	"slices"
	"time"
)

// EventKind says what happened to a node.
type EventKind string

// The kinds of events. Each event is written by the node that it is about.
const (
	// EventPrimary: the node opened for writes.
	EventPrimary EventKind = "primary"
	// EventLeft: the node stopped being the primary.
	EventLeft EventKind = "left"
	// EventLed: the node was elected, and lost leadership without having opened.
	EventLed EventKind = "elected"
	// EventMysqld: the node's mysqld ended or was killed, while the node was not the primary.
	EventMysqld EventKind = "mysqld"
	// EventFenced: no mysqld may run on the node; EventUnfenced: mysqld may run again.
	EventFenced   EventKind = "fenced"
	EventUnfenced EventKind = "unfenced"
	// EventErrant: the node's mysqld has transactions that the committed log lacks.
	EventErrant EventKind = "errant"
	// EventRecovered: the node was made a cluster of its own (quorate recover).
	EventRecovered EventKind = "recovered"
	// EventHealed: the node's log was damaged, and was copied from its peers.
	EventHealed EventKind = "log healed"
	// EventStarted and EventStopped are the start of the node's agent, and its orderly end.
	EventStarted EventKind = "agent started"
	EventStopped EventKind = "agent stopped"
)

// Event is the content of a line of a node's history.log.
type Event struct {
	Kind EventKind `json:"kind"`
	// At is when it happened, if that was before it is reported. It is not in the JSON: the line has the time.
	At time.Time `json:"-"`
	// Term is the term of the epoch; of EventLed, the term in which the node led.
	Term uint64 `json:"term,omitempty"`
	// Why is a few words for people; "" = no reason is known.
	Why string `json:"why,omitempty"`
	// Planned: an operator wanted it.
	Planned bool `json:"planned,omitempty"`
	// Deposed, of EventLeft: the node lost leadership, and the other nodes know better why.
	Deposed bool `json:"deposed,omitempty"`

	// The fields below are of EventPrimary. From is the primary before, as far as this node knew.
	From string `json:"from,omitempty"`
	// NoPrimaryMs is how long there was no primary: since the newest sign of life of the old one. 0 = not
	// known.
	NoPrimaryMs int64 `json:"no_primary_ms,omitempty"`
	// LastWriteMs is how long no transaction was committed. That includes the time before, when nobody wrote,
	// or when a primary seemed to be well and acknowledged nothing. 0 = not known.
	LastWriteMs int64 `json:"last_write_ms,omitempty"`
	// NoWritesMs is only read, never written: older agents wrote it, for one of the two times above.
	NoWritesMs int64 `json:"no_writes_ms,omitempty"`
	// AppliedTransactions is how many transactions were applied before the node opened, in AppliedMs.
	AppliedTransactions int64 `json:"applied_transactions,omitempty"`
	AppliedMs           int64 `json:"applied_ms,omitempty"`
}

// HistoryWhat says what a row of the history is about.
type HistoryWhat string

// The subjects of rows that are not the kind of an event.
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
	// At is when it was over: for a failover, when the new primary opened.
	At   time.Time   `json:"at"`
	What HistoryWhat `json:"what"`
	// Node is the node that the row is about; for a failover, the new primary. From is the old primary.
	Node string `json:"node"`
	From string `json:"from,omitempty"`
	Term uint64 `json:"term,omitempty"`
	Why  string `json:"why,omitempty"`
	// The fields below are those of Event.
	NoPrimaryMs         int64 `json:"no_primary_ms,omitempty"`
	LastWriteMs         int64 `json:"last_write_ms,omitempty"`
	NoWritesMs          int64 `json:"no_writes_ms,omitempty"`
	AppliedTransactions int64 `json:"applied_transactions,omitempty"`
	AppliedMs           int64 `json:"applied_ms,omitempty"`
}

// ChangesPrimary tells whether the row is about a change of the primary.
func (r HistoryRow) ChangesPrimary() bool {
	switch r.What {
	case HistoryFirst, HistoryFailover, HistorySwitchover, HistoryReopened, HistoryLost:
		return true
	}
	return false
}

// History makes rows of the events of all nodes, oldest first. What the old primary said of its end and what
// the new primary said of its beginning become one row.
func History(lines []AuditEntry) []HistoryRow {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l AuditEntry) bool { return l.Event == nil })
	slices.SortStableFunc(lines, func(a, b AuditEntry) int { return a.At.Compare(b.At) })
	primaries := ofKind(lines, EventPrimary)
	// Terms order the epochs, even if the hosts' clocks are wrong.
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
			if adjacent := before.Event.Term+1 == l.Event.Term; adjacent || row.From == "" {
				row.From = before.Node
			}
			if row.From == before.Node { // else that primary has no line
				end = left[before.Event.Term].Event
			}
			// The recovered node may not know which node was the primary before.
			if recoveredBetween(lines, before, l) {
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

// NewestChange returns the newest change of the primary; nil = there is none. As in History, terms order the changes, even if
// the hosts' clocks are wrong. That a primary is lost comes after its beginning.
func NewestChange(rows []HistoryRow) (newest *HistoryRow) {
	lost := func(r *HistoryRow) int {
		if r.What == HistoryLost {
			return 1
		}
		return 0
	}
	for _, r := range rows {
		if r.ChangesPrimary() && (newest == nil || cmp.Or(cmp.Compare(r.Term, newest.Term), lost(&r)-lost(newest)) >= 0) {
			newest = &r
		}
	}
	return newest
}

// recoveredBetween tells whether the node of opened was made a cluster of its own after before, and before it
// opened.
func recoveredBetween(lines []AuditEntry, before, opened AuditEntry) bool {
	return slices.ContainsFunc(ofKind(lines, EventRecovered), func(l AuditEntry) bool {
		return l.Node == opened.Node && l.At.After(before.At) && !l.At.After(opened.At)
	})
}

// Change says what the opening of a primary was, as far as the new primary node knows.
func (e Event) Change(node string) HistoryWhat {
	return changeOf(HistoryRow{Node: node, From: e.From}, e, nil)
}

// changeOf says what the opening of a primary was; end is the event in which the old primary reported its end,
// if it did.
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
