package membership

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/transport"
)

// Known is the id of a data directory (32 hexadecimal digits) for each node.
type Known = map[cluster.NodeID]string

// Store makes durable which data directories are known. When a method returns nil, the
// map is on disk, in place of the one before.
type Store interface {
	WritePins(Known) error
	WriteMet(Known) error
}

// Config is what Directories needs. All fields are required.
type Config struct {
	Self cluster.NodeID
	Name string // of this node
	// Initial are the members with which the cluster began.
	Initial []cluster.NodeID
	Store   Store
	// Now is the time since some moment: it only grows.
	Now func() time.Duration
	// Lives tells whether a node runs over the data directory that is known. Then a node
	// of its name with an empty directory is another one.
	Lives func(cluster.NodeID) bool
}

// instanceCharsMax bounds what another node calls a data directory: 16 bytes in hexadecimal.
const instanceCharsMax = 32

// Directories knows with which data directory each other node is accepted.
type Directories struct {
	cfg Config
	// writing is held while pins or met are written, however long their disk takes.
	writing sync.Mutex

	// mu guards what follows, and waits for no disk: heartbeats may come behind a status. It comes after writing.
	// Maps of type Known are never changed. pins, met and joined change only under both locks, so either is enough to
	// read them.
	mu   sync.Mutex
	pins Known
	// met has the data directory with which each peer has last shaken hands, with this
	// node or with another node that said so. It is on disk. heard also has what is not on disk yet: it
	// counts where it makes this node wait for a peer, or refuse one.
	met, heard Known
	// rebuilt are the nodes without a vote whose data directory the cluster has named.
	rebuilt map[cluster.NodeID]bool
	// version is the version of the cluster state by which the nodes are pinned. For the
	// nodes in leaving, the pins of the state before count until the change is complete.
	version uint64
	leaving []cluster.NodeID
	// recovery is the recovery from which the state comes; nil = there was none.
	recovery *cluster.Recovery
	// members are the nodes of that state.
	members []cluster.NodeID
	// joined: this node's data come from others, so it does not know who was there before.
	joined bool
	// ignorant: this node joins, and no member has told it yet what that member knows.
	ignorant bool
	// votes: this node is a voter in the state on its disk. See package doc.
	votes bool
	// reseed: a node that comes with an empty directory is rebuilt without an operator.
	reseed bool
	// askedEmpty is when a node has last come with an empty directory.
	askedEmpty map[cluster.NodeID]time.Duration
}

// New returns Directories that know nothing yet.
func New(cfg Config) *Directories {
	return &Directories{cfg: cfg, pins: Known{}, met: Known{}, heard: Known{}, askedEmpty: map[cluster.NodeID]time.Duration{}}
}

// Load takes what the Store has. If the Store may have something, call Load before any other method.
func (d *Directories) Load(pins, met Known) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pins, d.met = Known{}, Known{}
	maps.Copy(d.pins, pins)
	maps.Copy(d.met, met)
	d.heard = d.met
}

