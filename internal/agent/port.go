package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/reading"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/netfence"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// aboutPort is the key of trouble with mysqld's own port, among the board's troubles.
const aboutPort = "port"

// loopbackHost is where the agent reaches mysqld while mysqld's other address is fenced.
const loopbackHost = "127.0.0.1"

// port is mysqld's own port on an address that clients reach, fenced by the kernel: where
// mysql.bind is no loopback address (docs/architecture/clients.md).
type port struct {
	fence fence // nil: mysqld is on loopback alone, unless it is unfenced
	// unfenced: nothing fences mysqld's own port, and the operator wants it open all the same.
	unfenced bool
	held     *os.File // mysqld inherits it: the fence lasts as long as that mysqld
	// wants says which packets should pass now.
	wants func() netfence.State
	// wake has room for one signal: the lease or heard may have changed.
	wake chan struct{}

	mu  sync.Mutex
	set netfence.State // the kernel's state
	// unsure: a call has failed, so the kernel may have another state.
	unsure bool
}

// fence is netfence.Fence; tests replace it.
type fence interface {
	Set(s netfence.State) error
	Close() error
}

// openPort has the kernel fence mysqld's own port, before there is a mysqld. Without the right
// to do so, mysqld listens on loopback alone, unless the operator accepts stale reads.
func (a *Agent) openPort() {
	a.port.wake = make(chan struct{}, 1)
	server, fenced := fencedAddress(a.cfg.MySQL.Bind, a.cfg.MySQL.Port)
	if !a.runsMysqld() {
		return
	}
	if !fenced {
		if onLoopback(a.self.Peer) {
			a.board.Update(func(s *status.Node) { s.MySQLRouter = a.localMysqld() })
		}
		return
	}
	if err := a.fencePort(server); err != nil {
		a.closePort()
		a.port.unfenced = a.cfg.MySQL.BindUnfencedStaleReads
		trouble := fmt.Sprintf("clients cannot reach mysqld at %v, only the router: %v", server, err)
		if a.port.unfenced {
			trouble = fmt.Sprintf("mysqld at %v is not fenced: while this node is frozen or cut off, reads there are stale (mysql.bind_unfenced_stale_reads): %v", server, err)
		}
		a.logger.Warn(trouble)
		a.board.SetTrouble(aboutPort, trouble)
		if !a.port.unfenced {
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
		// A killed agent's mysqld may have its table still, and the PID is 1 in each container.
		Table:  fmt.Sprintf("quorate-%s-%s-%d-%04x", a.cfg.Cluster, a.self.Name, os.Getpid(), rand.Uint32()>>16),
		Server: server, Router: netip.AddrPortFrom(router.Addr().Unmap(), router.Port()),
	}, consensus.BootTime)
	if err != nil {
		return err
	}
	a.port.fence, a.port.wants = f, a.portWants
	a.port.held, err = f.File()
	return err
}

// fencedAddress is where clients reach mysqld itself; false = nowhere.
func fencedAddress(bind string, port int) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(bind)
	if err != nil || addr.IsLoopback() {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr, uint16(port)), true
}

// closePort gives the fence up. It still lasts as long as a mysqld that has inherited it.
func (a *Agent) closePort() {
	if a.port.held != nil {
		_ = a.port.held.Close()
	}
	if a.port.fence != nil {
		if err := a.port.fence.Close(); err != nil {
			a.logger.Warn("give up the fence of mysqld's own port", "error", err)
		}
	}
	a.port.fence, a.port.held = nil, nil
}

// localMysqld is where the agent finds its own mysqld: on loopback, which is never fenced.
func (a *Agent) localMysqld() string {
	return net.JoinHostPort(a.localHost(), strconv.Itoa(a.cfg.MySQL.Port))
}

func (a *Agent) localHost() string {
	if _, fenced := fencedAddress(a.cfg.MySQL.Bind, a.cfg.MySQL.Port); fenced {
		return loopbackHost
	}
	return a.cfg.MySQL.Bind
}

// open tells whether clients reach mysqld itself.
func (p *port) open() bool { return p.fence != nil || p.unfenced }

// mysqldBind is where mysqld listens. Its own port is open to clients only once it is
// fenced, or if the operator has said so.
func (a *Agent) mysqldBind() string {
	if a.port.open() {
		return loopbackHost + "," + a.cfg.MySQL.Bind
	}
	return a.localHost()
}

