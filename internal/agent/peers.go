package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/router"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

// peerHandler takes what the transport brings. While the log is being healed, this node takes no part in Raft.
type peerHandler struct{ a *Agent }

func (h peerHandler) Raft(m *pb.Message, more bool) {
	if h.a.TakesPart() {
		h.a.Raft.Step(m, more)
	}
}

// onBroken closes the connections of a member that has sent something that no sound member of this version sends. Of a
// newer version it is known only that the member says so.
func (a *Agent) onBroken(b consensus.Broken) {
	a.noteNewer(b.Err)
	a.logger.Error("a member is broken: its messages are refused for a while, and its connections are closed",
		"node", a.board.Name(b.From), "error", b.Err)
	a.peers.Hangup(b.From)
}

// noteNewer shows that this quorate is too old for the cluster, if an error means that, and logs it once.
func (a *Agent) noteNewer(err error) {
	newer, ok := errors.AsType[*cluster.NewerError](err)
	if ok && a.board.SetTrouble(aboutNewer, newer.Error()) {
		a.logger.Error("this node takes no part any more", "error", newer)
	}
}

// aboutNewer is the key of a trouble: this quorate is too old.
const aboutNewer = "quorate"

func (h peerHandler) Status(from cluster.NodeID, text []byte) error {
	var s status.Node
	err := json.Unmarshal(text, &s)
	if err == nil {
		err = h.a.board.Received(from, s)
	}
	if err != nil {
		return fmt.Errorf("take the status of node %s: %w", h.a.board.Name(from), err)
	}
	return nil
}

func (h peerHandler) PeerUp(id cluster.NodeID) {
	h.a.logger.Info("peer is up", "peer", h.a.board.Name(id))
	h.a.board.SetTrouble(h.a.board.Name(id), "")
	h.a.board.PeerUp(id, true)
}

func (h peerHandler) PeerDown(id cluster.NodeID, refused bool) {
	h.a.logger.Info("peer is down", "peer", h.a.board.Name(id), "process_gone", refused)
	h.a.board.PeerUp(id, false)
	if refused && h.a.TakesPart() {
		h.a.Raft.PeerRefused(id)
	}
}

func (h peerHandler) PeerUnreachable(id cluster.NodeID) {
	if h.a.TakesPart() {
		h.a.Raft.PeerUnreachable(id)
	}
}

func (h peerHandler) Rejected(id cluster.NodeID, err *transport.RejectedError) {
	// Else the stance (below) says what to do, which may be no rebuild.
	if by := err.Order.Recovery; by == nil || by.Excludes(h.a.board.State().Recovered) {
		self := membership.Self{ID: h.a.self.ID, Name: h.a.self.Name, Instance: h.a.data.Own().Instance, State: h.a.board.State()}
		h.a.board.Refused(id, membership.RefusalBy(self, h.a.board.Name(id), h.a.board.SinceLeader() == 0, err))
	}
	h.a.stance.RefusedDial(h.a.board.Name(id), err)
}

func (h peerHandler) CheckPeer(id transport.Identity) error { return h.a.data.known.Check(id) }

// CheckCaller implements transport.CallChecker: a question writes nothing here.
func (h peerHandler) CheckCaller(id transport.Identity) error { return h.a.data.known.Compare(id) }

// Hears implements transport.Hearer: a node without a leader may know none of the members any more.
func (h peerHandler) Hears() bool { return h.a.TakesPart() && h.a.board.SinceLeader() > 0 }

// Heard implements transport.Hearer.
func (h peerHandler) Heard(id transport.Identity, from net.Addr, refused *transport.RejectedError) {
	_, member := h.a.board.State().MemberByID(id.Node)
	if member || id.Empty() || config.CheckName(id.NodeName) != nil {
		return
	}
	if refused != nil && (refused.Code == transport.CodeUnknown || refused.Code == transport.CodeKey) {
		h.a.board.DialledBy(status.Stranger{Name: id.NodeName, From: hostOf(from)})
	}
}

