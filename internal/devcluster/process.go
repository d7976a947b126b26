package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/subprocess"
)

// killWait bounds the wait for a killed process to be gone. A mysqld with
// dirty pages under way to a slow disk needs seconds.
const killWait = 30 * time.Second

// process is an agent.
type process struct{ *subprocess.Process }

// spawn starts an agent.
func spawn(cmd *exec.Cmd) (*process, error) {
	p, err := subprocess.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &process{p}, nil
}

func (p *process) ended() bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// waitGone waits until the process was reaped.
func (p *process) waitGone(limit time.Duration) error {
	select {
	case <-p.Done():
		return nil
	case <-time.After(limit):
		return fmt.Errorf("devcluster: process %d is still there after %v", p.Pid(), limit)
	}
}

// child is a process that an agent started: its mysqld. It is named by a
// pidfd, which stays with this process whatever becomes of its id.
type child struct {
	pid int
	fd  int
}

// children returns the processes whose parent is p. The caller releases them.
func (p *process) children() []*child {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil // the pattern is constant and well-formed
	}
	var found []*child
	for _, path := range stats {
		if parentOf(path) != p.Pid() {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Dir(path), "/proc/"))
		if err != nil {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // gone meanwhile
		}
		// The id may have passed to another process before the pidfd was open.
		if parentOf(path) != p.Pid() {
			_ = unix.Close(fd)
			continue
		}
		found = append(found, &child{pid: pid, fd: fd})
	}
	return found
}

// readStat returns the state and the parent's id in a /proc/PID/stat file
// (proc_pid_stat(5)): the two fields after the command, which is in
// parentheses and may hold anything. It returns zeros for a process that is
// gone.
func readStat(path string) (state string, parent int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", 0
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return "", 0
	}
	if parent, err = strconv.Atoi(string(fields[1])); err != nil {
		return "", 0
	}
	return string(fields[0]), parent
}

// parentOf returns the parent's id in a /proc/PID/stat file, 0 for a process
// that is gone or a zombie.
func parentOf(path string) int {
	state, parent := readStat(path)
	if state == "Z" {
		return 0
	}
	return parent
}

// signal sends sig; to a process that is gone it does nothing.
func (m *child) signal(sig syscall.Signal) error {
	if err := unix.PidfdSendSignal(m.fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, m.pid, err)
	}
	return nil
}

// waitGone waits until the process has ended: its pidfd becomes readable.
func (m *child) waitGone(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for process %d: %w", m.pid, err)
		case left == 0:
			return fmt.Errorf("devcluster: process %d is still there after %v", m.pid, limit)
		}
	}
}

func (m *child) release() { _ = unix.Close(m.fd) }

func release(children []*child) {
	for _, m := range children {
		m.release()
	}
}

// agentOf returns node i's running agent.
func (c *Cluster) agentOf(i int) (*process, error) {
	if p := c.nodes[i].running(); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("node %s: %w", c.nodes[i].name, ErrAgentExited)
}

// mysqldOf returns the mysqld of node i. The caller releases it.
func (c *Cluster) mysqldOf(i int) (*child, error) {
	p, err := c.agentOf(i)
	if err != nil {
		return nil, err
	}
	all := p.children()
	if len(all) != 1 {
		release(all)
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
	defer m.release()
	return m.pid
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
	children := p.children()
	var errs []error
	if agent {
		errs = append(errs, p.Signal(syscall.SIGKILL))
	}
	for _, m := range children {
		if mysqld {
			errs = append(errs, m.signal(syscall.SIGKILL))
		}
	}
	if agent {
		errs = append(errs, p.waitGone(killWait))
	}
	return errors.Join(append(errs, awaitEnd(children))...)
}

// awaitEnd waits until the children are gone and releases them. One that
// should have ended and has not is killed, so that it does not outlive the
// cluster, and is an error all the same.
func awaitEnd(children []*child) error {
	var errs []error
	for _, m := range children {
		if err := m.waitGone(killWait); err != nil {
			errs = append(errs, err, m.signal(syscall.SIGKILL))
		}
		m.release()
	}
	return errors.Join(errs...)
}

// PauseAgent stops node i's agent with SIGSTOP. mysqld goes on.
func (c *Cluster) PauseAgent(i int) error { return c.signalAgent(i, syscall.SIGSTOP) }

// ResumeAgent continues it.
func (c *Cluster) ResumeAgent(i int) error { return c.signalAgent(i, syscall.SIGCONT) }

// AgentPaused says whether the kernel has stopped node i's agent: a signal takes
// effect a moment after it was sent.
func (c *Cluster) AgentPaused(i int) bool {
	p, err := c.agentOf(i)
	if err != nil {
		return false
	}
	state, _ := readStat(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	return state == "T"
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

// ResumeMysqld continues it.
func (c *Cluster) ResumeMysqld(i int) error { return c.SignalMysqld(i, syscall.SIGCONT) }

// SignalMysqld sends sig to node i's mysqld.
func (c *Cluster) SignalMysqld(i int, sig syscall.Signal) error {
	m, err := c.mysqldOf(i)
	if err != nil {
		return err
	}
	defer m.release()
	return m.signal(sig)
}

// Terminate sends SIGTERM to node i's agent and waits until it has ended and
// its mysqld with it. The error says how it ended if that was not with exit
// status 0.
func (c *Cluster) Terminate(ctx context.Context, i int) error {
	return c.end(ctx, i, func(p *process) error { return p.Signal(syscall.SIGTERM) })
}

// Interrupt sends SIGINT to the process group of node i's agent, as a terminal
// does on Ctrl-C, and waits like Terminate.
func (c *Cluster) Interrupt(ctx context.Context, i int) error {
	return c.end(ctx, i, func(p *process) error {
		if err := syscall.Kill(-p.Pid(), syscall.SIGINT); err != nil {
			return fmt.Errorf("interrupt process group %d: %w", p.Pid(), err)
		}
		return nil
	})
}

func (c *Cluster) end(ctx context.Context, i int, send func(*process) error) error {
	p, err := c.agentOf(i)
	if err != nil {
		return err
	}
	children := p.children()
	if err := send(p); err != nil {
		release(children)
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		release(children)
		return fmt.Errorf("wait for the agent of node %s to end: %w", c.nodes[i].name, ctx.Err())
	}
	if err := awaitEnd(children); err != nil {
		return err
	}
	if err := p.Exit(); err != nil {
		return fmt.Errorf("end agent of node %s: %w", c.nodes[i].name, err)
	}
	return nil
}
