package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/history"
)

const (
	// controlRetry is the pause before the leader is looked for again.
	controlRetry = 100 * time.Millisecond
	// callGrace is what an agent has beyond a request's time to send its answer.
	callGrace = time.Second
)

// handler carries out the requests of one name.
type handler struct {
	// leader: the leader's agent does it, whoever is asked. Otherwise it is done
	// where it is asked.
	leader bool
	// timeout bounds it; 0 = control.Timeout. An answer that a person waits for has
	// api.ControlTimeout at most.
	timeout time.Duration
	// onNode: the agent of the node that the arguments name does it.
	onNode bool
	// audited: it changes something, so the audit log has a line of it.
	audited bool
	run     func(ctx context.Context, r control.Request) (done, error)
}

// done is what a handler has to tell.
type done struct {
	// result goes into the answer, as JSON.
	result any
	// index is the log entry that brought a change; 0 = none.
	index uint64
	// what says in a line what it was, for the audit log; "" = the request as it is.
	what string
	// readOnly: nothing was to be changed.
	readOnly bool
}

// handlers is the table of all requests: a new one is a line here and a function.
// One that fails returns a *control.Error where its kind matters; from leaders
// consensus.ErrNotLeader and ErrNotReady have it tried again.
func (a *Agent) handlers() map[string]handler {
	all := map[string]handler{
		"node.set":         {leader: true, audited: true, run: a.controlNodeSet},
		"cluster.set":      {leader: true, audited: true, run: a.controlClusterSet},
		"maintenance":      {leader: true, audited: true, run: a.controlMaintenance},
		"audit":            {run: a.controlAudit},
		"history":          {run: a.controlHistory},
		history.AuditSince: {run: since(a.records.Audit)},
		history.Since:      {run: since(a.records.History)},
		"log.purge":        {audited: true, timeout: purgeTimeout, run: a.controlPurge},
		"did-commit":       {timeout: didCommitTimeout, run: a.controlDidCommit},
	}
	maps.Copy(all, a.actions())
	maps.Copy(all, a.memberRequests())
	return all
}

// control has a request carried out: here, or by the leader's agent.
func (a *Agent) control(ctx context.Context, r control.Request) control.Answer {
	h, ok := a.handlers()[r.Name]
	switch {
	case !ok:
		return a.refusal(control.CodeUnknown, "node %s (quorate %s) knows no request %q", a.self.Name, a.version, r.Name)
	case r.By == "" || len(r.By) > 200 || strings.ContainsFunc(r.By, func(c rune) bool { return c < ' ' }):
		return a.refusal(control.CodeInvalid, "the request does not say in a line who asks")
	case a.node == nil && (a.out == nil || r.Name != recoverRequest) && r.Name != orderRequest:
		own := a.board.Own()
		return a.refusal(control.CodeFailed, "node %s takes no part in the cluster, and nothing was done: it is %s; ask another node",
			a.self.Name, strings.TrimSuffix(string(own.Role)+": "+own.Reason, ": "))
	}
	if h.timeout == 0 {
		h.timeout = control.Timeout
	}
	if !h.leader && !h.onNode || r.From != "" {
		ctx, cancel := context.WithTimeout(ctx, h.timeout)
		defer cancel()
		return a.carryOut(ctx, h, r)
	}
	if h.onNode {
		return a.controlOnNode(ctx, h, r)
	}
	return a.controlLeader(ctx, h, r)
}

// controlLeader finds the leader and has its agent carry a request out. parent
// bounds what the request's own time does not: the way of an answer. Without a leader
// it waits for as long as an election may take, however long the request itself may.
func (a *Agent) controlLeader(parent context.Context, h handler, r control.Request) control.Answer {
	ctx, cancel := context.WithTimeout(parent, h.timeout)
	defer cancel()
	why, leaderless := "", time.NewTimer(control.Timeout)
	defer leaderless.Stop()
	for {
		changed := a.board.Changes()
		role := a.node.Role()
		if role.Leader != 0 {
			leaderless.Reset(control.Timeout)
		}
		switch {
		case role.Leading:
			answer := a.carryOut(ctx, h, r)
			if answer.Code != control.CodeNotLeader {
				return answer
			}
			why = answer.Error
		case role.Leader != 0:
			answer, ok := a.forward(parent, h, role.Leader, r)
			if ok && answer.Code != control.CodeNotLeader {
				_ = a.waitIndex(ctx, answer.Index) // only so that this node's status shows it
				return answer
			}
			why = answer.Error
		default:
			why = a.reachable()
		}
		select {
		case <-changed:
			continue
		case <-time.After(controlRetry):
			continue
		case <-leaderless.C:
			h.timeout = min(h.timeout, control.Timeout)
		case <-ctx.Done():
		}
		a.audited(h, r, done{}, errors.New("no leader took it"))
		return a.refusal(control.CodeNoLeader, "no leader took the request within %v, nothing was done: %s", h.timeout, why)
	}
}

