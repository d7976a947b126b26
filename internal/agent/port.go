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
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/netfence"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// aboutPort keys what ails mysqld's own port among the board's troubles.
const aboutPort = "port"

// loopbackHost is where the agent reaches mysqld, beside an address that is fenced.
const loopbackHost = "127.0.0.1"

// port is mysqld's own port on an address that clients reach, fenced by the kernel: where
// mysql.bind is no loopback address (docs/architecture/clients.md).
type port struct {
	fence fence // nil: mysqld is on loopback alone, unless it is unfenced
	// unfenced: nothing fences mysqld's own port, and the operator has it open all the same.
	unfenced bool
	held     *os.File // mysqld inherits it: the fence lasts as long as that mysqld
	// wants says what should pass now.
	wants func() netfence.State
	// wake has room for one: the lease may have changed, or heard.
	wake chan struct{}
	// heard ends an election timeout after a leader was asked last that has answered; nil =
	// none has.
	heard atomic.Pointer[netfence.Window]

	mu  sync.Mutex
	set netfence.State // what the kernel has
	// unsure: a call has failed, so the kernel may have another state.
	unsure bool
}

// fence is netfence.Fence, but for tests.
type fence interface {
	Set(s netfence.State) error
	Close() error
}

// openPort has the kernel fence mysqld's own port, before there is a mysqld. Without the
// right to, mysqld will be on loopback alone, unless the operator takes stale reads.
func (a *Agent) openPort() {
	a.port.wake = make(chan struct{}, 1)
	server, fenced := fencedAddress(a.cfg.MySQL.Bind, a.cfg.MySQL.Port)
	if !fenced || !a.runsMysqld() {
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
	a.board.Update(func(s *cluster.NodeStatus) { s.MysqldPort = server.String() })
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

// closePort gives the fence up: it lasts for as long as a mysqld that has inherited it.
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

// localMysqld is where the agent finds its own mysqld: on loopback, which nothing fences.
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

// inherited is what mysqld keeps open.
func (a *Agent) inherited() []*os.File {
	if a.port.held == nil {
		return nil
	}
	return []*os.File{a.port.held}
}

// portInput is what decides who passes mysqld's own port.
type portInput struct {
	// serving: this node is the primary, and lease says for how long it may serve.
	serving bool
	lease   netfence.Window
	// moving: an operator's plan holds new clients.
	moving bool
	// answering: what was asked under the lease may still be answered.
	answering bool
	// promoting: it leads, and its mysqld is about to be opened.
	promoting bool
	// reads: this node is a replica that has a leader, heard is for how long it may be read:
	// it counts from when it asked that leader.
	reads bool
	heard netfence.Window
	// frozen is a window as long as a frozen agent may go unnoticed, where nothing else says.
	frozen netfence.Window
}

// portState says who passes. Answers without requests are those of a primary without a
// lease: as no more is asked, they answer what was asked under it. Who has connected to the
// router's port must not be served by a replica.
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

// withoutEnded is s with the zero window in the place of each that is over: such a one lets
// nothing pass, whatever it was.
func withoutEnded(s netfence.State, now time.Duration) netfence.State {
	for _, w := range []*netfence.Window{&s.Requests, &s.Answers, &s.Redirected, &s.Redirect} {
		if w.Boot <= now {
			*w = netfence.Window{}
		}
	}
	return s
}

// portLasts tells whether what the kernel has will do for now: it lets pass what should
// pass, not longer, and half of the time is left. wants has no window that is over.
func portLasts(has, wants netfence.State, now time.Duration) bool {
	return windowLasts(has.Requests, wants.Requests, now) &&
		windowLasts(has.Answers, wants.Answers, now) &&
		windowLasts(has.Redirected, wants.Redirected, now) &&
		windowLasts(has.Redirect, wants.Redirect, now)
}

// stepMax is how far the two clocks may part before a window is set anew: less would be
// by the scheduler, between the looks at the two.
const stepMax = 50 * time.Millisecond

func windowLasts(has, wants netfence.Window, now time.Duration) bool {
	if wants.Boot == 0 || has.Boot == 0 {
		return wants.Boot == has.Boot
	}
	later, laterWall := wants.Boot-has.Boot, wants.Wall.Sub(has.Wall)
	return later >= 0 && laterWall >= 0 && (later-laterWall).Abs() < stepMax &&
		has.Boot-now >= (wants.Boot-now)/2
}

// windowOf lasts from now on. Its end on the wall clock is nothing but that: a time with a
// monotonic reading would be compared by that.
func windowOf(life time.Duration) netfence.Window {
	return netfence.Window{Wall: time.Now().Add(life).Round(0), Boot: consensus.BootTime() + life}
}

// portWants looks at what is so now. The clocks are read first: a window counts from before
// what it is for was looked at, however long the agent stands still in between. So is the
// lease: it is of the term that serving is asked about, or of one that has ended.
func (a *Agent) portWants() netfence.State {
	in := portInput{frozen: windowOf(a.cfg.Raft.ElectionTimeout)}
	in.lease.Boot, in.lease.Wall = a.node.Lease()
	if heard := a.port.heard.Load(); heard != nil {
		in.heard = *heard
	}
	in.serving, in.moving, in.answering = a.serving(), a.movesAway(), a.answering()
	own, leader := a.board.Own(), a.node.Role().Leader
	in.promoting, in.reads = own.Role == cluster.RolePromoting, own.Role == cluster.RoleReplica && leader != 0
	return portState(in)
}

// refresh has the kernel let pass what should. What it decides and what the kernel is
// told is one step: a later call never loses to an earlier one.
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

// leaseChanged wakes runPort, and the role machine's goroutine where this node serves since, or does no more. It
// does not block.
func (a *Agent) leaseChanged() {
	a.inbox.LeaseChanged()
	select {
	case a.port.wake <- struct{}{}:
	default:
	}
}

// runPort keeps the kernel's windows at what is so. They end by themselves when it does not
// get to it.
func (a *Agent) runPort(ctx context.Context) error {
	if a.port.fence == nil {
		return nil
	}
	ticker := time.NewTicker(a.cfg.Raft.ElectionTimeout / 8)
	defer ticker.Stop()
	for said := ""; ; {
		changed := a.board.Changes() // before the look: nothing is missed
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

// runAskLeader has a follower ask its leader, again and again, whether that still leads. What
// comes from a leader without a question may be old: it lay in a buffer while this agent, or
// this machine, stood still.
func (a *Agent) runAskLeader(ctx context.Context) error {
	if a.port.fence == nil {
		return nil
	}
	ticker := time.NewTicker(a.cfg.Raft.ElectionTimeout / 4)
	defer ticker.Stop()
	for {
		if r := a.node.Role(); r.Leader != 0 && !r.Leading && a.port.hear(ctx, a.cfg.Raft.ElectionTimeout, a.node.AskLeader) {
			a.leaseChanged()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// hear has a replica read for as long as life, from now on, if ask is answered.
func (p *port) hear(ctx context.Context, life time.Duration, ask func(context.Context) error) bool {
	heard := windowOf(life)
	ctx, cancel := context.WithTimeout(ctx, life)
	defer cancel()
	if ask(ctx) != nil {
		return false
	}
	p.heard.Store(&heard)
	return true
}

// awaitPort returns once the kernel lets nothing pass that was so before and is not now.
// Who has served calls it before giving a lease up, as another node may be elected before
// its time is over; who is promoted before mysqld is opened, as from then on the lease
// counts. It takes an election timeout at most: no window is longer.
func (a *Agent) awaitPort() {
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.Raft.ElectionTimeout)
	defer cancel()
	if err := a.port.told(ctx, a.work.Go); err != nil {
		a.logger.Warn("mysqld's own port could not be closed: what was open runs out", "error", err)
		<-ctx.Done()
	}
}

// told refreshes, and waits until the kernel has taken that, for no longer than ctx. After
// an error what was open may be so until it runs out.
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
// What it has written the kernel delivers, also after mysqld has closed the connection.
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
