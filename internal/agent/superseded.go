package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/sys/notify"
)

// A former member: its cluster was recovered on another node without it, and it has accepted
// that (package recovery). It kills its mysqld and serves nothing but its status, until it is
// rebuilt there. The status names the transactions that the recovered cluster lacks. Its data
// stay until then. It tells other former members that reach it of the recovery.

// losing is this node as its stance sees it.
type losing struct{ *Agent }

// AsSelf implements quorumloss.Node.
func (n losing) AsSelf() membership.Self { return n.asSelf() }

// Leave implements quorumloss.Node.
func (n losing) Leave(d membership.Departure) { n.departing.Leave(d) }

// AskWord implements quorumloss.Node.
func (n losing) AskWord(ctx context.Context, of cluster.NodeID, r cluster.Recovery) (w recovery.Word, err error) {
	err = n.requests.Request(ctx, of, quorumloss.WordRequest, r, &w)
	return w, err
}

// AskWhoRefuses implements quorumloss.Node.
func (n losing) AskWhoRefuses(ctx context.Context, peers []transport.Peer) []*transport.RejectedError {
	return transport.New(n.transportConfig(stranger{}, peers)).AskWhoRefuses(ctx)
}

// newStance makes this node's stance: what it does about recoveries without it.
func (a *Agent) newStance() *quorumloss.Stance {
	return quorumloss.New(quorumloss.Config{
		Node: losing{a}, Board: a.board, Dir: a.data.Dir, ElectionTimeout: a.cfg.Raft.ElectionTimeout, Clock: clock.Machine{}, Logger: a.logger,
	})
}

// controlWord answers another node that asks what this one says of a recovery.
func (a *Agent) controlWord(_ context.Context, r control.Request, about cluster.Recovery) (operate.Done, error) {
	return operate.Done{Result: a.stance.Word(about), ReadOnly: true}, nil
}

// supersededPeers is the peers' handler of such a node.
type supersededPeers struct {
	stranger
	a *Agent
}

// CheckCaller implements transport.CallChecker: the node that is to be recovered next may ask
// what this one has.
func (h supersededPeers) CheckCaller(transport.Identity) error { return nil }

// Call implements transport.Handler.
func (h supersededPeers) Call(ctx context.Context, from cluster.NodeID, conn net.Conn) {
	h.a.requests.ServeCall(ctx, from, conn)
}

// CheckPeer implements transport.Handler.
func (h supersededPeers) CheckPeer(id transport.Identity) error {
	return quorumloss.Outside{By: h.a.data.Own().Superseded}.CheckPeer(id)
}

// Rejected implements transport.Handler: the recovered cluster may want this node to
// be rebuilt.
func (h supersededPeers) Rejected(id cluster.NodeID, err *transport.RejectedError) {
	h.a.stance.Refused(h.a.board.Name(id), err)
	h.a.board.Wake() // with the trouble
}

// runSuperseded shows that this node is out, and waits to be rebuilt, until ctx ends.
func (a *Agent) runSuperseded(ctx context.Context) (err error) {
	if err := a.data.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.persistExit(), a.data.Close()) }()
	last, err := a.data.LastState()
	if err != nil {
		return err
	}
	if len(last.State.Members) > 0 && last.State.Version > 0 {
		a.board.SetState(last.State)
	}
	report, err := quorumloss.ClosedReport(a.self.Name, a.data.Own().Superseded, a.logOptions())
	if err == nil {
		a.out = &report
	}
	reason := report.Out + "; " + a.surplus(report, err)
	a.logger.Error("this node serves only its status", "reason", reason, "data_dir", a.cfg.DataDir)
	a.board.Update(func(s *status.Node) {
		s.Role, s.Mysqld, s.Reason = status.RoleRemoved, status.MysqldStopped, reason
	})
	a.peers = transport.New(a.transportConfig(supersededPeers{a: a}, a.transportPeers()))
	a.buildAPI()
	defer a.api.Unlisten()
	defer a.peers.Unlisten()
	if err := errors.Join(a.peers.Listen(), a.api.Listen(), a.api.ListenControl()); err != nil {
		return fmt.Errorf("open the ports, for the status of this node: %w", err)
	}
	defer a.notifying(ctx, notify.New(os.Getenv, os.Getpid()))()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	a.setFail(fail)
	eg, ctx := errgroup.WithContext(ctx)
	eg.Go(func() error { return a.peers.Run(ctx) })
	eg.Go(func() error { return a.api.Run(ctx) })
	return eg.Wait()
}

// surplus says which transactions this node has and the recovered cluster lacks, or why that
// is not known.
func (a *Agent) surplus(r recovery.Report, err error) string {
	by := a.data.Own().Superseded
	if by.GTIDs == "" {
		return "it is not known which transactions of this node the recovered cluster lacks: look into this node's log (quorate log ls)"
	}
	var own, theirs *gtid.Set
	if err == nil {
		own, err = gtid.ParseSet(r.Log.GTIDs)
	}
	if err == nil {
		theirs, err = gtid.ParseSet(by.GTIDs)
	}
	if err != nil {
		return fmt.Sprintf("it is not known which transactions of this node the recovered cluster lacks: %v", err)
	}
	own.Subtract(theirs)
	if own.IsEmpty() {
		return "the recovered cluster has all of its transactions"
	}
	return fmt.Sprintf("the recovered cluster lacks %d of its transactions: %s", own.Count(), own)
}
