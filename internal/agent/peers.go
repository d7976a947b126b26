package agent

import (
	"context"
	"fmt"
	"net"
	"strconv"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/router"
	"github.com/quorate/quorate/internal/transport"
)

// peerHandler takes what the transport brings. While the log is being healed
// there is no node: this one takes no part in Raft.
type peerHandler struct{ a *Agent }

func (h peerHandler) Raft(m *pb.Message) {
	if h.a.node != nil {
		h.a.node.Step(m)
	}
}

func (h peerHandler) Status(from cluster.NodeID, status []byte) {
	if err := h.a.board.received(from, status); err != nil {
		h.a.logger.Warn("peer status", "error", err)
	}
}

func (h peerHandler) PeerUp(id cluster.NodeID) {
	h.a.logger.Info("peer is up", "peer", h.a.board.name(id))
	h.a.board.setTrouble(h.a.board.name(id), "")
	h.a.board.peerUp(id, true)
}

func (h peerHandler) PeerDown(id cluster.NodeID, refused bool) {
	h.a.logger.Info("peer is down", "peer", h.a.board.name(id), "process_gone", refused)
	h.a.board.peerUp(id, false)
	if refused && h.a.node != nil {
		h.a.node.PeerRefused(id)
	}
}

func (h peerHandler) PeerUnreachable(id cluster.NodeID) {
	if h.a.node != nil {
		h.a.node.PeerUnreachable(id)
	}
}

func (h peerHandler) Rejected(id cluster.NodeID, err *transport.RejectedError) {
	h.a.rejected(h.a.board.name(id), err)
}

func (h peerHandler) CheckPeer(id transport.Identity) error { return h.a.data.checkPeer(id) }

func (h peerHandler) Route(conn net.Conn, _ cluster.NodeID) { h.a.router.HandleRouted(conn) }

func (h peerHandler) Bulk(ctx context.Context, from cluster.NodeID, conn net.Conn) {
	if h.a.node != nil {
		h.a.bulk.Serve(ctx, from, conn)
	}
}

func (h peerHandler) Call(ctx context.Context, from cluster.NodeID, conn net.Conn) {
	h.a.serveCall(ctx, from, conn)
}

// stranger handles the introduction of a node that has no data yet: it keeps
// nothing of what it hears.
type stranger struct{}

func (stranger) Raft(*pb.Message)                                  {}
func (stranger) Status(cluster.NodeID, []byte)                     {}
func (stranger) PeerUp(cluster.NodeID)                             {}
func (stranger) PeerDown(cluster.NodeID, bool)                     {}
func (stranger) PeerUnreachable(cluster.NodeID)                    {}
func (stranger) Rejected(cluster.NodeID, *transport.RejectedError) {}
func (stranger) CheckPeer(transport.Identity) error                { return nil }
func (stranger) Route(conn net.Conn, _ cluster.NodeID)             { _ = conn.Close() }
func (stranger) Bulk(context.Context, cluster.NodeID, net.Conn)    {}
func (stranger) Call(context.Context, cluster.NodeID, net.Conn)    {}

// introduce asks the peers before anything is written to an empty data
// directory: a node of another cluster, one whose name is taken and one that
// has lost its log end here. A directory in use is not asked about: one
// misconfigured peer must not stop healthy nodes.
func (a *Agent) introduce(ctx context.Context) error {
	if !a.data.fresh || a.data.identity.Joining { // who joins is not known before it was added
		return nil
	}
	identity := a.transportIdentity()
	identity.Instance = [16]byte{} // not pinned yet
	asking := transport.New(transport.Config{
		Identity: identity, Listen: a.self.Peer, Peers: a.transportPeers(), Handler: stranger{}, Logger: a.logger,
	})
	if r := asking.Introduce(ctx); r != nil {
		a.rejected("the cluster", r)
		return fmt.Errorf("the cluster refuses this node: %s", r.Text)
	}
	return nil
}

// routeBackend tells the router where the primary is.
type routeBackend struct{ a *Agent }

// Primary implements router.Backend.
func (b routeBackend) Primary() (router.Target, bool) {
	if b.Serving() {
		return router.Target{Node: b.a.self.ID, Local: true}, !b.a.movesAway()
	}
	id, ok := b.a.board.primary()
	return router.Target{Node: id}, ok
}

// Changed implements router.Backend.
func (b routeBackend) Changed() <-chan struct{} { return b.a.board.changes() }

// DialLocal implements router.Backend.
func (b routeBackend) DialLocal(ctx context.Context) (net.Conn, error) {
	addr := net.JoinHostPort(b.a.cfg.MySQL.Bind, strconv.Itoa(b.a.cfg.MySQL.Port))
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// DialPeer implements router.Backend.
func (b routeBackend) DialPeer(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	return b.a.peers.DialRoute(ctx, id)
}

// Serving implements router.Backend.
func (b routeBackend) Serving() bool { return b.a.serving() }
