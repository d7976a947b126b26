package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// peerPortDefault is the port where agents listen for each other if --nodes names no port.
const peerPortDefault = "7400"

// newCluster is a cluster whose files are to be written.
type newCluster struct {
	name, dataDir, out string
	nodes, loggers     []string
	// clientCA: make a CA that clients trust, and certificates. clientNamesToo are further names in
	// the certificates, beside the nodes' hosts.
	clientCA       bool
	clientNamesToo []string
}

func newInitCommand() *cobra.Command {
	var n newCluster
	cmd := &cobra.Command{
		Use:   "init --nodes NAME=HOST,... --out DIR",
		Short: "Write the files of a new cluster: configurations and keys",
		Long: `Writes the files of a new cluster, into one directory for each node: node.toml, and
node.key, by which the other nodes know this node. It replaces no file.

Copy DIR/NAME of each node to /etc/quorate on its host; the files must belong to the agent's
account. Then delete them here: anybody who has a node's key can pose as that node.

With --client-ca clients can verify which server they talk to, also after a failover. Each
node gets a certificate for mysqld, server-cert.pem, and its node.toml names it. The
certificate has the hosts of all nodes, because a client of one node may be led to another,
and the names of --client-name. Clients get DIR/client-ca.pem, for
--ssl-mode=VERIFY_IDENTITY. DIR/client-ca-key.pem signs certificates of later nodes: keep it
on no node.`,
		Example: `  quorate init --nodes a=10.0.0.1,b=10.0.0.2,c=10.0.0.3 --out cluster
  quorate init --nodes a=db1,b=db2,c=db3:7500 --logger c \
      --cluster orders --out cluster
  quorate init --nodes a=10.0.0.1,b=10.0.0.2,c=10.0.0.3 \
      --client-ca --client-name orders.db.example --out cluster`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wrote, err := n.write()
			if err != nil {
				return err
			}
			text := ""
			for _, path := range wrote {
				text += fmt.Sprintf("wrote %s\n", path)
			}
			text += "next: copy each directory to /etc/quorate on its host, and start the agents\n"
			if n.clientCA {
				text += fmt.Sprintf("      give clients %s, and keep %s offline, on no node\n", n.caFile(), n.caKeyFile())
			}
			return wasDone(printText(cmd.OutOrStdout(), text))
		},
	}
	cmd.Flags().StringSliceVar(&n.nodes, "nodes", nil, "the nodes, as `name=host` or name=host:port")
	cmd.Flags().StringSliceVar(&n.loggers, "logger", nil, "the `name` of a node that votes and keeps the log, without a mysqld")
	cmd.Flags().StringVar(&n.name, "cluster", "main", "the cluster's `name`")
	cmd.Flags().StringVar(&n.dataDir, "data-dir", "/var/lib/quorate", "the data `directory` on each host")
	cmd.Flags().BoolVar(&n.clientCA, "client-ca", false, "make a CA for clients, and certificates for all nodes")
	cmd.Flags().StringSliceVar(&n.clientNamesToo, "client-name", nil, "a further `name` or address by which clients know the nodes")
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

// check says what is wrong with the flags.
func (n newCluster) check(members []config.Member) error {
	switch {
	case len(members) == 0:
		return errors.New("--nodes is missing: the cluster's nodes, such as a=10.0.0.1,b=10.0.0.2,c=10.0.0.3")
	case n.out == "":
		return errors.New("--out is missing: the directory to write to")
	case len(n.clientNamesToo) > 0 && !n.clientCA:
		return errors.New("--client-name is for the certificates of --client-ca")
	}
	for _, name := range n.clientNamesToo {
		if net.ParseIP(name) == nil && !clientName.MatchString(name) {
			return fmt.Errorf("--client-name: %q is neither a host's name nor an address", name)
		}
	}
	return nil
}

