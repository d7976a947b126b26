package switchover

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// requestTarget is the request to the node that is to follow.
const requestTarget = "switchover.target"

// switchover moves the primary to another node in order.
func (v *Service) switchover(ctx context.Context, r control.Request, args cluster.SwitchoverRequest) (operate.Done, error) {
	s, err := v.move(ctx, r.By, args)
	d := operate.Done{Result: s, ReadOnly: args.DryRun || err == nil && s.From == s.To}
	if s.From != "" {
		d.What = fmt.Sprintf("switchover from %s to %s", s.From, cmp.Or(s.To, args.To, "the best node"))
	}
	return d, err
}

func (v *Service) move(ctx context.Context, by string, args cluster.SwitchoverRequest) (cluster.Switchover, error) {
	switch {
	case args.MaxPause < maxPauseMin || args.MaxPause > maxPauseMax:
		return cluster.Switchover{}, control.Errorf(control.CodeInvalid, "--max-pause must be %s to %s, not %s", units.Duration(maxPauseMin), units.Duration(maxPauseMax), units.Duration(args.MaxPause))
	case args.Wait < 0 || args.Wait > waitMax:
		return cluster.Switchover{}, control.Errorf(control.CodeInvalid, "--wait must be 0s to %s, not %s", units.Duration(waitMax), units.Duration(args.Wait))
	}
	s, p, err := v.plan(ctx, args)
	if err != nil || args.DryRun {
		s.Notes = append(s.Notes, p.notes...)
		return s, err
	}
	to := p.to
	switch {
	case len(s.Blocks) > 0:
		return s, control.Errorf(control.CodeFailed, "%s", strings.Join(s.Blocks, "; "))
	case to == v.self.ID && s.From != "":
		return s, nil
	case v.board.Own().Role != status.RolePrimary: // in maintenance: see plan
		return v.appoint(ctx, by, s, to)
	}
	began := time.Now()
	if err := v.awaitSmallLag(ctx, to, by, args); err != nil {
		return s, err
	}
	if took := time.Since(began); took > args.MaxPause {
		s.Notes = append(s.Notes, fmt.Sprintf("%s needed %.1f s to catch up before writes were closed", s.To, took.Seconds()))
	}
	if s, err = v.moveTo(ctx, by, s, to, args.MaxPause); err == nil && p.open > 0 {
		s.Notes = append(s.Notes, units.Count(p.open, "session was in a transaction", "sessions were in a transaction")+
			" before: what had not committed was rolled back")
	}
	return s, err
}

// plan is what a switchover would do.
type plan struct {
	to cluster.NodeID
	// notes say what is to be expected.
	notes []string
	// open is how many sessions are in a transaction.
	open int
}

// plan says to which node a switchover would go, and what is in its way.
func (v *Service) plan(ctx context.Context, args cluster.SwitchoverRequest) (s cluster.Switchover, p plan, err error) {
	own, state := v.node.Own(), v.board.State()
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
		return s, plan{to: own.ID}, nil
	}
	peers := v.board.ForRole(own)
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
	for _, n := range v.board.Nodes() {
		if lag := lagNote(n, args.MaxPause); n.ID == p.to && lag != "" {
			p.notes = append(p.notes, fmt.Sprintf("%s %s: the switchover waits for that first, %s at most", s.To, lag, units.Duration(args.Wait)))
		}
	}
	err = v.whatBlocks(ctx, &s, &p, args.MaxPause)
	return s, p, err
}

// lagNote says how far a node is behind, if that is worth a word.
func lagNote(n status.Node, maxPause time.Duration) string {
	lags := fmt.Sprintf("lags by %.1f s (%s)", n.LagSeconds, n.LagText())
	switch {
	case n.LagText() == "":
		return ""
	case n.Stuck(): // nobody knows for how long
		return lags
	case n.BacklogSeconds() > maxPause.Seconds():
		return fmt.Sprintf("needs about %.1f s to catch up", n.BacklogSeconds())
	case n.LagSeconds >= lagNoted:
		return lags
	}
	return ""
}