func (h peerHandler) Route(conn net.Conn, from cluster.NodeID) { h.a.router.HandleRouted(conn, from) }

func (h peerHandler) RouteRead(conn net.Conn, from cluster.NodeID) { h.a.reads.Handle(conn, from) }

func (h peerHandler) Bulk(ctx context.Context, from cluster.NodeID, conn net.Conn) {
	if h.a.TakesPart() {
		h.a.Bulk.Serve(ctx, from, bulk.NetConn(conn))
	}
}

func (h peerHandler) Call(ctx context.Context, from cluster.NodeID, conn net.Conn) {
	h.a.requests.ServeCall(ctx, from, conn)
}

// stranger is a peers' handler that ignores all that it hears.
type stranger struct{}

func (stranger) Raft(*pb.Message, bool)                            {}
func (stranger) Status(cluster.NodeID, []byte) error               { return nil }
func (stranger) PeerUp(cluster.NodeID)                             {}
func (stranger) PeerDown(cluster.NodeID, bool)                     {}
func (stranger) PeerUnreachable(cluster.NodeID)                    {}
func (stranger) Rejected(cluster.NodeID, *transport.RejectedError) {}
func (stranger) CheckPeer(transport.Identity) error                { return nil }
func (stranger) Route(conn net.Conn, _ cluster.NodeID)             { _ = conn.Close() }
func (stranger) RouteRead(conn net.Conn, _ cluster.NodeID)         { _ = conn.Close() }
func (stranger) Bulk(context.Context, cluster.NodeID, net.Conn)    {}
func (stranger) Call(context.Context, cluster.NodeID, net.Conn)    {}

// introduced is the peers' handler of a node that has no data yet: it notes which nodes knock.
type introduced struct {
	stranger
	*join.Knocks
}

func (i introduced) CheckPeer(id transport.Identity) error { return i.Knocks.CheckPeer(id) }

// CheckUnknown implements transport.UnknownChecker. A node that knocks may be anybody, and its name is shown to
// people.
func (i introduced) CheckUnknown(id transport.Identity) error {
	if err := config.CheckName(id.NodeName); err != nil {
		return &transport.RejectedError{Code: transport.CodeMalformed, Text: "the calling node gives a name that no node can have"}
	}
	return i.Knocks.CheckUnknown(id)
}

// introduce asks the peers whether this node may begin, if its data directory is empty. Before that,
// nothing but the lock is written there. A directory in use is not asked about: one misconfigured peer
// must not stop healthy nodes.
//
// A directory that cannot be written ends the node before it asks. It may be a mount point without
// its disk, and a node that calls itself empty loses its vote and its data.
//
// A node of another cluster, or with a name that is taken, ends here. A node that has lost its log
// waits until the cluster has it rebuilt; where only operators rebuild nodes, it ends. Any other node
// waits until every initial member has answered, either with an empty directory of its own, or
// without knowing this node. Otherwise a second cluster could begin while some disks are not
// mounted: the member that does not answer may have the data. For the same reason:
//
//   - A node that is the only initial member begins only on a person's word.
//   - A node does not begin while a node with data, which its configuration does not name, looks for it.
func (a *Agent) introduce(ctx context.Context) error {
	if !a.data.Fresh() {
		return nil
	}
	if err := a.data.Reserve(); err != nil {
		return err
	}
	peers, knocks := a.transportPeers(), &join.Knocks{Self: a.self.Name}
	for _, m := range a.cfg.AddedMembers() {
		knocks.Added = append(knocks.Added, m.Name)
	}
	if a.data.Life() != datadir.Joining { // else transportPeers has them already
		peers = append(peers, transport.PeersOf(a.cfg.AddedMembers())...)
	}
	cfg := a.transportConfig(introduced{Knocks: knocks}, peers)
	cfg.Identity.Instance = [16]byte{} // not pinned yet
	asking := transport.New(cfg)
	a.peers.Unlisten()
	if err := peerPort.opened(asking.Listen()); err != nil {
		return err
	}
	defer asking.Unlisten()
	ctx, end := context.WithCancel(ctx)
	defer end()
	eg, ctx := errgroup.WithContext(ctx)
	eg.Go(func() error { return asking.Answer(ctx) })
	eg.Go(func() error { return a.api.Run(ctx) })
	eg.Go(func() error {
		defer end()
		return a.askToBegin(ctx, asking, knocks)
	})
	if err := eg.Wait(); err != nil {
		return err
	}
	a.buildPeers() // what served until here has ended
	a.buildAPI()
	if err := peerPort.opened(a.peers.Listen()); err != nil {
		return err
	}
	return a.api.Listen()
}

