package transport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// lookupMax bounds one lookup of a peer's name. Go's resolver waits 5 s for each name server, then asks the next
// one. So two of three name servers may be dead.
const lookupMax = 15 * time.Second

// finding is one lookup of a peer's name. It may take longer than a dial: what it finds is for later dials, too.
type finding struct {
	// until is how long a dial waits that knows an address from before.
	until time.Time
	// done is closed when ips and err are there.
	done chan struct{}
	ips  []net.IPAddr
	err  error
}

// addresses returns where to dial a peer. If its name is not found, or not in half of a dial's time, these are the
// addresses that it had last, and old says why: another host may have them by now.
func (t *Transport) addresses(ctx context.Context, to Peer, host string) (ips []net.IPAddr, old, err error) {
	p := t.peer(to.ID)
	if p != nil && p.Addr != to.Addr {
		p = nil
	}
	f := t.find(p, host)
	if f == nil {
		ips, err := t.lookup(ctx, host)
		if err == nil && p != nil {
			p.at.Store(&ips)
		}
		return ips, nil, err
	}
	before := p.at.Load()
	var slow <-chan time.Time
	if before != nil {
		slow = time.After(time.Until(f.until))
	}
	select {
	case <-f.done:
		if f.err == nil {
			return f.ips, nil, nil
		}
		old = f.err
	case <-slow:
		old = context.DeadlineExceeded
	case <-ctx.Done():
		before, old = nil, ctx.Err() // no time is left for a dial
	}
	if e, ok := errors.AsType[net.Error](old); ok && e.Timeout() {
		// A text that is the same at each dial is logged once.
		old = &net.DNSError{Err: "no name server has answered in time", Name: host, IsTimeout: true, UnwrapErr: old}
	}
	if before == nil || errors.Is(old, context.Canceled) {
		return nil, nil, old
	}
	if !p.lost.Swap(true) {
		t.cfg.Logger.Warn("the name of a peer is not found: it is dialled at the addresses that the name had before",
			"peer", p.Name, "name", host, "addresses", *before, "err", old)
	}
	return *before, old, nil
}

// find returns the lookup of a peer's name that is under way, or begins one. nil = the caller must look by itself:
// there is no name, or Run is not under way.
func (t *Transport) find(p *peer, host string) *finding {
	if _, err := netip.ParseAddr(host); err == nil || p == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.finding != nil {
		return p.finding
	}
	if t.running == nil || t.closing {
		return nil
	}
	f := &finding{until: time.Now().Add(t.tune.dialTimeout / 2), done: make(chan struct{})}
	p.finding = f
	ctx := t.running
	t.outgoing.Go(func() {
		defer close(f.done)
		ctx, cancel := context.WithTimeout(ctx, lookupMax)
		defer cancel()
		if f.ips, f.err = t.lookup(ctx, host); f.err == nil {
			p.at.Store(&f.ips)
			if time.Now().Before(f.until) && p.lost.Swap(false) {
				t.cfg.Logger.Info("the name of a peer is found again", "peer", p.Name, "name", host)
			}
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		p.finding = nil
	})
	return f
}
