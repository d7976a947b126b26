package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/subprocess"
)

const (
	// userHz is the unit of the times in /proc/PID/stat: sysconf(_SC_CLK_TCK)
	// is 100 on every Linux that Go runs on.
	userHz = 100
	// killWait bounds the wait for a killed process to be gone.
	killWait = 30 * time.Second
)

// process is a child that does not outlive us.
type process struct{ *subprocess.Process }

// spawn starts cmd in a process group of its own, so that Ctrl-C reaches this program
// alone.
func spawn(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p, err := subprocess.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &process{p}, nil
}

// kill ends the process and returns when it is gone.
func (p *process) kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.Done():
		return nil
	case <-time.After(killWait):
		return fmt.Errorf("kill process %d: it is still there after %v", p.Pid(), killWait)
	}
}

// cpuTime returns the CPU time that the process has used, all threads and both
// modes: fields 14 and 15 of /proc/PID/stat (proc_pid_stat(5)).
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	return parseCPUTime(text)
}

func parseCPUTime(stat []byte) (time.Duration, error) {
	// The second field is the command in parentheses and may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, errors.New("read CPU time: /proc/PID/stat is too short")
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read CPU time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHz, nil
}

func numCPU() int { return runtime.NumCPU() }
