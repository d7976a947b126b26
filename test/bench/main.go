package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/provision"
)

// The parts, by the names of --only.
const (
	partSysbench   = "sysbench"
	partSplit      = "split"
	partKills      = "kills"
	partFailures   = "failures"
	partSwitchover = "switchover"
	partLarge      = "large"
	partLog        = "log"
)

// errInterrupted says that the user ended the run.
var errInterrupted = errors.New("interrupted")

// errFound says that the benchmark ran and found something that must not be.
var errFound = errors.New("the run found a fault; see the report")

// options are the flags.
type options struct {
	binary    string
	dir       string
	json      string
	only      string
	rounds    int
	duration  time.Duration
	threads   string
	workloads string
	tables    int
	tableSize int
	kills     int
	failures  int
	writers   int
	direct    string
	systems   string
	variables variables
}

// variables are server variables for all systems, given as NAME=VALUE.
type variables map[string]string

func (v variables) String() string { return fmt.Sprint(map[string]string(v)) }

// Set implements flag.Value.
func (v variables) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return errors.New("it must be NAME=VALUE")
	}
	v[name] = value
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseOptions(args []string, errOut io.Writer) (options, error) {
	o := options{variables: variables{}}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.binary, "binary", "bin/quorate", "the quorate program")
	f.StringVar(&o.dir, "dir", "", "directory under which the servers live (default: the system's temporary one)")
	f.StringVar(&o.json, "json", "", "also write the results to this file as JSON")
	f.StringVar(&o.only, "only", "", "comma-separated parts to run: sysbench, split, kills, failures, switchover, large, log (default: all)")
	f.IntVar(&o.rounds, "rounds", 1, "how often the systems take turns; a ratio is the median over the rounds")
	f.DurationVar(&o.duration, "time", 10*time.Second, "duration of one sysbench run")
	f.StringVar(&o.threads, "threads", "1,16,64", "comma-separated numbers of sysbench threads")
	f.StringVar(&o.workloads, "workloads", "oltp_write_only,oltp_read_write", "comma-separated sysbench workloads")
	f.IntVar(&o.tables, "tables", 4, "number of sysbench tables")
	f.IntVar(&o.tableSize, "table-size", 10000, "rows of each sysbench table")
	f.IntVar(&o.kills, "kills", 10, "kills of each kind")
	f.IntVar(&o.failures, "failures", 20, "runs of each failure, and of the switchover")
	f.IntVar(&o.writers, "writers", 4, "writers during kills and failures")
	f.StringVar(&o.direct, "direct", "socket", "how quorate-direct reaches the primary's mysqld: socket or tcp")
	f.StringVar(&o.systems, "systems", "", "comma-separated systems of part sysbench (default: all)")
	f.Var(o.variables, "set", "server variable NAME=VALUE for all systems; may be repeated")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, o.validate()
}

func (o options) validate() error {
	for _, p := range split(o.only) {
		if !slices.Contains([]string{partSysbench, partSplit, partKills, partFailures, partSwitchover, partLarge, partLog}, p) {
			return fmt.Errorf("--only: no part %q", p)
		}
	}
	for _, s := range split(o.systems) {
		if !slices.Contains(systemNames(), s) {
			return fmt.Errorf("--systems: no system %q; there are %s", s, strings.Join(systemNames(), ", "))
		}
	}
	for _, t := range split(o.threads) {
		// The servers take 300 connections (sharedVariables).
		if n, err := strconv.Atoi(t); err != nil || n < 1 || n > 256 {
			return fmt.Errorf("--threads: %q is not a number from 1 to 256", t)
		}
	}
	switch {
	case o.rounds < 1 || o.kills < 1 || o.failures < 1 || o.tables < 1 || o.tableSize < 1:
		return errors.New("--rounds, --kills, --failures, --tables and --table-size must be at least 1")
	case o.writers < 1 || o.writers > 64:
		return errors.New("--writers must be 1 to 64")
	case o.duration < time.Second:
		return errors.New("--time must be at least 1s")
	case o.direct != "socket" && o.direct != "tcp":
		return fmt.Errorf("--direct: %q is neither socket nor tcp", o.direct)
	}
	return nil
}

