package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/role"
)

const (
	// retryAfter is the pause before the leader is looked for again.
	retryAfter = 100 * time.Millisecond
	// callGrace is how long, after a request's time is over, an agent may take to send its answer.
	callGrace = time.Second
	// auditTextBytesMax bounds what an audit line says of a request.
	auditTextBytesMax = 500
)

// Handler carries out the requests of one name.
type Handler struct {
	// Leader: the leader's agent does it, whichever node is asked. Otherwise it is done
	// where it is asked.
	Leader bool
	// Timeout bounds it; 0 = control.Timeout. An answer that a person waits for has
	// api.ControlTimeout at most.
	Timeout time.Duration
	// OnNode: the agent of the node that the arguments name does it.
	OnNode bool
	// Audited: it changes something, so the audit log has a line of it.
	Audited bool
	// Here: it is not taken from another node. Nor is what is Audited and neither Leader nor OnNode.
	Here bool
	// Apart: a node that takes no part in the cluster does it, too.
	Apart bool
	// Run does it. An error is a *control.Error where its kind matters. If a leader returns
	// consensus.ErrNotLeader or ErrNotReady, it is tried again.
	Run func(ctx context.Context, r control.Request) (Done, error)
	// Then goes on with the connection of another node's agent, after an answer that is no
	// refusal; nil = the connection ends.
	Then func(ctx context.Context, r control.Request, conn net.Conn)
}

// Done is what a handler returns.
type Done struct {
	// Result goes into the answer, as JSON.
	Result any
	// Index is the log entry that brought a change; 0 = none.
	Index uint64
	// What says in a line what the request was, for the audit log; "" = the request itself is described.
	What string
	// ReadOnly: nothing was to be changed.
	ReadOnly bool
}

// Raft is the node's part in the group.
type Raft interface {
	Role() consensus.RoleState
	Committed() *consensus.Committed
	Barrier(ctx context.Context) error
	ProposeState(ctx context.Context, c cluster.Change) (consensus.StateOutcome, error)
	// CheckState checks a change, and proposes nothing.
	CheckState(ctx context.Context, c cluster.Change) error
}

// Log is a reader of the committed log. Its user closes it.
type Log interface {
	replay.CommittedLog
	Close()
}

// Node is what requests need of the node.
type Node interface {
	// Raft returns nil while the node takes no part in the cluster.
	Raft() Raft
	Peers() *transport.Transport
	// Sight is what the node sees of the cluster now, itself included.
	Sight() status.Sight
	Log() Log
	// SeedNotes say what a node that is added would copy, as far as this node knows.
	SeedNotes(ctx context.Context, c cluster.MembershipChange) []string
	// Input gives the role machine an input: something has happened.
	Input(in role.Input)
	// SessionGone tells whether a connection has ended in the mysqld of an epoch. That
	// mysqld has to be this node's, and has to run.
	SessionGone(ctx context.Context, epoch uint64, thread uint32) bool
}

// Config is what a Server needs.
type Config struct {
	// Cluster is the cluster's name.
	Cluster string
	Self    cluster.Member
	Version string
	Node    Node
	Board   *board.Board
	Records *history.Records
	Dir     datadir.Dir
	Logger  *slog.Logger
	// Left is closed once this node cannot go on as it is.
	Left <-chan struct{}
}

// ErrLeft ends a wait of a node that has to leave.
var ErrLeft = errors.New("this node cannot go on as it is")

// Server carries out the requests that come to one node.
type Server struct {
	Config
	all map[string]Handler
}

