package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

// userHz is the unit of the times in /proc/PID/stat: sysconf(_SC_CLK_TCK) is 100 on every
// Linux that Go runs on.
const userHz = 100

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
