package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/bulk"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/primary"
	"github.com/quorate/quorate/internal/sim/fakemysqld"
	"github.com/quorate/quorate/internal/tap"
)

// entryBytesMax is the length of the longest entry, as package agent has it.
const entryBytesMax = 60 << 20

// epoch is one tenure of the local mysqld as primary: the shell around a
// tap.Machine that mysqlwire.Tap and the agent are.
type epoch struct {
	primary.Epoch
	a       *agent
	process *mysqld
	machine *tap.Machine
	dump    *fakemysqld.Dump
	ctx     context.Context
	end     context.CancelFunc
	closed  bool

	// intake is the reader's; step waits for room in the growing batch.
	intake  tap.Intake
	step    *tap.Step
	uploads bulk.Uploads

	readDue bool
	running bool // the epoch is open in the log: it proposes
	batched signal
	ackDue  bool
}

func (a *agent) epochOf(term uint64) *epoch {
	if !a.epoch.rules().Of(term) {
		return nil
	}
	return a.epoch
}

// rules is what decides about the epoch, or nil.
func (e *epoch) rules() *primary.Epoch {
	if e == nil {
		return nil
	}
	return &e.Epoch
}

// closeEpoch ends all acknowledging: nothing is sent after it.
func (a *agent) closeEpoch() {
	e := a.epoch
	if e == nil {
		return
	}
	a.n.log("tap", "closed, term %d", e.Term)
	a.epoch = nil
	e.closed = true
	e.machine.Close()
	e.end()
	e.uploads.Close()
	if !e.process.dead {
		e.process.dumped = nil
		e.dump.Close()
	}
}

// openTap connects the tap of a new epoch and checks that mysqld waits for it.
func (a *agent) openTap(ctx context.Context, term uint64) error {
	p, err := a.sql(ctx)
	if err != nil {
		return err
	}
	exclude := a.committedGTIDs()
	dump, err := p.OpenDump(exclude)
	if err != nil {
		return fmt.Errorf("connect tap: %w", err)
	}
	e := &epoch{
		Epoch: primary.Epoch{Term: term, Incarnation: p.incarnation}, a: a, process: p, dump: dump,
		machine: tap.New(tap.Config{Term: term, Exclude: exclude, EntryBytesMax: entryBytesMax, StageBytesMin: stageBytesMin}),
	}
	e.ctx, e.end = context.WithCancel(context.Background())
	e.intake = tap.Intake{Machine: e.machine, Lock: &sync.Mutex{}, Open: func(_ tap.Step, id entry.StageID) (tap.StageWriter, error) {
		return e.uploads.Open(e.ctx, a.stages.Bulk, id)
	}}
	for e.machine.FormatDescription() == nil {
		if err := e.readOne(); err != nil {
			dump.Close()
			return fmt.Errorf("start dump: %w", err)
		}
	}
	a.life.sleep(socketMin + around(a.n.rng, socketMean))
	a.closeEpoch()
	a.epoch = e
	if r := a.loop.role; ctx.Err() != nil || !r.Leading || r.Term != term {
		a.closeEpoch()
		return fmt.Errorf("the promotion in term %d ended", term)
	}
	return primary.AwaitTap(ctx, localServer{a}.SemiSyncStatus, a.life)
}

// commitEpoch opens the epoch in the log.
func (a *agent) commitEpoch(ctx context.Context, term uint64) error {
	e := a.epochOf(term)
	if e == nil {
		return fmt.Errorf("open epoch %d: its tap is gone", term)
	}
	if chance(a.n.rng, 4) { // it leads again, in another term, when the proposal comes
		a.n.log("linger", "and resigns meanwhile")
		a.loop.control(func(time.Duration) { a.group.Resign(term) })
		a.life.sleep(around(a.n.rng, 200*time.Millisecond))
	}
	err := primary.Open(ctx, entry.Epoch{
		Term: term, Primary: a.n.member.Name, ServerUUID: a.n.uuid, FormatDescription: e.machine.FormatDescription(),
	}, a.loop.propose, a.group.Committed().EpochChanged, a.life)
	if err != nil {
		return err
	}
	a.w.epochs++
	a.w.happened(pointEpoch, a.n)
	e.run()
	return nil
}

// run begins the reader and the proposer.
func (e *epoch) run() {
	if e.closed || e.process.dead {
		return
	}
	e.running = true
	e.process.dumped = e.readSoon
	e.readSoon()
	e.beat()
	e.a.life.start(func() {
		if err := e.propose(); e.ctx.Err() == nil {
			e.failed(err)
		}
	})
}

// readSoon has the reader look, when the bytes have come through the socket.
func (e *epoch) readSoon() {
	if !e.readDue && !e.closed {
		e.readDue = true
		e.a.life.after(socketMin+around(e.a.n.rng, socketMean), e.read)
	}
}

