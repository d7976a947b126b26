package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/prepared"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// switchoverTimeout bounds a switchover from its request to its answer.
	switchoverTimeout = 100 * time.Second
	// Bounds of what a switchover may be asked for.
	maxPauseMin = 500 * time.Millisecond
	maxPauseMax = 20 * time.Second
	waitMax     = time.Minute
	// nearEnough is how fast the other node has to have everything that was
	// committed when it was asked, or it is asked again.
	nearEnough = 100 * time.Millisecond
	// successorWait bounds how long a new primary is looked for once leadership
	// was asked away.
	successorWait = 30 * time.Second
	// lookAgain is the pause before it is looked again where nothing tells of a change.
	lookAgain = 100 * time.Millisecond
)

// runPlan has the role machine carry a plan out, and returns once that has ended: the plan goes
// on if whoever asked goes away. The error says why it came to nothing.
func (a *Agent) runPlan(in role.Input, o *primary.Order) error {
	ctx, cancel := context.WithTimeout(a.ctx, switchoverTimeout)
	defer cancel()
	switch reason, err := a.Orders.Run(ctx, o, func() { a.input(in) }); {
	case errors.Is(err, primary.ErrPlanUnderWay):
		return control.Errorf(control.CodeFailed, "%v on node %s", err, a.self.Name)
	case err != nil:
		return control.Errorf(control.CodeUncertain, "it has not ended within %v: see the status", switchoverTimeout)
	case reason != "":
		return control.Errorf(control.CodeFailed, "node %s: %s", a.self.Name, reason)
	}
	return nil
}

// controlSwitchover moves the primary to another node in order.
func (a *Agent) controlSwitchover(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SwitchoverRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	s, err := a.switchover(ctx, r.By, args)
	d := operate.Done{Result: s, ReadOnly: args.DryRun || err == nil && s.From == s.To}
	if s.From != "" {
		d.What = fmt.Sprintf("switchover from %s to %s", s.From, cmp.Or(s.To, args.To, "the best node"))
	}
	return d, err
}

func (a *Agent) switchover(ctx context.Context, by string, args cluster.SwitchoverRequest) (cluster.Switchover, error) {
	switch {
	case args.MaxPause < maxPauseMin || args.MaxPause > maxPauseMax:
		return cluster.Switchover{}, control.Errorf(control.CodeInvalid, "--max-pause must be %s to %s, not %s", units.Duration(maxPauseMin), units.Duration(maxPauseMax), units.Duration(args.MaxPause))
	case args.Wait < 0 || args.Wait > waitMax:
		return cluster.Switchover{}, control.Errorf(control.CodeInvalid, "--wait must be 0s to %s, not %s", units.Duration(waitMax), units.Duration(args.Wait))
	}
	s, p, err := a.planSwitchover(ctx, args)
	if err != nil || args.DryRun {
		s.Notes = append(s.Notes, p.notes...)
		return s, err
	}
	to := p.to
	switch {
	case len(s.Blocks) > 0:
		return s, control.Errorf(control.CodeFailed, "%s", strings.Join(s.Blocks, "; "))
	case to == a.self.ID && s.From != "":
		return s, nil
	case a.board.Own().Role != status.RolePrimary: // in maintenance: see planSwitchover
		return a.appoint(ctx, by, s, to)
	}
	began := time.Now()
	if err := a.awaitSmallLag(ctx, to, by, args); err != nil {
		return s, err
	}
	if took := time.Since(began); took > args.MaxPause {
		s.Notes = append(s.Notes, fmt.Sprintf("%s needed %.1f s to catch up before writes were closed", s.To, took.Seconds()))
	}
	if s, err = a.moveTo(ctx, by, s, to, args.MaxPause); err == nil && p.open > 0 {
		s.Notes = append(s.Notes, units.Count(p.open, "session was in a transaction", "sessions were in a transaction")+
			" before: what had not committed was rolled back")
	}
	return s, err
}

// switchoverPlan is what a switchover would do.
type switchoverPlan struct {
	to cluster.NodeID
	// notes are of what is to come.
	notes []string
	// open sessions are in a transaction.
	open int
}

