package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
)

// followWidth is the least width of a cell: it keeps columns in line when rows come one by one.
const followWidth = 15

func newHistoryCommand() *cobra.Command {
	var o controlOptions
	var last int
	var follow bool
	cmd := &cobra.Command{
		Use:   "history [--last N] [--follow]",
		Short: "Show what happened: failovers, switchovers, restarts, fences",
		Long: `Prints what happened to the nodes, oldest first: when, what, on which node, how long there
was no primary, what the new primary applied before it opened, and why. Every node has every
line, in history.log in its data directory. A line of another node arrives within seconds,
or once a node that was away is back. If the agent does not run, hangs, or takes no part in
the cluster, the command reads the file: it has what the node knew until then. "quorate
audit" says which nodes were added, removed or rebuilt.

NO PRIMARY and LAST WRITE both end when the new primary opened:

  NO PRIMARY  begins with the last sign of life of the old primary: its status,
              or a commit
  LAST WRITE  begins with the last transaction that was committed. No write was
              acknowledged since then. It is longer than NO PRIMARY if nobody
              wrote, or if the old primary looked well and could not write
              (its mysqld or its disk stood still)

So an outage lasted at least NO PRIMARY, and at most LAST WRITE. "-" means not known: an
agent that has just started has seen no primary. Its LAST WRITE comes from the log, exact to
a second.

--json prints one object per line.`,
		Example: `  quorate history
  quorate history --last 5
  quorate history --follow --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if follow {
				return o.followHistory(cmd.Context(), cmd.OutOrStdout(), last)
			}
			rows, err := o.history(cmd.Context(), last)
			if err != nil {
				rows, err = keptLines(cmd, &o, last, err, history.Kept)
			}
			if err != nil {
				return err
			}
			return o.printHistory(cmd.OutOrStdout(), rows, true, 0)
		},
	}
	o.flags(cmd)
	cmd.Flags().IntVar(&last, "last", 50, "how many lines")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print also what happens from now on, until Ctrl-C")
	return cmd
}

// keptLines reads lines from a node's data directory when its agent cannot give them, because it
// does not run, hangs, or takes no part in the cluster. cause is the error of asking the agent.
func keptLines[T any](cmd *cobra.Command, o *controlOptions, last int, cause error, read func(dataDir string, last int) ([]T, error)) ([]T, error) {
	refused, ok := errors.AsType[*control.Error](cause)
	absent := errors.Is(cause, syscall.ECONNREFUSED) || errors.Is(cause, fs.ErrNotExist) || errors.Is(cause, errHangs)
	if o.addr != "" || last < 1 || !absent && (!ok || refused.Code != control.CodeFailed) {
		return nil, cause
	}
	cfg, err := agentConfig(o.path)
	if err != nil {
		return nil, cause
	}
	lines, err := read(cfg.DataDir, last)
	_, begun := os.Stat(filepath.Join(cfg.DataDir, "identity.json"))
	if err != nil || len(lines) == 0 && begun != nil {
		return nil, cause
	}
	what := "these lines are from %s, and later ones may be missing: %v\n"
	if len(lines) == 0 {
		what = "there are no lines in %s yet: %v\n"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "quorate: "+what, cfg.DataDir, cause)
	return lines, nil
}

func (o *controlOptions) history(ctx context.Context, last int) (rows []cluster.HistoryRow, err error) {
	err = o.ask(ctx, "history", cluster.LastRequest{Last: last}, &rows)
	return rows, err
}

// followHistory prints rows as they come. It goes on if nobody answers for a while.
func (o *controlOptions) followHistory(ctx context.Context, out io.Writer, last int) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	printed := map[string]bool{}
	for first := true; ; first = false {
		rows, err := o.history(ctx, last)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err == nil:
			var fresh []cluster.HistoryRow
			for _, r := range rows {
				if key := fmt.Sprint(r.At.UnixNano(), r.What, r.Node); !printed[key] {
					printed[key] = true
					fresh = append(fresh, r)
				}
			}
			if err := o.printHistory(out, fresh, first, followWidth); err != nil {
				return err
			}
			last = cluster.LinesMax
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (o *controlOptions) printHistory(out io.Writer, rows []cluster.HistoryRow, head bool, cellWidthMin int) error {
	if !o.asJSON {
		return printText(out, historyTable(rows, head, cellWidthMin))
	}
	encoder := json.NewEncoder(out)
	for _, r := range rows {
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("print history: %w", err)
		}
	}
	return nil
}

// historyTable shows one event in a line.
func historyTable(rows []cluster.HistoryRow, head bool, cellWidthMin int) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, cellWidthMin, 0, 2, ' ', 0)
	if head {
		fmt.Fprintln(table, "TIME\tWHAT\tNODE\tNO PRIMARY\tLAST WRITE\tAPPLIED FIRST\tWHY")
	}
	for _, r := range rows {
		applied := "-"
		if r.AppliedTransactions > 0 {
			applied = fmt.Sprintf("%d tx in %s", r.AppliedTransactions, shortMs(r.AppliedMs))
		}
		fmt.Fprintln(table, strings.Join([]string{
			units.Time(r.At), string(r.What), historyNode(r), durationOrNone(r.NoPrimaryMs, ""), durationOrNone(r.LastWriteMs, " before"), applied, oneLine(r.Why),
		}, "\t"))
	}
	table.Flush() // it writes to memory
	lines := strings.Split(text.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// historyNode names the node of an event; for a change of the primary the old and the new primary.
func historyNode(r cluster.HistoryRow) string {
	switch {
	case r.From == "" || r.From == r.Node:
		return r.Node
	case r.Node == "":
		return r.From + " -> none"
	}
	return r.From + " -> " + r.Node
}

func durationOrNone(ms int64, unit string) string {
	if ms == 0 {
		return "-"
	}
	return shortMs(ms) + unit
}

// shortMs is shortDuration of milliseconds.
func shortMs(ms int64) string { return shortDuration(time.Duration(ms) * time.Millisecond) }

// shortDuration prints what was measured, as 66ms, 1.6s or 4m12s.
func shortDuration(d time.Duration) string {
	d = d.Round(time.Millisecond)
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(100 * time.Millisecond)
	}
	return units.Duration(d)
}

// lastChangeLine says in one line when and why the primary changed last; "" = not
// known.
func lastChangeLine(st status.Cluster) string {
	r := st.LastChange
	if r == nil || st.Primary != "" && r.Node != st.Primary { // the newest change is not written down yet
		return ""
	}
	line := fmt.Sprintf("last %s: %s, %s", r.What, units.Time(r.At), historyNode(*r))
	if r.What == cluster.HistoryFirst || r.What == cluster.HistoryLost {
		line = fmt.Sprintf("%s: %s, %s", r.What, units.Time(r.At), historyNode(*r))
	}
	if r.Why != "" {
		line += ", " + oneLine(r.Why)
	}
	noPrimary, lastWrite := shortMs(r.NoPrimaryMs), shortMs(r.LastWriteMs)
	if r.NoPrimaryMs > 0 {
		line += ", no primary for " + noPrimary
	}
	if r.LastWriteMs > 0 && lastWrite != noPrimary {
		line += ", last write " + lastWrite + " before"
	}
	return line + " (quorate history)\n"
}
