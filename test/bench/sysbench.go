package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// loadSlack is what a sysbench run may take beyond its --time.
	loadSlack = time.Minute
	// prepareWait bounds sysbench's filling of the tables.
	prepareWait = 5 * time.Minute
	// outputTailBytes is how much of a failed run's output goes into the error.
	outputTailBytes = 400
)

// load is what one sysbench run reports.
type load struct {
	transactions int64
	seconds      float64
	p95Ms, avgMs float64
	clientCPU    time.Duration
}

// sysbench runs one sysbench command against e and returns its output. The
// seed is fixed: every system sees the same sequence of keys per thread.
func (b *bench) sysbench(ctx context.Context, e endpoint, workload, command string, threads int, duration time.Duration) (string, time.Duration, error) {
	args := []string{
		workload, "--db-driver=mysql", "--mysql-db=" + benchDatabase,
		"--mysql-user=" + e.user, "--mysql-password=" + e.password,
		fmt.Sprintf("--tables=%d", b.opts.tables), fmt.Sprintf("--table-size=%d", b.opts.tableSize),
		fmt.Sprintf("--threads=%d", threads), "--rand-seed=1", "--percentile=95",
	}
	if e.socket != "" {
		args = append(args, "--mysql-socket="+e.socket)
	} else {
		args = append(args, "--mysql-host="+e.host, "--mysql-port="+e.port)
	}
	wait := prepareWait
	if command == "run" {
		args = append(args, fmt.Sprintf("--time=%d", int(duration.Seconds())), "--events=0")
		wait = duration + loadSlack
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sysbench", append(args, command)...)
	// Ctrl-C reaches this program alone, which then ends the child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", 0, fmt.Errorf("sysbench %s %s: %w", workload, command, ctx.Err())
	}
	if err != nil {
		return "", 0, fmt.Errorf("sysbench %s %s: %w: %s", workload, command, err, failureText(string(out)))
	}
	return string(out), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// failureText returns the first FATAL line of sysbench's output, or its end.
func failureText(out string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "FATAL") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(out[max(0, len(out)-outputTailBytes):])
}

// runLoad runs a workload and reads its report.
func (b *bench) runLoad(ctx context.Context, e endpoint, workload string, threads int, duration time.Duration) (load, error) {
	out, cpu, err := b.sysbench(ctx, e, workload, "run", threads, duration)
	if err != nil {
		return load{}, err
	}
	l, err := parseLoad(out)
	l.clientCPU = cpu
	return l, err
}

// parseLoad reads the report that sysbench 1.0 prints.
func parseLoad(out string) (load, error) {
	var l load
	var transactions float64
	for _, f := range []struct {
		pattern string
		dest    *float64
	}{
		{`(?m)^\s*transactions:\s+([0-9]+)\s`, &transactions},
		{`(?m)^\s*total time:\s+([0-9.]+)s`, &l.seconds},
		{`(?m)^\s*95th percentile:\s+([0-9.]+)`, &l.p95Ms},
		{`(?m)^\s*avg:\s+([0-9.]+)`, &l.avgMs},
	} {
		m := regexp.MustCompile(f.pattern).FindStringSubmatch(out)
		if m == nil {
			return load{}, fmt.Errorf("read sysbench's report: nothing matches %s", f.pattern)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return load{}, fmt.Errorf("read sysbench's report: %w", err)
		}
		*f.dest = v
	}
	l.transactions = int64(transactions)
	if l.transactions == 0 || l.seconds == 0 {
		return load{}, fmt.Errorf("read sysbench's report: %d transactions in %gs", l.transactions, l.seconds)
	}
	return l, nil
}
