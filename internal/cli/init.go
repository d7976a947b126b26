package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// peerPortDefault is where agents listen for each other if nothing else is said.
const peerPortDefault = "7400"

// newCluster is a cluster whose files are to be written.
type newCluster struct {
	name, dataDir, out string
	nodes, loggers     []string
}

func newInitCommand() *cobra.Command {
	var n newCluster
	cmd := &cobra.Command{
		Use:   "init --nodes NAME=HOST,... --out DIR",
		Short: "Write the files of a new cluster: configurations and keys",
		Long: `Writes the files of a new cluster into one directory for each node: node.toml, and
node.key, by which the others know the node. Nothing that is there is replaced.

Copy DIR/NAME to /etc/quorate on each host, as files of the agent's account, and
delete them here: whoever has a node's key can be that node.`,
		Example: `  quorate init --nodes a=10.0.0.1,b=10.0.0.2,c=10.0.0.3 --out cluster
  quorate init --nodes a=db1,b=db2,c=db3:7500 --logger c --cluster orders --out cluster`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dirs, err := n.write()
			if err != nil {
				return err
			}
			var text strings.Builder
			for _, dir := range dirs {
				fmt.Fprintf(&text, "wrote %s\n", filepath.Join(dir, "node.toml"))
				fmt.Fprintf(&text, "wrote %s\n", filepath.Join(dir, "node.key"))
			}
			text.WriteString("next: copy each directory to /etc/quorate on its host, and start the agents\n")
			_, err = fmt.Fprint(cmd.OutOrStdout(), text.String())
			return err
		},
	}
	cmd.Flags().StringSliceVar(&n.nodes, "nodes", nil, "the nodes, as `name=host` or name=host:port")
	cmd.Flags().StringSliceVar(&n.loggers, "logger", nil, "the `name` of a node that votes and keeps the log, without a mysqld")
	cmd.Flags().StringVar(&n.name, "cluster", "main", "the cluster's `name`")
	cmd.Flags().StringVar(&n.dataDir, "data-dir", "/var/lib/quorate", "the data `directory` on each host")
	cmd.Flags().StringVar(&n.out, "out", "", "the `directory` to write to")
	return cmd
}

// members reads --nodes.
func (n newCluster) members() (members []config.Member, err error) {
	for _, text := range n.nodes {
		name, addr, ok := strings.Cut(text, "=")
		if !ok || name == "" || addr == "" {
			return nil, usage(fmt.Errorf("--nodes: %q is not name=host, such as a=10.0.0.1", text))
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			addr = net.JoinHostPort(strings.Trim(addr, "[]"), peerPortDefault)
		}
		m := config.Member{Name: name, Peer: addr, Kind: cluster.KindFull, Weight: cluster.WeightDefault}
		if slices.Contains(n.loggers, name) {
			m.Kind = cluster.KindLogger
		}
		members = append(members, m)
	}
	for _, name := range n.loggers {
		if !slices.ContainsFunc(members, func(m config.Member) bool { return m.Name == name }) {
			return nil, usage(fmt.Errorf("--logger: there is no node %q in --nodes", name))
		}
	}
	return members, nil
}

// write writes the files, once all of them are known to be right.
func (n newCluster) write() (dirs []string, err error) {
	members, err := n.members()
	switch {
	case err != nil:
		return nil, err
	case len(members) == 0:
		return nil, usage(errors.New("--nodes is missing: the cluster's nodes, such as a=10.0.0.1,b=10.0.0.2,c=10.0.0.3"))
	case n.out == "":
		return nil, usage(errors.New("--out is missing: the directory to write to"))
	}
	keys := make([]*nodekey.Key, len(members))
	for i := range members {
		if keys[i], err = nodekey.New(); err != nil {
			return nil, err
		}
		members[i].Key = keys[i].Name()
	}
	for _, m := range members {
		c, err := config.Parse("node.toml", []byte(n.render(m.Name, members)))
		if err == nil {
			err = c.Validate()
		}
		if err != nil {
			return nil, usage(err)
		}
	}
	for i, m := range members {
		dir := filepath.Join(n.out, m.Name)
		if err := os.MkdirAll(n.out, 0o700); err != nil {
			return nil, fmt.Errorf("write the files of node %s: %w", m.Name, err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("write the files of node %s: %w", m.Name, err)
		}
		if err := keys[i].Save(filepath.Join(dir, "node.key")); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, "node.toml"), []byte(n.render(m.Name, members)), 0o644); err != nil {
			return nil, fmt.Errorf("write the files of node %s: %w", m.Name, err)
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// render returns the configuration of one node.
func (n newCluster) render(name string, members []config.Member) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by \"quorate init\". \"quorate config example\" shows all settings.\n")
	fmt.Fprintf(&b, "cluster  = %q\nnode     = %q # the one line that differs between the nodes\ndata_dir = %q\n", n.name, name, n.dataDir)
	for _, m := range members {
		fmt.Fprintf(&b, "\n[[member]]\nname = %q\npeer = %q\nkind = %q\nkey  = %q\n", m.Name, m.Peer, m.Kind, m.Key)
	}
	return b.String()
}
