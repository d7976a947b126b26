package agent

import (
	"context"
	"net"

	"github.com/quorate/quorate/internal/agent/freshness"
	"github.com/quorate/quorate/internal/agent/reading"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/router"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// buildReads makes the read-only port.
func (a *Agent) buildReads() {
	c := a.cfg.Router
	var at *router.Config
	if c.ReadOnly != "" {
		at = &router.Config{
			Listen: c.ReadOnly, ReadOnly: true, HoldTimeout: c.HoldTimeout, HoldMax: c.HoldMax, Refuse: !c.Forward, Self: a.self.ID,
			Name: a.board.Name, Allow: c.Allow, Logger: a.logger.With("port", "read_only"),
		}
	}
	a.heard = freshness.NewHeard(consensus.RealMachine{})
	a.reads = reading.New(reading.Config{
		Self: a.self.ID, Clocks: consensus.RealMachine{}, Policy: status.Reads{LagMax: c.ReadMaxLag, Primary: c.ReadPrimary}, Grace: c.ReadGrace,
		Nodes: a.nodesNow, Replica: func() bool { return a.board.Own().Role == status.RoleReplica }, Changes: a.board.Changes,
		EndReaders: a.endReaders, DialLocal: routeBackend{a}.DialLocal,
		DialRead:    func(ctx context.Context, id cluster.NodeID) (net.Conn, error) { return a.peers.DialRead(ctx, id) },
		DialPrimary: a.dialPrimary,
	}, at)
}

// nodesNow are all nodes, this one as it is now.
func (a *Agent) nodesNow() []status.Node {
	own := a.board.Own()
	a.lagStatus(&own)
	return a.board.NodesWith(own)
}

// endReaders ends the sessions in mysqld that only read.
func (a *Agent) endReaders(ctx context.Context) error {
	p := a.currentProcess()
	if p == nil {
		return nil
	}
	return p.Admin().EndReaders(ctx)
}

// dialPrimary connects a client of the read-only port to the primary, through the primary's read-write port.
func (a *Agent) dialPrimary(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	if id != a.self.ID {
		return a.peers.DialRoute(ctx, id)
	}
	near, far := net.Pipe()
	a.work.Go(func() { a.router.HandleRouted(far, a.self.ID) }) // a refusal is written here, and read by the caller
	return near, nil
}
