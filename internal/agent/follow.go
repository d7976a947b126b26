package agent

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// followingNode is this node as package following asks it.
type followingNode struct{ *Agent }

// Committed and what follows implement following.Node.
func (n followingNode) Committed() (*cluster.Follow, uint64) {
	state := n.Raft.Committed().State().State
	return state.Follow, state.Version
}

func (n followingNode) State() cluster.State       { return n.Raft.Committed().State().State }
func (n followingNode) SiteAccess() cluster.Follow { return n.cfg.Site.Follow() }
func (n followingNode) Cluster() string            { return n.cfg.Cluster }
func (n followingNode) GTIDs() (executed, purged *gtid.Set) {
	log := n.logReader()
	defer log.Close()
	return n.committedGTIDs(), log.Segments()[0].GTIDsBefore
}

func (n followingNode) Serving() (*mysqld.Process, uint64) {
	if !n.serves() {
		return nil, 0
	}
	return n.currentProcess(), n.Raft.Role().Term
}

func (n followingNode) Own() status.Node         { return n.board.Own() }
func (n followingNode) Changed() <-chan struct{} { return n.board.Changes() }
func (n followingNode) Wake()                    { n.board.Wake() }
func (n followingNode) Show(text string) {
	n.board.Update(func(s *status.Node) { s.Follow = text })
}

func (n followingNode) Nodes() []status.Node { return n.board.Nodes() }
func (n followingNode) ShowHeard(h *cluster.SiteHeard) {
	n.board.Update(func(s *status.Node) { s.SiteHeard = h })
}
func (n followingNode) SiteHeard() (cluster.SiteHeard, error)    { return n.data.SiteHeard() }
func (n followingNode) WriteSiteHeard(h cluster.SiteHeard) error { return n.data.WriteSiteHeard(h) }

func (n followingNode) ReplicaName() (serverID uint32, uuid string) {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte("quorate-follow\x00"), n.cfg.ClusterID()))
	return 1<<30 | binary.LittleEndian.Uint32(sum[16:])&(1<<30-1), gtid.UUID(sum[:16]).String()
}