// inherited holds the files that mysqld keeps open.
func (a *Agent) inherited() []*os.File {
	if a.port.held == nil {
		return nil
	}
	return []*os.File{a.port.held}
}

// portInput is everything that decides which clients pass mysqld's own port.
type portInput struct {
	// serving: this node is the primary, and lease says for how long it may serve.
	serving bool
	lease   netfence.Window
	// moving: an operator's plan holds new clients.
	moving bool
	// answering: requests that came under the lease may still be answered.
	answering bool
	// promoting: it leads, and its mysqld is about to be opened.
	promoting bool
	// reads: this node is a replica that has a leader. heard is for how long it may be read,
	// counted from when it asked that leader.
	reads bool
	heard netfence.Window
	// frozen is the window where no other limit is known: as long as a frozen agent may go
	// unnoticed.
	frozen netfence.Window
}

// portState says which packets pass. A primary without a lease passes answers and no requests:
// so all answers are to requests that came under the lease. A replica must not serve clients
// that have connected to the router's port.
func portState(in portInput) netfence.State {
	switch {
	case in.promoting:
		return netfence.State{Requests: in.lease, Answers: in.lease}
	case in.serving && in.moving:
		return netfence.State{Requests: in.lease, Answers: in.lease, Redirected: in.lease}
	case in.serving:
		return netfence.State{Requests: in.lease, Answers: in.lease, Redirected: in.lease, Redirect: in.lease}
	case in.answering:
		return netfence.State{Answers: in.frozen}
	case in.reads:
		return netfence.State{Requests: in.heard, Answers: in.heard}
	}
	return netfence.State{}
}

// withoutEnded is s with the zero window in place of each window that is over: a window that
// is over lets nothing pass.
func withoutEnded(s netfence.State, now time.Duration) netfence.State {
	for _, w := range []*netfence.Window{&s.Requests, &s.Answers, &s.Redirected, &s.Redirect} {
		if w.Boot <= now {
			*w = netfence.Window{}
		}
	}
	return s
}

// portLasts tells whether the kernel's state will do for now: the right packets pass, not for
// longer than they should, and half of the time is left. wants has no window that is over.
func portLasts(has, wants netfence.State, now time.Duration) bool {
	return windowLasts(has.Requests, wants.Requests, now) &&
		windowLasts(has.Answers, wants.Answers, now) &&
		windowLasts(has.Redirected, wants.Redirected, now) &&
		windowLasts(has.Redirect, wants.Redirect, now)
}

// stepMax is how far the two clocks may part before a window is set again. A smaller difference
// may come from the scheduler, between reading the one clock and the other.
const stepMax = 50 * time.Millisecond

func windowLasts(has, wants netfence.Window, now time.Duration) bool {
	if wants.Boot == 0 || has.Boot == 0 {
		return wants.Boot == has.Boot
	}
	later, laterWall := wants.Boot-has.Boot, wants.Wall.Sub(has.Wall)
	return later >= 0 && laterWall >= 0 && (later-laterWall).Abs() < stepMax &&
		has.Boot-now >= (wants.Boot-now)/2
}

// portWants says which packets should pass now. It reads the clocks first: a window counts from
// before the state was read, however long the agent stands still in between. It reads the lease
// before serving, too: the lease is of the term that serving is asked about, or of an ended term.
func (a *Agent) portWants() netfence.State {
	in := portInput{frozen: reading.WindowOf(a.cfg.Raft.ElectionTimeout)}
	in.lease.Boot, in.lease.Wall = a.Raft.Lease()
	in.heard = a.heard.Window()
	in.serving, in.moving, in.answering = a.Slot.Serving(), a.Orders.MovesAway(), a.Slot.Answering()
	own, leader := a.board.Own(), a.Raft.Role().Leader
	in.promoting, in.reads = own.Role == status.RolePromoting, own.Role == status.RoleReplica && leader != 0
	return portState(in)
}

// refresh has the kernel let the right packets pass. The decision and the call of the kernel are
// one step: a later refresh never loses to an earlier one.
func (p *port) refresh() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fence == nil {
		return nil
	}
	now := consensus.BootTime()
	wants := withoutEnded(p.wants(), now)
	if !p.unsure && portLasts(p.set, wants, now) {
		return nil
	}
	err := p.fence.Set(wants)
	if p.unsure = err != nil; p.unsure {
		return err
	}
	p.set = wants
	return nil
}

