package agent

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/sys/notify"
)

const (
	// statusShownBytesMax is how much of a reason the service manager is told.
	statusShownBytesMax = 200
	// stepsWithin is how old the newest step of the role machine may be before its loop counts as
	// stuck: each gossip brings a step. Gossip asks consensus, so a step shows that consensus runs, too.
	stepsWithin = 10 * time.Second
)

// notifying tells the service manager that this node's ports are open, and from then on how the node is,
// until end is called. It waits for nothing more: a node that forms a cluster waits for the others, and
// a node that joins copies for hours. An operator who starts host after host would wait forever.
func (a *Agent) notifying(ctx context.Context, m notify.Manager) (end func()) {
	if !m.There() {
		return func() {}
	}
	life, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.notify(life, ctx, m)
	}()
	return func() { cancel(); <-done }
}

// notify tells the service manager how this node is until life ends. If process has ended, too, the
// program ends; else the next life of this node begins.
func (a *Agent) notify(life, process context.Context, m notify.Manager) {
	send := func(lines ...string) {
		if err := m.Send(lines...); err != nil {
			a.logger.Warn("cannot tell the service manager how this node is", "error", err)
		}
	}
	var beat <-chan time.Time
	if m.Watchdog > 0 {
		ticker := time.NewTicker(m.Watchdog / 3)
		defer ticker.Stop()
		beat = ticker.C
	}
	said := ""
	for lines := []string{notify.Ready}; ; lines = nil {
		changed := a.board.Changes()
		if text := a.serviceText(); text != said {
			lines, said = append(lines, notify.Status(text)), text
		}
		if len(lines) > 0 {
			send(lines...)
		}
		select {
		case <-changed:
		case <-beat:
			if a.turns() {
				send(notify.Beat)
			}
		case <-life.Done():
			if process.Err() != nil {
				send(notify.Stopping)
			}
			return
		}
	}
}

// serviceText says in a line how this node is.
func (a *Agent) serviceText() string {
	own, primary := a.board.Own(), a.primaryName()
	text := string(own.Role)
	if own.Role == status.RoleReplica {
		text += ", the primary is " + cmp.Or(primary, "not known")
	}
	if own.Reason != "" {
		reason := own.Reason
		text += ": " + strings.ToValidUTF8(reason[:min(len(reason), statusShownBytesMax)], "")
	}
	return text
}

// turns tells whether the loops on which everything else depends still turn. It is true while they do not
// run: before they begin, and in a node that joins.
func (a *Agent) turns() bool {
	last := a.lastStep.Load()
	return last == nil || time.Since(*last) < stepsWithin
}
