package ownport

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/quorate/quorate/internal/front/netfence"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// Fence is netfence.Fence.
type Fence interface {
	Set(s netfence.State) error
	Close() error
}

// Port is mysqld's own port on an address that clients reach, fenced by the kernel. The zero value is a port that
// nobody reaches.
type Port struct {
	fence Fence // nil: mysqld is on loopback alone, unless it is unfenced
	// unfenced: nothing fences mysqld's own port, and the operator wants it open all the same.
	unfenced bool
	held     *os.File // mysqld inherits it: the fence lasts as long as that mysqld
	// wants says which packets should pass now.
	wants func() netfence.State
	// wake has room for one signal.
	wake chan struct{}

	mu  sync.Mutex
	set netfence.State // the kernel's state
	// unsure: a call has failed, so the kernel may have another state.
	unsure bool
}

// Take has a fence guard the port from here on. mysqld inherits held. wants says which packets should pass now.
func (p *Port) Take(f Fence, held *os.File, wants func() netfence.State) {
	p.fence, p.held, p.wants, p.wake = f, held, wants, make(chan struct{}, 1)
}

// Unfence opens the port without a fence.
func (p *Port) Unfence() { p.unfenced = true }

// Close gives the fence up. The fence still lasts as long as a mysqld that has inherited it.
func (p *Port) Close() (err error) {
	if p.held != nil {
		_ = p.held.Close()
	}
	if p.fence != nil {
		err = p.fence.Close()
	}
	p.fence, p.held = nil, nil
	return err
}

// Open tells whether clients reach mysqld itself, Fenced whether the kernel guards that.
func (p *Port) Open() bool   { return p.fence != nil || p.unfenced }
func (p *Port) Fenced() bool { return p.fence != nil }

// Inherited holds the files that mysqld keeps open.
func (p *Port) Inherited() []*os.File {
	if p.held == nil {
		return nil
	}
	return []*os.File{p.held}
}

// Wake has Run look again: other packets may have to pass now. It does not block.
func (p *Port) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Refresh has the kernel let the right packets pass. The decision and the call of the kernel are
// one step: a later refresh never loses to an earlier one.
func (p *Port) Refresh() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fence == nil {
		return nil
	}
	now := consensus.BootTime()
	wants := withoutEnded(p.wants(), now)
	if !p.unsure && lasts(p.set, wants, now) {
		return nil
	}
	err := p.fence.Set(wants)
	if p.unsure = err != nil; p.unsure {
		return err
	}
	p.set = wants
	return nil
}

// Told refreshes, and waits until the kernel has taken that, for no longer than ctx. After an
// error an open window may stay open until it runs out.
func (p *Port) Told(ctx context.Context, spawn func(func())) error {
	if p.fence == nil {
		return nil
	}
	done := make(chan error, 1)
	spawn(func() { done <- p.Refresh() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the kernel has not answered: %w", ctx.Err())
	}
}
