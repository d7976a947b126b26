package history

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/consensus"
)

const (
	// AuditSince and Since are the requests for lines of another node's audit log, and of
	// its history, between agents.
	AuditSince = "audit.since"
	Since      = "history.since"
	// Audit and Lines are the requests for the newest lines of the audit log, and of the
	// history, whoever wrote them.
	Audit = "audit"
	Lines = "history.lines"
	// CopyEvery is how often a node looks whether other nodes have new lines.
	CopyEvery = time.Second
	// copyTimeout bounds one request.
	copyTimeout = 2 * time.Second
	// queuedMax bounds the lines that wait for a disk. They come one by one, mostly from
	// people; beyond it lines are missing, and that is logged.
	queuedMax = 1024
)

// Records are a node's audit log and its history.
type Records struct {
	Audit, History *Log

	node            string
	logger          *slog.Logger
	changes, events queue
	signal          chan struct{}
	// newest is the newest change of the primary; nil = none is known.
	newest atomic.Pointer[cluster.HistoryRow]
	// healed is when this node's log was healed last, in seconds since 1970; 0 = never.
	healed atomic.Int64
}

// queue are the lines that wait to be written into a log.
type queue struct {
	writing sync.Mutex // one at a time; before mu
	mu      sync.Mutex
	lines   []cluster.AuditEntry
	lost    int
}

// New names the records of a node in its data directory. It reads nothing.
func New(fs vfs.FS, dir, node string, logger *slog.Logger) *Records {
	return &Records{
		Audit: NewLog(fs, dir, AuditFile, node), History: NewLog(fs, dir, File, node),
		node: node, logger: logger, signal: make(chan struct{}, 1),
	}
}

// Open reads both. Nothing depends on them: a file that cannot be read is set aside, which is logged, and the node goes
// on without what it says.
func (r *Records) Open() {
	for _, l := range []*Log{r.Audit, r.History} {
		if err := l.Open(); err != nil {
			r.logger.Error("the audit log or the history cannot be read: it is set aside as "+damagedSuffix, "error", err)
			if err := errors.Join(l.setAside(), l.Open()); err != nil {
				r.logger.Error("the node goes on without what it says", "error", err)
			}
		}
	}
	r.look()
}

// ByItself names this node as the author of what no operator has asked for.
func (r *Records) ByItself() string { return "quorate on " + r.node }

// Committed notes a change of the cluster state for the audit log. It does not block.
func (r *Records) Committed(o consensus.StateOutcome) {
	line := cluster.AuditEntry{
		At: o.Change.At, By: o.Change.By, What: o.Change.String(), Result: "done",
		Index: o.Index, Version: o.State.Version,
	}
	switch {
	case errors.Is(o.Ignored, consensus.ErrUnfit):
		line.Result, line.Version = "ignored: Raft cannot make this change of the members", 0
	case o.Ignored != nil:
		line.Result, line.Version = "ignored: another change came first", 0
	}
	r.add(&r.changes, line)
}

// Note notes for the audit log what the node has done by itself. It does not block.
func (r *Records) Note(what, result string) {
	r.add(&r.changes, cluster.AuditEntry{At: time.Now().UTC().Truncate(time.Millisecond), By: r.ByItself(), What: what, Result: result})
}

// Tell notes an event for the history, as of now if it has no time. It does not block.
func (r *Records) Tell(e cluster.Event) {
	at := e.At
	if at.IsZero() {
		at = time.Now()
	}
	r.add(&r.events, r.line(at, e))
}

// line is an event's line in the history.
func (r *Records) line(at time.Time, e cluster.Event) cluster.AuditEntry {
	return cluster.AuditEntry{At: at.UTC(), By: r.ByItself(), What: string(e.Kind), Event: &e}
}

