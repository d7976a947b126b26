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

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/recovery"
	"github.com/quorate/quorate/internal/transport"
)

// TestRunningMajorityObeysNobody: one node was recovered by mistake, apart from a
// majority that runs. It must not end that.
func TestRunningMajorityObeysNobody(t *testing.T) {
	order := cluster.Recovery{Version: 1_000_000, Cluster: "orders", Node: "c"}
	told := &transport.RejectedError{Code: transport.CodeRecovered, Text: order.Order("a")}
	for name, c := range map[string]struct {
		before func(b *board)
		obeys  bool
	}{
		"has just started": {func(*board) {}, true},
		"follows a leader": {func(b *board) { b.setRaft(consensus.RoleState{Term: 2, Leader: 7}) }, false},
		"elects another leader": {func(b *board) {
			b.setRaft(consensus.RoleState{Term: 2, Leader: 7})
			b.setRaft(consensus.RoleState{Term: 3})
		}, false},
		"elects nobody": {func(b *board) {
			b.setRaft(consensus.RoleState{Term: 2, Leader: 7})
			b.setRaft(consensus.RoleState{Term: 3})
			b.ledAt = b.ledAt.Add(-obeyAfter)
		}, true},
	} {
		a := &Agent{cfg: testConfig(t, t.TempDir()), logger: slog.New(slog.DiscardHandler), data: &dataDir{}}
		a.self = a.cfg.Self()
		a.board.init(a.cfg, a.self, "")
		c.before(&a.board)
		a.rejected("c", told)
		left := a.leaving.Load()
		if (left != nil && left.superseded != nil) != c.obeys {
			t.Errorf("%s: it leaves with %+v, want it to: %t", name, left, c.obeys)
		}
		a.board.setRole(cluster.RolePrimary, "")
		if said := strings.Contains(a.board.own().Reason, "stop the agent of node c"); said == c.obeys {
			t.Errorf("%s: its reason is %q", name, a.board.own().Reason)
		}
	}
}

// TestSupersededNodeSaysWhatItHas: it is left out, and what it has may be all that there
// is of a transaction. It elects nobody.
func TestSupersededNodeSaysWhatItHas(t *testing.T) {
	cfg := lastLogger(t)
	for _, addr := range []*string{&cfg.Members[0].Peer, &cfg.API.Listen} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
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
		err = d.superseded(cluster.Recovery{Version: 1_000_000, Cluster: "orders", Node: "c"})
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, slog.New(slog.DiscardHandler), "v") }()
	r, err := OpenRecovery(other, slog.New(slog.DiscardHandler), "v")
	if err != nil {
		t.Fatal(err)
	}
	var v recovery.Verdict
	for deadline := time.Now().Add(20 * time.Second); ; {
		if v, err = r.Judge(ctx); err != nil {
			t.Fatal(err)
		}
		if v.Nodes[0].Reachable || time.Now().After(deadline) {
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
