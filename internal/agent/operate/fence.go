package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/role"
)

// fenceWait bounds the wait for mysqld's end.
const fenceWait = 10 * time.Second

// fence ends this node's mysqld until unfence.
func (s *Server) fence(ctx context.Context, r control.Request, args cluster.FenceRequest) (Done, error) {
	f := cluster.Fence{By: r.By, At: time.Now().UTC().Truncate(time.Second), Reason: args.Reason}
	result := cluster.FenceResult{Fence: f, Changed: true, DryRun: args.DryRun, Notes: status.WithoutNode(s.Node.Sight(), s.Self.Name)}
	d := Done{What: describe(r), Result: result, ReadOnly: args.DryRun}
	before, err := s.Dir.Fence()
	if err != nil {
		return d, err
	}
	switch {
	case s.Self.Kind == cluster.KindLogger:
		return d, control.Errorf(control.CodeInvalid, "node %s is a logger: it has no mysqld", s.Self.Name)
	case len(f.Reason) > auditTextBytesMax:
		return d, control.Errorf(control.CodeInvalid, "the reason has %d bytes, at most %d are kept", len(f.Reason), auditTextBytesMax)
	case s.Board.Own().Role == status.RolePrimary && !args.Force:
		return d, control.Errorf(control.CodeFailed, "node %s is the primary: move it first (quorate switchover), or say --force, which ends its sessions in doubt", s.Self.Name)
	case before != nil:
		return Done{ReadOnly: true, Result: cluster.FenceResult{Fence: *before, DryRun: args.DryRun}}, nil
	case args.DryRun:
		return d, nil
	}
	if err := s.Dir.WriteFence(f); err != nil {
		return d, fmt.Errorf("note the fence: %w", err)
	}
	s.Node.Input(role.Fenced{Reason: f.Told()})
	return d, s.awaitRole(ctx, func(role status.Role) bool { return role == status.RoleFenced || role == status.RoleErrant })
}

// unfence lets mysqld run here again.
func (s *Server) unfence(ctx context.Context, r control.Request, args cluster.FenceRequest) (Done, error) {
	before, err := s.Dir.Fence()
	if err != nil {
		return Done{}, err
	}
	d := Done{ReadOnly: args.DryRun}
	own := s.Board.Own()
	switch {
	case before == nil && own.Role == status.RoleErrant:
		return d, control.Errorf(control.CodeFailed, "node %s has no fence: its mysqld is errant, until it is rebuilt or its own transactions are gone: %s", s.Self.Name, own.Reason)
	case before == nil && own.Role == status.RoleFenced:
		return d, control.Errorf(control.CodeFailed, "node %s was fenced by quorate itself, not by an operator; quorate ends that once the reason is over: %s", s.Self.Name, own.Reason)
	case before == nil:
		return Done{ReadOnly: true, Result: cluster.FenceResult{DryRun: args.DryRun, Notes: []string{fmt.Sprintf("%s is %s", s.Self.Name, own.Role)}}}, nil
	}
	d.Result = cluster.FenceResult{Fence: *before, Changed: true, DryRun: args.DryRun}
	if args.DryRun {
		return d, nil
	}
	if err = s.Dir.RemoveFence(); err != nil {
		return d, fmt.Errorf("take the fence away: %w", err)
	}
	s.Node.Input(role.Fenced{})
	return d, s.awaitRole(ctx, func(role status.Role) bool { return role != status.RoleFenced })
}

// awaitRole waits until this node's role is as it should be.
func (s *Server) awaitRole(ctx context.Context, is func(status.Role) bool) error {
	ctx, cancel := context.WithTimeout(ctx, fenceWait)
	defer cancel()
	for {
		changed := s.Board.Changes()
		role := s.Board.Own().Role
		if is(role) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return control.Errorf(control.CodeUncertain, "it was noted, and the node is still %s: see the status", role)
		}
	}
}
