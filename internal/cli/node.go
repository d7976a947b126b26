package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

func newNodeCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "node",
		Short: "Show and change the cluster's nodes",
		Long: `Shows the nodes, and changes their settings in the cluster. You can ask any node's agent, on
its own host: it passes a change on to the leader.`,
		Example: `  quorate node list
  quorate node set db2 --weight 7`,
	}, newNodeListCommand(), newNodeSetCommand(), newNodeAddCommand(), newNodePromoteCommand(),
		newNodeDemoteCommand(), newNodeRebuildCommand(), newNodeRemoveCommand())
}

// nodeList is what "quorate node list --json" prints.
type nodeList struct {
	StateVersion uint64     `json:"state_version"`
	Nodes        []nodeLine `json:"nodes"`
}

type nodeLine struct {
	ID     cluster.NodeID `json:"id,string"`
	Name   string         `json:"name"`
	Kind   cluster.Kind   `json:"kind"`
	Weight int            `json:"weight"`
	Site   string         `json:"site,omitempty"`
	// RequireAck is the degrade policy of its require-ack; "" = it has none.
	RequireAck string `json:"require_ack,omitempty"`
	// Source feeds a learner in place of the leader; "" = the leader does.
	Source    string      `json:"source,omitempty"`
	Peer      string      `json:"peer"`
	Role      status.Role `json:"role"`
	Reachable bool        `json:"reachable"`
	Version   string      `json:"agent_version,omitempty"`
	// Key names the key that the node shows; "" = it has none.
	Key cluster.Key `json:"key,omitempty"`
}