// newcomer is this node as a join.Introduction drives it.
type newcomer struct {
	*transport.Transport
	a *Agent
}

// Begun implements join.Newcomer.
func (n newcomer) Begun() bool { return n.a.data.Has(datadir.IdentityFile) }

// Waits implements join.Newcomer.
func (n newcomer) Waits(as status.Role, reason string) {
	n.a.board.Update(func(s *status.Node) { s.Role, s.Reason = as, reason })
}

// askToBegin returns nil once this node may begin.
func (a *Agent) askToBegin(ctx context.Context, asking *transport.Transport, knocks *join.Knocks) error {
	r, err := join.Introduction{
		Node: newcomer{asking, a}, Clock: clock.Machine{}, Logger: a.logger, Dir: a.data.Path(),
		Joins: a.data.Life() == datadir.Joining, Bootstrap: a.cfg.Bootstrap, Alone: len(a.cfg.Members) == 1,
		Knocks: knocks, Listen: transport.FoundAfter,
	}.Run(ctx)
	switch {
	case r != nil:
		a.stance.Refused("the cluster", r)
		return fmt.Errorf("the cluster refuses this node: %s", r.Text)
	case err == nil:
		a.board.SetRole(status.RoleStarting, "")
	case errors.Is(err, join.ErrNotEmpty):
		a.again = true
	}
	return err
}

// routeBackend tells the router where the primary is.
type routeBackend struct{ a *Agent }

// Choose implements router.Backend: all clients go to one node, the primary.
func (b routeBackend) Choose(_ func(cluster.NodeID) int, tried []cluster.NodeID) (router.Target, bool) {
	t, ok := b.primary()
	return t, ok && !slices.Contains(tried, t.Node)
}

// Takes implements router.Backend. The target of a client that another node has sent here is only Local.
func (b routeBackend) Takes(t router.Target) bool {
	now, ok := b.primary()
	return ok && (now == t || now.Local && t.Local)
}

// Leaves implements router.Backend. "No primary" alone proves nothing about the other node: its router checks its
// own lease.
func (b routeBackend) Leaves(t router.Target) bool {
	now, ok := b.primary()
	return !t.Local && ok && now.Node != t.Node
}

func (b routeBackend) primary() (router.Target, bool) {
	if b.Serving() {
		return router.Target{Node: b.a.self.ID, Local: true}, !b.a.Orders.MovesAway()
	}
	id, ok := b.a.board.Primary()
	return router.Target{Node: id}, ok
}

// Changed implements router.Backend.
func (b routeBackend) Changed() <-chan struct{} { return b.a.board.Changes() }

// DialLocal implements router.Backend.
func (b routeBackend) DialLocal(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", b.a.ownAddress().Local())
}

// DialPeer implements router.Backend.
func (b routeBackend) DialPeer(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	return b.a.peers.DialRoute(ctx, id)
}

// Serving implements router.Backend.
func (b routeBackend) Serving() bool { return b.a.Slot.Serving() }

// Answering implements router.Backend.
func (b routeBackend) Answering() bool { return b.a.Slot.Answering() }
