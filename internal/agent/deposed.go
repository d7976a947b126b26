package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// answersTimeout bounds how long the last answers are waited for on their way to the
	// clients, once nothing waits in the mysqld of a deposed primary.
	answersTimeout = 200 * time.Millisecond
	// answersPoll is how often mysqld is asked whether it has written them.
	answersPoll = 5 * time.Millisecond
)

// acksAreCommits tells whether an ACK waits for nothing but the commit. What else it
// may have to wait for only a leader knows.
func (a *Agent) acksAreCommits() bool { return !a.node.Committed().State().State.AcksWait() }

// answering tells whether what mysqld was asked under the lease may still be
// answered: it is the primary without a lease, or was and is settled.
func (a *Agent) answering() bool {
	return a.epoch.Answering(a.serveTerm.Load()) && a.acksAreCommits()
}

// Settle makes a replica of the primary that a term had, without killing its
// mysqld, if that has nothing but what was committed. Whoever calls it kills it
// otherwise.
func (a steps) Settle(ctx context.Context, term uint64) (err error) {
	began := time.Now()
	defer func() {
		if err != nil {
			a.settleKills.Add(1)
		}
	}()
	p := a.currentProcess()
	tap, incarnation, ok := a.epoch.Tap(term)
	if !ok || p == nil || p.Incarnation() != incarnation {
		return errors.New("its tap is closed")
	}
	a.lagBound.SetOpen(false)
	if err := a.port.told(ctx, a.work.Go); err != nil { // no more requests; runPort is about to do it, too
		return fmt.Errorf("close mysqld's own port to requests: %w", err)
	}
	number, acknowledged, err := primary.Settling{
		Term: term, Server: localServer{p.Admin(), p, a.Agent}, Tap: tap, Log: a.node.Committed(),
		AcksAreCommits: a.acksAreCommits, Clock: clock.Machine{},
	}.Run(ctx)
	if err != nil {
		return err
	}
	answers, cancel := context.WithTimeout(ctx, answersTimeout)
	defer cancel()
	if err := a.router.AwaitAnswers(answers); err != nil {
		a.logger.Warn("some clients did not take their answers in time", "error", err)
	}
	if err := a.awaitWritten(answers); err != nil {
		a.logger.Warn("some clients had no answer in time", "error", err)
	}
	a.settledIncarnation.Store(p.Incarnation())
	a.logger.Info(fmt.Sprintf("settled: %d acknowledged, 0 killed", acknowledged), "epoch", term, "last", number,
		"took", time.Since(began).Round(time.Millisecond))
	return nil
}

// keptAfterSettling counts a mysqld that was settled, now that it replicates: what
// could still have killed it (primary.Replicate) is done.
func (a *Agent) keptAfterSettling(p *mysqld.Process) {
	if p != nil && a.settledIncarnation.CompareAndSwap(p.Incarnation(), 0) {
		a.settles.Add(1)
	}
}

// settleMetrics are of this agent's life.
func (p provider) settleMetrics() []api.Metric {
	return []api.Metric{
		{Name: "quorate_settled_total", Help: "How often this node lost the primary's role and kept its mysqld: nothing of it was lost.", Counter: true, Value: float64(p.settles.Load())},
		{Name: "quorate_settle_kills_total", Help: "How often a deposed primary's mysqld was killed after it was tried to keep it.", Counter: true, Value: float64(p.settleKills.Load())},
	}
}
