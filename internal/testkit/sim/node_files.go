package sim

import (
	"errors"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// visit reads what the node is, as each process does that starts.
func (n *node) visit() {
	home, err := datadir.Visit(n.disk.files(), datadir.Identity{
		Format: datadir.FormatFirst, Cluster: clusterName, Node: n.member.Name, NodeID: uint64(n.id), Instance: n.newInstance(), Joining: n.spare,
	})
	if err != nil {
		n.w.fail("start", "n%d: %v", n.id, err)
	}
	n.home = home
}

// empty tells whether it has lost its disk, and has nothing since.
func (n *node) empty() bool { return n.lost && !n.home.Has(datadir.IdentityFile) }

// blank tells whether it has nothing that counts, or has lost that.
func (n *node) blank() bool { return n.empty() || n.home.Life() == datadir.Joining }

func (n *node) removed() bool { return n.home.Life() == datadir.Removed }

// instance names its data directory.
func (n *node) instance() string { return n.home.Own().Instance }

// durableMark is what durable.json says.
func (n *node) durableMark() replay.Mark {
	var m datadir.Mark
	if err := m.Load(n.disk.files()); err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
	return m.Of(n.uuid.String())
}

// state is what cluster.json says, over a log that begins at first.
func (n *node) state(first uint64) cluster.StatePoint {
	p, err := n.disk.files().State(n.w.initial.Members, true, first)
	if err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
	return p
}

// replaceMark puts another durable.json in place, or none if there is no mark.
func (n *node) replaceMark(m replay.Mark) {
	n.marked = max(n.marked, m.Index) // its peers purge by this one, too
	err := n.disk.mem.RemoveAll(datadir.Durable)
	if m.Index > 0 {
		err = datadir.New(n.disk.mem, ".").WriteMark(n.uuid.String(), m)
	}
	err = errors.Join(err, n.disk.mem.SyncDir("."))
	if err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
}
