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
		Long: `Switches maintenance on or off for the whole cluster. While it is on, no other
node takes over by itself: the node that was the primary when it began is the
only one that opens for writes. If its mysqld ends, its agent starts it again; if
the node is gone, there is no primary until it is back, until maintenance is
switched off, or until "quorate switchover --to NODE" names another one. What is
acknowledged is as safe as ever.

Every node's status says so, since when, by whom and why. It stays on until it is
switched off, over restarts, too, or until the time given with --for is over: one
minute to 30 days. If it is on already,
"on" changes only what is given.

Any node's agent can be asked, on its own host. It takes a majority of the nodes.
Exit codes are those of "quorate node set".`,
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
	durationFlag(cmd, &bound, "for", 0, "when it ends by itself (without: when it is switched off)")
	cmd.Flags().StringVar(&reason, "reason", "", "why, as `text` that every status shows")
	return cmd
}