// New makes a server of the requests that need no more than a Node.
func New(c Config) *Server {
	s := &Server{Config: c}
	members := func(run func(context.Context, control.Request, cluster.MembershipRequest) (Done, error)) Handler {
		return Handler{Leader: true, Audited: true, Timeout: membersTimeout, Run: Typed(run)}
	}
	s.all = map[string]Handler{
		"node.set":         {Leader: true, Audited: true, Run: Typed(s.nodeSet)},
		"node.add":         members(s.nodeAdd),
		"node.promote":     members(s.nodePromote),
		"node.demote":      members(s.nodeDemote),
		"node.remove":      members(s.nodeRemove),
		"node.rebuild":     members(s.nodeRebuild),
		"node.key":         {Leader: true, Audited: true, Run: Typed(s.nodeKey)},
		"cluster.set":      {Leader: true, Audited: true, Run: Typed(s.clusterSet)},
		"maintenance":      {Leader: true, Audited: true, Run: Typed(s.maintenance)},
		"fence":            {OnNode: true, Audited: true, Timeout: 2 * fenceWait, Run: Typed(s.fence)},
		"unfence":          {OnNode: true, Audited: true, Timeout: 2 * fenceWait, Run: Typed(s.unfence)},
		history.Audit:      {Run: Typed(newest(c.Records.Audit))},
		history.Lines:      {Run: Typed(newest(c.Records.History))},
		"history":          {Run: Typed(s.history)},
		history.AuditSince: {Run: Typed(since(c.Records.Audit))},
		history.Since:      {Run: Typed(since(c.Records.History))},
		"did-commit":       {Timeout: didCommitTimeout, Run: Typed(s.didCommitRequest)},
	}
	return s
}

// Handle adds requests. Call it before Serve.
func (s *Server) Handle(more map[string]Handler) { maps.Copy(s.all, more) }

// Barrier returns once this node knows all that was committed anywhere before.
func (s *Server) Barrier(ctx context.Context) error {
	raft := s.Node.Raft()
	if raft == nil {
		return consensus.ErrNotLeader
	}
	return raft.Barrier(ctx)
}

// ByItself names this node as the author of what no operator has asked for.
func (s *Server) ByItself() string { return s.Records.ByItself() }

// Serve has a request carried out: here, or by the leader's agent.
func (s *Server) Serve(ctx context.Context, r control.Request) control.Answer {
	h, ok := s.all[r.Name]
	switch {
	case !ok:
		return s.refusal(control.CodeUnknown, "node %s (quorate %s) knows no request %q", s.Self.Name, s.Version, r.Name)
	case r.By == "" || len(r.By) > 200 || strings.ContainsFunc(r.By, func(c rune) bool { return c < ' ' }):
		return s.refusal(control.CodeInvalid, "the requester must be named, in one line")
	case s.Node.Raft() == nil && !h.Apart:
		return s.refusal(control.CodeFailed, "%v", s.NoPart())
	}
	if h.Timeout == 0 {
		h.Timeout = control.Timeout
	}
	if !h.Leader && !h.OnNode || r.From != "" {
		ctx, cancel := context.WithTimeout(ctx, h.Timeout)
		defer cancel()
		return s.carryOut(ctx, h, r)
	}
	if h.OnNode {
		return s.toNode(ctx, h, r)
	}
	return s.toLeader(ctx, h, r)
}

// NoPart is why a node that takes no part in the cluster refuses.
func (s *Server) NoPart() error {
	own := s.Board.Own()
	return control.Errorf(control.CodeFailed, "node %s takes no part in the cluster, and nothing was done: it is %s; ask another node",
		s.Self.Name, strings.TrimSuffix(string(own.Role)+": "+own.Reason, ": "))
}

// toLeader finds the leader and has its agent carry a request out. The request's own time
// does not include the way of the answer: parent bounds that. Without a leader toLeader
// waits for as long as an election may take, even if the request itself may take longer.
func (s *Server) toLeader(parent context.Context, h Handler, r control.Request) control.Answer {
	ctx, cancel := context.WithTimeout(parent, h.Timeout)
	defer cancel()
	why, leaderless := "", time.NewTimer(control.Timeout)
	defer leaderless.Stop()
	for {
		changed := s.Board.Changes()
		role := s.Node.Raft().Role()
		if role.Leader != 0 {
			leaderless.Reset(control.Timeout)
		}
		switch {
		case role.Leading:
			answer := s.carryOut(ctx, h, r)
			if answer.Code != control.CodeNotLeader {
				return answer
			}
			why = answer.Error
		case role.Leader != 0:
			answer, ok := s.Forward(parent, h, role.Leader, r)
			if ok && answer.Code != control.CodeNotLeader {
				_ = s.WaitIndex(ctx, answer.Index) // only so that this node's status shows it
				return answer
			}
			why = answer.Error
		default:
			why = s.reachable()
		}
		select {
		case <-changed:
			continue
		case <-time.After(retryAfter):
			continue
		case <-leaderless.C:
			h.Timeout = min(h.Timeout, control.Timeout)
		case <-ctx.Done():
		}
		s.audited(h, r, Done{}, errors.New("no leader took the request"))
		return s.refusal(control.CodeNoLeader, "no leader took the request within %v, nothing was done: %s", h.Timeout, why)
	}
}

