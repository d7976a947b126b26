package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorate/quorate/lab/peers"
)

const (
	// prepareWait bounds the filling of the tables.
	prepareWait = 10 * time.Minute
	// runSlack is how much longer than its duration a run may take: for connecting, and for
	// the last transactions.
	runSlack = 90 * time.Second
	// prepareThreads fill tables, each one table at a time.
	prepareThreads = 4
	// outputBytesMax bounds how much of a run's output is kept: an hour of reports
	// every second is 400 KiB.
	outputBytesMax = 4 << 20
	// outputTailBytes is how much of a failed run's output goes into the error.
	outputTailBytes = 400
)

// ignoredErrors are the errors that sysbench counts, and after which it goes on: row changed, lock wait timeout,
// deadlock (these are sysbench's own default), deadlock at COMMIT (1180), rolled back by Group Replication's
// certification (3101), and a broken connection.
const ignoredErrors = "1020,1180,1205,1213,3101,2006,2011,2013,2055"

// Sysbench is where sysbench is, and its tables.
type Sysbench struct {
	// Net is where it runs, on the node "client".
	Net peers.Net
	// Program is the path of sysbench (FindSysbench).
	Program      string
	Tables, Rows int
}

// Load is one run.
type Load struct {
	Script   string // oltp_write_only …
	Threads  int
	Duration time.Duration
	// Events ends the run after so many transactions, instead of after a time.
	Events int
	// Tolerant: go on after every error, for runs in which servers die.
	Tolerant bool
}

// FindSysbench looks for sysbench below rivals, which scripts/get-rivals.sh made, then on PATH.
func FindSysbench(rivals string) (string, error) {
	if rivals == "" {
		rivals = os.Getenv(peers.EnvRivals)
	}
	if rivals == "" {
		rivals = ".rivals"
	}
	if program, err := filepath.Abs(filepath.Join(rivals, "sysbench", "bin", "sysbench")); err == nil {
		if _, err := os.Stat(program); err == nil {
			return program, nil
		}
	}
	program, err := exec.LookPath("sysbench")
	if err != nil {
		return "", fmt.Errorf("%w: sysbench: run scripts/get-rivals.sh DIR and set %s=DIR, or install the package sysbench",
			peers.ErrMissing, peers.EnvRivals)
	}
	return program, nil
}

// Prepare fills the tables through one endpoint.
func (s Sysbench) Prepare(ctx context.Context, at peers.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, prepareWait)
	defer cancel()
	args, err := s.arguments([]peers.Endpoint{at})
	if err != nil {
		return err
	}
	args = append(args, fmt.Sprintf("--threads=%d", min(prepareThreads, s.Tables)), "prepare")
	out := &output{}
	if _, err := s.run(ctx, "oltp_write_only", args, out); err != nil {
		return fmt.Errorf("fill tables: %w", err)
	}
	return nil
}

// Run runs a load. Threads are spread over the endpoints.
func (s Sysbench) Run(ctx context.Context, at []peers.Endpoint, l Load) (Sample, error) {
	wait := l.Duration + runSlack
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	args, err := s.arguments(at)
	if err != nil {
		return Sample{}, err
	}
	limits := []string{fmt.Sprintf("--time=%d", int(l.Duration.Seconds())), "--events=0"}
	if l.Events > 0 {
		limits = []string{"--time=0", fmt.Sprintf("--events=%d", l.Events)}
	}
	ignore := ignoredErrors
	if l.Tolerant {
		ignore = "all"
	}
	args = append(args, limits...)
	args = append(args, fmt.Sprintf("--threads=%d", l.Threads), "--report-interval=1", "--histogram=on",
		"--mysql-ignore-errors="+ignore, "run")
	out := &output{}
	cpu, err := s.run(ctx, l.Script, args, out)
	if err != nil {
		return Sample{}, fmt.Errorf("run %s with %d threads: %w", l.Script, l.Threads, err)
	}
	sample, err := parse(out.String())
	sample.ClientCPU = cpu
	if err != nil {
		return sample, fmt.Errorf("run %s with %d threads: %w", l.Script, l.Threads, err)
	}
	return sample, nil
}

// arguments are the arguments that say where the tables are.
func (s Sysbench) arguments(at []peers.Endpoint) ([]string, error) {
	if len(at) == 0 {
		return nil, errors.New("workload: nobody takes writes")
	}
	var hosts []string
	port := ""
	for _, e := range at {
		host, p, err := net.SplitHostPort(e.Addr)
		if err != nil {
			return nil, fmt.Errorf("read address of node %s: %w", e.Node, err)
		}
		if port != "" && p != port {
			return nil, fmt.Errorf("workload: sysbench takes one port, nodes have %s and %s", port, p)
		}
		hosts, port = append(hosts, host), p
	}
	return []string{
		"--db-driver=mysql", "--mysql-host=" + strings.Join(hosts, ","), "--mysql-port=" + port,
		"--mysql-user=" + at[0].User, "--mysql-password=" + at[0].Password, "--mysql-db=" + at[0].Database,
		fmt.Sprintf("--tables=%d", s.Tables), fmt.Sprintf("--table-size=%d", s.Rows),
		"--auto_inc=off", "--rand-seed=1",
	}, nil
}

// run runs sysbench to its end and returns the CPU time that it used.
func (s Sysbench) run(ctx context.Context, script string, args []string, out *output) (time.Duration, error) {
	cmd := exec.Command(s.Program, append([]string{script}, args...)...)
	// In a private prefix the scripts are beside the program.
	scripts := filepath.Join(filepath.Dir(filepath.Dir(s.Program)), "usr/share/sysbench")
	if _, err := os.Stat(filepath.Join(scripts, script+".lua")); err == nil {
		cmd.Args[1] = filepath.Join(scripts, script+".lua")
		cmd.Dir = scripts // scripts look for each other in the working directory
	}
	cmd.Stdout, cmd.Stderr = out, out
	p, err := s.Net.Start(clientNode, cmd)
	if err != nil {
		return 0, fmt.Errorf("start sysbench: %w", err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return 0, errors.Join(fmt.Errorf("wait for sysbench: %w", ctx.Err()), p.Kill())
	}
	if !cmd.ProcessState.Success() {
		return 0, fmt.Errorf("sysbench: %v: %s", cmd.ProcessState, failureText(out.String()))
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// clientNode is where clients are.
const clientNode = "client"

// failureText returns the first FATAL line of sysbench's output, or its end.
func failureText(out string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "FATAL") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(out[max(0, len(out)-outputTailBytes):])
}

// output keeps what a program prints, up to a bound. os/exec writes to it from one
// goroutine at a time, and it is read once the program has ended.
type output struct{ buf bytes.Buffer }

func (o *output) Write(p []byte) (int, error) {
	if room := outputBytesMax - o.buf.Len(); room > 0 {
		o.buf.Write(p[:min(room, len(p))]) // a buffer never returns an error
	}
	return len(p), nil
}

func (o *output) String() string { return o.buf.String() }
