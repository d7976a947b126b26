package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/quorate/quorate/internal/agent/freshness"
	"github.com/quorate/quorate/internal/agent/ownport"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/netfence"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// openPort has the kernel fence mysqld's own port, before there is a mysqld. Without the right
// to do so, mysqld listens on loopback alone, unless the operator accepts stale reads.
func (a *Agent) openPort() {
	server, fenced := a.ownAddress().Fenced()
	if !a.runsMysqld() {
		return
	}
	if !fenced {
		if onLoopback(a.self.Peer) {
			a.board.Update(func(s *status.Node) { s.MySQLRouter = a.ownAddress().Local() })
		}
		return
	}
	if err := a.fencePort(server); err != nil {
		a.closePort()
		trouble := fmt.Sprintf("clients cannot reach mysqld at %v, only the router: %v", server, err)
		if a.cfg.MySQL.BindUnfencedStaleReads {
			a.port.Unfence()
			trouble = fmt.Sprintf("mysqld at %v is not fenced: while this node is frozen or cut off, reads there are stale (mysql.bind_unfenced_stale_reads): %v", server, err)
		}
		a.logger.Warn(trouble)
		a.board.SetTrouble(ownport.About, trouble)
		if !a.port.Open() {
			return
		}
	}
	a.board.Update(func(s *status.Node) { s.MysqldPort, s.MySQLRouter = server.String(), server.String() })
}

// onLoopback tells whether an address is one of this host alone: then the whole cluster is on this host.
func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip, notIP := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || notIP == nil && ip.IsLoopback())
}

func (a *Agent) fencePort(server netip.AddrPort) error {
	router, err := netip.ParseAddrPort(a.router.Addr().String())
	if err != nil {
		return fmt.Errorf("read the router's address: %w", err)
	}
	f, err := netfence.Open(netfence.Config{
		// The mysqld of a killed agent may still hold that agent's table, and in a container each agent has PID 1:
		// hence the random part.
		Table:  fmt.Sprintf("quorate-%s-%s-%d-%04x", a.cfg.Cluster, a.self.Name, os.Getpid(), rand.Uint32()>>16),
		Server: server, Router: netip.AddrPortFrom(router.Addr().Unmap(), router.Port()),
	}, consensus.BootTime)
	if err != nil {
		return err
	}
	held, err := f.File()
	a.port.Take(f, held, a.portWants)
	return err
}

// ownAddress is where mysqld listens.
func (a *Agent) ownAddress() ownport.Address {
	return ownport.Address{Bind: a.cfg.MySQL.Bind, Port: a.cfg.MySQL.Port}
}

// runAskLeader asks the leader, again and again, whether it still leads, if clients read replicas here.
func (a *Agent) runAskLeader(ctx context.Context) error {
	if !a.asksLeader() {
		return nil
	}
	return a.heard.Run(ctx, a.cfg.Raft.ElectionTimeout, a.Raft, func() {
		if a.port.Fenced() {
			a.leaseChanged()
		}
	})
}

// closePort gives the fence up. The fence still lasts as long as a mysqld that has inherited it.
func (a *Agent) closePort() {
	if err := a.port.Close(); err != nil {
		a.logger.Warn("cannot give up the fence of mysqld's own port", "error", err)
	}
}

// portWants says which packets should pass now. It reads the clocks first: a window counts from
// before the state was read, however long the agent stands still in between. It reads the lease
// before serving, too: the lease is of the term that serving is asked about, or of an ended term.
func (a *Agent) portWants() netfence.State {
	in := ownport.Input{Frozen: fenceWindow(freshness.WindowOf(consensus.RealMachine{}, a.cfg.Raft.ElectionTimeout))}
	in.Lease.Boot, in.Lease.Wall = a.Raft.Lease()
	in.Heard = fenceWindow(a.heard.Window())
	in.Serving, in.Moving, in.Answering = a.Slot.Serving(), a.Orders.MovesAway(), a.Slot.Answering()
	own, leader := a.board.Own(), a.Raft.Role().Leader
	in.Promoting, in.Reads = own.Role == status.RolePromoting, own.Role == status.RoleReplica && leader != 0
	return ownport.StateOf(in)
}

// fenceWindow returns a window as package netfence counts it. Its end on the wall clock has no monotonic reading: else
// times would be compared by that.
func fenceWindow(w freshness.Window) netfence.Window {
	return netfence.Window{Boot: w.Boot, Wall: time.Unix(0, int64(w.Wall))}
}

// leaseChanged wakes ownport.Port.Run, and also the role machine's goroutine if this node has begun or
// ended to serve. It does not block.
func (a *Agent) leaseChanged() {
	a.Inbox.LeaseChanged()
	a.port.Wake()
}

// asksLeader tells whether clients read replicas here: a replica has to know whether its leader still leads.
func (a *Agent) asksLeader() bool { return a.port.Open() || a.cfg.Router.ReadOnly != "" }

// clients are the clients of this node's mysqld. It implements primary.Clients.
type clients struct{ *Agent }

// Wake and what follows implement primary.Clients.
func (c clients) Wake()         { c.board.Wake() }
func (c clients) Hold()         { c.leaseChanged() }
func (c clients) CloseAll()     { c.router.CloseAll() }
func (c clients) OwnPort() bool { return c.port.Fenced() }
func (c clients) AwaitPort() {
	c.port.Await(c.cfg.Raft.ElectionTimeout, c.work.Go, c.logger) // no window is longer
}
func (c clients) runPort(ctx context.Context) error {
	return c.port.Run(ctx, c.cfg.Raft.ElectionTimeout/8, c.board, c.logger)
}
func (c clients) EndReads(ctx context.Context) error {
	c.readersSQL.End()
	c.killReaders(ctx)
	return c.reads.End(ctx)
}

// readersEndIn bounds killReaders.
const readersEndIn = time.Second

// killReaders kills the sessions of readers with SQL, for the sake of the locks that they hold. No promotion fails by it: they write
// nothing.
func (c clients) killReaders(ctx context.Context) {
	p := c.currentProcess()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readersEndIn)
	defer cancel()
	for _, r := range c.cfg.Readers {
		if !r.SQL {
			continue
		}
		if err := p.Admin().EndSessions(ctx, r.User); err != nil {
			c.logger.Warn("a reader's sessions were not killed: if one has locked tables, writes wait for its statement", "user", r.User, "error", err)
		}
	}
}
func (c clients) ClosePort(ctx context.Context) error { // Port.Run is about to do it, too
	return c.port.Told(ctx, c.work.Go)
}

// awaitWritten returns once mysqld has written every answer that its clients wait for.
// The kernel delivers written answers, also after mysqld has closed the connection.
func (a *Agent) awaitWritten(ctx context.Context) error {
	p := a.currentProcess()
	if !a.port.Open() || p == nil {
		return nil
	}
	ticker := time.NewTicker(answersPoll)
	defer ticker.Stop()
	for {
		n, err := p.Admin().Answering(ctx)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d sessions are in a statement", n), ctx.Err())
		}
	}
}