// whatBlocks looks at what runs in the primary's mysqld.
func (v *Service) whatBlocks(ctx context.Context, s *cluster.Switchover, p *plan, maxPause time.Duration) error {
	process := v.node.Process()
	if process == nil {
		return primary.ErrNoMysqld
	}
	admin := process.Admin()
	writers, err := admin.SlowWriters(ctx, 0)
	if err != nil {
		return err
	}
	blocks, note := checkWriters(writers, maxPause)
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

// AskTarget asks another node's agent to wait until it has applied everything up to
// an index; with a term, also to note that the leadership of the next term is given to it. It returns how long that
// node has waited. Without t.Within, the node waits as long as ctx goes.
func (v *Service) AskTarget(ctx context.Context, to cluster.NodeID, by string, t Target) (time.Duration, error) {
	if deadline, ok := ctx.Deadline(); ok && t.Within == 0 {
		t.Within = time.Until(deadline)
	}
	raw, err := json.Marshal(t)
	if err != nil {
		return 0, fmt.Errorf("encode request: %w", err)
	}
	began := time.Now()
	answer, ok := v.requests.Forward(ctx, operate.Handler{Timeout: waitMax}, to, control.Request{Name: requestTarget, By: by, Args: raw})
	if !ok {
		return 0, fmt.Errorf("ask node %s: %s", v.board.Name(to), answer.Error)
	}
	return waited(answer, time.Since(began)), answer.Err()
}

// waited is how long the node that has answered was behind. An older agent does not say that: then it is all the time
// that the question took. That has four round trips more: at 25 ms each, these alone are nearEnough.
func waited(answer control.Answer, all time.Duration) time.Duration {
	f := Followed{Took: all}
	if err := json.Unmarshal(answer.Result, &f); err != nil || f.Took < 0 {
		return all
	}
	return min(f.Took, all)
}

// awaitSmallLag waits until the other node is so close that it will have everything
// in no time once writes are closed.
func (v *Service) awaitSmallLag(ctx context.Context, to cluster.NodeID, by string, args cluster.SwitchoverRequest) error {
	began, within := time.Now(), max(args.Wait, askMin)
	behind, err := awaitNear(args.Wait, func() (time.Duration, error) {
		t := Target{Index: v.node.Raft().Committed().Mark().Index, Within: max(within-time.Since(began), time.Millisecond)}
		ctx, cancel := context.WithTimeout(ctx, t.Within+answerTime)
		defer cancel()
		return v.AskTarget(ctx, to, by, t)
	})
	switch {
	case err != nil && time.Since(began) < within:
		return control.Errorf(control.CodeFailed, "node %s has not caught up, writes were not touched: %v", v.board.Name(to), err)
	case err != nil || behind > nearEnough:
		return control.Errorf(control.CodeFailed, "node %s has not caught up within %s, writes were not touched: %s",
			v.board.Name(to), units.Duration(args.Wait), v.stillLacks(to, behind, err))
	}
	return nil
}

// stillLacks says how far a node is behind that has not caught up in time: what it says of itself, else how its answer
// to the last question was (behind, err).
func (v *Service) stillLacks(to cluster.NodeID, behind time.Duration, err error) string {
	for _, n := range v.board.Nodes() {
		if lag := n.LagText(); n.ID == to && lag != "" {
			return lag
		}
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("when it was asked, it still needed %v", behind.Round(time.Millisecond))
}

// awaitNear asks how far a node is behind until that is nearEnough, or limit is over. It returns the last answer.
func awaitNear(limit time.Duration, ask func() (time.Duration, error)) (behind time.Duration, err error) {
	for began := time.Now(); ; {
		if behind, err = ask(); err != nil || behind <= nearEnough || time.Since(began) > limit {
			return behind, err
		}
	}
}

// moveTo closes writes, waits for the other node, and hands over.
func (v *Service) moveTo(ctx context.Context, by string, s cluster.Switchover, to cluster.NodeID, maxPause time.Duration) (cluster.Switchover, error) {
	maintenance := v.board.State().Maintenance
	if maintenance != nil { // before the move: until then nobody else may open
		if _, err := v.requests.ChangeState(ctx, by, cluster.Change{Maintenance: maintenance.Appoint(s.To)}); err != nil {
			return s, err
		}
	}
	term := v.node.Raft().Role().Term
	m := primary.NewOrder(by, true, maxPause, clock.Machine{})
	err := v.runPlan(role.Move{To: to, Reason: "switchover asked for by " + by}, m, timeout)
	if err == nil {
		err = v.awaitSuccessor(&s, m, term)
	}
	if err == nil {
		return s, nil
	}
	if maintenance != nil && v.node.Raft().Role().Leading {
		_, back := v.requests.ChangeState(context.WithoutCancel(ctx), by, cluster.Change{Maintenance: maintenance.Appoint(v.self.Name)})
		err = errors.Join(err, back)
	}
	return s, v.calledOff(m, err)
}

// awaitSuccessor waits until another node is the primary, and this one's mysqld
// follows it.
func (v *Service) awaitSuccessor(s *cluster.Switchover, m *primary.Order, term uint64) error {
	ctx, cancel := context.WithTimeout(v.node.Base(), successorWait)
	defer cancel()
	for {
		changed := v.board.Changes()
		own := v.board.Own()
		id, ok := v.board.Primary()
		switch {
		case ok && s.PauseMs == 0:
			s.PauseMs = float64(m.ClosedFor().Microseconds()) / 1e3
			if s.To != v.board.Name(id) {
				s.Notes = append(s.Notes, "not "+s.To+" but "+v.board.Name(id)+" took over")
				s.To = v.board.Name(id)
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
				s.Notes = append(s.Notes, "node "+v.self.Name+" is not a replica yet")
				return nil
			}
			return errors.New("no new primary is known: see the status")
		}
	}
}

// appoint lets another node open while maintenance is on and nobody is the primary:
// the role machine hands over to it.
func (v *Service) appoint(ctx context.Context, by string, s cluster.Switchover, to cluster.NodeID) (cluster.Switchover, error) {
	m := v.board.State().Maintenance
	if m == nil {
		return s, control.Errorf(control.CodeStale, "maintenance has just ended: look at the status")
	}
	_, err := v.requests.ChangeState(ctx, by, cluster.Change{Maintenance: m.Appoint(v.board.Name(to))})
	return s, err
}

// Target is what a primary asks of the node that is to follow it.
type Target struct {
	// Index is what has to be committed and applied there.
	Index uint64 `json:"index"`
	// Term: the leader of this term is about to hand over; 0 = not yet.
	Term   uint64        `json:"term,omitempty"`
	Within time.Duration `json:"within_ns"`
}

// Followed is what that node answers.
type Followed struct {
	// Took is how long it has waited, from when it was asked. It does not include the way over the network.
	Took time.Duration `json:"took_ns"`
}

// target waits, at the target of a switchover, until it could follow.
func (v *Service) target(ctx context.Context, r control.Request, args Target) (operate.Done, error) {
	if r.From == "" {
		return operate.Done{}, control.Errorf(control.CodeInvalid, "%s goes between agents", r.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, args.Within)
	defer cancel()
	began := time.Now()
	if err := v.node.Follow(ctx, args.Index, args.Term); err != nil {
		return operate.Done{}, err
	}
	return operate.Done{ReadOnly: true, Result: Followed{Took: time.Since(began)}}, nil
}
