package experiment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/lab/fault"
	"github.com/quorate/quorate/lab/netlab"
	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/plan"
	"github.com/quorate/quorate/lab/result"
)

// Options of a Run.
type Options struct {
	Plan plan.Plan
	// Steps are done in this order.
	Steps   []plan.Step
	Results *result.File
	// Run names the run in its rows.
	Run string
	// Out is the results' directory. The logs of failed cells go below it.
	Out string
	// Dir is an empty directory for deployments; its path is short.
	Dir      string
	Install  peers.Installations
	Sysbench string
	OpenDisk fault.OpenDisk
	// Command is the command line, for the record.
	Command string
	// Began and Ended are called for each step, unless they are nil.
	Began func(index int, s plan.Step)
	Ended func(index int, s plan.Step, r result.Row, setup time.Duration)
}

// lockName is the name of an abstract Unix socket: it is free again when the process ends.
const lockName = "@quorate-lab-run"

// ErrBusy: another run owns the machine.
var ErrBusy = errors.New("another run of quorate-lab owns the machine")

// runner is a Run.
type runner struct {
	Options
	stage *stage // the last cell's stage, if it can be used again
	facts map[string]string
	count int        // deployments so far, for the names of their directories
	last  result.Row // the row that was written last
	left  error      // a deployment that failed has left a process
}

// Run does the steps. It returns an error if results could not be written or ctx is done. Failures of
// cells are only in their rows.
func Run(ctx context.Context, o Options) (err error) {
	lock, err := net.Listen("unix", lockName)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	defer lock.Close() // it only holds a name
	r := &runner{Options: o, facts: map[string]string{}}
	defer func() { err = errors.Join(err, r.leave()) }()
	if err := o.Results.AppendFacts(runFacts(o.Run, o.Command, o.Plan, o.Install)); err != nil {
		return err
	}
	for i, s := range o.Steps {
		if err := r.step(ctx, i, s); err != nil {
			return err
		}
	}
	return nil
}

// step does one step. Its row is on the disk before anything is taken down.
func (r *runner) step(ctx context.Context, i int, s plan.Step) error {
	if r.Began != nil {
		r.Began(i, s)
	}
	if !s.Reuse {
		if err := r.leave(); err != nil {
			return err
		}
	}
	row, setup, err := r.do(ctx, s)
	if err != nil {
		return err
	}
	if err := r.Results.Append(row); err != nil {
		return err
	}
	r.last = row
	if row.Status != result.OK || !leavesWhole(s) {
		err = r.leave()
	}
	if r.Ended != nil {
		r.Ended(i, s, row, setup)
	}
	return errors.Join(err, r.left)
}

// leave takes down the system that the last cell left running. Failures are noted in that cell's row. It returns an
// error only if a process is left, which would share the machine with the next cell.
func (r *runner) leave() error {
	if r.stage == nil {
		return nil
	}
	st := r.stage
	r.stage = nil
	return r.tornDown(st.close())
}

// tornDown judges err, with which a system was taken down, and notes it in the last row.
func (r *runner) tornDown(err error) error {
	if err == nil || r.last.Run == "" { // an interrupted cell has no row
		return err
	}
	// The row is written again, with the note: of two rows of one attempt the later counts.
	row := r.last
	row.Text = maps.Clone(row.Text)
	if row.Text == nil {
		row.Text = map[string]string{}
	}
	row.Text[result.TextTeardown] = oneLine(err)
	if err := r.Results.Append(row); err != nil {
		return err
	}
	if errors.Is(err, peers.ErrLeft) {
		return err
	}
	return nil
}

// do does one step, and leaves the system running. It returns an error if ctx is done.
func (r *runner) do(ctx context.Context, s plan.Step) (result.Row, time.Duration, error) {
	row := result.Row{
		Run: r.Run, Cell: s.Cell, Repetition: s.Repetition, Started: time.Now().UTC(),
		LoadSeconds: s.Duration.Seconds(), WarmupSeconds: s.Warmup.Seconds(),
	}
	began := time.Now()
	setup, err := r.prepare(ctx, s)
	if err == nil {
		row.Facts = r.facts[factsKey(s)]
		began = time.Now()
		err = r.measure(ctx, s, &row)
	}
	row.Seconds = time.Since(began).Seconds()
	if setup > 0 {
		setMetric(&row, result.SetupS, setup.Seconds())
	}
	row.Status = result.OK
	if err == nil {
		return row, setup, nil
	}
	if ctx.Err() != nil {
		return row, setup, fmt.Errorf("cell %s: %w", s.Name(), ctx.Err())
	}
	row.Status, row.Reason = result.Failed, oneLine(err)
	if errors.Is(err, peers.ErrLeft) {
		r.left = err
	}
	if errors.Is(err, peers.ErrMissing) || errors.Is(err, fault.ErrNoDisk) || errors.Is(err, errNotForIt) {
		row.Status = result.Skipped
	} else if err := r.keepLogs(s); err != nil {
		row.Text = map[string]string{"logs": "not kept: " + oneLine(err)}
	}
	return row, setup, nil
}

