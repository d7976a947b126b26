package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
)

func newClusterCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "cluster",
		Short: "Show and change what the whole cluster has agreed on",
		Long: `Shows and changes what the whole cluster has agreed on; "quorate node list" and
"quorate node set" are for its nodes.`,
		Example: `  quorate cluster show
  quorate cluster set --durability all`,
	}, newClusterShowCommand(), newClusterSetCommand())
}

// clusterSettings is what "quorate cluster show --json" prints.
type clusterSettings struct {
	Cluster      string               `json:"cluster"`
	StateVersion uint64               `json:"state_version"`
	Durability   cluster.Durability   `json:"durability"`
	Reseed       cluster.Reseed       `json:"reseed"`
	Errant       cluster.ErrantPolicy `json:"errant"`
	// RetainBytesMax is 0 if there is no bound.
	RetainBytesMax int64 `json:"retain_bytes_max"`
	// PeerSecurity is "" where connections between agents are not protected.
	PeerSecurity cluster.PeerSecurity `json:"peer_security"`
	MySQLRouter  bool                 `json:"mysql_router"`
	EventsOff    bool                 `json:"events_off"`
	Maintenance  *cluster.Maintenance `json:"maintenance,omitempty"`
	// RequireAck maps each node that OKs wait for to its degrade policy.
	RequireAck map[string]string `json:"require_ack"`
	// Variables are the server variables that the cluster has for all nodes; nil = the agent did not answer.
	Variables map[string]string `json:"variables"`
	// Recovered is set while former members have not become members again.
	Recovered *cluster.Recovery `json:"recovered,omitempty"`
}

func newClusterShowCommand() *cobra.Command {
	var o controlOptions
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show all that the cluster has agreed on, but for its nodes",
		Long: `Shows what is in force for the whole cluster, as one node's agent knows it:
defaults, too. "quorate cluster set --help" explains each. Nodes are in "quorate
node list", the variables' values in "quorate variables list".`,
		Example: `  quorate cluster show
  quorate cluster show --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := o.agreed(cmd.Context())
			if err != nil {
				return err
			}
			s := clusterSettings{st.Cluster, st.StateVersion, cmp.Or(st.Durability, cluster.DurabilityMajority), cmp.Or(st.Reseed, cluster.ReseedAuto),
				cmp.Or(st.Errant, cluster.ErrantKeep), st.RetainBytesMax, st.PeerSecurity, st.MySQLRouter, st.EventsOff, st.Maintenance, map[string]string{}, o.clusterVariables(cmd), st.Recovered}
			for _, n := range st.Nodes {
				if n.RequireAck != "" {
					s.RequireAck[n.Name] = n.RequireAck
				}
			}
			return show(cmd.OutOrStdout(), o.asJSON, s, s.String())
		},
	}
	o.flags(cmd)
	return cmd
}

// String shows the settings to people. It names them like their flags.
func (s clusterSettings) String() string {
	retain, maintenance := "off", "off\n"
	if s.RetainBytesMax > 0 {
		retain = units.Size(s.RetainBytesMax)
	}
	if s.Maintenance != nil {
		maintenance = "on " + oneLine(s.Maintenance.String()) + "\n"
	}
	var acks []string
	for _, name := range slices.Sorted(maps.Keys(s.RequireAck)) {
		acks = append(acks, fmt.Sprintf("%s (%s)", name, s.RequireAck[name]))
	}
	names := strings.Join(slices.Sorted(maps.Keys(s.Variables)), ", ")
	if s.Variables == nil {
		names = "not known: the agent's control socket does not answer"
	}
	text := fmt.Sprintf("cluster        %s\nversion        %d\ndurability     %s\nrequire-ack    %s\nreseed         %s\nerrant         %s\nretain-max     %s\n"+
		"peer-security  %s\nrouter         %s\nevents         %s\nvariables      %s\nmaintenance    %s", s.Cluster, s.StateVersion, s.Durability, cmp.Or(strings.Join(acks, ", "), "none"), s.Reseed, s.Errant, retain,
		cmp.Or(s.PeerSecurity, "none"), cluster.OnOff(s.MySQLRouter), cluster.OnOff(!s.EventsOff), cmp.Or(names, "none"), maintenance)
	if r := s.Recovered; r != nil {
		text += fmt.Sprintf("recovered      %s\n", oneLine(r.String()))
	}
	return text
}

func newClusterSetCommand() *cobra.Command {
	var o controlOptions
	var how cluster.Ask
	var f settingsFlags
	cmd := &cobra.Command{
		Use:   "set [--durability POLICY] [--reseed POLICY] ...",
		Short: "Change the cluster's policies",
		Long: `Changes what holds for the whole cluster.

--durability says for what a client's OK waits, once a majority of the nodes with
a vote has the transaction on disk:

  majority       nothing else
  all            every node with a vote: while one is away, writes wait, so the
                 cluster survives no failure
  site-majority  a node with a vote in another site: what is acknowledged
                 outlives the loss of any one site. Each node with a vote needs
                 a site ("quorate node set NODE --site S"), of at least two

The change holds at once, for commits that wait now, too. With "quorate node set
NODE --require-ack", OKs wait for one particular node.

The other settings say when the leader does by itself what "quorate node rebuild"
does. It never does so if the majority would be lost, nor during maintenance.

  --reseed auto      a node that comes back with an empty data directory is
                     rebuilt (default); manual: it is refused
  --errant keep      an errant node stays as it is (default); rebuild: it is
                     rebuilt once all of its errant transactions are saved
  --retain-max SIZE  the log is kept for a node that has been away or stopped
                     for a minute, but only up to this size. Then the node is
                     rebuilt when it is back (default off)

--peer-security takes a cluster that began without keys to TLS between its agents,
in two steps that do not stop writes, and cannot be taken back: both (TLS where
both sides have it; the keys that the nodes show are taken, and printed), then
require (nothing else is accepted). Each is refused while a node cannot take it.

--router on has the primary keep the metadata of an InnoDB ReplicaSet in the schema
mysql_innodb_cluster_metadata: MySQL Router finds primary and replicas by it
("mysqlrouter --bootstrap"). Clients of it reach the mysqlds, so each needs
mysql.bind. off takes the members out: then Router refuses its clients.

--events on has MySQL's event scheduler run on the primary (default); off: nowhere.

--dry-run shows the consequences. A change that would stop writes at once, because
OKs would wait for a node that is away, is refused without --force.

Exit codes are those of "quorate node set".`,
		Example: `  quorate cluster set --durability all
  quorate cluster set --durability all --dry-run
  quorate cluster set --errant rebuild --retain-max 200GiB
  quorate cluster set --router on --events off`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			change, err := f.change()
			if err != nil {
				return err
			}
			return o.change(cmd.Context(), cmd.OutOrStdout(), "cluster.set", cluster.SettingsRequest{SettingsChange: change, Ask: how})
		},
	}
	o.flags(cmd)
	askFlags(cmd, &how)
	f.add(cmd)
	return cmd
}
