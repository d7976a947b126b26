package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
)

func newClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cluster",
		Short:   "Change what the whole cluster has agreed on",
		Long:    `Changes what the whole cluster has agreed on; "quorate node set" is for one node.`,
		Example: `  quorate cluster set --durability all`,
		Args:    cobra.NoArgs,
		RunE:    showHelp,
	}
	cmd.AddCommand(newClusterSetCommand())
	return cmd
}

func newClusterSetCommand() *cobra.Command {
	var o controlOptions
	var durability string
	policies := []string{string(cluster.DurabilityMajority), string(cluster.DurabilityAll), string(cluster.DurabilitySiteMajority)}
	cmd := &cobra.Command{
		Use:   "set --durability majority|all|site-majority [--config FILE | --addr HOST:PORT]",
		Short: "Change the cluster's durability policy",
		Long: `Changes what a client's OK waits for, beside a majority of the nodes with a vote
that has the transaction on disk:

  majority       nothing else
  all            every node with a vote: while one is away, writes wait
  site-majority  a node with a vote in another site: what is acknowledged outlives
                 the loss of any one site. Each of them needs a site ("quorate node
                 set NAME --site S"), and there have to be two

It holds from now on, also for commits that wait now. "quorate node set NAME
--require-ack" has OKs wait for one node.

Exit codes are those of "quorate node set".`,
		Example: `  quorate cluster set --durability all
  quorate cluster set --durability majority --config node.toml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policy := cluster.Durability(durability)
			switch {
			case durability == "":
				return usage(errors.New("nothing to set: --durability is missing"))
			case !slices.Contains(policies, durability):
				return usage(fmt.Errorf("durability %q: it is %s", durability, strings.Join(policies, ", ")))
			}
			return o.change(cmd.Context(), cmd.OutOrStdout(), "cluster.set", cluster.SettingsChange{Durability: &policy})
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&durability, "durability", "", "what an OK waits for, a `policy`: "+strings.Join(policies, ", "))
	return cmd
}

// acksWaitShown is how many seconds ACKs wait for a node before that is worth a
// line: an entry is always on its way.
const acksWaitShown = 1

// ackLines say what ACKs wait for beside a commit, and whom they do not wait for
// although they should, in red.
func ackLines(st cluster.Status, colour bool) string {
	var text strings.Builder
	var required []string
	for _, n := range st.Nodes {
		if n.RequireAck != "" {
			required = append(required, fmt.Sprintf("%s (%s)", n.Name, n.RequireAck))
		}
	}
	if st.Durability != "" && st.Durability != cluster.DurabilityMajority || len(required) > 0 {
		fmt.Fprintf(&text, "durability %s", st.Durability)
		if len(required) > 0 {
			fmt.Fprintf(&text, ", require-ack of %s", strings.Join(required, ", "))
		}
		text.WriteByte('\n')
	}
	alarm := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		if colour {
			line = "\x1b[" + ansiRed + "m" + line + "\x1b[0m"
		}
		text.WriteString(line + "\n")
	}
	for _, n := range st.Nodes {
		if !n.Reachable {
			continue
		}
		for _, w := range n.AcksWait {
			if w.Seconds >= acksWaitShown {
				alarm("WRITES WAIT for %s: it lacks %d entries, for %.1f s", w.Node, w.Entries, w.Seconds)
			}
		}
		for _, w := range n.AcksDropped {
			alarm("REQUIRE-ACK DROPPED: writes do not wait for %s, which lacks %d entries, for %.1f s", w.Node, w.Entries, w.Seconds)
		}
	}
	return text.String()
}
