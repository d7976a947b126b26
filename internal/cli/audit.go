package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
)

func newAuditCommand() *cobra.Command {
	var o controlOptions
	var last int
	cmd := &cobra.Command{
		Use:   "audit [--last N]",
		Short: "Show what operators did: who, what and when",
		Long: `Prints the newest lines of a node's audit log, oldest first: when something was asked for,
by whom, on which node, what, and the result. The node "all" means a change of the cluster
state, which holds for all nodes. Every node has every line, in audit.log in its data
directory. A line of another node arrives within seconds, or once a node that was away is
back. If the agent does not run, hangs, or takes no part in the cluster, the command reads
the file.

--json prints one object per line, with more fields.`,
		Example: `  quorate audit
  quorate audit --last 5 --config node.toml --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var lines []cluster.AuditEntry
			err := o.ask(cmd.Context(), "audit", cluster.LastRequest{Last: last}, &lines)
			if err != nil {
				lines, err = keptLines(cmd, &o, last, err, history.KeptAudit)
			}
			if err != nil {
				return err
			}
			return o.printAudit(cmd.OutOrStdout(), lines)
		},
	}
	o.flags(cmd)
	cmd.Flags().IntVar(&last, "last", 50, "how many lines")
	return cmd
}

func (o *controlOptions) printAudit(out io.Writer, lines []cluster.AuditEntry) error {
	if o.asJSON {
		encoder := json.NewEncoder(out)
		for _, l := range lines {
			if err := encoder.Encode(l); err != nil {
				return fmt.Errorf("print audit log: %w", err)
			}
		}
		return nil
	}
	return printText(out, auditTable(lines))
}

// auditTable shows one action in a line, and below it why it was not done.
func auditTable(lines []cluster.AuditEntry) string {
	var rows [][]string
	var whys []string
	for _, l := range lines {
		result, why, _ := strings.Cut(oneLine(l.Result), ": ")
		node := cmp.Or(l.Node, "all") // "" = a change of the cluster state, which every node's log has
		rows = append(rows, []string{units.Time(l.At), oneLine(l.By), node, result, oneLine(l.What)})
		whys = append(whys, why)
	}
	shown := strings.SplitAfter(table("TIME\tBY\tNODE\tRESULT\tWHAT", rows), "\n")
	for i, why := range whys {
		if why != "" {
			shown[i+1] += "    " + why + "\n"
		}
	}
	return strings.Join(shown, "")
}
