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
		Short: "Show and change the settings of the whole cluster",
		Long: `Shows and changes the settings of the whole cluster. "quorate node list" and "quorate node
set" are for the settings of one node.`,
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
		Short: "Show the settings of the whole cluster",
		Long: `Shows the settings that are in force for the whole cluster, as one node's agent knows them,
with the defaults. "quorate cluster set --help" explains them. "quorate node list" shows the
settings of the nodes, "quorate variables list" the values of the variables.`,
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
		Short: "Change settings of the whole cluster",
		Long: `Changes settings of the whole cluster.

--durability says what a client's OK waits for. It always waits until a majority of the
nodes with a vote has the transaction on disk. Then it waits for:

  majority       nothing else
  all            every node with a vote. While one of them is away, writes wait:
                 the cluster survives no failure
  site-majority  a node with a vote in another site, so what is acknowledged
                 outlives the loss of any one site. Each node with a vote needs
                 a site ("quorate node set NODE --site S"), of at least two

The change holds at once, also for commits that wait now. To let OKs wait for one particular
node, use "quorate node set NODE --require-ack".

The next three say when the leader rebuilds a node by itself, as "quorate node rebuild"
does. It never does so if the majority would be lost, nor during maintenance.

  --reseed auto      a node that comes back with an empty data directory is
                     rebuilt (default). manual: it is refused
  --errant keep      an errant node stays as it is (default). rebuild: it is
                     rebuilt once all of its errant transactions are saved
  --retain-max SIZE  the log is kept for a node that has been away or stopped
                     for a minute, but only up to this size. Then the node is
                     rebuilt when it is back. off: no limit (default)

--peer-security is for a cluster that began without keys: it brings TLS between its agents,
in two steps. Neither stops writes, and neither can be taken back. "both": the agents use
TLS wherever both sides have it. The command takes the keys that the nodes show, and prints
them. "require": nothing but TLS is accepted. A step is refused while a node cannot take it.

--router on: the primary keeps the metadata of an InnoDB ReplicaSet in the schema
mysql_innodb_cluster_metadata, and MySQL Router ("mysqlrouter --bootstrap") reads there
which node is the primary. Router's clients connect to the mysqlds, so each node needs
mysql.bind. off: the members are taken out of the metadata, and Router refuses its clients.

--events on: MySQL's event scheduler runs on the primary (default). off: it runs nowhere.

--dry-run says what the change would mean. A change that would stop writes at once, because
OKs would wait for a node that is away, is refused without --force.

Exit codes: "quorate help exit-codes".`,
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
