package agent

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysqld"
	"github.com/quorate/quorate/internal/transport"
)

// The versions of the data directory's layout. A directory has the first until there
// is something in it that a quorate of that version does not know.
const (
	dataFormatFirst = 1
	// dataFormatState: the log has changes of the cluster state, of which an agent of
	// the first version would know nothing, or end at them.
	dataFormatState = 2
	dataFormat      = dataFormatState
)

const (
	identityFile = "identity.json"
	peersFile    = "peers.json"
	metFile      = "met.json"
	secretsFile  = "secrets.toml"
	lockFile     = "lock"
	// lockText is in the lock of a directory that was empty (reserve).
	lockText = "one quorate agent at a time\n"
)

// identity is the content of identity.json.
type identity struct {
	Format    int    `json:"format"`
	Cluster   string `json:"cluster"`
	ClusterID uint64 `json:"cluster_id,string"`
	Node      string `json:"node"`
	NodeID    uint64 `json:"node_id,string"`
	// Instance is random: it tells this directory from any other that was ever
	// made for the same node.
	Instance string `json:"instance"`
	// Log: this directory has had a log. One without it has lost its promises.
	Log bool `json:"log,omitempty"`
	// State: this directory has had a cluster.json.
	State bool `json:"state,omitempty"`
	// Joining: this node has not joined so far, and has nothing that counts.
	Joining bool `json:"joining,omitempty"`
	// Removed: the cluster has removed this node.
	Removed bool `json:"removed,omitempty"`
	// Superseded: the cluster was recovered without this node. Recovered: this node
	// belongs to a cluster that was recovered, which its cluster.json alone says.
	Superseded *cluster.Recovery `json:"superseded,omitempty"`
	Recovered  bool              `json:"recovered,omitempty"`
	// GivenUp is what is here still of before this node was to be rebuilt; nil =
	// nothing is. It is moved away before anything is made anew.
	GivenUp *givenUp `json:"given_up,omitempty"`
}

// dataDir is the agent's data directory.
type dataDir struct {
	path     string
	fresh    bool // nothing is there yet
	identity identity
	lock     *os.File
	// made is what the lock has made: it goes again if this node does not begin here.
	made    []string
	refused refusals

	mu   sync.Mutex
	pins map[cluster.NodeID]string
	// met has the instance with which each peer has last shaken hands, with this node or
	// with one that has told it. Who has the one that the cluster gave it has begun anew.
	met map[cluster.NodeID]string
	// rebuilt are the nodes that may have a data directory still in place of which
	// they are to have the one that is pinned, by the version of the cluster state.
	rebuilt map[cluster.NodeID]bool
	// stateVersion is of the cluster state by which all are pinned but those that are
	// leaving it: what they had in the state before counts until that change is complete.
	stateVersion uint64
	leaving      []cluster.NodeID
	// recovery is the one that the state comes from; nil = there was none.
	recovery *cluster.Recovery
	// votes: this node has a vote in the state that it keeps. One that has none may not
	// tell another one to give its data up: it may give up its own at any time, and with
	// them what it keeps, and then no voter need know that the other one's vote has gone.
	votes bool
	// reseed: a node that comes with an empty directory is rebuilt by itself. empty is
	// when one has asked last.
	reseed bool
	empty  map[cluster.NodeID]time.Time
	// lives tells whether a node is there over the directory that is known: then whoever
	// comes under its name with an empty one is another.
	lives func(cluster.NodeID) bool
}