// leaseChanged wakes runPort, and also the role machine's goroutine if this node has begun or
// ended to serve. It does not block.
func (a *Agent) leaseChanged() {
	a.Inbox.LeaseChanged()
	select {
	case a.port.wake <- struct{}{}:
	default:
	}
}

// runPort keeps the kernel's windows true. If it does not run in time, they end by themselves.
func (a *Agent) runPort(ctx context.Context) error {
	if a.port.fence == nil {
		return nil
	}
	ticker := time.NewTicker(a.cfg.Raft.ElectionTimeout / 8)
	defer ticker.Stop()
	for said := ""; ; {
		changed := a.board.Changes() // before the look, so that no change is missed
		trouble := ""
		if err := a.port.refresh(); err != nil {
			trouble = fmt.Sprintf("clients cannot reach mysqld at %s, only the router: %v", a.board.Own().MysqldPort,
				strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		a.board.SetTrouble(aboutPort, trouble)
		if trouble != said {
			said = trouble
			if trouble != "" {
				a.logger.Warn("mysqld's own port: " + trouble)
			} else {
				a.logger.Info("mysqld's own port: clients reach it again")
			}
		}
		select {
		case <-changed:
		case <-a.port.wake:
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// asksLeader tells whether clients read replicas here, who have to know whether their leader still leads.
func (a *Agent) asksLeader() bool { return a.port.open() || a.cfg.Router.ReadOnly != "" }

// runAskLeader has a follower ask its leader, again and again, whether it still leads. A message
// from a leader that is no answer may be old: it may have lain in a buffer while this agent, or
// this machine, stood still.
func (a *Agent) runAskLeader(ctx context.Context) error {
	if !a.asksLeader() {
		return nil
	}
	ticker := time.NewTicker(a.cfg.Raft.ElectionTimeout / 4)
	defer ticker.Stop()
	commit := func() uint64 { return a.Raft.Committed().Mark().Index }
	for {
		if r := a.Raft.Role(); r.Leader != 0 && !r.Leading && a.heard.Hear(ctx, a.cfg.Raft.ElectionTimeout, a.Raft.AskLeader, commit) && a.port.fence != nil {
			a.leaseChanged()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// clients are those of this node's mysqld. It implements primary.Clients.
type clients struct{ *Agent }

// Wake and what follows implement primary.Clients.
func (c clients) Wake()                              { c.board.Wake() }
func (c clients) Hold()                              { c.leaseChanged() }
func (c clients) CloseAll()                          { c.router.CloseAll() }
func (c clients) OwnPort() bool                      { return c.port.fence != nil }
func (c clients) AwaitPort()                         { c.awaitPort() }
func (c clients) EndReads(ctx context.Context) error { return c.reads.End(ctx) }
func (c clients) ClosePort(ctx context.Context) error { // runPort is about to do it, too
	return c.port.told(ctx, c.work.Go)
}

// awaitPort returns once the kernel lets nothing pass any more that may not pass now. A primary
// calls it before it gives up a lease: another node may be elected before the lease's time is
// over. A node that is promoted calls it before mysqld is opened: from then on the lease counts.
// It takes an election timeout at most: no window is longer.
func (a *Agent) awaitPort() {
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.Raft.ElectionTimeout)
	defer cancel()
	if err := a.port.told(ctx, a.work.Go); err != nil {
		a.logger.Warn("mysqld's own port could not be closed: what was open runs out", "error", err)
		<-ctx.Done()
	}
}

// told refreshes, and waits until the kernel has taken that, for no longer than ctx. After an
// error an open window may stay open until it runs out.
func (p *port) told(ctx context.Context, spawn func(func())) error {
	if p.fence == nil {
		return nil
	}
	done := make(chan error, 1)
	spawn(func() { done <- p.refresh() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the kernel has not answered: %w", ctx.Err())
	}
}

// awaitWritten returns once mysqld has written every answer that its clients wait for.
// The kernel delivers written answers, also after mysqld has closed the connection.
func (a *Agent) awaitWritten(ctx context.Context) error {
	p := a.currentProcess()
	if !a.port.open() || p == nil {
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
