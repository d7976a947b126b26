package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/lab/experiment"
	"github.com/quorate/quorate/lab/fault"
	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/plan"
	"github.com/quorate/quorate/lab/result"
	"github.com/quorate/quorate/lab/workload"
)

// runOptions are the flags of "run".
type runOptions struct {
	only, skip      []string
	out             string
	resume, force   bool
	rivals, quorate string
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run PLAN",
		Short: "Run the cells of a plan, one after the other, and write the report",
		Long: `Run the cells of a plan ("quorate-lab plans" lists them; a path names a file), one system at a time. Each gives a row in
OUT/results.jsonl as soon as it is done, also if it failed: then with the reason, and the ends of the servers' logs in OUT/logs. At
the end, and after Ctrl-C, report.html and summary.md are written beside it; --resume goes on where a run ended. It needs root, and a
machine that has nothing else to do.`,
		Example: "  quorate-lab run smoke\n  quorate-lab run seeds --only rto --out lab-results/rto\n  quorate-lab run seeds --out lab-results/rto --resume",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.only, "only", nil, onlyUsage)
	f.StringSliceVar(&o.skip, "skip", nil, "leave these cells out")
	f.StringVar(&o.out, "out", "", "directory of the results (default lab-results/ and the time)")
	f.BoolVar(&o.resume, "resume", false, "go on with the run in --out: cells that are done are not done again")
	f.BoolVar(&o.force, "force", false, "with --resume: also if rows, tables, times or programs are others than before")
	f.StringVar(&o.rivals, "rivals", "", "where scripts/get-rivals.sh put the rivals (default $QUORATE_RIVALS, then .rivals)")
	f.StringVar(&o.quorate, "quorate", "", "the quorate program (default: the one beside this program)")
	return cmd
}

func (o *runOptions) run(ctx context.Context, out io.Writer, name string) (err error) {
	p, steps, err := loadPlan(name, o.only, o.skip)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("run needs root: network namespaces and mounts")
	}
	install := peers.FindInstallations(o.rivals, o.quorate)
	results, steps, err := o.open(p, steps, install)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, results.Close()) }()
	if len(steps) == 0 {
		fmt.Fprintln(out, "every cell is done already")
		return o.report()
	}
	sysbench, err := workload.FindSysbench(o.rivals)
	if err != nil && !errors.Is(err, peers.ErrMissing) {
		return err // a missing program is reported in the cells that need it
	}
	dir, err := os.MkdirTemp("", "qlab")
	if err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	defer func() { err = errors.Join(err, removeDir(dir)) }()
	progress := newProgress(out, steps)
	err = experiment.Run(ctx, experiment.Options{
		Plan: p, Steps: steps, Results: results, Run: time.Now().UTC().Format("2006-01-02T15:04:05Z"),
		Out: o.out, Dir: dir, Install: install, Sysbench: sysbench,
		OpenDisk: fault.OpenFUSE, Command: strings.Join(append([]string{"quorate-lab"}, os.Args[1:]...), " "),
		Began: progress.began, Ended: progress.ended,
	})
	if ctx.Err() != nil {
		fmt.Fprintf(out, "interrupted: quorate-lab run %s --out %s --resume goes on\n", name, o.out)
	}
	return errors.Join(err, o.report(), progress.verdict(o.out))
}

// mixedShownMax bounds how many differences an error names.
const mixedShownMax = 5

// open opens the results, and returns the steps that are not done yet.
func (o *runOptions) open(p plan.Plan, steps []plan.Step, install peers.Installations) (*result.File, []plan.Step, error) {
	if o.out == "" {
		if o.resume {
			return nil, nil, errors.New("--resume needs --out: the directory of the run to go on with")
		}
		o.out = filepath.Join("lab-results", time.Now().Format("2006-01-02-150405"))
	}
	path := filepath.Join(o.out, result.FileName)
	before, err := result.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, nil, err
	case !o.resume:
		return nil, nil, fmt.Errorf("%s is there: go on with --resume, or choose another --out", path)
	}
	if mixed := experiment.Mixes(before, p, install, steps); len(mixed) > 0 && !o.force {
		return nil, nil, fmt.Errorf("%s has results of another kind: choose another --out, or mix them with --force: %s",
			path, strings.Join(mixed[:min(len(mixed), mixedShownMax)], "; "))
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, nil, fmt.Errorf("create results' directory: %w", err)
	}
	results, err := result.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return results, plan.Pending(steps, before.Done()), nil
}

