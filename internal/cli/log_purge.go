package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
)

// purgeTimeout bounds the wait for the agent, which bounds the purge by a minute:
// it syncs the directory for every segment that it removes.
const purgeTimeout = 70 * time.Second

// purgeOptions is what the command line says.
type purgeOptions struct {
	controlOptions
	request cluster.PurgeRequest
	yes     bool
}

func newLogPurgeCommand() *cobra.Command {
	var keep string
	o := purgeOptions{controlOptions: controlOptions{timeout: purgeTimeout}}
	cmd := &cobra.Command{
		Use:   "purge [--keep SIZE] [--dry-run]",
		Short: "Remove the oldest segments of a node's log",
		Long: `Shows which of the oldest segments of one node's log can go, and why the others stay; then
removes them, and no others. The agents do the same by themselves every minute.

A segment is removed if [log] retention_size or retention_age allows it, and no member needs
it: every member has it in its own log, and every mysqld has it safe on disk in InnoDB (an
errant one does not count). --keep replaces both settings of retention. What a member needs
stays, whatever --keep says. The archive is no member: a note says what it lacks, if it runs
on that node. Nothing says what a following site lacks.

On a terminal the command asks before it removes anything. Elsewhere, and with --json, it
needs --yes. --json prints the plan that was carried out, or with --dry-run the plan.`,
		Example: `  quorate log purge --dry-run
  quorate log purge --config node.toml --keep 4GiB
  quorate log purge --keep 0 --yes`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep != "" {
				size, err := config.ParseBytes(keep)
				if err != nil {
					return usage(fmt.Errorf("--keep: %w", err))
				}
				o.request.RetentionSize = new(int64(size))
			}
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&keep, "keep", "", "keep this `size` of the log, instead of the configured retention")
	cmd.Flags().BoolVarP(&o.request.DryRun, "dry-run", "n", false, "remove nothing")
	yesFlag(cmd, &o.yes)
	return cmd
}

func (o purgeOptions) run(ctx context.Context, in io.Reader, out io.Writer) error {
	var plan cluster.PurgePlan
	if !o.yes && !o.request.DryRun {
		if err := o.mayAsk(in, out); err != nil {
			return err
		}
	}
	if o.asJSON {
		if err := o.ask(ctx, "log.purge", o.request, &plan); err != nil {
			return err
		}
		return o.print(out, plan, o.request.DryRun, nil, "")
	}
	dry := o.request
	dry.DryRun = true
	if err := o.ask(ctx, "log.purge", dry, &plan); err != nil {
		return err
	}
	if err := printText(out, purgeTable(plan)); err != nil {
		return err
	}
	if o.request.DryRun || plan.UpTo == 0 {
		return nil
	}
	question := fmt.Sprintf("\nRemove entries %d-%d from the log of node %s? [y/N] ", plan.Segments[0].First, plan.UpTo, plan.Node)
	if !o.yes && !confirm(ctx, in, out, question) {
		return errNotMeant
	}
	o.request.UpTo = plan.UpTo // and nothing that may go only since it was shown
	plan = cluster.PurgePlan{}
	if err := o.ask(ctx, "log.purge", o.request, &plan); err != nil {
		return err
	}
	result := fmt.Sprintf("\nremoved %s: the log of node %s now begins at entry %d\n", units.Size(plan.Bytes), plan.Node, plan.UpTo+1)
	if !plan.Done { // the agent has purged by itself meanwhile
		result = "\nthere is nothing left to remove\n"
	}
	return wasDone(printText(out, result))
}

// purgeTable renders a plan for people.
func purgeTable(p cluster.PurgePlan) string {
	var text strings.Builder
	n := 0
	for _, s := range p.Segments {
		if s.Purge {
			n++
		}
	}
	fmt.Fprintf(&text, "node %s: %d of %d segments can go, %s\n\n", p.Node, n, len(p.Segments), units.Size(p.Bytes))
	var rows [][]string
	for _, s := range p.Segments {
		written, why := "-", s.Why
		if !s.Written.IsZero() {
			written = units.Time(s.Written)
		}
		if s.Purge {
			why = "goes: " + why
		}
		rows = append(rows, []string{fmt.Sprintf("%d-%d", s.First, s.Last), units.Size(s.Bytes), written, why})
	}
	text.WriteString(table("ENTRIES\tSIZE\tLAST COMMIT\tPLAN", rows))
	if p.Blocked != "" {
		fmt.Fprintf(&text, "\nblocked: %s\n", p.Blocked)
	}
	if p.Note != "" {
		fmt.Fprintf(&text, "\nnote: %s\n", p.Note)
	}
	return text.String()
}