// Check pins the data directory of a peer at its first handshake, and rejects another
// one from then on. A zero instance (an empty directory) pins nothing.
func (d *Directories) Check(id transport.Identity) error {
	instance := hex.EncodeToString(id.Instance[:])
	if noted, err := d.check(id, instance); noted || err != nil {
		return err
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	if noted, err := d.check(id, instance); noted || err != nil { // another directory may have been pinned meanwhile
		return err
	}
	if _, ok := d.pins[id.Node]; !ok {
		if err := d.pin(with(d.pins, id.Node, instance), nil); err != nil {
			return err
		}
	}
	return d.meet(Known{id.Node: instance})
}

// check decides for Check, and tells whether there is nothing to be written.
func (d *Directories) check(id transport.Identity, instance string) (noted bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err = d.compare(id, instance)
	if r, ok := errors.AsType[*transport.RejectedError](err); ok && r.Code == transport.CodeReseed {
		d.askedEmpty[id.Node] = d.cfg.Now()
	}
	return id.Empty() || d.pins[id.Node] == instance && d.met[id.Node] == instance, err
}

// Compare rejects as Check does, and notes nothing: the peer only has a question, and may
// belong to a recovery that this node refuses.
func (d *Directories) Compare(id transport.Identity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compare(id, hex.EncodeToString(id.Instance[:]))
}

func with(k Known, id cluster.NodeID, instance string) Known {
	k = maps.Clone(k)
	k[id] = instance
	return k
}

// compare decides for Check and Compare. d.mu is held.
func (d *Directories) compare(id transport.Identity, instance string) error {
	empty := id.Empty()
	pinned, ok := d.pins[id.Node]
	ordered := ok && d.rebuilt[id.Node] && d.heard[id.Node] != pinned
	refuse := func(c transport.Code, format string, args ...any) error {
		order := transport.Order{StateVersion: d.version, Instance: pinned}
		if slices.Contains(d.leaving, id.Node) && d.version > 0 {
			order.StateVersion-- // a node that gets several orders must see that this one is out of date
		}
		if c == transport.CodeRebuild {
			order.Recovery = d.recovery
		}
		return &transport.RejectedError{Code: c, Text: fmt.Sprintf(format, args...), Order: order}
	}
	switch {
	case !ok && empty && d.mayHaveLost(id.Node):
		return refuse(transport.CodeReseed, "node %q has an empty data directory. Node %q was rebuilt, so it cannot tell "+
			"whether node %q had data before. Node %q starts once it is rebuilt: if the leader does not do that by itself, run \"quorate node rebuild %s\"",
			id.NodeName, d.cfg.Name, id.NodeName, id.NodeName, id.NodeName)
	case !ok && empty && d.ignorant:
		return refuse(transport.CodeEmpty, "")
	case !ok || pinned == instance:
		return nil
	case ordered && !d.votes && !empty:
		return fmt.Errorf("node %q is to be rebuilt, but only a node with a vote may tell it so, and node %q has no vote", id.NodeName, d.cfg.Name)
	case ordered:
		return refuse(transport.CodeRebuild, "node %q is to be rebuilt", id.NodeName)
	case empty && d.cfg.Lives(id.Node):
		return refuse(transport.CodePeer, "node %q has an empty data directory, but the directory that this cluster knows is in use: "+
			"two agents run under that name", id.NodeName)
	case empty && d.reseed:
		return refuse(transport.CodeReseed, "node %q has an empty data directory, "+
			"but this cluster knows its former directory: it waits for the leader to rebuild it", id.NodeName)
	case empty:
		return refuse(transport.CodePeer, "node %q has an empty data directory, but this cluster knows its former directory: put that back (is its disk mounted?), "+
			"or, if it is lost, run \"quorate node rebuild %s\" on another node, and start this agent again if it has ended", id.NodeName, id.NodeName)
	}
	return refuse(transport.CodePeer, "node %q comes with another data directory (instance %.8s) than node %q knows (instance %.8s): "+
		"this cluster does not count on its log, or two agents run under the same name",
		id.NodeName, instance, d.cfg.Name, pinned)
}

// mayHaveLost tells whether an unknown node with an empty directory may have had data before. Only an initial
// member can: it may have begun by this initial member's word, before this node was rebuilt and forgot that. An
// initial member that has never begun looks the same. d.mu is held.
func (d *Directories) mayHaveLost(id cluster.NodeID) bool {
	return d.joined && slices.Contains(d.cfg.Initial, d.cfg.Self) && slices.Contains(d.cfg.Initial, id)
}

// pin makes pins durable, and then has them count. and, unless it is nil, is called with d.mu held, also if that
// fails. d.writing is held.
func (d *Directories) pin(pins Known, and func()) (err error) {
	if !maps.Equal(pins, d.pins) {
		err = d.cfg.Store.WritePins(pins)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.pins = pins
	}
	if and != nil {
		and()
	}
	return err
}

// meet makes durable with which data directories nodes have shaken hands: with this node now (here), or with others,
// which said so. d.writing is held.
func (d *Directories) meet(here Known) error {
	d.mu.Lock()
	for id, instance := range here {
		d.hear(id, instance)
	}
	met := d.heard
	d.mu.Unlock()
	if maps.Equal(met, d.met) {
		return nil
	}
	if err := d.cfg.Store.WriteMet(met); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.met = met
	return nil
}

// hear takes with which data directory a node has shaken hands. d.mu is held.
func (d *Directories) hear(id cluster.NodeID, instance string) {
	if d.heard[id] != instance {
		d.heard = with(d.heard, id, instance)
		delete(d.askedEmpty, id) // it asked before that
	}
}

// Pinned is the data directory with which a node is accepted; "" = any.
func (d *Directories) Pinned(id cluster.NodeID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pins[id]
}

// Met returns the data directories with which the peers last shook hands, as far as this node has heard. The caller must
// not change the map.
func (d *Directories) Met() Known {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.heard
}

// Joined returns the nodes without a vote that have come with the data directory that
// the cluster gave them. The other nodes have to know, or they purge what these need.
func (d *Directories) Joined() Known {
	d.mu.Lock()
	defer d.mu.Unlock()
	joined := Known{}
	for id, rebuilt := range d.rebuilt {
		if rebuilt && d.met[id] == d.pins[id] {
			joined[id] = d.pins[id]
		}
	}
	return joined
}

// Hear takes what Joined returns on another node, whose cluster state may be older or newer
// than this node's. It takes only members. From here on this node waits for those nodes, and refuses their other
// directories. Note makes that durable: Hear waits for no disk.
func (d *Directories) Hear(joined Known) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range d.members {
		instance, said := joined[id]
		if pinned, ok := d.pins[id]; said && len(instance) <= instanceCharsMax && (!ok || d.heard[id] != pinned) {
			d.hear(id, instance)
		}
	}
}

