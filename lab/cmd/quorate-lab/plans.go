package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/lab/netlab"
	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/plan"
)

// planBytesMax bounds a plan file.
const planBytesMax = 1 << 20

func plansCommand() *cobra.Command {
	var only, skip []string
	var print bool
	cmd := &cobra.Command{
		Use:   "plans [PLAN]",
		Short: "List the plans, or the cells of one in the order of a run",
		Long: `List the embedded plans with their size and an estimate of their time on two processors. With the name of a plan, or of a
plan file, list its cells in the order of a run; --print writes its file, as a start for your own.`,
		Example: "  quorate-lab plans\n  quorate-lab plans seeds --only rto --skip galera\n  quorate-lab plans smoke --print > mine.toml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && (print || len(only)+len(skip) > 0):
				return errors.New("--print, --only and --skip need a plan")
			case len(args) == 0:
				return listPlans(cmd.OutOrStdout())
			case print:
				text, err := planText(args[0])
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			_, steps, err := loadPlan(args[0], only, skip)
			if err != nil {
				return err
			}
			return listSteps(cmd.OutOrStdout(), steps)
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, onlyUsage)
	cmd.Flags().StringSliceVar(&skip, "skip", nil, "leave these cells out")
	cmd.Flags().BoolVar(&print, "print", false, "print the plan's file")
	return cmd
}

const onlyUsage = "only these cells: an experiment, workload, network, system or number of threads, or a name as listed, or its beginning; with wildcards (*)"

// planText is the text of an embedded plan, or of the file at the path name.
func planText(name string) ([]byte, error) {
	text, err := plan.Text(name)
	if err == nil || !strings.ContainsAny(name, "/.") {
		return text, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open plan: %w", err)
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, planBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	if len(text) > planBytesMax {
		return nil, fmt.Errorf("read plan %s: longer than %d bytes", name, planBytesMax)
	}
	return text, nil
}

// loadPlan parses and judges a plan, and selects from its steps.
func loadPlan(name string, only, skip []string) (plan.Plan, []plan.Step, error) {
	text, err := planText(name)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	p, err := plan.Parse(name, text)
	if err != nil {
		return p, nil, err
	}
	if err := p.Check(knownNames()); err != nil {
		return p, nil, err
	}
	steps, err := p.Steps()
	if err != nil {
		return p, nil, err
	}
	steps, err = plan.Select(steps, only, skip)
	return p, steps, err
}

func knownNames() plan.Known {
	known := plan.Known{Systems: map[string][]string{}, Common: []string{"compress"}}
	for _, s := range peers.Systems() {
		known.Systems[s.Name] = s.Options
	}
	for _, t := range netlab.Presets() {
		known.Networks = append(known.Networks, t.Name)
	}
	return known
}

func listPlans(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PLAN\tCELLS\tABOUT\tWHAT")
	for _, p := range plan.Embedded() {
		steps, err := p.Steps()
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", p.Name, len(steps), about(plan.NewETA().Remaining(steps)), p.Description)
	}
	return table.Flush()
}

// about rounds a duration for an estimate: 9 min, 3 h 40 min, 6 days.
func about(d time.Duration) string {
	minutes := int(d.Round(time.Minute).Minutes())
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	case minutes < 60:
		return fmt.Sprintf("%d min", minutes)
	case minutes < 48*60:
		return fmt.Sprintf("%d h %d min", minutes/60, minutes%60)
	}
	return fmt.Sprintf("%d days", (minutes+12*60)/(24*60))
}

func listSteps(w io.Writer, steps []plan.Step) error {
	eta := plan.NewETA()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CELL\tREPETITION\tLOAD\tDEPLOYS")
	for _, s := range steps {
		deploys := "yes"
		if s.Reuse {
			deploys = "-"
		}
		fmt.Fprintf(table, "%s\t%d\t%v\t%s\n", s.Name(), s.Repetition, s.Duration, deploys)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d cells, about %s\n", len(steps), about(eta.Remaining(steps)))
	return err
}
