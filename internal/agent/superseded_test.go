package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
)

// TestSupersededNodeSaysWhatItHas: the cluster was recovered without this node, and the node may have the only copy
// of a transaction. It elects nobody.
func TestSupersededNodeSaysWhatItHas(t *testing.T) {
	cfg := lastLogger(t)
	for _, addr := range []*string{&cfg.Members[0].Peer, &cfg.API.Listen} {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback(), "0"))
		if err == nil {
			*addr, err = l.Addr().String(), l.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	other := cfg
	other.Members = slices.Clone(cfg.Members)
	other.Node, other.DataDir, other.Members[1].Kind = "b", filepath.Join(t.TempDir(), "data"), cluster.KindLogger
	oneEntry(t, other)
	d, err := prepareDataDir(cfg)
	if err == nil {
		err = d.Supersede(cluster.Recovery{Version: 1_000_000, Cluster: "orders", Node: "c"})
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, slog.New(slog.DiscardHandler), "v") }()
	r := openRecovery(t, other)
	var v recovery.Verdict
	for deadline := time.Now().Add(20 * time.Second); ; {
		if v, err = r.Check(ctx); err != nil {
			t.Fatal(err)
		}
		if v.Nodes[0].Report != nil || time.Now().After(deadline) {
			break
		}
	}
	if n := v.Nodes[0]; n.Report == nil || n.Report.Log.Last != 1 || n.Report.Log.Term != 4 || !strings.Contains(n.Report.Out, "was recovered on node c") {
		t.Errorf("it says %+v, %s", n.Report, n.Problem)
	}
	if why, err := v.Refusal(""); err != nil || !strings.Contains(why, "was recovered on node c") {
		t.Errorf("not refused: %q, %v", why, err)
	}
	if why, err := v.Refusal(recovery.None); err != nil || why != "" {
		t.Errorf("refused all the same: %q, %v", why, err)
	}
	stop()
	if err := errors.Join(r.Close(), <-ended); err != nil {
		t.Error(err)
	}
}
