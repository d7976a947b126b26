package agent

import (
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/board"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/core"
)

const (
	// historyFile holds what became of the nodes: lines as in audit.log.
	historyFile = "history.log"
	// historySince is the request for lines of another node's history.log, between agents.
	historySince = "history.since"
)

// historian gives the chronicle's events what only the shell knows. All but newest and
// caughtUp is core's goroutine's.
type historian struct {
	chronicle *chronicle
	// sign is the newest sign of a primary, as of when this node was elected; commit
	// is when the newest transaction was committed (zero = not known).
	sign, commit time.Time
	// from is who that primary was, and seen what had become of it.
	from, seen string
	// caughtUp is what the newest promotion applied before it opened.
	caughtUp atomic.Pointer[catchUpDone]
	// newest is the newest change of the primary; nil = none is known.
	newest atomic.Pointer[cluster.HistoryRow]
	// healed is when this node's log was healed last, in seconds since 1970; 0 = never.
	healed atomic.Int64
}

// catchUpDone is how much a promotion applied, and how long that took.
type catchUpDone struct {
	transactions int64
	took         time.Duration
}

// chronicled has what follows from one step of core written into history.log.
func (a *Agent) chronicled(s stepped) {
	h := &a.history
	if in, ok := s.in.(core.RaftChanged); ok && in.Leading && in.Term != h.chronicle.led && in.Term != h.chronicle.served {
		a.lookBack()
	}
	for _, e := range h.chronicle.note(s) {
		switch e.Kind {
		case cluster.EventLeft:
			a.board.Served(e.Term)
		case cluster.EventPrimary:
			e.From, e.Why = h.from, h.seen
			e.NoPrimaryMs, e.LastWriteMs = h.outage(s.now)
			if c := h.caughtUp.Swap(nil); c != nil {
				e.AppliedTransactions, e.AppliedMs = c.transactions, c.took.Milliseconds()
			}
		}
		a.tellHistory(e)
	}
}

// tellHistory notes an event for history.log. It does not block.
func (a *Agent) tellHistory(e cluster.Event) {
	at := e.At
	if at.IsZero() {
		at = time.Now()
	}
	a.state.note(a.eventLine(at, e))
}

// eventLine is an event's line in history.log.
func (a *Agent) eventLine(at time.Time, e cluster.Event) cluster.AuditEntry {
	return cluster.AuditEntry{At: at.UTC(), By: a.byItself(), What: string(e.Kind), Event: &e}
}

// noteHealed writes into the history that the log was healed: at once, as the start that
// goes on behind it may fail, and the next one finds nothing wrong.
func (a *Agent) noteHealed(at time.Time, why string) {
	history := &a.state.history
	err := history.open(a.data.Join(historyFile), a.self.Name)
	if err == nil {
		err = history.append(a.eventLine(at, cluster.Event{Kind: cluster.EventHealed, Why: why}))
	}
	if err != nil {
		a.logger.Warn("note in the history that the log was healed", "error", err)
	}
}

// lookBack notes, when this node is elected, what is known of the old primary.
func (a *Agent) lookBack() {
	h := &a.history
	p := a.board.LastPrimary()
	h.sign, h.from, h.seen = p.At, p.Name, p.Fate
	var logged time.Time
	for _, s := range a.log.Segments() {
		if s.LastTime > 0 {
			logged = time.Unix(s.LastTime, 0)
		}
	}
	h.commit = newestCommit(a.lag.NewestAt(), logged, h.sign)
}

// newestCommit says when the newest transaction was committed; zero = it is not known.
// What this node saw is exact, but what it reads at its start, or gets after it was
// away, it sees long after the commit. Then the log's own time counts, to a second.
func newestCommit(seen, logged, sign time.Time) time.Time {
	switch {
	case !logged.IsZero() && sign.IsZero():
		return logged
	case !logged.IsZero() && (seen.IsZero() || seen.Sub(logged) > 2*time.Second || seen.Sub(sign) >= 2*board.GossipInterval):
		if logged.After(sign) { // the hosts' clocks differ
			return sign
		}
		return logged
	case seen.Sub(sign) >= 2*board.GossipInterval: // without a primary nothing is committed
		return time.Time{}
	}
	return seen
}

// outage returns the time without a primary and the time since the last write, both in
// ms and until now; 0 = it is not known. A commit is a sign of a primary, too.
func (h *historian) outage(now time.Time) (noPrimaryMs, lastWriteMs int64) {
	since := func(at time.Time) int64 {
		if at.IsZero() {
			return 0
		}
		return max(1, now.Sub(at).Milliseconds())
	}
	sign := h.sign
	if !sign.IsZero() && h.commit.After(sign) {
		sign = h.commit
	}
	return since(sign), since(h.commit)
}

// noteLastChange looks for the newest change of the primary, and for when this node's log
// was healed last, after lines were added. It waits for a disk, and a status must not.
func (a *Agent) noteLastChange() {
	lines, err := a.state.history.newest(cluster.LinesMax)
	if err != nil {
		a.logger.Warn("read the history", "error", err)
		return
	}
	for _, l := range lines {
		if l.Event != nil && l.Event.Kind == cluster.EventHealed && l.Node == a.self.Name {
			a.history.healed.Store(l.At.Unix())
		}
	}
	for _, row := range cluster.History(lines) {
		if row.ChangesPrimary() {
			a.history.newest.Store(&row)
		}
	}
}

// controlHistory answers what has happened, newest rows.
func (a *Agent) controlHistory(r control.Request) (done, error) {
	last, err := lastOf(r)
	if err != nil {
		return done{}, err
	}
	lines, err := a.state.history.newest(cluster.LinesMax)
	if err != nil {
		return done{}, err
	}
	rows := cluster.History(lines)
	return done{result: rows[max(0, len(rows)-last):], readOnly: true}, nil
}

// KeptAudit returns the newest lines of the audit log in a data directory, at most last
// (>= 1), oldest first. It is for a node whose agent gives no answer.
func KeptAudit(dataDir string, last int) ([]cluster.AuditEntry, error) {
	kept := auditLog{path: filepath.Join(dataDir, auditFile)}
	return kept.newest(last)
}

// KeptHistory is like KeptAudit, of the history.
func KeptHistory(dataDir string, last int) ([]cluster.HistoryRow, error) {
	kept := auditLog{path: filepath.Join(dataDir, historyFile)}
	lines, err := kept.newest(cluster.LinesMax)
	rows := cluster.History(lines)
	return rows[max(0, len(rows)-last):], err
}
