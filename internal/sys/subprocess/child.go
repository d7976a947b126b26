package subprocess

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a process that a child of this process has started, such as the mysqld of an agent.
type Child struct {
	pid int
	fd  int
}

// Children returns the children of a process that run. The caller releases them.
func Children(parent int) []*Child {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil // the pattern is constant and well-formed
	}
	var found []*Child
	for _, path := range stats {
		if parentOf(path) != parent {
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
		// Another process may have got the id before the pidfd was open.
		if parentOf(path) != parent {
			_ = unix.Close(fd)
			continue
		}
		found = append(found, &Child{pid: pid, fd: fd})
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

// Signal sends sig. If the process is gone, it does nothing.
func (m *Child) Signal(sig syscall.Signal) error {
	if err := unix.PidfdSendSignal(m.fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, m.pid, err)
	}
	return nil
}

// WaitGone waits until a killed process is gone, half a minute at most. Its pidfd becomes readable
// then.
func (m *Child) WaitGone() error {
	deadline := time.Now().Add(killWait)
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for process %d: %w", m.pid, err)
		case left == 0:
			return fmt.Errorf("process %d is still there %v after it was killed", m.pid, killWait)
		}
	}
}

// Pid is the process's id.
func (m *Child) Pid() int { return m.pid }

// Release closes the pidfd.
func (m *Child) Release() { _ = unix.Close(m.fd) }

// Release releases all.
func Release(children []*Child) {
	for _, m := range children {
		m.Release()
	}
}

// Runs says whether there is a process with this id that has not ended.
func Runs(pid int) bool {
	state, _ := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	return state != "" && state != "Z"
}