// reachable says how many nodes this one hears.
func (s *Server) reachable() string {
	nodes := s.Board.Nodes()
	there := 0
	for _, n := range nodes {
		if n.Reachable {
			there++
		}
	}
	leader := "knows of no leader"
	if id := s.Node.Raft().Role().Leader; id != 0 {
		leader = "takes node " + s.Board.Name(id) + " for the leader"
	}
	return fmt.Sprintf("node %s %s, and hears of %d of %d nodes: \"quorate status\" says more", s.Self.Name, leader, there, len(nodes))
}

// Forward passes a request on to another node's agent. ok=false: it was not
// carried out, as far as that can be known.
func (s *Server) Forward(ctx context.Context, h Handler, to cluster.NodeID, r control.Request) (answer control.Answer, ok bool) {
	r.From = s.Self.Name
	ctx, cancel := context.WithTimeout(ctx, h.Timeout+callGrace)
	defer cancel()
	conn, answer, err := Ask(ctx, s.Node.Peers(), to, r)
	if errors.Is(err, ErrNoAnswer) && (h.Audited || !h.OnNode) { // else nothing was to be changed
		answer = s.refusal(control.CodeUncertain, "node %s was asked, and its answer did not come (%v): "+
			"\"quorate history\" shows whether the primary moved, \"quorate audit\" all else", s.Board.Name(to), err)
		s.audited(h, r, Done{}, answer.Err()) // that node writes no line if it died
		return answer, true
	}
	if err != nil {
		return control.Answer{Error: err.Error()}, false
	}
	_ = conn.Close()
	return answer, true
}

