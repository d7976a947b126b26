package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/api"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/mysqld"
)

// What a deposed primary may take: its agent kills its mysqld when settleTimeout is
// over, or at once in any doubt (docs/architecture.md, "Settling a deposed primary").
const (
	settleTimeout = 2 * time.Second
	// answersTimeout bounds how long the last answers are waited for on their way
	// through the router, once nothing waits in mysqld.
	answersTimeout = 200 * time.Millisecond
	// binlogEndPoll is how often mysqld's binlog is compared with what the tap read.
	binlogEndPoll = 5 * time.Millisecond
)

// depose ends all acknowledging by consensus's marks, and leaves the tap connected:
// what else becomes of its epoch is core's to say. It returns false if there is no
// epoch of that term that clients were served in.
func (s *epochSlot) depose(term uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil || !s.cur.deposed.Load() && s.cur.term != term {
		return false
	}
	s.cur.deposed.Store(true)
	return true
}

// lostRole takes it that this node does not lead in the epoch's term any more (I2).
// It is called in a turn of consensus.
func (a *Agent) lostRole(r consensus.RoleState) {
	served := a.serveTerm.Load()
	settles := a.acksAreCommits() && a.epoch.depose(served)
	if !r.Leading || r.Term != served {
		a.stopServing(settles)
	}
	if !settles {
		a.epoch.close()
	}
}

// acksAreCommits tells whether an ACK waits for nothing but the commit. What else it
// may have to wait for only a leader knows.
func (a *Agent) acksAreCommits() bool { return !a.node.Committed().State().State.AcksWait() }

// answering tells whether what mysqld was asked under the lease may still be
// answered: it is the primary without a lease, or was and is settled.
func (a *Agent) answering() bool {
	term, ok := a.epoch.openTerm()
	return ok && (term == a.serveTerm.Load() || a.epoch.isDeposed()) && a.acksAreCommits()
}

func (s *epochSlot) openTerm() (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil {
		return 0, false
	}
	return s.cur.term, true
}

func (s *epochSlot) isDeposed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur != nil && s.cur.deposed.Load()
}

// settlePrimary makes a replica of the primary that a term had, without killing its
// mysqld, if that has nothing but what was committed. Whoever calls it kills it
// otherwise.
func (a *Agent) settlePrimary(ctx context.Context, term uint64) (err error) {
	began := time.Now()
	defer func() {
		if err != nil {
			a.settleKills.Add(1)
		}
	}()
	e, p := a.epoch.get(term), a.currentProcess()
	if e == nil || p == nil || p.Incarnation() != e.incarnation {
		return errors.New("its tap is closed")
	}
	a.lagBound.setOpen(false)
	if err := a.port.told(ctx, a.work.Go); err != nil { // no more requests; runPort is about to do it, too
		return fmt.Errorf("close mysqld's own port to requests: %w", err)
	}
	number, acknowledged, err := settling{
		term: term, server: p.Admin(), tap: e.tap, log: a.node.Committed(), acksAreCommits: a.acksAreCommits, logger: a.logger,
	}.run(ctx)
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
// could still have killed it (tidyPrimary) is done.
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