// read takes what is at hand, some of the time not all of it.
func (e *epoch) read() {
	e.readDue = false
	if e.closed || e.process.dead {
		return
	}
	for burst := 1 + e.a.n.rng.IntN(64); burst > 0; burst-- {
		err := e.readOne()
		if errors.Is(err, errNothing) {
			break
		}
		if errors.Is(err, errNoRoom) {
			e.batched.fire()
			return // the proposer wakes it when it has taken the batch
		}
		if err != nil {
			e.failed(err)
			return
		}
		if burst == 1 {
			e.readSoon()
		}
	}
	e.intake.Release(e.proposeNow)
	e.batched.fire()
}

// failed is the end of the tap's reader, or proposer.
func (e *epoch) failed(err error) {
	e.machine.Close()
	e.a.doubt(e.Incarnation, fmt.Sprintf("the tap ended: %v", err))
}

var (
	errNothing = errors.New("nothing to read")
	errNoRoom  = errors.New("the growing batch is in the way")
)

func (e *epoch) readOne() error {
	if e.step == nil {
		event, ok := e.dump.Next()
		if !ok {
			return errNothing
		}
		e.a.n.check.dumped(e, event)
		step, err := e.machine.Read(event)
		if err != nil {
			return err
		}
		e.step = &step
	}
	ok, err := e.intake.Take(*e.step, time.Unix(0, int64(e.a.w.sched.now)))
	switch {
	case err != nil:
		return err
	case !ok:
		return errNoRoom
	}
	if e.step.Kind == tap.StepRotate {
		e.a.w.happened(pointRotated, e.a.n)
	}
	e.step = nil
	e.ackSoon()
	return nil
}

// beat is mysqld's heartbeat to an idle tap, as often as its agent asks for.
func (e *epoch) beat() {
	e.a.life.after(e.a.n.timing.election, func() {
		if e.closed || e.process.dead {
			return
		}
		if event := e.dump.Heartbeat(); event != nil && e.step == nil {
			step, err := e.machine.Read(event)
			if err == nil {
				_, err = e.machine.Apply(step, time.Unix(0, int64(e.a.w.sched.now)))
			}
			if err != nil {
				e.failed(err)
				return
			}
			e.ackSoon()
		}
		e.beat()
	})
}

// proposeNow proposes a batch from the reader: one that has nothing to wait for. In one of
// ten times the bound on the apply lag is in its way.
func (e *epoch) proposeNow(b tap.Batch) bool {
	if b.Staged != nil || chance(e.a.n.rng, 10) || !e.a.loop.inbox.Propose(b.Data) {
		return false
	}
	e.logBatch(b)
	e.a.loop.wake()
	return true
}

func (e *epoch) logBatch(b tap.Batch) {
	e.a.n.log("propose", "term %d number %d, %d transactions", e.Term, b.Number, len(b.GTIDs))
}

// propose hands batches to consensus, one at a time: what proposeNow did not.
func (e *epoch) propose() error {
	for {
		batch, ok := e.machine.TakeBatch()
		if !ok {
			if err := e.a.life.Wait(e.ctx, 0, e.batched.next()); err != nil {
				return err
			}
			continue
		}
		if e.step != nil {
			e.readSoon()
		}
		e.logBatch(batch)
		err := e.uploads.Propose(batch.Staged, func() error {
			if batch.Staged != nil {
				e.a.w.staged++
				e.a.n.check.names(e.a, *batch.Staged)
			}
			if chance(e.a.n.rng, 10) {
				e.a.linger()
			}
			return e.a.loop.propose(e.ctx, batch.Data)
		})
		if err != nil {
			return fmt.Errorf("propose batch %d: %w", batch.Number, err)
		}
		e.machine.Proposed()
	}
}

// linger has a goroutine that is about to propose lose its processor, in one of
// fifty times: its epoch may be over when it goes on.
func (a *agent) linger() {
	if chance(a.n.rng, 2) {
		a.life.sleep(around(a.n.rng, 2*time.Second))
	}
}

func (e *epoch) ackSoon() {
	if !e.ackDue {
		e.ackDue = true
		e.a.life.after(e.a.n.hiccup(), e.ack)
	}
}

// ack writes one acknowledgement. What was written before a close still
// arrives.
func (e *epoch) ack() {
	e.ackDue = false
	p, ok := e.machine.NextAck()
	if !ok || e.process.dead {
		return
	}
	e.a.n.log("ack", "%v", p)
	e.a.n.check.acked(e, p)
	e.a.n.lastACK.incarnation, e.a.n.lastACK.at = e.Incarnation, p
	e.process.life.after(socketMin+around(e.a.n.rng, socketMean), func() {
		e.process.ack(p.File, p.Offset)
		e.a.w.happened(pointAcked, e.a.n)
	})
}