// WaitIndex waits until this node knows that an entry is committed. A node that has to
// leave waits no longer: perhaps nobody tells it, least of all of its own removal.
func (s *Server) WaitIndex(ctx context.Context, index uint64) error {
	for {
		mark, changed := s.Node.Raft().Committed().Changed()
		if mark.Index >= index {
			return nil
		}
		select {
		case <-changed:
		case <-s.Left:
			return ErrLeft
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// carryOut runs a request's handler here.
func (s *Server) carryOut(ctx context.Context, h Handler, r control.Request) control.Answer {
	if h.Leader && !s.Node.Raft().Role().Leading {
		return s.refusal(control.CodeNotLeader, "node %s does not lead", s.Self.Name)
	}
	var d Done
	err := h.refuseFromAfar(r)
	if err == nil {
		d, err = h.Run(ctx, r)
	}
	if !errors.Is(err, consensus.ErrNotLeader) && !errors.Is(err, consensus.ErrNotReady) { // it is asked again then
		s.audited(h, r, d, err)
	}
	if err != nil {
		code := control.CodeFailed
		if e, ok := errors.AsType[*control.Error](err); ok {
			code = e.Code
		} else if errors.Is(err, consensus.ErrNotLeader) || errors.Is(err, consensus.ErrNotReady) {
			code = control.CodeNotLeader
		}
		s.Logger.Warn("request refused", "name", r.Name, "by", r.By, "from", r.From, "code", code, "error", err)
		return s.refusal(code, "%v", err)
	}
	if h.Audited && r.From != "" { // only that node can vouch for who has asked there
		s.Logger.Info("carried out what another node passed on", "name", r.Name, "by", r.By, "from", r.From)
	}
	result, err := json.Marshal(d.Result)
	if err != nil {
		return s.refusal(control.CodeFailed, "the request was carried out, but its result cannot be encoded: %v", err)
	}
	return control.Answer{Code: control.CodeOK, Node: s.Self.Name, Index: d.Index, Result: result}
}

// refuseFromAfar refuses a request from another node that no agent passes on: it is for the agent that is asked.
func (h Handler) refuseFromAfar(r control.Request) error {
	if r.From == "" || !h.Here && (!h.Audited || h.Leader || h.OnNode) {
		return nil
	}
	return control.Errorf(control.CodeInvalid, "%s is for the node on which it is asked: it is not taken from node %s", r.Name, r.From)
}

func (s *Server) refusal(code control.Code, format string, args ...any) control.Answer {
	return control.Answer{Code: code, Node: s.Self.Name, Error: fmt.Sprintf(format, args...)}
}

// ServeCall answers the request that another node's agent passed on.
func (s *Server) ServeCall(ctx context.Context, from cluster.NodeID, conn net.Conn) {
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
		r.From = s.Board.Name(from)
		answer := s.Serve(ctx, r)
		if err = conn.SetDeadline(time.Now().Add(callGrace)); err == nil {
			err = control.WriteAnswer(conn, answer)
		}
		if then := s.all[r.Name].Then; err == nil && then != nil && answer.Code == control.CodeOK {
			if err = conn.SetDeadline(time.Time{}); err == nil {
				then(ctx, r, conn)
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		s.Logger.Warn("cannot answer another node's request", "peer", s.Board.Name(from), "error", err)
	}
}

// Typed makes a Handler's Run from a function that takes the request's own arguments.
func Typed[T any](run func(context.Context, control.Request, T) (Done, error)) func(context.Context, control.Request) (Done, error) {
	return func(ctx context.Context, r control.Request) (Done, error) {
		var args T
		if err := Arguments(r, &args); err != nil {
			return Done{}, err
		}
		return run(ctx, r, args)
	}
}

// Arguments decodes a request's own arguments.
func Arguments(r control.Request, to any) error {
	d := json.NewDecoder(bytes.NewReader(r.Args))
	d.DisallowUnknownFields() // a field that is not known cannot be obeyed
	if err := d.Decode(to); err != nil {
		return control.Errorf(control.CodeInvalid, "read the arguments of %s: %v", r.Name, err)
	}
	return nil
}

// audited writes a line about what became of an operator's request here. A change that
// was committed gets its line by that (Records.Committed).
func (s *Server) audited(h Handler, r control.Request, d Done, err error) {
	if !h.Audited || d.ReadOnly || err == nil && d.Index != 0 || dryRun(r) {
		return
	}
	line := cluster.AuditEntry{At: time.Now().UTC().Truncate(time.Millisecond), By: r.By, What: d.What, Result: "done"}
	if line.What == "" {
		line.What = describe(r)
	}
	if err != nil {
		line.Result = fmt.Sprintf("not done: %.*s", auditTextBytesMax, err)
		if e, ok := errors.AsType[*control.Error](err); ok && e.Code == control.CodeUncertain {
			line.Result = fmt.Sprintf("not known: %.*s", auditTextBytesMax, err)
		}
	}
	if err := s.Records.Audit.Append(line); err != nil {
		s.Logger.Warn("cannot write the audit log", "line", line.What, "by", line.By, "result", line.Result, "error", err)
	}
}

// dryRun tells whether a request asks only what it would do.
func dryRun(r control.Request) bool {
	var how cluster.Ask
	return json.Unmarshal(r.Args, &how) == nil && how.DryRun
}

// onNode finds the node that a request is about.
func (s *Server) onNode(r control.Request) (cluster.NodeID, error) {
	var about struct {
		Node string `json:"node"`
	}
	if err := json.Unmarshal(r.Args, &about); err != nil {
		return 0, control.Errorf(control.CodeInvalid, "read the arguments of %s: %v", r.Name, err)
	}
	m, err := s.Board.State().Member(about.Node)
	if err != nil {
		return 0, control.Errorf(control.CodeInvalid, "%v", err)
	}
	return m.ID, nil
}

// toNode has the agent of the node that a request is about carry it out.
func (s *Server) toNode(ctx context.Context, h Handler, r control.Request) control.Answer {
	id, err := s.onNode(r)
	if err != nil {
		s.audited(h, r, Done{}, err)
		return s.refusal(control.CodeInvalid, "%v", err)
	}
	if id != s.Self.ID {
		answer, ok := s.Forward(ctx, h, id, r)
		if !ok {
			answer = s.refusal(control.CodeFailed, "node %s cannot be asked, nothing was done: %s", s.Board.Name(id), answer.Error)
			s.audited(h, r, Done{}, answer.Err())
		}
		return answer
	}
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	return s.carryOut(ctx, h, r)
}