// split returns the words of a comma-separated list.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// threadCounts returns the numbers of --threads, which validate has checked.
func (o options) threadCounts() []int {
	var counts []int
	for _, t := range split(o.threads) {
		if n, err := strconv.Atoi(t); err == nil {
			counts = append(counts, n)
		}
	}
	return counts
}

func (o options) wants(part string) bool {
	return o.only == "" || slices.Contains(split(o.only), part)
}

// bench is one run.
type bench struct {
	opts    options
	install *provision.Installation
	dir     string
	// progress is where the steps are told; the report goes to stdout alone.
	progress io.Writer
	began    time.Time
	result   result
}

// say tells a step as it happens.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "%7.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	opts, err := parseOptions(args, progress)
	if err != nil {
		return err
	}
	b := &bench{opts: opts, progress: progress, began: time.Now()}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.removeDir(err)) }()
	err = b.runParts(ctx)
	b.result.report(out, opts)
	if opts.json != "" {
		err = errors.Join(err, b.result.writeJSON(opts.json))
	}
	if ctx.Err() != nil {
		return errInterrupted // what came of it is the consequence
	}
	if err == nil && b.result.faulty() {
		err = errFound
	}
	return err
}

// prepare looks at the machine and makes the directory.
func (b *bench) prepare(ctx context.Context) error {
	var err error
	if b.opts.binary, err = filepath.Abs(b.opts.binary); err != nil {
		return fmt.Errorf("name the quorate program: %w", err)
	}
	if b.dir, err = os.MkdirTemp(b.opts.dir, "qbench-"); err != nil {
		return fmt.Errorf("create the servers' directory: %w", err)
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return fmt.Errorf("name the servers' directory: %w", err)
	}
	b.result.Machine = describeMachine(ctx, b.dir)
	if !slices.ContainsFunc([]string{partSysbench, partSplit, partKills, partFailures, partSwitchover, partLarge}, b.opts.wants) {
		return nil
	}
	if b.install, err = provision.Discover(""); err != nil {
		return errors.Join(err, os.RemoveAll(b.dir))
	}
	b.result.Machine.MySQL = b.install.Version.String()
	return nil
}

// removeDir removes the servers' files; after a failure they stay, because the
// logs are there.
func (b *bench) removeDir(failure error) error {
	if failure != nil && !errors.Is(failure, errInterrupted) && !errors.Is(failure, errFound) {
		b.say("failed; the servers' files stay in %s", b.dir)
		return nil
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return fmt.Errorf("remove the servers' directory: %w", err)
	}
	return nil
}

// runParts runs the selected parts; each failure is told, and the next part
// runs all the same.
func (b *bench) runParts(ctx context.Context) error {
	var errs []error
	for _, p := range []struct {
		name string
		run  func(context.Context) error
	}{
		{partSysbench, b.runSysbench}, {partSplit, b.runSplit}, {partKills, b.runKills}, {partFailures, b.runFailures},
		{partSwitchover, b.runSwitchover}, {partLarge, b.runLarge}, {partLog, b.runLog},
	} {
		if !b.opts.wants(p.name) {
			continue
		}
		if err := p.run(ctx); err != nil {
			b.say("%s: %v", p.name, err)
			errs = append(errs, fmt.Errorf("part %s: %w", p.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// describeMachine says on what the figures were measured.
func describeMachine(ctx context.Context, dir string) machine {
	m := machine{CPUs: numCPU(), Began: time.Now().UTC().Format(time.RFC3339)}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.LoadAverage, _, _ = strings.Cut(string(text), " ")
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC) {
		m.Warning = "the servers' directory is in memory, where an fsync costs nothing: use --dir for a real disk"
	}
	if out, err := exec.CommandContext(ctx, "sysbench", "--version").Output(); err == nil {
		m.Sysbench = strings.TrimSpace(string(out))
	}
	return m
}