// planSwitchover says to whom a switchover would go, and what is in its way.
func (a *Agent) planSwitchover(ctx context.Context, args cluster.SwitchoverRequest) (s cluster.Switchover, p switchoverPlan, err error) {
	own, state := a.ownStatus(), a.board.State()
	s = cluster.Switchover{From: own.Name, DryRun: args.DryRun}
	if args.To != "" {
		if _, err := state.Member(args.To); err != nil {
			return s, p, control.Errorf(control.CodeInvalid, "%v", err)
		}
	}
	if own.Role != status.RolePrimary {
		s.From = ""
		hint := ""
		if state.Maintenance != nil {
			hint = "; maintenance is on: --to NODE says which node may open"
		}
		if state.Maintenance == nil || args.To == "" {
			return s, p, control.Errorf(control.CodeFailed, "there is no primary to move: node %s leads and is %s%s", own.Name, own.Role, hint)
		}
	}
	if args.To == own.Name {
		s.To, s.Why = own.Name, "it is the primary already"
		if own.Role != status.RolePrimary {
			s.Why = "it leads, and becomes the node that may open"
		}
		return s, switchoverPlan{to: own.ID}, nil
	}
	peers := a.board.ForRole(own)
	choice := role.Choose(own.ID, peers.Peers, args.To)
	if choice.Refused != "" {
		s.Blocks = append(s.Blocks, choice.Refused)
		return s, p, nil
	}
	s.To, s.Why, p.to = choice.To.Name, choice.Why, choice.To.ID
	if state.Maintenance != nil {
		s.Notes = append(s.Notes, "maintenance is on: "+s.To+" becomes the node that may open")
	}
	if own.Role != status.RolePrimary {
		return s, p, nil // nothing is waited for, or closed
	}
	for _, n := range a.board.Nodes() {
		if n.ID == p.to && n.BacklogSeconds() > args.MaxPause.Seconds() {
			p.notes = append(p.notes, fmt.Sprintf("%s needs about %.1f s to catch up: that is waited for first, %v at most", s.To, n.BacklogSeconds(), args.Wait))
		}
	}
	err = a.whatBlocks(ctx, &s, &p, args.MaxPause)
	return s, p, err
}

// whatBlocks looks at what runs in the primary's mysqld.
func (a *Agent) whatBlocks(ctx context.Context, s *cluster.Switchover, p *switchoverPlan, maxPause time.Duration) error {
	admin, err := a.admin()
	if err != nil {
		return err
	}
	writers, err := admin.SlowWriters(ctx, 0)
	if err != nil {
		return err
	}
	blocks, note := judgeWriters(writers, maxPause)
	s.Blocks = append(s.Blocks, blocks...)
	if note != "" {
		p.notes = append(p.notes, note)
	}
	pending, err := admin.PendingXA(ctx)
	if err != nil {
		return err
	}
	if pending > 0 {
		s.Blocks = append(s.Blocks, primary.XABlocks(pending))
	}
	if p.open, err = admin.OpenTransactions(ctx); err != nil {
		return err
	}
	if p.open > 0 {
		p.notes = append(p.notes, units.Count(p.open, "session is in a transaction", "sessions are in a transaction")+
			": what has not committed by then is rolled back")
	}
	return nil
}

// judgeWriters says of which statements that write a switchover does not begin, and
// which of the others could have it called off.
func judgeWriters(writers []mysqld.Session, maxPause time.Duration) (blocks []string, note string) {
	var short []mysqld.Session
	for _, w := range writers {
		if time.Duration(w.Seconds)*time.Second < max(time.Second, maxPause/2) {
			short = append(short, w)
			continue
		}
		blocks = append(blocks, fmt.Sprintf("a statement that writes is under way (%v): closing writes would wait for it, and all other writes behind it", w))
	}
	if len(short) > 0 {
		note = fmt.Sprintf("%s now (%s): a switchover is called off if writes cannot be closed within %s",
			units.Count(len(short), "statement writes", "statements write"), sessionList(short), units.Duration(maxPause))
	}
	return blocks, note
}

// sessionsShownMax bounds the sessions that a sentence names.
const sessionsShownMax = 3

func sessionList(sessions []mysqld.Session) string {
	var names []string
	for i, s := range sessions {
		if i == sessionsShownMax {
			names = append(names, "…")
			break
		}
		names = append(names, s.String())
	}
	return strings.Join(names, "; ")
}

