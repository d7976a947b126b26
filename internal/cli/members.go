package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
)

// membersExit and membersAsk end the help of the commands that change the members.
const (
	membersExit = `

One change at a time. The command does not wait until a node has copied its data. Meanwhile
a change that would leave only one running voter is refused without --force. A change is
also refused if the voters that are there now would be no majority after it. --dry-run says
whether it could be done now, and what it would mean for majority and failover. What would
stop writes at once is refused without --force. Exit codes: "quorate help exit-codes".`
	membersAsk = ` The command asks first on a terminal; elsewhere it needs --yes.`
)

// membersTimeout bounds the wait for the answer: two changes may be needed.
const membersTimeout = 3*control.Timeout + controlTimeout

// membersCommand is a command that asks for a change of the members.
func membersCommand(op cluster.MembershipOp, use, short, long, example string, kinds bool) *cobra.Command {
	o := controlOptions{timeout: membersTimeout}
	r := cluster.MembershipRequest{Change: cluster.MembershipChange{Op: op}}
	kind, key, yes := "", "", false
	question := map[cluster.MembershipOp]string{
		cluster.OpRemove:  "Remove node %s for good? No node can have its name again.",
		cluster.OpRebuild: "Rebuild node %s: replace its data by a copy from another node? Its present data are moved to old/ in its data directory, and deleted days later.",
	}[op]
	if question != "" {
		long += membersAsk
	}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long + membersExit, Example: example,
		Args: oneArg("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Change.Name, r.Change.Kind, r.Change.Source = args[0], cluster.Kind(kind), unlessNone(r.Change.Source)
			r.Change.Key = cluster.Key(key)
			if op == cluster.OpAdd && r.Change.Peer == "" {
				return usage(errors.New("--peer is missing: the host:port where the node's agent listens for others"))
			}
			if question != "" && !yes && !r.DryRun {
				if err := o.askMember(cmd, r, fmt.Sprintf(question, args[0])); err != nil {
					return err
				}
			}
			return o.change(cmd.Context(), cmd.OutOrStdout(), "node."+string(op), r)
		},
	}
	o.flags(cmd)
	askFlags(cmd, &r.Ask)
	if question != "" {
		yesFlag(cmd, &yes)
	}
	if kinds {
		kindHelp, kinds := "its kind once it has a vote: `full` or logger", []cluster.Kind{cluster.KindFull, cluster.KindLogger}
		if op == cluster.OpAdd {
			kindHelp, kinds = "its kind: `full`, logger or learner", append(kinds, cluster.KindLearner)
		}
		kind = string(cluster.KindFull)
		wordFlag(cmd, &kind, "kind", kindHelp, kinds...)
	}
	if op == cluster.OpAdd {
		cmd.Flags().StringVar(&r.Change.Peer, "peer", "", "`host:port` where its agent listens for others")
		cmd.Flags().StringVar(&key, "key", "", "its `key`, as \"quorate key show\" prints it there: q1:…")
		sourceFlag(cmd, &r.Change.Source, &r.Change.SourceApplied)
	}
	return cmd
}

// askMember tells a person what a change of the members means, and asks for a confirmation. If the change would
// be refused, it does not ask.
func (o *controlOptions) askMember(cmd *cobra.Command, r cluster.MembershipRequest, question string) error {
	if err := o.mayAsk(cmd.InOrStdin(), cmd.OutOrStdout()); err != nil {
		return err
	}
	r.DryRun = true
	var plan cluster.ChangeResult
	if err := o.ask(cmd.Context(), "node."+string(r.Change.Op), r, &plan); err != nil {
		return err
	}
	text := noteLines(plan.Notes)
	for _, stop := range plan.Stops {
		text += "writes stop: " + oneLine(stop) + "\n"
	}
	if !confirm(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), text+question+" [y/N] ") {
		return errNotMeant
	}
	return nil
}

func newNodeAddCommand() *cobra.Command {
	return membersCommand(cluster.OpAdd,
		"add NODE --peer HOST:PORT --key KEY [--kind KIND]",
		"Add a node to the cluster", `Adds a node. First write its node.toml, on its host: it has the same [[member]] list as all
others, and a section [join] with its address and kind. No [[member]] list names it.

The node begins as a learner, without a vote. Its agent waits until the node was added, and
then copies what is there. That is the log alone, if a member's log goes back to the
beginning; otherwise first the data of a replica's mysqld. Once the node has caught up, the
cluster gives it its vote by itself; with --kind learner it gets none. "quorate status"
shows how far it is. Meanwhile no node purges anything of its log that the new node may still
need.`,
		`  quorate node add db4 --peer 10.0.0.4:7400 \
      --key q1:hB3cZrT1mVYx0yQ0f5l1m8dJkq7yq2l0y8f2t1r9sXo
  quorate node add log1 --peer 10.0.0.9:7400 --kind logger --dry-run \
      --key q1:6nV0c1o2JwS9pX4uT8dQy7aLbE3fRkZ5mGhI0jKlMnP`, true)
}

func newNodePromoteCommand() *cobra.Command {
	return membersCommand(cluster.OpPromote,
		"promote NODE [--kind full|logger] [--dry-run]",
		"Give a learner a vote", `Gives a learner a vote. The learner must have caught up.`,
		`  quorate node promote db4`, true)
}

func newNodeDemoteCommand() *cobra.Command {
	return membersCommand(cluster.OpDemote,
		"demote NODE [--dry-run]",
		"Take a node's vote", `Takes a node's vote away. The node becomes a learner, and goes on as a replica. The leader
cannot be demoted.`,
		`  quorate node demote db4`, false)
}

func newNodeRebuildCommand() *cobra.Command {
	return membersCommand(cluster.OpRebuild,
		"rebuild NODE [--dry-run]",
		"Replace a node's data by a copy from another node", `Replaces the data of a node by a copy from another node, as for a node that joins. Use it
for a node that is errant, or that has lost its disk. The node may be down, and its data
directory may be empty. Its present data are moved to old/ in its data directory. They are
deleted after seven days, or sooner if more than two copies are kept or the disk gets full.
Transactions that only its mysqld has are saved in errant/, if its binlogs still have them.

The node has no vote until it has caught up; then it is what it was before. The leader
cannot be rebuilt. OKs that wait for the node (--require-ack) wait until then: if that would
stop writes, the command is refused without --force.`,
		`  quorate node rebuild db2 --dry-run
  quorate node rebuild db2 --yes`, false)
}

func newNodeRemoveCommand() *cobra.Command {
	return membersCommand(cluster.OpRemove,
		"remove NODE [--dry-run]",
		"Remove a node from the cluster, for good", `Removes a node from the cluster, for good: no other node can ever have its name. The node
may be down. A node with a vote is demoted first. If the node runs, or comes back, it learns
that it was removed, and serves nothing any more. Its data stay on its disk. The leader
cannot be removed.`,
		`  quorate node remove db2 --dry-run
  quorate node remove db2 --yes`, false)
}
