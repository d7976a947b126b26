package devcluster

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/quorate/quorate/internal/sys/subprocess"
)

// agentOf returns node i's running agent.
func (c *Cluster) agentOf(i int) (*subprocess.Process, error) {
	if p := c.nodes[i].running(); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("node %s: %w", c.nodes[i].name, ErrAgentExited)
}

// mysqldOf returns the mysqld of node i. The caller releases it.
func (c *Cluster) mysqldOf(i int) (*subprocess.Child, error) {
	p, err := c.agentOf(i)
	if err != nil {
		return nil, err
	}
	all := subprocess.Children(p.Pid())
	if len(all) != 1 {
		subprocess.Release(all)
		return nil, fmt.Errorf("devcluster: the agent of node %s has %d child processes, not one mysqld", c.nodes[i].name, len(all))
	}
	return all[0], nil
}

// AgentPID returns the process id of node i's agent, 0 if it does not run.
func (c *Cluster) AgentPID(i int) int {
	if p := c.nodes[i].running(); p != nil {
		return p.Pid()
	}
	return 0
}

// MysqldPID returns the process id of node i's mysqld, 0 if it does not run.
func (c *Cluster) MysqldPID(i int) int {
	m, err := c.mysqldOf(i)
	if err != nil {
		return 0
	}
	defer m.Release()
	return m.Pid()
}

// KillAgent sends SIGKILL to node i's agent and returns when the agent is gone
// and the kernel has taken its mysqld with it.
func (c *Cluster) KillAgent(i int) error { return c.kill(i, true, false) }

// KillMysqld sends SIGKILL to node i's mysqld and returns when it is gone.
func (c *Cluster) KillMysqld(i int) error { return c.kill(i, false, true) }

// KillBoth sends SIGKILL to node i's agent and mysqld and returns when both are
// gone.
func (c *Cluster) KillBoth(i int) error { return c.kill(i, true, true) }

func (c *Cluster) kill(i int, agent, mysqld bool) error {
	p, err := c.agentOf(i)
	if err != nil {
		return err
	}
	children := subprocess.Children(p.Pid())
	var errs []error
	if agent {
		errs = append(errs, p.Signal(syscall.SIGKILL))
	}
	for _, m := range children {
		if mysqld {
			errs = append(errs, m.Signal(syscall.SIGKILL))
		}
	}
	if agent {
		errs = append(errs, p.WaitGone())
	}
	return errors.Join(append(errs, awaitEnd(children))...)
}

// awaitEnd waits until the children are gone and releases them. A child that
// should have ended and has not is killed, so that it does not outlive the
// cluster, and is reported as an error.
func awaitEnd(children []*subprocess.Child) error {
	var errs []error
	for _, m := range children {
		if err := m.WaitGone(); err != nil {
			errs = append(errs, err, m.Signal(syscall.SIGKILL))
		}
		m.Release()
	}
	return errors.Join(errs...)
}

// PauseAgent stops node i's agent with SIGSTOP. mysqld goes on.
func (c *Cluster) PauseAgent(i int) error { return c.signalAgent(i, syscall.SIGSTOP) }

// ResumeAgent continues node i's agent.
func (c *Cluster) ResumeAgent(i int) error { return c.signalAgent(i, syscall.SIGCONT) }

// AgentPaused says whether the kernel has stopped node i's agent: a signal takes
// effect a moment after it was sent.
func (c *Cluster) AgentPaused(i int) bool {
	p, err := c.agentOf(i)
	if err != nil {
		return false
	}
	return p.Stopped()
}

func (c *Cluster) signalAgent(i int, sig syscall.Signal) error {
	p, err := c.agentOf(i)
	if err != nil {
		return err
	}
	return p.Signal(sig)
}

// PauseMysqld stops node i's mysqld with SIGSTOP.
func (c *Cluster) PauseMysqld(i int) error { return c.SignalMysqld(i, syscall.SIGSTOP) }

// ResumeMysqld continues node i's mysqld.
func (c *Cluster) ResumeMysqld(i int) error { return c.SignalMysqld(i, syscall.SIGCONT) }

// SignalMysqld sends sig to node i's mysqld.
func (c *Cluster) SignalMysqld(i int, sig syscall.Signal) error {
	m, err := c.mysqldOf(i)
	if err != nil {
		return err
	}
	defer m.Release()
	return m.Signal(sig)
}

// Terminate sends SIGTERM to node i's agent and waits until it has ended and
// its mysqld with it. If the exit status was not 0, the error says how the agent ended.
func (c *Cluster) Terminate(ctx context.Context, i int) error {
	return c.end(ctx, i, func(p *subprocess.Process) error { return p.Signal(syscall.SIGTERM) })
}

// Interrupt sends SIGINT to the process group of node i's agent, as a terminal
// does on Ctrl-C, and waits like Terminate.
func (c *Cluster) Interrupt(ctx context.Context, i int) error {
	return c.end(ctx, i, func(p *subprocess.Process) error { return p.SignalGroup(syscall.SIGINT) })
}

func (c *Cluster) end(ctx context.Context, i int, send func(*subprocess.Process) error) error {
	p, err := c.agentOf(i)
	if err != nil {
		return err
	}
	children := subprocess.Children(p.Pid())
	if err := send(p); err != nil {
		subprocess.Release(children)
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		subprocess.Release(children)
		return fmt.Errorf("wait for the agent of node %s to end: %w", c.nodes[i].name, ctx.Err())
	}
	if err := awaitEnd(children); err != nil {
		return err
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("end agent of node %s: %w", c.nodes[i].name, err)
	}
	return nil
}
