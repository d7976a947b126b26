package subprocess

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	exit error
}

// Start starts cmd, with the SysProcAttr that it has.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.exit = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed once the child has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how the child ended, as exec.Cmd.Wait does, once Done is closed.
func (p *Process) Exit() error { return p.exit }

// Signal sends sig to the child alone; to one that has ended, nothing.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to process %d: %w", sig, p.Pid(), err)
	}
	return nil
}
