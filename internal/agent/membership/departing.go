package membership

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/clock"
)

// leaveGrace is for how long a node that has to leave goes on: it may have to answer the very
// request that has caused that.
const leaveGrace = 500 * time.Millisecond

// Leaver is a node that may have to go.
type Leaver interface {
	// End stops what the node runs. It does not block.
	End(because error)
	// Confirm decides once more, when the node has stopped, whether it obeys a recovery.
	Confirm(r cluster.Recovery) (accepted bool, err error)
	// WriteState makes durable the cluster state with which the node starts again.
	WriteState(p cluster.StatePoint) error
}

// Home makes durable what a node is from now on: see datadir.Home.
type Home interface {
	Supersede(r cluster.Recovery) error
	Remove() error
	Rebuild(instance string, now time.Time) error
}

// DepartingConfig is what a Departing needs. All fields are required.
type DepartingConfig struct {
	Node   Leaver
	Home   Home
	Clock  clock.Tasks
	Now    func() time.Time // what a person's clock shows
	Logger *slog.Logger
}

// Departing ends a node that cannot go on as it is. Only the first departure counts.
type Departing struct {
	cfg DepartingConfig

	mu        sync.Mutex
	because   *Departure // nil = it stays
	left      chan struct{}
	ends      []context.CancelCauseFunc
	persisted bool
}

// NewDeparting returns the Departing of a node that stays until Leave is called.
func NewDeparting(cfg DepartingConfig) *Departing {
	return &Departing{cfg: cfg, left: make(chan struct{})}
}

// Leave has the node end: its contexts at once, everything else after leaveGrace. There is no
// grace if the cluster was recovered without the node: nobody waits for its answer, and it must
// elect nobody. Leave does not block.
func (d *Departing) Leave(e Departure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.because != nil {
		return
	}
	d.because = &e
	close(d.left)
	d.cfg.Logger.Error("this node cannot go on as it is", "reason", e.Error())
	for _, end := range d.ends {
		end(&e)
	}
	d.cfg.Clock.Go(func() {
		if e.Superseded == nil {
			_ = clock.Sleep(context.Background(), d.cfg.Clock, leaveGrace)
		}
		d.cfg.Node.End(&e)
	})
}

// Because is why the node has to go; nil = it stays.
func (d *Departing) Because() *Departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.because
}

// Left is closed once the node has to go.
func (d *Departing) Left() <-chan struct{} { return d.left }

// Context returns a context that ends with ctx, or once the node has to go, with the departure
// as its cause.
func (d *Departing) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.because != nil {
		end(d.because)
	}
	d.ends = append(d.ends, end)
	return ctx, func() { end(nil) }
}

// PersistExit notes durably what the node is now, if it cannot go on as it was. Call it once the
// node has ended. persisted: it has left, and its next start goes by what is on disk.
func (d *Departing) PersistExit() (persisted bool, err error) {
	e := d.Because()
	switch node, home := d.cfg.Node, d.cfg.Home; {
	case e == nil || d.persisted:
		return d.persisted, nil
	case e.Superseded != nil:
		var accepted bool
		if accepted, err = node.Confirm(*e.Superseded); accepted {
			err = home.Supersede(*e.Superseded)
		}
	case e.State != nil:
		err = node.WriteState(*e.State)
	case e.Instance == "":
		err = home.Remove()
	default:
		err = home.Rebuild(e.Instance, d.cfg.Now())
	}
	d.persisted = err == nil
	return d.persisted, err
}