// prepareDataDir reads whose directory it is and refuses one of another node,
// cluster or version. It changes nothing; a directory that does not exist or
// is empty is fine.
func prepareDataDir(cfg config.Config) (*dataDir, error) {
	d := &dataDir{path: cfg.DataDir, pins: map[cluster.NodeID]string{}, lives: func(cluster.NodeID) bool { return false }}
	d.refused.path = d.join(refusedFile)
	b, err := os.ReadFile(d.join(identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		d.fresh = true
		d.identity = identity{
			Format: dataFormatFirst, Cluster: cfg.Cluster, ClusterID: cfg.ClusterID(),
			Node: cfg.Node, NodeID: uint64(cfg.Self().ID), Instance: newInstance(),
			Joining: cfg.Joins(),
		}
		return d, checkEmpty(cfg.DataDir)
	}
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	if err := json.Unmarshal(b, &d.identity); err != nil {
		return nil, fmt.Errorf("data directory %s: %s is damaged: %w", cfg.DataDir, identityFile, err)
	}
	if err := d.identity.check(cfg); err != nil {
		return nil, err
	}
	return d, d.refused.load()
}

func newInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// check refuses an identity that is not the configuration's.
func (id identity) check(cfg config.Config) error {
	switch {
	case id.Format > dataFormat:
		return fmt.Errorf("data directory %s has format %d, this quorate reads up to %d: install the newer quorate again",
			cfg.DataDir, id.Format, dataFormat)
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
		if !slices.Contains([]string{"lost+found", lockFile, identityFile + ".tmp"}, f.Name()) {
			return fmt.Errorf("data directory %s holds %q but no "+identityFile+": it is not quorate's; choose an empty one", path, f.Name())
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
		err = syncDir(d.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write in data directory %s (is its disk mounted?): %w", d.path, err), d.close())
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
		if err := writeJSON(d.join(identityFile), d.identity); err != nil {
			return errors.Join(err, d.close())
		}
	}
	if err := errors.Join(d.readPins(), d.readMet()); err != nil {
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
	if _, err := os.Stat(d.join("log", "state")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory %s: the log is gone from %s, but this node has had one: mount it, or give it back; without it the node has to be rebuilt",
			d.path, d.join("log"))
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
	return writeJSON(d.join(identityFile), d.identity)
}

// removed notes durably that the cluster has removed this node.
func (d *dataDir) removed() error {
	d.identity.Removed = true
	return writeJSON(d.join(identityFile), d.identity)
}

// hold makes the directory if it is not there, and takes its lock. A fresh one has to be
// empty still.
func (d *dataDir) hold() error {
	if !d.holds() {
		var made []string
		for path := d.join(lockFile); !fileExists(path); path = filepath.Dir(path) {
			made = append(made, path)
		}
		if err := makeDir(d.path); err != nil {
			return errors.Join(fmt.Errorf("create data directory (is its disk mounted?): %w", err), d.close())
		}
		if err := d.takeLock(); err != nil {
			return errors.Join(err, d.close())
		}
		d.made = made
	}
	if d.fresh && fileExists(d.join(identityFile)) { // it was mounted since
		return errors.Join(fmt.Errorf("data directory %s is not empty any more: start again", d.path), d.close())
	}
	return nil
}

// takeLock takes the lock of what is mounted at the path now.
func (d *dataDir) takeLock() error {
	f, err := os.OpenFile(d.join(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("write in data directory %s (is its disk mounted?): %w", d.path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("data directory %s is in use by another quorate agent", d.path)
		}
		return fmt.Errorf("lock data directory: %w", err)
	}
	if d.lock != nil {
		_ = d.lock.Close() // of what was there before it was mounted
	}
	d.lock = f
	if !d.holds() { // an agent that did not begin has removed it meanwhile
		return fmt.Errorf("data directory %s is in use by another quorate agent", d.path)
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
	there, err := os.Stat(d.join(lockFile))
	return err == nil && os.SameFile(held, there)
}

// close gives the lock back. Where this node has not begun, nothing of it stays.
func (d *dataDir) close() error {
	if d.lock == nil {
		return nil
	}
	if d.holds() && !fileExists(d.join(identityFile)) {
		for _, path := range d.made {
			_ = os.Remove(path) // of a directory only if it is empty
		}
	}
	err := d.lock.Close()
	d.lock, d.made = nil, nil
	return err
}

// join names a path inside the directory.
func (d *dataDir) join(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

func (d *dataDir) instance() (b [16]byte) {
	raw, err := hex.DecodeString(d.identity.Instance)
	if err == nil {
		copy(b[:], raw)
	}
	return b
}

func (d *dataDir) readPins() error {
	b, err := os.ReadFile(d.join(peersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read peers: %w", err)
	}
	if err := json.Unmarshal(b, &d.pins); err != nil {
		return fmt.Errorf("data directory %s: "+peersFile+" is damaged: %w", d.path, err)
	}
	return nil
}

// readMet reads with which data directories the peers were here. Where an agent of
// before has not noted that, each may have been here with the one that is pinned.
func (d *dataDir) readMet() error {
	b, err := os.ReadFile(d.join(metFile))
	if errors.Is(err, fs.ErrNotExist) {
		d.met = maps.Clone(d.pins)
		return writeJSON(d.join(metFile), d.met)
	}
	if err != nil {
		return fmt.Errorf("read which peers were met: %w", err)
	}
	if err := json.Unmarshal(b, &d.met); err != nil {
		return fmt.Errorf("data directory %s: "+metFile+" is damaged: %w", d.path, err)
	}
	return nil
}

// checkPeer pins the instance of a peer's data directory at first contact and
// refuses another one from then on: a node that comes back with an empty log
// would vote away what it had promised. The instance that the cluster gives a node
// goes to one directory: once that was here, any other is another.
func (d *dataDir) checkPeer(id transport.Identity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	instance := hex.EncodeToString(id.Instance[:])
	switch err := d.judgePeer(id, instance); {
	case err != nil:
		if r, ok := errors.AsType[*transport.RejectedError](err); ok && r.Code == transport.CodeReseed {
			if d.empty == nil {
				d.empty = map[cluster.NodeID]time.Time{}
			}
			d.empty[id.Node] = time.Now()
		}
		return err
	case id.Instance == [16]byte{}:
		return nil // it only asks (Agent.introduce)
	}
	if _, ok := d.pins[id.Node]; !ok {
		d.pins[id.Node] = instance
		if err := writeJSON(d.join(peersFile), d.pins); err != nil {
			delete(d.pins, id.Node)
			return err
		}
	}
	return d.meet(id.Node, instance)
}

// checkCaller judges a peer that only has a question as checkPeer does, and keeps
// nothing: it may be of a recovery that this node refuses.
func (d *dataDir) checkCaller(id transport.Identity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.judgePeer(id, hex.EncodeToString(id.Instance[:]))
}

// judgePeer decides for checkPeer. d.mu is held.
func (d *dataDir) judgePeer(id transport.Identity, instance string) error {
	empty := id.Instance == [16]byte{}
	pinned, ok := d.pins[id.Node]
	ordered := ok && d.rebuilt[id.Node] && d.met[id.Node] != pinned
	version := d.stateVersion
	if slices.Contains(d.leaving, id.Node) && version > 0 {
		version-- // a node that is told by several has to see that this one is out of date
	}
	refuse := func(c transport.Code, format string, args ...any) error {
		order := transport.Order{StateVersion: version, Instance: pinned}
		if c == transport.CodeRebuild {
			order.Recovery = d.recovery
		}
		return &transport.RejectedError{Code: c, Text: fmt.Sprintf(format, args...), Order: order}
	}
	switch {
	case !ok || pinned == instance:
		return nil
	case ordered && !d.votes && !empty:
		return fmt.Errorf("node %q is to be rebuilt, and goes on until a node with a vote tells it: node %q has none", id.NodeName, d.identity.Node)
	case ordered:
		return refuse(transport.CodeRebuild, "node %q is to be rebuilt", id.NodeName)
	case empty && d.reseed && !d.lives(id.Node):
		return refuse(transport.CodeReseed, "node %q has an empty data directory, "+
			"but this cluster knows the one that it had: it waits until the leader has it rebuilt", id.NodeName)
	case empty && d.lives(id.Node):
		return refuse(transport.CodePeer, "node %q has an empty data directory, but the one that this cluster knows is in use: "+
			"two agents run under that name", id.NodeName)
	case empty:
		return refuse(transport.CodePeer, "node %q has an empty data directory, but this cluster knows the one that it had: give it back (is its disk mounted?), "+
			"or, if it is lost, run \"quorate node rebuild %s\" on another node, and start this agent again", id.NodeName, id.NodeName)
	}
	return refuse(transport.CodePeer, "node %q comes with another data directory (instance %.8s) than the one that node %q knows (instance %.8s): "+
		"its log is not the one that this cluster counts on, or two agents run under the same name",
		id.NodeName, instance, d.identity.Node, pinned)
}

// meet notes durably that a node was here with a data directory. d.mu is held.
func (d *dataDir) meet(id cluster.NodeID, instance string) error {
	if d.met[id] == instance {
		return nil
	}
	met := maps.Clone(d.met)
	if met == nil {
		met = map[cluster.NodeID]string{}
	}
	met[id] = instance
	if err := writeJSON(d.join(metFile), met); err != nil {
		return err
	}
	d.met = met
	delete(d.empty, id) // it asked before that
	return nil
}

// hasMet returns with which data directories the peers were here. Nobody changes it.
func (d *dataDir) hasMet() map[cluster.NodeID]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.met
}

// joined returns the nodes without a vote that were here with the data directory that
// the cluster gave them: what the other nodes have to know, or they purge what these need.
func (d *dataDir) joined() map[cluster.NodeID]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	joined := map[cluster.NodeID]string{}
	for id, rebuilt := range d.rebuilt {
		if rebuilt && d.met[id] == d.pins[id] {
			joined[id] = d.pins[id]
		}
	}
	return joined
}

// heardOf takes from another node what joined says there. That may be of an older state
// than this node's, or of a newer one.
func (d *dataDir) heardOf(joined map[cluster.NodeID]string) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, instance := range joined {
		if pinned, ok := d.pins[id]; !ok || d.met[id] != pinned {
			err = errors.Join(err, d.meet(id, instance))
		}
	}
	return err
}

// expect pins the data directories of nodes that are rebuilt, or were, as the cluster
// has agreed on them. kept: p is on this node's disk.
func (d *dataDir) expect(p cluster.StatePoint, kept bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := maps.Clone(d.pins)
	d.rebuilt, d.stateVersion, d.recovery = map[cluster.NodeID]bool{}, p.State.Version, p.State.Recovered
	d.reseed = p.State.Reseed != cluster.ReseedManual
	d.votes = kept && slices.Contains(p.State.Voters(), cluster.NodeID(d.identity.NodeID))
	d.leaving = slices.Clone(p.Outgoing)
	for _, m := range p.State.Members {
		leaves := slices.Contains(p.Outgoing, m.ID)
		if m.Instance != "" && uint64(m.ID) != d.identity.NodeID && !leaves {
			d.pins[m.ID] = m.Instance
			d.rebuilt[m.ID] = !m.Votes()
		}
	}
	if maps.Equal(before, d.pins) {
		return nil
	}
	if err := writeJSON(d.join(peersFile), d.pins); err != nil {
		d.pins = before
		return err
	}
	return nil
}

// askedEmpty is when an agent has asked last, under the name of a node whose data
// directory is known, with an empty one.
func (d *dataDir) askedEmpty(id cluster.NodeID) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.empty[id]
}

// rebuild notes durably that everything here is to be made anew, under a new
// instance. Nothing is moved away yet: that is join's.
func (d *dataDir) rebuild(instance string) error {
	if raw, err := hex.DecodeString(instance); err != nil || len(raw) != 16 {
		return fmt.Errorf("rebuild this node: %q is no instance of a data directory", instance)
	}
	if err := makeDir(d.path); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	d.identity.GivenUp = d.giveUp(time.Now())
	d.identity.Instance, d.identity.Joining, d.identity.Log, d.identity.State = instance, true, false, false
	d.identity.Superseded = nil
	return writeJSON(d.join(identityFile), d.identity)
}

// forgetPeers removes what is known of the peers' data directories: they may have new
// ones, too, which a node that joins learns as one that was never here. Not before it
// joins: without them its old data would vote beside any peer that calls itself one.
func (d *dataDir) forgetPeers() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pins) == 0 && len(d.met) == 0 {
		return nil
	}
	none := map[cluster.NodeID]string{}
	if err := errors.Join(writeJSON(d.join(metFile), none), writeJSON(d.join(peersFile), none)); err != nil {
		return err
	}
	clear(d.pins)
	d.met = none
	return nil
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
