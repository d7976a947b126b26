package faultmount

import (
	"path"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Op is a set of kinds of operations.
type Op uint

// The kinds. An operation can be of several kinds: a write behind the end of a file is
// Write and Grow, a new file is Grow and Modify.
const (
	// Read of a file's content.
	Read Op = 1 << iota
	// Write into a file.
	Write
	// Grow is an operation that needs space: writes behind the end, fallocate, new names.
	Grow
	// Sync of a file or directory.
	Sync
	// Modify is a change of names, sizes, owners, modes or times, or the opening of a
	// file for writing.
	Modify

	// Writes are all operations that a read-only disk refuses.
	Writes = Write | Grow | Sync | Modify
	// Every operation.
	Every = Read | Writes
)

// Fault says what happens to some operations.
type Fault struct {
	Ops Op
	// Path is a pattern (path.Match) for the path below the mount. A pattern that matches
	// a directory stands for everything below it. "" matches everything.
	Path string
	// Hold makes the operations wait until the faults are changed.
	Hold bool
	// Delay makes the operations take longer.
	Delay time.Duration
	// Errno makes the operations fail; 0 = they do not.
	Errno syscall.Errno
}

func (f Fault) fits(ops Op, name string) bool {
	if f.Ops&ops == 0 {
		return false
	}
	for part := name; ; part = path.Dir(part) {
		if ok, err := path.Match(f.Path, part); f.Path == "" || err == nil && ok {
			return true
		}
		if !strings.Contains(part, "/") {
			return false
		}
	}
}

// Status counts what the faults did.
type Status struct {
	// Held is how many operations wait now.
	Held int
	// Failed is how many operations failed, since the mount.
	Failed int
}

// gate is where each operation waits for the faults.
type gate struct {
	mu      sync.Mutex
	faults  []Fault
	changed chan struct{} // closed when the faults change
	off     bool          // there is no power
	status  Status

	// work is held by each operation while it is done.
	work sync.RWMutex
}

func newGate() *gate { return &gate{changed: make(chan struct{})} }

// set replaces the faults. Held operations look again.
func (g *gate) set(faults []Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = faults
	close(g.changed)
	g.changed = make(chan struct{})
}

// cut takes the power away, and calls undo once no operation is under way.
func (g *gate) cut(undo func() error) error {
	g.mu.Lock()
	g.off = true
	g.mu.Unlock()
	g.set(nil)
	g.work.Lock()
	defer g.work.Unlock()
	return undo()
}

func (g *gate) now() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status
}

// enter returns when the operation may be done, or with the error that the operation gets.
// Without an error the caller must call leave after the operation.
func (g *gate) enter(ops Op, name string) syscall.Errno {
	if errno := g.pass(ops, name); errno != 0 {
		return errno
	}
	g.work.RLock()
	g.mu.Lock()
	off := g.off
	g.mu.Unlock()
	if off {
		g.work.RUnlock()
		return syscall.EIO
	}
	return 0
}

func (g *gate) leave() { g.work.RUnlock() }

func (g *gate) pass(ops Op, name string) syscall.Errno {
	g.mu.Lock()
	defer g.mu.Unlock()
	for delayed := false; ; {
		f := g.match(ops, name)
		switch {
		case g.off:
			g.status.Failed++
			return syscall.EIO
		case f.Hold:
			changed := g.changed
			g.status.Held++
			g.mu.Unlock()
			<-changed
			g.mu.Lock()
			g.status.Held--
		case f.Delay > 0 && !delayed:
			g.mu.Unlock()
			time.Sleep(f.Delay)
			g.mu.Lock()
			delayed = true
		case f.Errno != 0:
			g.status.Failed++
			return f.Errno
		default:
			return 0
		}
	}
}

// match returns the first fault for an operation.
func (g *gate) match(ops Op, name string) Fault {
	for _, f := range g.faults {
		if f.fits(ops, name) {
			return f
		}
	}
	return Fault{}
}