func newNodeListCommand() *cobra.Command {
	var o controlOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the nodes and their settings in the cluster",
		Long: `Lists the nodes and their settings in the cluster, as one node's agent knows them: kind,
weight, site, whether OKs wait for the node (REQUIRE-ACK), which node feeds it (SOURCE), the
address for other agents (PEER), role, and the agent's version. "quorate status" shows how
the nodes are.`,
		Example: `  quorate node list
  quorate node list --config node.toml --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.listNodes(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.flags(cmd)
	return cmd
}

// status asks for the status of the cluster.
func (o *controlOptions) status(ctx context.Context) (status.Cluster, error) {
	addr, err := statusAddress(o.path, o.addr)
	if err != nil {
		return status.Cluster{}, err
	}
	return fetchStatus(ctx, addr)
}

// agreed asks a node that knows what the cluster has agreed on for its status. A node
// that takes no part in the cluster is an error: it would show only defaults.
func (o *controlOptions) agreed(ctx context.Context) (status.Cluster, error) {
	st, err := o.status(ctx)
	if outside := st.Own().OutsideText(); err == nil && outside != "" {
		err = fmt.Errorf("node %s does not know what the cluster has agreed on: %s; ask another node", st.Self, outside)
	}
	return st, err
}

func (o *controlOptions) listNodes(ctx context.Context, out io.Writer) error {
	st, err := o.agreed(ctx)
	if err != nil {
		return err
	}
	list := nodeList{StateVersion: st.StateVersion, Nodes: []nodeLine{}}
	for _, n := range st.Nodes {
		list.Nodes = append(list.Nodes, nodeLine{n.ID, n.Name, n.Kind, n.Weight, n.Site, n.RequireAck, n.Source, n.Peer, n.Shown(), n.Reachable, n.AgentVersion, n.Key})
	}
	return show(out, o.asJSON, list, nodeTable(st))
}

func nodeTable(st status.Cluster) string {
	var rows [][]string
	for _, n := range st.Nodes {
		rows = append(rows, []string{
			n.Name, string(n.Kind), weightCell(n), cmp.Or(n.Site, "-"), cmp.Or(n.RequireAck, "-"), cmp.Or(n.Source, "-"), n.Peer, string(n.Shown()), cmp.Or(n.AgentVersion, "-"),
		})
	}
	return table("NODE\tKIND\tWEIGHT\tSITE\tREQUIRE-ACK\tSOURCE\tPEER\tROLE\tVERSION", rows)
}

// nodeSetHelp says which settings there are, and how all changes of the cluster state end.
const nodeSetHelp = `Changes a node's settings in the cluster.

--weight says how much a full node is preferred as the primary when several nodes have the
same data, from 0 to 9. With 0 it never becomes the primary.

--site is a label: nodes with the same label stand in the same place. --site none takes it
back.

--require-ack lets a client's OK wait until this node, too, has the transaction on disk.
While the node is away, writes wait (--degrade wait), or go on without it after a time
(--degrade drop-after=10s). To go on without it is an alarm in every status, a line in the
audit log and a metric, and ends once the node has caught up. Each new leader waits for the
node again. --require-ack=false takes it back.

--source lets another node with a vote feed this learner, so that the leader need not. With
--source-applied the learner gets only what its source's mysqld has applied, so that nobody
can read more at the learner than there. While the source is away the leader feeds the
learner. --source none takes it back.

--peer says at which address the others reach the node from now on, after its host got
another one. It is the host:port of the node's own node.toml: write it there first, and
restart its agent. A node with a vote must answer there with its key, and all other voters
must be well; with --force neither is checked. Change the address of one node at a time.

--key says by which key the others know the node, from now on and at once. Use it after the
node has lost its key, or with --force if somebody else has the key. Give it alone, on the
host of the leader (the primary) or on the node's own. To change the key of a node that
runs, use "quorate key rotate" on its host.

--dry-run says what the change would mean. What would stop writes at once, because the node
is not there, is refused without --force.

The change needs a majority of the nodes. Exit code 0: it is so now. 1: another change came
first, or it failed. 2: it cannot be. 3: there is no leader, and nothing was done. 4: no
majority has confirmed it in time. It may still be done: then "quorate audit" shows it.`

// nodeSetFlags are the flags for the settings of a node.
type nodeSetFlags struct {
	weight                    int
	site, degrade             string
	source, peer              string
	requireAck, sourceApplied bool
}

// nodeSettings are the names of these flags.
var nodeSettings = []string{"weight", "site", "require-ack", "source", "source-applied", "peer", "degrade"}

func (f *nodeSetFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.weight, "weight", 0, "how much it is preferred as primary: 0 (never) to 9")
	cmd.Flags().StringVar(&f.site, "site", "", "`label` of the place where it stands, or none")
	cmd.Flags().BoolVar(&f.requireAck, "require-ack", false, "have OKs wait for this node, too")
	sourceFlag(cmd, &f.source, &f.sourceApplied)
	cmd.Flags().StringVar(&f.peer, "peer", "", "`host:port` where its agent listens for others")
	cmd.Flags().StringVar(&f.degrade, "degrade", "", "what --require-ack does while the node is away: `policy` wait or drop-after=DURATION")
}

// change returns the change of a node that the given flags ask for.
func (f *nodeSetFlags) change(cmd *cobra.Command, name string) (cluster.NodeChange, error) {
	change := cluster.NodeChange{Name: name}
	if cmd.Flags().Changed("weight") {
		change.Weight = &f.weight
	}
	if cmd.Flags().Changed("site") {
		change.Site = new(unlessNone(f.site))
	}
	if cmd.Flags().Changed("require-ack") {
		change.RequireAck = &f.requireAck
	}
	if cmd.Flags().Changed("degrade") {
		after, err := cluster.ParseDegrade(f.degrade)
		if err != nil {
			return change, usage(err)
		}
		change.DropAfter = &after
	}
	if cmd.Flags().Changed("source") {
		change.Source = new(unlessNone(f.source))
	}
	if cmd.Flags().Changed("source-applied") {
		change.SourceApplied = &f.sourceApplied
	}
	if cmd.Flags().Changed("peer") {
		change.Peer = &f.peer
	}
	if change == (cluster.NodeChange{Name: name}) {
		return change, usage(errors.New("nothing to set: --weight, --site, --require-ack, --degrade, --source, --peer or --key is missing"))
	}
	return change, nil
}

func newNodeSetCommand() *cobra.Command {
	var o controlOptions
	var how cluster.Ask
	var f nodeSetFlags
	var key string
	cmd := &cobra.Command{
		Use:   "set NODE [--weight N] [--site S] [--require-ack] ...",
		Short: "Change a node's settings in the cluster",
		Long:  nodeSetHelp,
		Example: `  quorate node set db2 --weight 7
  quorate node set db3 --weight 0 --site east --config node.toml
  quorate node set db3 --require-ack --degrade drop-after=10s
  quorate node set db9 --source db8
  quorate node set db2 --peer 10.0.7.2:7400`,
		Args: oneArg("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if key != "" {
				if slices.ContainsFunc(nodeSettings, cmd.Flags().Changed) {
					return usage(errors.New("--key is set alone"))
				}
				return o.change(cmd.Context(), cmd.OutOrStdout(), "node.key", cluster.KeysRequest{KeysChange: cluster.KeysChange{Name: args[0], Key: new(cluster.Key(key)), NextKey: new(cluster.Key)}, Ask: how})
			}
			change, err := f.change(cmd, args[0])
			if err != nil {
				return err
			}
			return o.change(cmd.Context(), cmd.OutOrStdout(), "node.set", cluster.NodeRequest{NodeChange: change, Ask: how})
		},
	}
	o.flags(cmd)
	askFlags(cmd, &how)
	f.add(cmd)
	cmd.Flags().StringVar(&key, "key", "", "the `key` by which the others know it, as \"quorate key show\" prints it there")
	return cmd
}