// leavesWhole tells whether a step leaves the system as it was: throughput and jitter do.
func leavesWhole(s plan.Step) bool {
	return s.Experiment == result.Throughput || s.Experiment == result.Jitter
}

// errNotForIt: an experiment needs something that the system does not have.
var errNotForIt = errors.New("not for this system")

// prepare makes the stage of a step, unless the last one's is there.
func (r *runner) prepare(ctx context.Context, s plan.Step) (time.Duration, error) {
	if r.stage != nil {
		return 0, nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, setupWait)
	defer cancel()
	r.count++
	st, err := newStage(ctx, r, s, filepath.Join(r.Dir, fmt.Sprint(r.count)))
	// Also after an error: the part of the stage that was made has logs, and must be taken down.
	r.stage, r.last = st, result.Row{}
	if err != nil {
		return time.Since(began), err
	}
	if err := r.recordFacts(s); err != nil {
		return time.Since(began), err
	}
	return time.Since(began), nil
}

// measure runs the experiment.
func (r *runner) measure(ctx context.Context, s plan.Step, row *result.Row) error {
	ctx, cancel := context.WithTimeout(ctx, cellWait(s))
	defer cancel()
	st := r.stage
	var err error
	if row.RTT, err = st.roundTrips(ctx); err != nil {
		return err
	}
	unix.Sync()
	c := &cell{stage: st, step: s, row: row}
	before := st.system.Nodes()
	switch s.Experiment {
	case result.Throughput, result.Jitter:
		err = c.throughput(ctx)
	case result.RTO:
		err = c.rto(ctx)
	case result.RPO:
		err = c.rpo(ctx)
	case result.Apply:
		err = c.apply(ctx)
	case result.Large:
		err = c.large(ctx)
	default:
		err = fmt.Errorf("%w: experiment %q", errNotForIt, s.Experiment)
	}
	if err == nil && (leavesWhole(s) || s.Experiment == result.Apply) {
		err = died(before, st.system.Nodes())
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("after %v the cell's time is up: %w", cellWait(s), err)
	}
	return err
}

// died returns an error if a node has not the processes that it had, or had none: the figures of a cell without a fault
// leave such a node out.
func died(before, after []peers.Node) error {
	for i, n := range before {
		if len(n.Processes) == 0 || !maps.Equal(n.Processes, after[i].Processes) {
			return fmt.Errorf("node %s died meanwhile: its processes were %v and are %v", n.Name, n.Processes, after[i].Processes)
		}
	}
	return nil
}

// recordFacts writes the facts of the deployment, once for each variant and network.
func (r *runner) recordFacts(s plan.Step) error {
	key := factsKey(s)
	if r.facts[key] != "" {
		return nil
	}
	f := r.stage.system.Facts()
	facts := result.Facts{
		ID: r.Run + "/" + key, Run: r.Run, Variant: s.Variant(), Plan: r.Plan.Name, Command: r.Command,
		Versions: f.Versions, Machine: machine(),
	}
	for _, set := range f.Settings {
		facts.Settings = append(facts.Settings, result.Setting{Name: set.Name, Value: set.Value, Why: set.Why})
	}
	if err := r.Results.AppendFacts(facts); err != nil {
		return err
	}
	r.facts[key] = facts.ID
	return nil
}

// factsKey is the same for steps whose servers have the same settings: some settings depend on the network.
func factsKey(s plan.Step) string { return s.Variant() + "@" + s.Network }

// logTailBytes is how much is kept of the end of each log of a failed cell.
const logTailBytes = 256 << 10

// keepLogs copies the ends of the servers' logs to OUT/logs/KEY.
func (r *runner) keepLogs(s plan.Step) error {
	if r.stage == nil {
		return nil
	}
	to := filepath.Join(r.Out, "logs", fileName(s.Key()))
	for _, node := range netlabNodes(r.stage.network) {
		text, err := os.ReadFile(filepath.Join(r.stage.dir, "d", node, "log"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("keep log of node %s: %w", node, err)
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return fmt.Errorf("keep logs: %w", err)
		}
		if err := os.WriteFile(filepath.Join(to, node+".log"), text[max(0, len(text)-logTailBytes):], 0o644); err != nil {
			return fmt.Errorf("keep log of node %s: %w", node, err)
		}
	}
	return nil
}

func netlabNodes(n *netlab.Network) []string {
	if n == nil {
		return nil
	}
	return n.Topology().Nodes
}

// discard is the logger for everything that runs in a cell.
func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