// reachable says how many nodes this one hears of.
func (a *Agent) reachable() string {
	nodes := a.board.Nodes()
	there := 0
	for _, n := range nodes {
		if n.Reachable {
			there++
		}
	}
	leader := "knows of no leader"
	if id := a.node.Role().Leader; id != 0 {
		leader = "takes node " + a.board.Name(id) + " for the leader"
	}
	return fmt.Sprintf("node %s %s, and hears of %d of %d nodes: \"quorate status\" says more", a.self.Name, leader, there, len(nodes))
}

// forward passes a request on to another node's agent. ok=false: it was not
// carried out, as far as anybody can know.
func (a *Agent) forward(ctx context.Context, h handler, to cluster.NodeID, r control.Request) (answer control.Answer, ok bool) {
	r.From = a.self.Name
	ctx, cancel := context.WithTimeout(ctx, h.timeout+callGrace)
	defer cancel()
	conn, answer, err := ask(ctx, a.peers, to, r)
	if errors.Is(err, errNoAnswer) {
		answer = a.refusal(control.CodeUncertain, "node %s was asked, and its answer did not come (%v): "+
			"\"quorate history\" shows whether the primary moved, \"quorate audit\" all else", a.board.Name(to), err)
		a.audited(h, r, done{}, answer.Err()) // that node writes no line if it died
		return answer, true
	}
	if err != nil {
		return control.Answer{Error: err.Error()}, false
	}
	_ = conn.Close()
	return answer, true
}

