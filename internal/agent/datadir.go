package agent

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/mysqld"
	"github.com/quorate/quorate/internal/vfs"
)

const (
	secretsFile = "secrets.toml"
	lockFile    = "lock"
	// lockText is in the lock of a directory that was empty (reserve).
	lockText = "one quorate agent at a time\n"
)

// dataDir is the agent's data directory.
type dataDir struct {
	datadir.Dir
	fresh    bool // nothing is there yet
	identity datadir.Identity
	lock     *os.File
	// made is what the lock has made: it goes again if this node does not begin here.
	made []string

	// known are the peers' data directories: peers.json and met.json.
	known *membership.Directories
	// lives tells whether a node is there over the directory that is known: then whoever
	// comes under its name with an empty one is another.
	lives func(cluster.NodeID) bool
}

// newDataDir is the data directory of a node, of which nothing has been read.
func newDataDir(path string, self cluster.Member) *dataDir {
	d := &dataDir{Dir: datadir.New(vfs.OS{}, path), lives: func(cluster.NodeID) bool { return false }}
	d.known = membership.New(membership.Config{
		Self: self.ID, Name: self.Name, Store: d, Now: consensus.BootTime,
		Lives: func(id cluster.NodeID) bool { return d.lives(id) },
	})
	return d
}

// prepareDataDir reads whose directory it is and refuses one of another node,
// cluster or version. It changes nothing; a directory that does not exist or
// is empty is fine.
func prepareDataDir(cfg config.Config) (*dataDir, error) {
	d := newDataDir(cfg.DataDir, cfg.Self())
	id, found, err := d.Identity()
	if err != nil {
		return nil, err
	}
	if !found {
		d.fresh = true
		d.identity = datadir.Identity{
			Format: datadir.FormatFirst, Cluster: cfg.Cluster, ClusterID: cfg.ClusterID(),
			Node: cfg.Node, NodeID: uint64(cfg.Self().ID), Instance: newInstance(),
			Joining: cfg.Joins(),
		}
		return d, checkEmpty(cfg.DataDir)
	}
	d.identity = id
	return d, checkIdentity(id, cfg)
}

func newInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// checkIdentity refuses an identity that is not the configuration's.
func checkIdentity(id datadir.Identity, cfg config.Config) error {
	switch {
	case id.Cluster != cfg.Cluster:
		return fmt.Errorf("data directory %s belongs to node %q of cluster %q, not to cluster %q: set data_dir to this node's own",
			cfg.DataDir, id.Node, id.Cluster, cfg.Cluster)
	case id.Node != cfg.Node:
		return fmt.Errorf("data directory %s belongs to node %q, not to %q: set data_dir to this node's own",
			cfg.DataDir, id.Node, cfg.Node)
	case id.ClusterID != cfg.ClusterID() || id.NodeID != uint64(cfg.Self().ID):
		return fmt.Errorf("data directory %s was made for another list of [[member]]: the initial members cannot be changed in the file",
			cfg.DataDir)
	}
	return nil
}

func checkEmpty(path string) error {
	found, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read data directory: %w", err)
	}
	for _, f := range found { // a crash may have left the lock
		if !slices.Contains([]string{"lost+found", lockFile, datadir.IdentityFile + ".tmp"}, f.Name()) {
			return fmt.Errorf("data directory %s holds %q but no "+datadir.IdentityFile+": it is not quorate's; choose an empty one", path, f.Name())
		}
	}
	return nil
}

// reserve locks an empty directory, and proves that files can be written there: before
// any peer is told that it is empty, which costs the node what it had.
func (d *dataDir) reserve() error {
	if err := d.hold(); err != nil {
		return err
	}
	_, err := d.lock.WriteAt([]byte(lockText), 0)
	if err = errors.Join(err, d.lock.Sync()); err == nil {
		err = syncDir(d.Path())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write in data directory %s (is its disk mounted?): %w", d.Path(), err), d.close())
	}
	return nil
}

// open takes the directory's lock, if reserve has not, and, in a fresh one, writes whose
// it is.
func (d *dataDir) open() error {
	if err := d.hold(); err != nil {
		return err
	}
	if d.fresh {
		if err := d.WriteIdentity(d.identity); err != nil {
			return errors.Join(err, d.close())
		}
	}
	if err := d.readKnown(); err != nil {
		return errors.Join(err, d.close())
	}
	return nil
}