// askTarget asks another node's agent to wait until it has applied everything up to
// an index; with a term, also to take leadership of the next one for its own.
func (a *Agent) askTarget(ctx context.Context, to cluster.NodeID, by string, t targetRequest) error {
	if deadline, ok := ctx.Deadline(); ok {
		t.Within = time.Until(deadline)
	}
	raw, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	answer, ok := a.requests.Forward(ctx, operate.Handler{Timeout: waitMax}, to, control.Request{Name: "switchover.target", By: by, Args: raw})
	if !ok {
		return fmt.Errorf("ask node %s: %s", a.board.Name(to), answer.Error)
	}
	return answer.Err()
}

// awaitSmallLag waits until the other node is so close that it will have everything
// in no time once writes are closed.
func (a *Agent) awaitSmallLag(ctx context.Context, to cluster.NodeID, by string, args cluster.SwitchoverRequest) error {
	ctx, cancel := context.WithTimeout(ctx, max(args.Wait, control.Timeout))
	defer cancel()
	for first := time.Now(); ; {
		began := time.Now()
		err := a.askTarget(ctx, to, by, targetRequest{Index: a.Raft.Committed().Mark().Index})
		switch {
		case err != nil:
			return control.Errorf(control.CodeFailed, "node %s has not caught up, writes were not touched: %v", a.board.Name(to), err)
		case time.Since(began) <= nearEnough:
			return nil
		case time.Since(first) > args.Wait:
			return control.Errorf(control.CodeFailed, "node %s has not caught up within %v and is still %v behind; writes were not touched",
				a.board.Name(to), args.Wait, time.Since(began).Round(time.Millisecond))
		}
	}
}

// moveTo closes writes, waits for the other node, and hands over.
func (a *Agent) moveTo(ctx context.Context, by string, s cluster.Switchover, to cluster.NodeID, maxPause time.Duration) (cluster.Switchover, error) {
	maintenance := a.board.State().Maintenance
	if maintenance != nil { // before: nobody else may open
		if _, err := a.requests.ChangeState(ctx, by, cluster.Change{Maintenance: appointed(*maintenance, s.To)}); err != nil {
			return s, err
		}
	}
	term := a.Raft.Role().Term
	m := primary.NewOrder(by, true, maxPause, clock.Machine{})
	err := a.runPlan(role.Move{To: to, Reason: "switchover asked for by " + by}, m)
	if err == nil {
		err = a.awaitSuccessor(&s, m, term)
	}
	if err == nil {
		return s, nil
	}
	if maintenance != nil && a.Raft.Role().Leading {
		_, back := a.requests.ChangeState(context.WithoutCancel(ctx), by, cluster.Change{Maintenance: appointed(*maintenance, a.self.Name)})
		err = errors.Join(err, back)
	}
	return s, a.calledOff(m, err)
}

// calledOff says of a plan that has failed whether writes are open again.
func (a *Agent) calledOff(m *primary.Order, err error) error {
	if !m.Closing() {
		return err
	}
	closed := m.ClosedFor().Round(time.Millisecond)
	switch role := a.board.Own().Role; {
	case role == status.RolePrimary:
		return control.Errorf(control.CodeFailed, "called off, writes were closed for %v and are open again on node %s: %v", closed, a.self.Name, err)
	default:
		return control.Errorf(control.CodeFailed, "not done, writes were closed %v ago and node %s is %s now, see the status: %v", closed, a.self.Name, role, err)
	}
}

// awaitSuccessor waits until another node is the primary, and this one's mysqld
// follows it.
func (a *Agent) awaitSuccessor(s *cluster.Switchover, m *primary.Order, term uint64) error {
	ctx, cancel := context.WithTimeout(a.ctx, successorWait)
	defer cancel()
	for {
		changed := a.board.Changes()
		own := a.board.Own()
		id, ok := a.board.Primary()
		switch {
		case ok && s.PauseMs == 0:
			s.PauseMs = float64(m.ClosedFor().Microseconds()) / 1e3
			if s.To != a.board.Name(id) {
				s.Notes = append(s.Notes, "not "+s.To+" but "+a.board.Name(id)+" took over")
				s.To = a.board.Name(id)
			}
			continue
		case ok && own.Role == status.RoleReplica:
			return nil
		case own.Role == status.RolePrimary && own.Term > term:
			return fmt.Errorf("node %s did not take leadership, this node serves again", s.To)
		}
		select {
		case <-changed:
		case <-time.After(lookAgain): // a peer's silence is no change
		case <-ctx.Done():
			if s.PauseMs != 0 {
				s.Notes = append(s.Notes, "node "+a.self.Name+" is not a replica yet")
				return nil
			}
			return errors.New("no new primary is known: see the status")
		}
	}
}

