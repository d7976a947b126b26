package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
)

func newAuditCommand() *cobra.Command {
	var o controlOptions
	var last int
	cmd := &cobra.Command{
		Use:   "audit [--last N] [--config FILE | --addr HOST:PORT]",
		Short: "Show what operators did, who and when",
		Long: `Prints the newest lines of a node's audit log, oldest first: when it was asked
for, by whom, what, and what became of it. Each node has a line for each change
that it has seen committed, in audit.log in its data directory.

--json prints one object per line.`,
		Example: `  quorate audit
  quorate audit --last 5 --config node.toml --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.audit(cmd.Context(), cmd.OutOrStdout(), last)
		},
	}
	o.flags(cmd)
	cmd.Flags().IntVar(&last, "last", 50, "how many lines")
	return cmd
}

func (o *controlOptions) audit(ctx context.Context, out io.Writer, last int) error {
	var lines []cluster.AuditEntry
	if err := o.ask(ctx, "audit", cluster.AuditRequest{Last: last}, &lines); err != nil {
		return err
	}
	if o.asJSON {
		encoder := json.NewEncoder(out)
		for _, l := range lines {
			if err := encoder.Encode(l); err != nil {
				return fmt.Errorf("print audit log: %w", err)
			}
		}
		return nil
	}
	if _, err := io.WriteString(out, auditTable(lines)); err != nil {
		return fmt.Errorf("print audit log: %w", err)
	}
	return nil
}

func auditTable(lines []cluster.AuditEntry) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TIME\tBY\tENTRY\tVERSION\tRESULT\tWHAT")
	for _, l := range lines {
		entry, version := "-", "-"
		if l.Index != 0 {
			entry = fmt.Sprint(l.Index)
		}
		if l.Version != 0 {
			version = fmt.Sprint(l.Version)
		}
		fmt.Fprintln(table, strings.Join([]string{
			l.At.UTC().Format(time.RFC3339), oneLine(l.By), entry, version, oneLine(l.Result), oneLine(l.What),
		}, "\t"))
	}
	table.Flush() // it writes to memory
	return text.String()
}
