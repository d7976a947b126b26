package operate

import (
	"context"
	"net"
	"time"

	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
)

func (s *Server) nodeSet(ctx context.Context, r control.Request, c cluster.NodeRequest) (Done, error) {
	if c.Peer != nil {
		err := CheckAddress(*c.Peer)
		if err == nil && !c.Force {
			err = s.mayMove(ctx, c.Name, *c.Peer)
		}
		if err != nil {
			return Done{What: c.NodeChange.String()}, err
		}
	}
	return s.ChangeAs(ctx, r.By, c.Ask, cluster.Change{Node: &c.NodeChange})
}

// clusterSet changes what the whole cluster has agreed on.
func (s *Server) clusterSet(ctx context.Context, r control.Request, c cluster.SettingsRequest) (Done, error) {
	if c.MySQLRouter != nil && *c.MySQLRouter {
		if err := s.routable(); err != nil {
			return Done{What: c.SettingsChange.String(), ReadOnly: c.DryRun}, err
		}
	}
	var notes []string
	if c.PeerSecurity != nil {
		lacking, all, err := s.keysFor(*c.PeerSecurity)
		if err != nil {
			return Done{What: c.SettingsChange.String()}, err
		}
		notes = all
		if len(lacking) > 0 && c.DryRun {
			return s.Planned(c.SettingsChange.Change(), cluster.Impact{Notes: notes}), nil
		}
		for _, k := range lacking {
			if _, err := s.ChangeState(ctx, r.By, cluster.Change{Keys: &k}); err != nil {
				return Done{What: k.String()}, err
			}
		}
	}
	d, err := s.ChangeAs(ctx, r.By, c.Ask, c.SettingsChange.Change())
	if result, ok := d.Result.(cluster.ChangeResult); ok {
		result.Notes = append(notes, result.Notes...)
		d.Result = result
	}
	return d, err
}

func (s *Server) maintenance(ctx context.Context, r control.Request, c cluster.MaintenanceRequest) (Done, error) {
	c.Designate(s.Board.State(), s.Self.ID)
	return s.ChangeAs(ctx, r.By, c.Ask, cluster.Change{Maintenance: &c.MaintenanceChange})
}

// CheckAddress refuses a peer address that is no host:port.
func CheckAddress(peer string) error {
	host, port, err := net.SplitHostPort(peer)
	if err != nil || host == "" || port == "" {
		return control.Errorf(control.CodeInvalid, "peer %q is not the host:port where the node's agent listens for others", peer)
	}
	return nil
}

// CheckLast refuses a number of lines that no answer has.
func CheckLast(lines int) error {
	if lines < 1 || lines > cluster.LinesMax {
		return control.Errorf(control.CodeInvalid, "--last must be 1 to %d lines, not %d", cluster.LinesMax, lines)
	}
	return nil
}

// history answers with the newest rows of the history.
func (s *Server) history(_ context.Context, _ control.Request, args cluster.LastRequest) (Done, error) {
	if err := CheckLast(args.Last); err != nil {
		return Done{}, err
	}
	rows, err := s.Records.Rows(args.Last)
	return Done{Result: rows}, err
}

// since answers another node that copies lines.
func since(log *history.Log) func(context.Context, control.Request, cluster.AuditSince) (Done, error) {
	return func(_ context.Context, _ control.Request, args cluster.AuditSince) (Done, error) {
		lines, err := log.Since(args.Seq)
		return Done{Result: lines}, err
	}
}

// newest answers the newest lines, whoever wrote them.
func newest(log *history.Log) func(context.Context, control.Request, cluster.LastRequest) (Done, error) {
	return func(_ context.Context, _ control.Request, args cluster.LastRequest) (Done, error) {
		if err := CheckLast(args.Last); err != nil {
			return Done{}, err
		}
		lines, err := log.Newest(args.Last)
		return Done{Result: lines}, err
	}
}

// EndMaintenance switches maintenance off when its time is over.
func (s *Server) EndMaintenance(ctx context.Context) {
	state := s.Board.State()
	m := state.Maintenance
	if m == nil || m.Until.IsZero() || time.Now().Before(m.Until) || !s.Node.Raft().Role().Leading {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, control.Timeout)
	defer cancel()
	by := "quorate, its time is over"
	if _, err := s.ChangeState(ctx, by, cluster.Change{Judged: state.Version, Maintenance: &cluster.MaintenanceChange{}}); err != nil {
		s.Logger.Warn("cannot switch maintenance off although its time is over: trying again", "error", err)
	}
}
