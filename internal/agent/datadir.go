package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/founding"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/restoring"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/raft/consensus"
)

const secretsFile = "secrets.toml"

// dataDir is the agent's data directory.
type dataDir struct {
	*datadir.Locked
	// known are the peers' data directories: peers.json and met.json.
	known *membership.Directories
	// lives tells whether a node is there with the directory that is known. Then a node that
	// comes under its name with an empty directory is another one.
	lives func(cluster.NodeID) bool
}

// newDataDir is the data directory of a node before anything is read from it.
func newDataDir(path string, self cluster.Member, initial ...cluster.Member) *dataDir {
	home := datadir.NewHome(datadir.New(vfs.OS{}, path), datadir.Identity{}, false)
	d := &dataDir{Locked: datadir.NewLocked(home), lives: func(cluster.NodeID) bool { return false }}
	d.known = membership.New(membership.Config{
		Self: self.ID, Name: self.Name, Initial: cluster.State{Members: initial}.Voters(), Store: d, Now: consensus.BootTime,
		Lives: func(id cluster.NodeID) bool { return d.lives(id) },
	})
	return d
}

// prepareDataDir reads the identity of the data directory, and refuses a directory of another node,
// cluster or version. It changes nothing. A directory that does not exist or is empty is accepted.
func prepareDataDir(cfg config.Config) (*dataDir, error) {
	d := newDataDir(cfg.DataDir, cfg.Self(), cfg.ClusterMembers()...)
	if err := checkAdopted(cfg.DataDir); err != nil {
		return nil, err
	}
	home, err := datadir.Visit(d.Dir, datadir.Identity{
		Format: datadir.FormatFirst, Cluster: cfg.Cluster, ClusterID: cfg.ClusterID(),
		Node: cfg.Node, NodeID: uint64(cfg.Self().ID), Instance: datadir.NewInstance(),
		Joining: cfg.Joins(), Keyed: cluster.NewState(cfg.ClusterMembers()).PeerSecurity != cluster.PeersPlain,
	})
	if err != nil {
		return nil, err
	}
	d.Home = home
	return d, checkIdentity(d.Own(), cfg)
}

// readDataDir is prepareDataDir. It also returns the cluster state that the node knew last, and refuses a logger with
// the data of a mysqld.
func readDataDir(cfg config.Config) (*dataDir, cluster.StatePoint, error) {
	data, err := prepareDataDir(cfg)
	if err != nil {
		return nil, cluster.StatePoint{}, err
	}
	// Only what does not exist is absent: the name may be a link to a disk that is not mounted.
	if _, err := os.Lstat(data.Join("mysql")); cfg.Self().Kind == cluster.KindLogger && !errors.Is(err, fs.ErrNotExist) {
		return nil, cluster.StatePoint{}, fmt.Errorf("data directory %s holds a mysqld's data, but node %q is a logger: what mysqld lacks would be purged; set kind = \"full\", or give the logger a directory of its own",
			cfg.DataDir, cfg.Node)
	}
	last, err := data.LastState()
	return data, last, err
}

// CheckLog says that the log of a data directory is lost, or the directory's identity; nil = neither is.
func CheckLog(path string) error {
	home, err := datadir.Visit(datadir.New(vfs.OS{}, path), datadir.Identity{})
	if err != nil {
		return err
	}
	return home.CheckLog()
}

// checkAdopted refuses a directory in which an adoption was interrupted.
func checkAdopted(dir string) error {
	r, phase, err := founding.Look(vfs.OS{}, dir)
	switch {
	case err != nil:
		return err
	case phase == founding.Underway:
		return fmt.Errorf("data directory %s: the adoption of %s was interrupted: run \"quorate adopt %s\" again, or \"quorate adopt --undo\"",
			dir, r.From, r.From)
	case phase == founding.Undoing:
		return fmt.Errorf("data directory %s: undoing the adoption of %s was interrupted: run \"quorate adopt --undo\" again", dir, r.From)
	}
	return checkRestored(dir)
}

// checkRestored refuses a directory in which a restore was interrupted.
func checkRestored(dir string) error {
	r, underway, err := restoring.Underway(vfs.OS{}, dir)
	if err == nil && underway {
		err = fmt.Errorf("data directory %s: the restore of %s was interrupted: run the same \"quorate restore\" again", dir, r.Full)
	}
	return err
}

// open takes the directory's lock, writes the identity if there is none, and reads which directories the
// peers have.
func (d *dataDir) open() error {
	if err := d.Open(); err != nil {
		return err
	}
	if err := d.readKnown(); err != nil {
		return errors.Join(err, d.Close())
	}
	return nil
}

// checkIdentity refuses an identity that differs from the configuration.
func checkIdentity(id datadir.Identity, cfg config.Config) error {
	switch {
	case id.Cluster != cfg.Cluster:
		return fmt.Errorf("data directory %s belongs to node %q of cluster %q, not to cluster %q: set data_dir to this node's own",
			cfg.DataDir, id.Node, id.Cluster, cfg.Cluster)
	case id.Node != cfg.Node:
		return fmt.Errorf("data directory %s belongs to node %q, not to %q: set data_dir to this node's own",
			cfg.DataDir, id.Node, cfg.Node)
	case id.ClusterID != cfg.ClusterID() || id.NodeID != uint64(cfg.Self().ID):
		return fmt.Errorf("data directory %s was made with another list of [[member]]: write that list into node.toml again; members change by \"quorate node\" only",
			cfg.DataDir)
	}
	return nil
}

// readKnown reads which data directories the peers have.
func (d *dataDir) readKnown() error {
	pins, met, err := d.Known()
	if err == nil {
		d.known.Load(pins, met)
	}
	return err
}

// loadSecrets reads the node's internal passwords. If a rotation has made new ones, these count from now
// on. If there are none, it makes them.
func loadSecrets(path string) (mysqld.Secrets, error) {
	if err := mysqld.AdoptSecrets(vfs.OS{}, path); err != nil {
		return mysqld.Secrets{}, err
	}
	s, err := mysqld.LoadSecrets(path)
	if errors.Is(err, fs.ErrNotExist) {
		return mysqld.GenerateSecrets(vfs.OS{}, path)
	}
	return s, err
}