// clientName matches a host's name as a certificate may have it; a * stands for one label.
var clientName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// write writes the files, after it has checked all of them and that none is there, and returns their paths.
func (n newCluster) write() (wrote []string, err error) {
	members, err := n.members()
	if err != nil {
		return nil, err
	}
	if err := n.check(members); err != nil {
		return nil, usage(err)
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
	ca, certs, err := n.certificates(members)
	if err != nil {
		return nil, err
	}
	if err := n.absent(members); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(n.out, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of --out: %w", err)
	}
	if n.clientCA {
		wrote, err = writeFiles([]newFile{{n.caFile(), ca.cert, 0o644}, {n.caKeyFile(), ca.key, 0o600}})
		if err != nil {
			return nil, fmt.Errorf("write the clients' CA: %w", err)
		}
	}
	for i, m := range members {
		files, err := n.writeNode(m.Name, keys[i], n.render(m.Name, members), ca, certs[i])
		if err != nil {
			return nil, fmt.Errorf("write the files of node %s: %w", m.Name, err)
		}
		wrote = append(wrote, files...)
	}
	return wrote, nil
}

// absent refuses a cluster of which a part is there already. The keys of a new cluster are of no use beside those of a
// former one.
func (n newCluster) absent(members []config.Member) error {
	var paths []string
	if n.clientCA {
		paths = append(paths, n.caFile(), n.caKeyFile())
	}
	for _, m := range members {
		paths = append(paths, filepath.Join(n.out, m.Name))
	}
	for _, path := range paths {
		_, err := os.Lstat(path)
		if err == nil {
			err = &fs.PathError{Op: "make", Path: path, Err: syscall.EEXIST}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("nothing was written: %w", err)
		}
	}
	return nil
}

// caFile and caKeyFile are where the clients' CA and its key are written.
func (n newCluster) caFile() string    { return filepath.Join(n.out, "client-ca.pem") }
func (n newCluster) caKeyFile() string { return filepath.Join(n.out, "client-ca-key.pem") }

// writeNode writes one node's directory, and returns the paths of the files.
func (n newCluster) writeNode(name string, key *nodekey.Key, text string, ca, pair pemPair) (wrote []string, err error) {
	dir := filepath.Join(n.out, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	keyFile := filepath.Join(dir, "node.key")
	if err := key.Save(keyFile, nil); err != nil {
		return nil, err
	}
	files := []newFile{{filepath.Join(dir, "node.toml"), []byte(text), 0o644}}
	if n.clientCA {
		files = append(files, newFile{filepath.Join(dir, "ca.pem"), ca.cert, 0o644},
			newFile{filepath.Join(dir, "server-cert.pem"), pair.cert, 0o644}, newFile{filepath.Join(dir, "server-key.pem"), pair.key, 0o600})
	}
	wrote, err = writeFiles(files)
	return append(wrote, keyFile), err
}

// newFile is a file to be written. It must not exist yet.
type newFile struct {
	path string
	text []byte
	mode os.FileMode
}

func writeFiles(files []newFile) (wrote []string, err error) {
	for _, file := range files {
		if err := vfs.WriteNew(vfs.As(vfs.OS{}, file.mode, nil), file.path, file.text); err != nil {
			return nil, err
		}
		wrote = append(wrote, file.path)
	}
	return wrote, nil
}

// render returns the configuration of one node.
func (n newCluster) render(name string, members []config.Member) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by \"quorate init\". \"quorate config example\" shows all settings.\n")
	fmt.Fprintf(&b, "cluster  = %q\nnode     = %q # the one line that differs between the nodes\ndata_dir = %q\n", n.name, name, n.dataDir)
	for _, m := range members {
		fmt.Fprintf(&b, "\n[[member]]\nname = %q\npeer = %q\nkind = %q\nkey  = %q\n", m.Name, m.Peer, m.Kind, m.Key)
	}
	fmt.Fprintf(&b, "\n[router]\nread_only = \"0.0.0.0:6447\" # clients that only read: replicas serve them; \"\" = off\n")
	if n.clientCA { // the files are beside this one
		dir := filepath.Dir(defaultConfig)
		b.WriteString("\n# What clients see of mysqld. It starts without TLS if it cannot read these.\n[mysql.variables]\n")
		fmt.Fprintf(&b, "ssl_ca   = %q\nssl_cert = %q\nssl_key  = %q\n",
			filepath.Join(dir, "ca.pem"), filepath.Join(dir, "server-cert.pem"), filepath.Join(dir, "server-key.pem"))
	}
	return b.String()
}
