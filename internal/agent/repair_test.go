package agent

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/raft/transport"
)

// refuser is a peer that refuses every node.
type refuser struct {
	stranger
	code atomic.Uint32
}

func (h *refuser) CheckPeer(id transport.Identity) error {
	return &transport.RejectedError{Code: transport.Code(h.code.Load()), Text: "node " + id.NodeName + " has an empty data directory"}
}

// TestWaitingForItsRebuild: a node that has lost its data directory says so in its status until it is told what to
// do. It leaves no port bound.
func TestWaitingForItsRebuild(t *testing.T) {
	cfg := loneConfig(t)
	peer := loneConfig(t).Members[0].Peer
	cfg.Members = append(cfg.Members, config.Member{Name: "b", Peer: peer, Kind: cluster.KindFull})
	h := &refuser{}
	h.code.Store(uint32(transport.CodeReseed))
	b := transport.New(transport.Config{
		Identity: transport.Identity{ClusterID: cfg.ClusterID(), ClusterName: cfg.Cluster, Node: config.MemberID(cfg.Cluster, "b"),
			NodeName: "b", Instance: [16]byte{1}},
		Listen: peer, Peers: []transport.Peer{{ID: cfg.Self().ID, Name: "a", Addr: cfg.Members[0].Peer}},
		Handler: h, Logger: slog.New(slog.DiscardHandler),
	})
	if err := b.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var eg errgroup.Group
	defer func() { cancel(); _ = eg.Wait() }()
	eg.Go(func() error { return b.Run(ctx) })
	ended := make(chan error, 1)
	go func() { ended <- loneAgent(t, cfg).Run(ctx) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for said := ""; !strings.Contains(said, "empty data directory"); {
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		case <-tick.C:
		}
		st, err := api.FetchStatus(ctx, cfg.API.Listen, "")
		if err == nil && len(st.Nodes) > 0 && st.Nodes[0].Role == status.RoleJoining {
			said = st.Nodes[0].Reason
		}
	}
	h.code.Store(uint32(transport.CodePeer))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "refuses this node") {
		t.Errorf("refused for good, it ends with %v", err)
	}
	l, err := net.Listen("tcp", cfg.API.Listen)
	if err != nil {
		t.Fatalf("its port is still bound: %v", err)
	}
	_ = l.Close()
}
