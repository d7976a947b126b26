package agent

import (
	"github.com/quorate/quorate/internal/agent/hooks"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// aboutHook is the key, among the node's troubles, of a hook that fails.
const aboutHook = "hook"

// newTeller makes the teller, which runs the operator's hook; nil = there is no hook.
func (a *Agent) newTeller() *hooks.Teller {
	command := a.cfg.Hooks.OnChange
	if len(command) == 0 {
		return nil
	}
	return hooks.New(hooks.Config{
		Cluster: a.cfg.Cluster, Node: a.self.Name, Timeout: a.cfg.Hooks.Timeout, Notes: a.data.Dir, Look: a.lookForHook,
		Execute: hooks.Execute(command), Trouble: func(text string) { a.board.SetTrouble(aboutHook, text) }, Logger: a.logger,
	})
}

// lookForHook returns what a hook is told now. changed is closed once that may be different.
func (a *Agent) lookForHook() (s hooks.State, changed <-chan struct{}) {
	changed = a.board.Changes() // before the state is read: so no change is missed
	own := a.board.Own()
	s = hooks.State{Role: own.Role, Primary: a.primaryName(), Term: own.Term}
	if m, err := a.board.State().Member(s.Primary); err == nil {
		s.PrimaryPeer = m.Peer
	}
	return s, changed
}

func (p provider) hookMetrics() []metrics.Sample {
	if p.teller == nil {
		return nil
	}
	s := p.teller.Stats()
	return []metrics.Sample{
		metrics.Bool("quorate_hook_failing", s.Failing),
		metrics.Of("quorate_hook_runs_total", s.Runs),
		metrics.Of("quorate_hook_failures_total", s.Failures),
		metrics.Of("quorate_hook_last_run_seconds", s.Took.Seconds()),
	}
}