// appointed is the change that lets a node open while maintenance is on.
func appointed(m cluster.Maintenance, name string) *cluster.MaintenanceChange {
	return &cluster.MaintenanceChange{On: true, Reason: m.Reason, Primary: name}
}

// appoint lets another node open while maintenance is on and nobody is the primary:
// the role machine hands over to it.
func (a *Agent) appoint(ctx context.Context, by string, s cluster.Switchover, to cluster.NodeID) (cluster.Switchover, error) {
	m := a.board.State().Maintenance
	if m == nil {
		return s, control.Errorf(control.CodeStale, "maintenance has just ended: look at the status")
	}
	_, err := a.requests.ChangeState(ctx, by, cluster.Change{Maintenance: appointed(*m, a.board.Name(to))})
	return s, err
}

// targetRequest is what a primary asks of the node that is to follow it.
type targetRequest struct {
	// Index is what has to be committed and applied there.
	Index uint64 `json:"index"`
	// Term: the leader of this term is about to hand over; 0 = not yet.
	Term   uint64        `json:"term,omitempty"`
	Within time.Duration `json:"within_ns"`
}

// controlTarget waits, at the target of a switchover, until it could follow.
func (a *Agent) controlTarget(ctx context.Context, r control.Request) (operate.Done, error) {
	var args targetRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	if r.From == "" {
		return operate.Done{}, control.Errorf(control.CodeInvalid, "%s goes between agents", r.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, args.Within)
	defer cancel()
	if err := a.Duties.Follow(ctx, args.Index, args.Term); err != nil {
		return operate.Done{}, err
	}
	return operate.Done{ReadOnly: true}, nil
}

// Applied implements primary.TargetServer.
func (s localServer) Applied(ctx context.Context, set *gtid.Set) error {
	return s.WaitApplied(ctx, set.String())
}

// NoForeignXA implements primary.TargetServer.
func (s localServer) NoForeignXA(ctx context.Context) error {
	err := s.agent.foreignXA.Undone(ctx, s)
	if errors.Is(err, prepared.ErrEnded) {
		return fmt.Errorf("%w: its mysqld must start again first: quorate restart-mysqld %s", err, s.agent.self.Name)
	}
	return err
}

// EndedXA implements primary.PlanServer.
func (s localServer) EndedXA(sessions int) {
	s.agent.logger.Warn("ended sessions that were in an XA transaction when writes were closed", "sessions", sessions)
}

// NotClosed says which sessions kept writes from being closed in time. They are closed
// to the others until it has looked.
func (s localServer) NotClosed(err error) error {
	if !errors.Is(err, mysqld.ErrWritesPending) {
		return err
	}
	ctx, cancel := context.WithTimeout(s.agent.ctx, primary.OpenTime/2)
	defer cancel()
	writers, look := s.SlowWriters(ctx, 0)
	if look != nil || len(writers) == 0 { // it has just ended, or mysqld is slow
		return err
	}
	return errors.New(heldBy(writers))
}

// heldBy says what to do about sessions, of which the first has written for longest.
func heldBy(writers []mysqld.Session) string {
	return fmt.Sprintf("closing writes waited for %s: %s; wait until it is done, or end the session (KILL %d), or give more time (--max-pause), and try again",
		units.Count(len(writers), "statement that writes", "statements that write"), sessionList(writers), writers[0].ID)
}

// AskTarget implements primary.Host.
func (h host) AskTarget(ctx context.Context, to cluster.NodeID, o *primary.Order, index, term uint64) error {
	if err := h.askTarget(ctx, to, o.By, targetRequest{Index: index, Term: term}); err != nil {
		return fmt.Errorf("wait for node %s within %v: %w", h.board.Name(to), o.Limit, err)
	}
	return nil
}
