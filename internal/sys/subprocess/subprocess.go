package subprocess

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killWait bounds the wait for a killed process to be gone. A server with dirty pages
	// under way to a slow disk needs seconds.
	killWait = 30 * time.Second
	// pipeWait bounds the wait for output after the process has ended.
	pipeWait = 5 * time.Second
)

// Process is a child in a process group of its own. When it ends, the rest of its group is killed. When
// this process ends, in whatever way, the kernel kills the child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	exit error // after done

	mu     sync.Mutex
	pidfd  int
	reaped bool // its id, and that of its group, may belong to others by now
}

// Start starts cmd. It sets the process attributes that Process promises; others that the
// caller has set stay.
func Start(cmd *exec.Cmd) (*Process, error) { return StartIn(cmd, func() error { return nil }) }

// StartIn is Start from a new thread, on which it first calls enter, for example to enter a
// namespace.
func StartIn(cmd *exec.Cmd, enter func() error) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{}), pidfd: -1}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pgid = 0
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.PidFD = &p.pidfd
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = pipeWait
	}
	started := make(chan error, 1)
	OnThread(func() {
		err := enter()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil && p.pidfd < 0 {
			err = errors.Join(errors.New("the kernel has no pidfd (5.4 or later is needed)"), cmd.Process.Kill(), cmd.Wait())
		}
		started <- err
		if err == nil {
			p.reap()
		}
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// reap waits until the process has ended, kills the rest of its group before another process can get its id,
// and then closes done.
func (p *Process) reap() {
	for {
		err := unix.Waitid(unix.P_PIDFD, p.pidfd, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break // it has ended; cmd.Wait would return an error of this, too
		}
	}
	_ = p.SignalGroup(syscall.SIGKILL)
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	p.exit = p.cmd.Wait()
	p.mu.Lock()
	_ = unix.Close(p.pidfd)
	p.pidfd = -1
	p.mu.Unlock()
	close(p.done)
}

// Pid is the process's id, and its group's.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed after the process was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended says whether Done is closed.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Err says how the process ended, as exec.Cmd.Wait does; nil while it runs.
func (p *Process) Err() error {
	if !p.Ended() {
		return nil
	}
	return p.exit
}

// Stopped says whether the kernel has stopped the process (SIGSTOP).
func (p *Process) Stopped() bool {
	state, _ := readStat(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	return state == "T"
}

// Signal sends sig to the process alone. If the process has ended, it does nothing.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	if err := unix.PidfdSendSignal(p.pidfd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, p.Pid(), err)
	}
	return nil
}

// SignalGroup sends sig to the process and its group.
func (p *Process) SignalGroup(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	if err := unix.Kill(-p.Pid(), sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to process group %d: %w", sig, p.Pid(), err)
	}
	return nil
}

// Kill sends SIGKILL to the process and its group and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.SignalGroup(syscall.SIGKILL); err != nil {
		return err
	}
	return p.WaitGone()
}

// WaitGone waits for a process that was killed, half a minute at most.
func (p *Process) WaitGone() error {
	select {
	case <-p.done:
		return nil
	case <-time.After(killWait):
		return fmt.Errorf("process %d is still there %v after it was killed", p.Pid(), killWait)
	}
}
