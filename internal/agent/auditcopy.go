package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
)

const (
	// auditSince is the request for lines of another node's audit log, between agents.
	auditSince = "audit.since"
	// auditCopyEvery is how often it is looked whether other nodes have new lines.
	auditCopyEvery = time.Second
	// auditCopyMax bounds the lines of one answer; there may be another.
	auditCopyMax = 500
	// auditCopyTimeout bounds one request.
	auditCopyTimeout = 2 * time.Second
)

// Each node has a copy of every line: those of changes of the cluster state come
// with the log, all others, and those of the history, are fetched from the node that
// wrote them, whose status says how far it is. So a node that was away gets them, too,
// as long as the writer has them and is there. The log of a node that joins begins late: it takes over the
// audit log of the node that it copies.

// copyAudit takes over what the audit log of the node has that is copied.
func (j *joiner) copyAudit(ctx context.Context, plan seedPlan) error {
	from, err := plan.State.State.Member(plan.Node)
	if err != nil {
		return err
	}
	var lines []cluster.AuditEntry
	if err := j.request(ctx, from.ID, "audit", cluster.LastRequest{Last: cluster.LinesMax}, &lines); err != nil {
		return err
	}
	audit := &j.a.state.audit
	if err := audit.open(j.a.data.Join(auditFile), j.a.self.Name); err != nil {
		return err
	}
	return audit.take(lines)
}

// take adds the lines of another node's audit log, in any order, but for those that
// are here.
func (a *auditLog) take(lines []cluster.AuditEntry) error {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l cluster.AuditEntry) bool { return l.Index == 0 && l.Seq == 0 })
	slices.SortStableFunc(lines, func(x, y cluster.AuditEntry) int {
		return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.Seq, y.Seq))
	})
	return a.append(lines...)
}

// runAudit fetches what other nodes have written into their audit logs.
func (a *Agent) runAudit(ctx context.Context) error {
	return every(ctx, auditCopyEvery, func() error {
		for _, n := range a.board.Nodes() {
			if n.ID == a.self.ID || !n.Reachable {
				continue
			}
			for _, c := range []copyOfLines{
				{auditSince, &a.state.audit, n.AuditSeq}, {historySince, &a.state.history, n.HistorySeq},
			} {
				if c.newest <= c.log.seqOf(n.Name) {
					continue
				}
				if err := a.copyLines(ctx, n, c); err != nil {
					a.logger.Debug("copy another node's lines: it is tried again", "request", c.request, "node", n.Name, "error", err)
				}
			}
		}
		return nil
	})
}

// copyOfLines is a log of which other nodes have lines, and how far one of them is.
type copyOfLines struct {
	request string
	log     *auditLog
	newest  uint64
}

// copyLines fetches the next lines of one node.
func (a *Agent) copyLines(ctx context.Context, n cluster.NodeStatus, c copyOfLines) error {
	raw, err := json.Marshal(cluster.AuditSince{Seq: c.log.seqOf(n.Name)})
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, auditCopyTimeout)
	defer cancel()
	request := control.Request{Name: c.request, By: a.byItself(), Args: raw}
	answer, ok := a.forward(ctx, handler{timeout: auditCopyTimeout}, n.ID, request)
	if !ok {
		return fmt.Errorf("ask: %s", answer.Error)
	}
	if err := answer.Err(); err != nil {
		return err
	}
	var lines []cluster.AuditEntry
	if err := json.Unmarshal(answer.Result, &lines); err != nil {
		return fmt.Errorf("decode lines: %w", err)
	}
	// Only its own: what it says of others is theirs to say.
	lines = slices.DeleteFunc(lines, func(l cluster.AuditEntry) bool { return l.Node != n.Name || l.Index != 0 || l.Seq == 0 })
	if err := c.log.append(lines...); err != nil {
		return err
	}
	if c.log == &a.state.history {
		a.noteLastChange()
	}
	return nil
}

// controlSince answers another node's copyLines.
func controlSince(log *auditLog, r control.Request) (done, error) {
	var args cluster.AuditSince
	if err := arguments(r, &args); err != nil {
		return done{}, err
	}
	lines, err := log.since(args.Seq)
	return done{result: lines, readOnly: true}, err
}

// seqOf is the highest number that there is of a node's lines.
func (a *auditLog) seqOf(node string) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seqs[node]
}

// since returns the oldest of this node's own lines behind a number.
func (a *auditLog) since(seq uint64) ([]cluster.AuditEntry, error) {
	a.files.Lock()
	defer a.files.Unlock()
	lines, err := a.read()
	lines = slices.DeleteFunc(lines, func(l cluster.AuditEntry) bool { return l.Node != a.node || l.Seq <= seq })
	return lines[:min(len(lines), auditCopyMax)], err
}

// number numbers lines, and leaves out those that are there already: seqs and last
// are what append keeps once they are written. A number is a time, so that it goes
// on growing when this node's data were made anew.
func (a *auditLog) number(lines []cluster.AuditEntry) (fresh []cluster.AuditEntry, seqs map[string]uint64, last uint64) {
	seqs, last = maps.Clone(a.seqs), a.last
	for _, l := range lines {
		switch {
		case l.Index != 0 && l.Index <= last, l.Seq != 0 && l.Seq <= seqs[l.Node]:
			continue
		case l.Index != 0:
			last = l.Index
		case l.Seq == 0:
			l.Node, l.Seq = a.node, max(seqs[a.node]+1, uint64(max(0, l.At.UnixMicro())))
		}
		if l.Seq != 0 {
			seqs[l.Node] = l.Seq
		}
		fresh = append(fresh, l)
	}
	return fresh, seqs, last
}

// describe says in a line what a request asks for, if it did not come so far that
// its handler said it.
func describe(r control.Request) string {
	text := inWords(r)
	if text == "" {
		text = r.Name + " " + string(r.Args)
	}
	return text[:min(len(text), auditTextBytesMax)]
}

// inWords says what an operator's request asks for; "" = it cannot be read.
func inWords(r control.Request) string {
	switch r.Name {
	case "node.set":
		return spoken[cluster.NodeChange](r.Args)
	case "cluster.set":
		return spoken[cluster.SettingsChange](r.Args)
	case "maintenance":
		return spoken[cluster.MaintenanceChange](r.Args)
	case "switchover":
		return spoken[cluster.SwitchoverRequest](r.Args)
	case "restart":
		return spoken[cluster.RestartRequest](r.Args)
	case "log.purge":
		return spoken[cluster.PurgeRequest](r.Args)
	}
	if text := spoken[cluster.FenceRequest](r.Args); r.Name == "fence" || r.Name == "unfence" {
		return strings.TrimSpace(r.Name + " " + text)
	}
	op, member := strings.CutPrefix(r.Name, "node.")
	var asked cluster.MembershipRequest
	if !member || json.Unmarshal(r.Args, &asked) != nil {
		return ""
	}
	asked.Change.Op = cluster.MembershipOp(op)
	return asked.Change.String()
}

// spoken reads a request's arguments and says them; "" = they cannot be read.
func spoken[T fmt.Stringer](args json.RawMessage) string {
	var asked T
	if json.Unmarshal(args, &asked) != nil {
		return ""
	}
	return asked.String()
}
