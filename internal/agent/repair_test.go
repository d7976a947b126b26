package agent

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
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

// withPeer adds a peer to a node's configuration, which runs until the test ends.
func withPeer(t *testing.T, cfg config.Config, h transport.Handler) config.Config {
	t.Helper()
	peer := loneConfig(t).Members[0].Peer
	cfg.Members = append(cfg.Members, config.Member{Name: "b", Peer: peer, Kind: cluster.KindFull})
	b := transport.New(transport.Config{
		Identity: transport.Identity{ClusterID: cfg.ClusterID(), ClusterName: cfg.Cluster, Node: config.MemberID(cfg.Cluster, "b"),
			NodeName: "b", Instance: [16]byte{1}},
		Listen: peer, Peers: []transport.Peer{{ID: cfg.Self().ID, Name: "a", Addr: cfg.Members[0].Peer}},
		Handler: h, Logger: slog.New(slog.DiscardHandler),
	})
	if err := b.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var eg errgroup.Group
	eg.Go(func() error { return b.Run(ctx) })
	t.Cleanup(func() { cancel(); _ = eg.Wait() })
	return cfg
}

// TestWaitingForItsRebuild: a node that has lost its data directory says so in its
// status until it is told what becomes of it, and leaves no port bound.
func TestWaitingForItsRebuild(t *testing.T) {
	h := &refuser{}
	h.code.Store(uint32(transport.CodeReseed))
	cfg := withPeer(t, loneConfig(t), h)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
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

// orders is a peer that has an order for whoever comes.
type orders struct {
	stranger
	transport.RejectedError
}

func (o orders) CheckPeer(transport.Identity) error { return &o.RejectedError }

// TestLostLogIsRebuilt: a node whose log is gone, or cannot be healed, obeys the order to be rebuilt, which it
// can hear of nowhere else. Without an order it ends, keeps all that it has, and says what is to be done.
func TestLostLogIsRebuilt(t *testing.T) {
	const instance = "02000000000000000000000000000000"
	for name, spoil := range map[string]func(log string) error{
		"the log is gone":                 os.RemoveAll,
		"cannot be healed from the peers": func(log string) error { return os.Truncate(filepath.Join(log, "state"), 700) },
	} {
		for _, code := range []transport.Code{transport.CodeRebuild, transport.CodePeer} {
			cfg := loneConfig(t)
			cfg.MySQL.BaseDir, cfg.Members[0].Kind = "/nonexistent", cluster.KindLogger
			h := orders{RejectedError: transport.RejectedError{Code: code, Order: transport.Order{StateVersion: 9, Instance: instance}}}
			cfg = withPeer(t, cfg, h)
			oneEntry(t, cfg)
			if err := spoil(filepath.Join(cfg.DataDir, "log")); err != nil {
				t.Fatal(err)
			}
			a, err := New(cfg, slog.New(slog.DiscardHandler), "test")
			if err != nil {
				t.Fatal(err)
			}
			err = a.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), `"quorate node rebuild a" on another node, then start this agent again`) {
				t.Errorf("%s: it ends with %v", name, err)
			}
			own, ordered := a.data.Own(), code == transport.CodeRebuild
			if a.again != ordered || own.Joining != ordered || (own.Instance == instance) != ordered {
				t.Errorf("%s, told %d: again %t, %+v", name, code, a.again, own)
			}
		}
	}
}