// waitIndex waits until this node knows that an entry is committed. A node that has to
// leave waits no longer: nobody may tell it, least of all of its own removal.
func (a *Agent) waitIndex(ctx context.Context, index uint64) error {
	for {
		mark, changed := a.node.Committed().Changed()
		if mark.Index >= index {
			return nil
		}
		select {
		case <-changed:
		case <-a.left:
			return a.leaving.Load()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// carryOut runs a request's handler here.
func (a *Agent) carryOut(ctx context.Context, h handler, r control.Request) control.Answer {
	if h.leader && !a.node.Role().Leading {
		return a.refusal(control.CodeNotLeader, "node %s does not lead", a.self.Name)
	}
	d, err := h.run(ctx, r)
	if !errors.Is(err, consensus.ErrNotLeader) && !errors.Is(err, consensus.ErrNotReady) { // it is asked again then
		a.audited(h, r, d, err)
	}
	if err != nil {
		code := control.CodeFailed
		if e, ok := errors.AsType[*control.Error](err); ok {
			code = e.Code
		} else if errors.Is(err, consensus.ErrNotLeader) || errors.Is(err, consensus.ErrNotReady) {
			code = control.CodeNotLeader
		}
		a.logger.Warn("request refused", "name", r.Name, "by", r.By, "from", r.From, "code", code, "error", err)
		return a.refusal(code, "%v", err)
	}
	result, err := json.Marshal(d.result)
	if err != nil {
		return a.refusal(control.CodeFailed, "encode the result, which stands: %v", err)
	}
	return control.Answer{Code: control.CodeOK, Node: a.self.Name, Index: d.index, Result: result}
}

func (a *Agent) refusal(code control.Code, format string, args ...any) control.Answer {
	return control.Answer{Code: code, Node: a.self.Name, Error: fmt.Sprintf(format, args...)}
}

// Control implements api.Provider: what comes from a person on this machine.
func (p provider) Control(ctx context.Context, r control.Request) control.Answer {
	r.From = ""
	return p.control(ctx, r)
}

// serveCall answers the request that another node's agent passed on.
func (a *Agent) serveCall(ctx context.Context, from cluster.NodeID, conn net.Conn) {
	err := conn.SetDeadline(time.Now().Add(control.Timeout))
	var r control.Request
	if err == nil {
		r, err = control.ReadRequest(conn)
		if errors.Is(err, io.EOF) {
			return // it only asks whether it is refused (askLeftBehind)
		}
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{}) // the handler has its own time
	}
	if err == nil {
		r.From = a.board.Name(from)
		answer := a.control(ctx, r)
		if err = conn.SetDeadline(time.Now().Add(callGrace)); err == nil {
			err = control.WriteAnswer(conn, answer)
		}
		if err == nil && r.Name == seedDataRequest && answer.Code == control.CodeOK {
			if err = conn.SetDeadline(time.Time{}); err == nil {
				a.serveSeedData(ctx, conn)
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		a.logger.Warn("answer another node's request", "peer", a.board.Name(from), "error", err)
	}
}

// arguments decodes a request's own arguments.
func arguments(r control.Request, to any) error {
	d := json.NewDecoder(bytes.NewReader(r.Args))
	d.DisallowUnknownFields() // what is not known cannot be done
	if err := d.Decode(to); err != nil {
		return control.Errorf(control.CodeInvalid, "read the arguments of %s: %v", r.Name, err)
	}
	return nil
}

// changeState has a change of the cluster state committed.
func (a *Agent) changeState(ctx context.Context, by string, c cluster.Change) (done, error) {
	if err := a.mayPropose(c); err != nil {
		return done{}, err
	}
	c.ID, c.By, c.At = rand.Text(), by, time.Now().UTC().Truncate(time.Millisecond)
	result, refused := cluster.ChangeResult{What: c.String()}, done{what: c.String()}
	o, err := a.node.ProposeState(ctx, c)
	switch {
	case err == nil:
		result.Changed, result.Version, result.Done = true, o.State.Version, c.Done(o.State)
		return done{result: result, index: o.Index}, nil
	case errors.Is(err, cluster.ErrUnchanged):
		result.Version = a.node.Committed().State().State.Version
		return done{result: result, readOnly: true}, nil
	case errors.Is(err, consensus.ErrNotLeader), errors.Is(err, consensus.ErrNotReady):
		return done{}, err
	case errors.Is(err, consensus.ErrStale):
		return refused, control.Errorf(control.CodeStale, "%v", consensus.ErrStale)
	case errors.Is(err, consensus.ErrUncertain), errors.Is(err, consensus.ErrStopped):
		return refused, control.Errorf(control.CodeUncertain, "%v", consensus.ErrUncertain)
	}
	return refused, refusedChange(err)
}

// refusedChange is the answer where a change is refused: for now, or as it stands.
func refusedChange(err error) error {
	if _, ok := errors.AsType[*consensus.RefusedError](err); ok || errors.Is(err, cluster.ErrMaintenance) {
		return control.Errorf(control.CodeFailed, "%v", err)
	}
	return control.Errorf(control.CodeInvalid, "%v", err)
}

// mayPropose refuses a change, or the dry run of one, that a node would not know.
func (a *Agent) mayPropose(c cluster.Change) error {
	return cmp.Or(a.allKnowState(), a.allKnow(c))
}

// allKnowState refuses a change while a node is heard of whose quorate is older
// than the cluster state: it would end at the entry.
func (a *Agent) allKnowState() error {
	for _, n := range a.board.Nodes() {
		if n.Role != "" && n.StateVersion == nil {
			return control.Errorf(control.CodeFailed, "node %s runs quorate %s, which knows no cluster state: upgrade it first",
				n.Name, n.AgentVersion)
		}
	}
	return nil
}

func (a *Agent) controlNodeSet(ctx context.Context, r control.Request) (done, error) {
	var c struct {
		cluster.NodeChange
		cluster.Ask
	}
	if err := arguments(r, &c); err != nil {
		return done{}, err
	}
	if c.Peer != nil {
		if err := checkAddress(*c.Peer); err != nil {
			return done{what: c.NodeChange.String()}, err
		}
	}
	return a.changeAs(ctx, r.By, c.Ask, cluster.Change{Node: &c.NodeChange})
}

func (a *Agent) controlMaintenance(ctx context.Context, r control.Request) (done, error) {
	var c struct {
		cluster.MaintenanceChange
		cluster.Ask
	}
	if err := arguments(r, &c); err != nil {
		return done{}, err
	}
	a.designate(&c.MaintenanceChange)
	return a.changeAs(ctx, r.By, c.Ask, cluster.Change{Maintenance: &c.MaintenanceChange})
}

// lastOf reads how many lines are asked for.
func lastOf(r control.Request) (int, error) {
	var args cluster.LastRequest
	if err := arguments(r, &args); err != nil {
		return 0, err
	}
	if args.Last < 1 || args.Last > cluster.LinesMax {
		return 0, control.Errorf(control.CodeInvalid, "--last must be 1 to %d lines, not %d", cluster.LinesMax, args.Last)
	}
	return args.Last, nil
}

// controlHistory answers what has happened, newest rows.
func (a *Agent) controlHistory(_ context.Context, r control.Request) (done, error) {
	last, err := lastOf(r)
	if err != nil {
		return done{}, err
	}
	rows, err := a.records.Rows(last)
	return done{result: rows, readOnly: true}, err
}

// since answers another node that copies lines.
func since(log *history.Log) func(context.Context, control.Request) (done, error) {
	return func(_ context.Context, r control.Request) (done, error) {
		var args cluster.AuditSince
		if err := arguments(r, &args); err != nil {
			return done{}, err
		}
		lines, err := log.Since(args.Seq)
		return done{result: lines, readOnly: true}, err
	}
}

func (a *Agent) controlAudit(_ context.Context, r control.Request) (done, error) {
	last, err := lastOf(r)
	if err != nil {
		return done{}, err
	}
	lines, err := a.records.Audit.Newest(last)
	return done{result: lines}, err
}