// Note makes durable what Hear has taken.
func (d *Directories) Note() error {
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.meet(nil)
}

// KnownTo tells whether a voter that is away knows a member that runs with its present data directory, as far as this node
// can tell, apart from one that goes. That is this node if the two have shaken hands, or an initial member that was never
// rebuilt: such a member was in every state. A voter that knows none of the running members would refuse them all when it is back.
func (d *Directories) KnownTo(voter cluster.NodeID, s cluster.State, goes cluster.NodeID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(s.Members, func(m cluster.Member) bool {
		switch m.ID {
		case voter, goes:
			return false
		case d.cfg.Self:
			_, met := d.met[voter]
			return met || m.Instance == "" && slices.Contains(d.cfg.Initial, m.ID)
		}
		return m.Instance == "" && slices.Contains(d.cfg.Initial, m.ID) && d.cfg.Lives(m.ID)
	})
}

// Pins returns the data directories with which the other nodes are accepted. The caller must not change the map.
func (d *Directories) Pins() Known {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pins
}

// Learn pins, for members for which this node has no pin, the data directories that another member
// has pinned. A node that joins has not met the members that are away: without their pins it would
// accept a voter that comes back without its log.
func (d *Directories) Learn(known Known) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	pins := maps.Clone(d.pins)
	d.mu.Lock()
	members := d.members
	d.mu.Unlock()
	for _, id := range members {
		instance, said := known[id]
		if _, ok := pins[id]; said && !ok && id != d.cfg.Self && len(instance) <= instanceCharsMax {
			pins[id] = instance
		}
	}
	if err := d.pin(pins, nil); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ignorant = false
	return nil
}

// Expect pins the data directories that the cluster state names. kept: p is on this
// node's disk.
func (d *Directories) Expect(p cluster.StatePoint, kept bool) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	pins, joined := maps.Clone(d.pins), d.joined
	rebuilt, members := map[cluster.NodeID]bool{}, make([]cluster.NodeID, 0, len(p.State.Members))
	for _, m := range p.State.Members {
		members = append(members, m.ID)
		joined = joined || m.ID == d.cfg.Self && m.Instance != ""
		if m.Instance != "" && m.ID != d.cfg.Self && !slices.Contains(p.Outgoing, m.ID) {
			pins[m.ID] = m.Instance
			rebuilt[m.ID] = !m.Votes()
		}
	}
	return d.pin(pins, func() {
		d.rebuilt, d.version, d.recovery = rebuilt, p.State.Version, p.State.Recovered
		d.reseed = p.State.Reseed != cluster.ReseedManual
		d.votes = kept && slices.Contains(p.State.Voters(), d.cfg.Self)
		d.leaving, d.members, d.joined = slices.Clone(p.Outgoing), members, joined
	})
}

// Empty returns the nodes that came, within emptyAskedFor, with an empty directory although
// another one is known.
func (d *Directories) Empty() (ids []cluster.NodeID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, at := range d.askedEmpty {
		if d.cfg.Now()-at < emptyAskedFor {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Forget removes all that is known: the peers may have new data directories, too, which
// a node that joins learns as if it were new. Do not call it before the node joins: without
// pins its old data would vote beside any node that shows the name of a peer.
func (d *Directories) Forget() error {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	d.joined, d.ignorant = true, true
	d.mu.Unlock()
	if len(d.pins) > 0 || len(d.met) > 0 {
		if err := errors.Join(d.cfg.Store.WriteMet(Known{}), d.cfg.Store.WritePins(Known{})); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pins, d.met, d.heard = Known{}, Known{}, Known{}
	return nil
}
