package agent

import (
	"context"
	"net"
	"strconv"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/router"
	"github.com/quorate/quorate/internal/transport"
)

// peerHandler takes what the transport brings.
type peerHandler struct{ a *Agent }

func (h peerHandler) Raft(m *pb.Message) { h.a.node.Step(m) }

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
	if refused {
		h.a.node.PeerRefused(id)
	}
}

func (h peerHandler) PeerUnreachable(id cluster.NodeID) { h.a.node.PeerUnreachable(id) }

func (h peerHandler) Rejected(id cluster.NodeID, err *transport.RejectedError) {
	h.a.board.setTrouble(h.a.board.name(id), err.Text)
}

func (h peerHandler) CheckPeer(id transport.Identity) error { return h.a.data.checkPeer(id) }

func (h peerHandler) Route(conn net.Conn, _ cluster.NodeID) { h.a.router.HandleRouted(conn) }

// routeBackend tells the router where the primary is.
type routeBackend struct{ a *Agent }

// Primary implements router.Backend.
func (b routeBackend) Primary() (router.Target, bool) {
	if b.Serving() {
		return router.Target{Node: b.a.self.ID, Local: true}, true
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
