package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
)

// actionTimeout bounds the wait for the answer to an action. The agents' own bound is
// shorter.
const actionTimeout = 115 * time.Second

// restartWait is actionTimeout for a restart.
const restartWait = cluster.RestartMax + 10*time.Second

func newSwitchoverCommand() *cobra.Command {
	o := controlOptions{timeout: actionTimeout}
	var args cluster.SwitchoverRequest
	cmd := &cobra.Command{
		Use:   "switchover [--to NODE] [--dry-run]",
		Short: "Move the primary to another node, in order",
		Long: `Moves the primary to another node without a failure: to the node of --to, or to the best one
by log, lag and weight. First the command waits until that node has caught up, at most
--wait; writes go on meanwhile. Then writes are closed, and commits that are under way get
their answers. Once the other node has everything, leadership goes to it. The old primary's
mysqld goes on as a replica, without a restart.

If writes would be closed for longer than --max-pause, the switchover is called off, and the
old primary goes on. Clients' sessions end when leadership goes. New ones are held until the
new primary is open. A statement that comes in between gets error 1290, and was not
executed.

--dry-run changes nothing. It says which node would be the next primary and why, and what is
in the way: a statement that writes for long, prepared XA transactions, a node that lags or
cannot lead.

During maintenance, the new primary becomes the only node that may open.

Exit code 0: it was done, or with --dry-run: it could be done. 1: it was not done. 2: wrong
usage. 3: there is no leader. 4: it is not known.`,
		Example: `  quorate switchover --dry-run
  quorate switchover --to db2
  quorate switchover --max-pause 500ms --wait 1m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.switchover(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&args.To, "to", "", "`node` that is to be the primary")
	dryRunFlag(cmd, &args.DryRun)
	durationFlag(cmd, &args.MaxPause, "max-pause", cluster.MaxPauseDefault, "how long writes may be closed before it is called off")
	durationFlag(cmd, &args.Wait, "wait", cluster.WaitDefault, "how long the other node may take to catch up first")
	return cmd
}

func (o *controlOptions) switchover(ctx context.Context, out io.Writer, args cluster.SwitchoverRequest) error {
	var s cluster.Switchover
	if err := o.ask(ctx, "switchover", args, &s); err != nil {
		return err
	}
	return o.print(out, s, s.DryRun, s.Blocks, switchoverText(s))
}

func switchoverText(s cluster.Switchover) string {
	var text strings.Builder
	switch {
	case len(s.Blocks) > 0:
		text.WriteString("the primary would not move\n")
	case s.To == "":
	case s.DryRun && s.From == "":
		fmt.Fprintf(&text, "%s could open then: %s\n", s.To, s.Why)
	case s.From == s.To:
		fmt.Fprintf(&text, "nothing to move: node %s is the primary already\n", s.To)
	case s.DryRun:
		fmt.Fprintf(&text, "the primary would move from %s to %s: %s\n", s.From, s.To, s.Why)
	case s.From == "":
		fmt.Fprintf(&text, "%s may open now: see the status\n", s.To)
	default:
		fmt.Fprintf(&text, "the primary moved from %s to %s: no writes for about %.0f ms\n", s.From, s.To, s.PauseMs)
	}
	for _, b := range s.Blocks {
		fmt.Fprintf(&text, "in the way: %s\n", oneLine(b))
	}
	return text.String() + noteLines(s.Notes)
}

func newRestartMysqldCommand() *cobra.Command {
	o := controlOptions{timeout: restartWait}
	var request cluster.RestartRequest
	cmd := &cobra.Command{
		Use:   "restart-mysqld NODE [--in-place]",
		Short: "Start a node's mysqld again, in order",
		Long: `Stops the mysqld of a node cleanly and starts it again, with the configuration that its
agent has read. If you changed the configuration, restart the agent instead. A primary first
hands leadership to another node (see "quorate switchover"), so a cluster can be restarted
node by node with short pauses only. With --in-place a primary stays the leader, and writes
wait until its mysqld is back.

The command ends once mysqld replicates, or serves, again.

Exit codes: "quorate help exit-codes".`,
		Example: `  quorate restart-mysqld db2
  quorate restart-mysqld db1 --in-place`,
		Args: oneArg("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Node = args[0]
			var done cluster.Restarted
			if err := o.ask(cmd.Context(), "restart", request, &done); err != nil {
				return err
			}
			text, blocks := "", []string(nil)
			if done.Moved != nil {
				text, blocks = switchoverText(*done.Moved), done.Moved.Blocks
			}
			switch {
			case len(blocks) > 0:
			case done.DryRun:
				text += fmt.Sprintf("mysqld of %s would be stopped in order and started again\n", done.Node) + noteLines(done.Notes)
			default:
				text += fmt.Sprintf("mysqld of %s was restarted in %.1f s, incarnation %d\n", done.Node, done.Seconds, done.Incarnation) + noteLines(done.Notes)
			}
			return o.print(cmd.OutOrStdout(), done, done.DryRun, blocks, text)
		},
	}
	o.flags(cmd)
	dryRunFlag(cmd, &request.DryRun)
	cmd.Flags().BoolVar(&request.InPlace, "in-place", false, "do not move the primary first: writes wait for the restart")
	durationFlag(cmd, &request.MaxPause, "max-pause", cluster.MaxPauseDefault, "how long closing writes may take before it is called off")
	return cmd
}

func newFenceCommand() *cobra.Command {
	o := controlOptions{timeout: actionTimeout}
	var request cluster.FenceRequest
	var yes bool
	cmd := &cobra.Command{
		Use:   "fence NODE [--reason TEXT] [--force]",
		Short: "Keep mysqld from running on a node",
		Long: `Ends the mysqld of a node at once. It is not started again until "quorate unfence", even if
the agent restarts. The agent goes on: it votes and keeps the log.

The primary is fenced only with --force, because its clients do not learn what became of
their last commits. Move the primary first: "quorate switchover". --force asks first on a
terminal; elsewhere it needs --yes.

Exit codes: "quorate help exit-codes".`,
		Example: `  quorate fence db3 --reason "its disk is exchanged"
  quorate unfence db3`,
		Args: oneArg("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Node = args[0]
			if request.Force && !yes && !request.DryRun {
				if err := o.mayAsk(cmd.InOrStdin(), cmd.OutOrStdout()); err != nil {
					return err
				}
				question := fmt.Sprintf("Fence node %s, also if it is the primary? The last commits of its clients are in doubt then. [y/N] ", args[0])
				if !confirm(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), question) {
					return errNotMeant
				}
			}
			return o.fence(cmd.Context(), cmd.OutOrStdout(), "fence", request)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why, as `text` that the status shows")
	dryRunFlag(cmd, &request.DryRun)
	cmd.Flags().BoolVar(&request.Force, "force", false, "fence the node even if it is the primary")
	yesFlag(cmd, &yes)
	return cmd
}

func newUnfenceCommand() *cobra.Command {
	o := controlOptions{timeout: actionTimeout}
	var request cluster.FenceRequest
	cmd := &cobra.Command{
		Use:   "unfence NODE",
		Short: "Let mysqld run on a node again",
		Long: `Takes "quorate fence" back: mysqld is started, and follows the primary. A node that quorate
itself has fenced comes back by itself when the reason is over. Its status says the reason.

Exit codes: "quorate help exit-codes".`,
		Example: `  quorate unfence db3`,
		Args:    oneArg("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Node = args[0]
			return o.fence(cmd.Context(), cmd.OutOrStdout(), "unfence", request)
		},
	}
	o.flags(cmd)
	dryRunFlag(cmd, &request.DryRun)
	return cmd
}

func (o *controlOptions) fence(ctx context.Context, out io.Writer, name string, request cluster.FenceRequest) error {
	var f cluster.FenceResult
	if err := o.ask(ctx, name, request, &f); err != nil {
		return err
	}
	text := fenceText(name, request.Node, f)
	if f.DryRun && f.Changed { // it would be changed
		f.Changed = false
		if name == "fence" {
			f.Fence = cluster.Fence{} // there is no fence yet
		}
	}
	return o.print(out, f, f.DryRun, nil, text)
}

func fenceText(name, node string, f cluster.FenceResult) string {
	var text string
	switch fence := name == "fence"; {
	case fence && !f.Changed:
		text = fmt.Sprintf("%s was fenced already: %s", node, oneLine(f.Fence.String()))
	case !f.Changed:
		text = node + " was not fenced by an operator"
	case fence && f.DryRun:
		text = fmt.Sprintf("no mysqld would run on %s until \"quorate unfence %s\"", node, node)
	case f.DryRun:
		text = fmt.Sprintf("the mysqld of %s would be started; it was %s", node, oneLine(f.Fence.String()))
	case fence:
		text = fmt.Sprintf("%s is fenced: its mysqld is down, and stays so until \"quorate unfence %s\"", node, node)
	default:
		text = fmt.Sprintf("%s is not fenced any more: its mysqld starts, see \"quorate status\"", node)
	}
	return text + "\n" + noteLines(f.Notes)
}