// checkLog refuses a directory whose log is gone, for instance because its file
// system is not mounted: an empty one would vote as if it had promised nothing.
func (d *dataDir) checkLog() error {
	if !d.identity.Log {
		return nil
	}
	if _, err := os.Stat(d.Join("log", "state")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory %s: the log is gone from %s, but this node has had one: mount it, or give it back; without it the node has to be rebuilt",
			d.Path(), d.Join("log"))
	} else if err != nil {
		return fmt.Errorf("look for the log: %w", err)
	}
	return nil
}

// hasLog notes durably that there is a log.
func (d *dataDir) hasLog() error {
	if d.identity.Log {
		return nil
	}
	d.identity.Log = true
	return d.WriteIdentity(d.identity)
}

// removed notes durably that the cluster has removed this node.
func (d *dataDir) removed() error {
	d.identity.Removed = true
	return d.WriteIdentity(d.identity)
}

// hold makes the directory if it is not there, and takes its lock. A fresh one has to be
// empty still.
func (d *dataDir) hold() error {
	if !d.holds() {
		var made []string
		for path := d.Join(lockFile); !fileExists(path); path = filepath.Dir(path) {
			made = append(made, path)
		}
		if err := makeDir(d.Path()); err != nil {
			return errors.Join(fmt.Errorf("create data directory (is its disk mounted?): %w", err), d.close())
		}
		if err := d.takeLock(); err != nil {
			return errors.Join(err, d.close())
		}
		d.made = made
	}
	if d.fresh && fileExists(d.Join(datadir.IdentityFile)) { // it was mounted since
		return errors.Join(fmt.Errorf("data directory %s is not empty any more: start again", d.Path()), d.close())
	}
	return nil
}

// takeLock takes the lock of what is mounted at the path now.
func (d *dataDir) takeLock() error {
	f, err := os.OpenFile(d.Join(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("write in data directory %s (is its disk mounted?): %w", d.Path(), err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("data directory %s is in use by another quorate agent", d.Path())
		}
		return fmt.Errorf("lock data directory: %w", err)
	}
	if d.lock != nil {
		_ = d.lock.Close() // of what was there before it was mounted
	}
	d.lock = f
	if !d.holds() { // an agent that did not begin has removed it meanwhile
		return fmt.Errorf("data directory %s is in use by another quorate agent", d.Path())
	}
	return nil
}

// holds tells whether the lock is held, and is the one at the path.
func (d *dataDir) holds() bool {
	if d.lock == nil {
		return false
	}
	held, err := d.lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(d.Join(lockFile))
	return err == nil && os.SameFile(held, there)
}

// close gives the lock back. Where this node has not begun, nothing of it stays.
func (d *dataDir) close() error {
	if d.lock == nil {
		return nil
	}
	if d.holds() && !fileExists(d.Join(datadir.IdentityFile)) {
		for _, path := range d.made {
			_ = os.Remove(path) // of a directory only if it is empty
		}
	}
	err := d.lock.Close()
	d.lock, d.made = nil, nil
	return err
}

func (d *dataDir) instance() (b [16]byte) {
	raw, err := hex.DecodeString(d.identity.Instance)
	if err == nil {
		copy(b[:], raw)
	}
	return b
}

// readKnown reads which data directories the peers have.
func (d *dataDir) readKnown() error {
	pins, met, err := d.Known()
	if err == nil {
		d.known.Load(pins, met)
	}
	return err
}

// rebuild notes durably that everything here is to be made anew, under a new
// instance. Nothing is moved away yet: that is join's.
func (d *dataDir) rebuild(instance string) error {
	if raw, err := hex.DecodeString(instance); err != nil || len(raw) != 16 {
		return fmt.Errorf("rebuild this node: %q is no instance of a data directory", instance)
	}
	if err := makeDir(d.Path()); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	d.identity.GivenUp = d.giveUp(time.Now())
	d.identity.Instance, d.identity.Joining, d.identity.Log, d.identity.State = instance, true, false, false
	d.identity.Superseded = nil
	return d.WriteIdentity(d.identity)
}

// loadSecrets reads the node's internal passwords and makes them first if there
// are none.
func loadSecrets(path string) (mysqld.Secrets, error) {
	s, err := mysqld.LoadSecrets(path)
	if errors.Is(err, fs.ErrNotExist) {
		return mysqld.GenerateSecrets(path)
	}
	return s, err
}
