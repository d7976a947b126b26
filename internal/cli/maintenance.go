package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
)

func newMaintenanceCommand() *cobra.Command {
	var o controlOptions
	var how cluster.Ask
	var reason string
	var bound time.Duration
	cmd := &cobra.Command{
		Use:   "maintenance on|off [--reason TEXT] [--for DURATION]",
		Short: "Switch maintenance on or off",
		Long: `Switches maintenance on or off, for the whole cluster. While it is on there is no failover:
only the node that was the primary when it began may open for writes. If the mysqld of that
node ends, its agent starts it again. If the node is gone, there is no primary until the
node is back, maintenance is switched off, or "quorate switchover --to NODE" names another
node. What is acknowledged is as safe as ever.

Every node's status shows maintenance: since when, by whom and why. It stays on, also over
restarts, until it is switched off, or until the time of --for is over (one minute to 30
days). If it is on already, "on" changes only what you give.

You can ask any node's agent, on its own host. The change needs a majority of the nodes.
Exit codes: "quorate help exit-codes".`,
		Example: `  quorate maintenance on --reason "new disks in db2" --for 2h
  quorate maintenance off`,
		Args:      oneArg("on or off"),
		ValidArgs: []string{"on", "off"},
		RunE: func(cmd *cobra.Command, args []string) error {
			change := cluster.MaintenanceChange{On: args[0] == "on", Reason: reason, For: bound}
			switch {
			case args[0] != "on" && args[0] != "off":
				return usage(fmt.Errorf("maintenance must be on or off, not %q", args[0]))
			case !change.On && (reason != "" || bound != 0):
				return usage(errors.New("--reason and --for do not go with off"))
			case cmd.Flags().Changed("for"):
				if err := cluster.CheckMaintenanceFor(bound); err != nil {
					return usage(fmt.Errorf("--for: %w", err))
				}
			}
			return o.change(cmd.Context(), cmd.OutOrStdout(), "maintenance", cluster.MaintenanceRequest{MaintenanceChange: change, Ask: how})
		},
	}
	o.flags(cmd)
	dryRunFlag(cmd, &how.DryRun)
	durationFlag(cmd, &bound, "for", 0, "after which time it ends by itself (default: never)")
	cmd.Flags().StringVar(&reason, "reason", "", "why, as `text` that every status shows")
	return cmd
}