// report writes the report of the results so far.
func (o *runOptions) report() error {
	res, dir, err := readRun(o.out)
	if err != nil || len(res.Rows) == 0 {
		return err
	}
	return writeReports(dir, res)
}

// progress prints a line for each cell; on a terminal it also shows the one under way.
type progress struct {
	out      io.Writer
	terminal bool
	steps    []plan.Step
	eta      *plan.ETA
	count    map[result.Status]int
}

func newProgress(out io.Writer, steps []plan.Step) *progress {
	p := &progress{out: out, steps: steps, eta: plan.NewETA(), count: map[result.Status]int{}}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	fmt.Fprintf(out, "%d cells, about %s\n", len(steps), about(p.eta.Remaining(steps)))
	return p
}

func (p *progress) began(i int, s plan.Step) {
	if p.terminal {
		fmt.Fprintf(p.out, "[%d/%d] %s … about %s left", i+1, len(p.steps), s.Key(), about(p.eta.Remaining(p.steps[i:])))
	}
}

func (p *progress) ended(i int, s plan.Step, row result.Row, setup time.Duration) {
	rest := time.Duration(row.Seconds * float64(time.Second))
	p.count[row.Status]++
	if row.Status == result.OK {
		p.eta.Observe(s, setup, rest)
	}
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintf(p.out, "[%d/%d] %s: %s (%.0f s, about %s left)\n", i+1, len(p.steps), s.Key(), outcome(row),
		(setup + rest).Seconds(), about(p.eta.Remaining(p.steps[i+1:])))
}

// outcome is a row in a few words.
func outcome(row result.Row) string {
	if row.Status != result.OK {
		return fmt.Sprintf("%s: %s", row.Status, row.Reason)
	}
	var parts []string
	for _, m := range []struct{ name, format string }{
		{result.TPS, "%.0f TPS"}, {result.P95MS, "p95 %.1f ms"}, {result.EffectiveTPS, "effective %.0f TPS"}, {result.CVPercent, "CV %.0f %%"},
		{result.PrimaryCPU, "primary's host %.0f µs CPU"}, {result.WakeUps, "%.1f wake-ups"}, {result.Messages, "%.1f messages"},
		{result.DetectMS, "noticed after %.0f ms"}, {result.GapMS, "gap %.0f ms"}, {result.ScriptMS, "of it the script %.0f ms"}, {result.RejoinGapMS, "at the return %.0f ms"}, {result.RestoredMS, "restored in %.0f ms"},
		{result.ApplyTPS, "applies %.0f TPS"}, {result.CommitS, "COMMIT %.1f s"}, {result.StallMS, "others stalled %.0f ms"},
		{result.Expelled, "%.0f expelled"}, {result.Acknowledged, "%.0f acknowledged"}, {result.Unknown, "%.0f unknown"},
		{result.Lost, "%.0f lost"}, {result.LostMS, "of the last %.0f ms"}, {result.Diverged, "%.0f diverged"}, {result.HumanSteps, "%.0f human steps"},
	} {
		if v, ok := row.Metric(m.name); ok {
			parts = append(parts, fmt.Sprintf(m.format, v))
		}
	}
	for _, name := range []string{result.TextNotBack, result.TextLagging, result.TextNoWitness} {
		if why := row.Text[name]; why != "" {
			parts = append(parts, name+": "+why)
		}
	}
	return strings.Join(parts, ", ")
}

// verdict says how the run ended. It returns an error if cells failed.
func (p *progress) verdict(dir string) error {
	fmt.Fprintf(p.out, "%d ok, %d failed, %d skipped: %s\n", p.count[result.OK], p.count[result.Failed], p.count[result.Skipped], filepath.Join(dir, reportFile))
	if n := p.count[result.Failed]; n > 0 {
		return fmt.Errorf("%d cells failed; their reasons are above and in the report, their servers' logs in %s", n, filepath.Join(dir, "logs"))
	}
	return nil
}