func (r *Records) add(q *queue, line cluster.AuditEntry) {
	q.mu.Lock()
	if len(q.lines) < queuedMax {
		q.lines = append(q.lines, line)
	} else {
		q.lost++
	}
	q.mu.Unlock()
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// Signal has something when there are lines to be written.
func (r *Records) Signal() <-chan struct{} { return r.signal }

// WriteAudit makes durable what was noted for the audit log.
func (r *Records) WriteAudit() error {
	_, err := r.flush(&r.changes, r.Audit)
	return err
}

// WriteHistory makes durable what was noted for the history. It is apart from WriteAudit:
// nothing waits for the history.
func (r *Records) WriteHistory() {
	some, err := r.flush(&r.events, r.History)
	if err != nil {
		r.logger.Warn("cannot write the history: trying again", "error", err)
	} else if some {
		r.look()
	}
}

// flush writes the lines that wait, and tells whether there were any. A line waits until it
// is written.
func (r *Records) flush(q *queue, l *Log) (some bool, err error) {
	q.writing.Lock()
	defer q.writing.Unlock()
	q.mu.Lock()
	lines, lost := q.lines, q.lost
	q.lost = 0
	q.mu.Unlock()
	if lost > 0 {
		r.logger.Warn("lines are missing in the audit log or the history: too many came at once", "missing", lost)
	}
	if err := l.Append(lines...); err != nil {
		return false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines = slices.Clone(q.lines[len(lines):])
	return len(lines) > 0, nil
}

// Healed writes into the history, at once, that the log was healed: the rest of this start
// may fail, and the next start finds nothing wrong.
func (r *Records) Healed(at time.Time, why string) {
	err := r.History.Open()
	if err == nil {
		err = r.History.Append(r.line(at, cluster.Event{Kind: cluster.EventHealed, Why: why}))
	}
	if err != nil {
		r.logger.Warn("cannot write into the history that the log was healed", "error", err)
	}
}

// look looks for the newest change of the primary, and for when this node's log was healed
// last, after lines were added. It waits for a disk, and a status must not: so it keeps both.
func (r *Records) look() {
	lines, err := r.History.Newest(cluster.LinesMax)
	if err != nil {
		r.logger.Warn("cannot read the history", "error", err)
		return
	}
	last := uint64(0) // its number says which line is the newest: the clock may have run ahead once
	for _, l := range lines {
		if l.Event != nil && l.Event.Kind == cluster.EventHealed && l.Node == r.node && l.Seq > last {
			last = l.Seq
			r.healed.Store(l.At.Unix())
		}
	}
	if row := cluster.NewestChange(cluster.History(lines)); row != nil {
		r.newest.Store(row)
	}
}

// LastChange is the newest change of the primary; nil = none is known.
func (r *Records) LastChange() *cluster.HistoryRow { return r.newest.Load() }

// HealedAt is when this node's log was healed last, in seconds since 1970; 0 = never.
func (r *Records) HealedAt() int64 { return r.healed.Load() }

// Rows returns the newest rows of the history, at most last, oldest first.
func (r *Records) Rows(last int) ([]cluster.HistoryRow, error) { return r.History.rows(last) }

// Each node has a copy of every line. Lines of changes of the cluster state come with
// the log. All others, and those of the history, are fetched from the node that wrote
// them, whose status says how far it is. So a node that was away gets them, too, as long
// as the writer has them and is there. A node that joins lacks the lines from before its log, and
// those that it wrote itself before it was rebuilt: it takes over both from the node that it
// copies (TakeOver).

// Ask makes a request to another node's agent, and reads the lines that are the answer.
type Ask func(ctx context.Context, to cluster.NodeID, request string, args any) ([]cluster.AuditEntry, error)

// TakeOver takes over the newest lines of another node, whoever wrote them. It opens both
// logs. Call it before the first Append: later this node's old lines are taken for known.
func (r *Records) TakeOver(ctx context.Context, from cluster.NodeID, ask Ask) error {
	take := func(request string, into *Log) error {
		lines, err := ask(ctx, from, request, cluster.LastRequest{Last: cluster.LinesMax})
		if err != nil {
			return err
		}
		if err := into.Open(); err != nil {
			return err
		}
		return into.Take(lines)
	}
	return errors.Join(take(Audit, r.Audit), take(Lines, r.History))
}

// Copy fetches what other nodes have written.
func (r *Records) Copy(ctx context.Context, nodes []status.Node, ask Ask) {
	for _, n := range nodes {
		if n.Name == r.node || !n.Reachable {
			continue
		}
		if n.AuditSeq > r.Audit.Seq(n.Name) {
			_ = r.copyLines(ctx, n, AuditSince, r.Audit, ask)
		}
		if n.HistorySeq > r.History.Seq(n.Name) && r.copyLines(ctx, n, Since, r.History, ask) {
			r.look()
		}
	}
}

// copyLines fetches the next lines of one node.
func (r *Records) copyLines(ctx context.Context, n status.Node, request string, into *Log, ask Ask) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	lines, err := ask(ctx, n.ID, request, cluster.AuditSince{Seq: into.Seq(n.Name)})
	if err == nil {
		// Only its own lines: those of other nodes come from these.
		lines = slices.DeleteFunc(lines, func(e cluster.AuditEntry) bool { return e.Node != n.Name || e.Index != 0 || e.Seq == 0 })
		err = into.Append(lines...)
	}
	if err != nil {
		r.logger.Debug("cannot copy another node's lines: trying again", "request", request, "node", n.Name, "error", err)
	}
	return err == nil
}

// NextSeq is the number of a line of this node that goes into both logs. It is behind the
// numbers of all of the node's lines there, or nodes with copies of these would not take it.
// Open both logs before.
func (r *Records) NextSeq(at time.Time) uint64 {
	return max(uint64(max(0, at.UnixMicro())), r.Audit.Seq(r.node)+1, r.History.Seq(r.node)+1)
}
