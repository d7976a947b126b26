package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestLagMetrics: a lag that is not known is absent, as 0 would be the best of all.
func TestLagMetrics(t *testing.T) {
	n := status.Node{LagTransactions: 3, LagSeconds: 1.5}
	if m := lagMetrics(n); len(m) != 2 || m[0].Value != 3 || m[1].Value != 1.5 {
		t.Errorf("known: %+v", m)
	}
	n.LagUnknown = true
	if m := lagMetrics(n); len(m) != 0 {
		t.Errorf("not known: %+v", m)
	}
}

// TestLagIsUnknown: what mysqld has says nothing without what is committed, which takes a
// leader and a log, and the other way round.
func TestLagIsUnknown(t *testing.T) {
	a := openLone(t)
	for _, c := range []struct {
		leader  cluster.NodeID
		mysqld  status.MysqldState
		log     status.LogState
		unknown bool
	}{
		{0, status.MysqldRunning, "", true},
		{a.self.ID, status.MysqldStarting, "", true},
		{a.self.ID, status.MysqldRunning, status.LogFull, true},
		{a.self.ID, status.MysqldRunning, "", false},
	} {
		a.board.Update(func(s *status.Node) { s.Leader, s.Mysqld, s.LogState = c.leader, c.mysqld, c.log })
		if got := a.ownStatus().LagUnknown; got != c.unknown {
			t.Errorf("leader %d, mysqld %s, log %s: %t", c.leader, c.mysqld, c.log, got)
		}
	}
}

// TestStartingUntilItVotes: a node that was restarted is no replica to the others until it
// may lead; at its first start it has promised nothing.
func TestStartingUntilItVotes(t *testing.T) {
	cfg := loneConfig(t)
	for _, want := range []status.Role{status.RoleReplica, status.RoleStarting} {
		t.Run(string(want), func(t *testing.T) {
			a := openWith(t, cfg)
			a.board.SetRole(status.RoleReplica, "")
			if own := a.ownStatus(); own.Role != want || (own.Reason != "") != (want == status.RoleStarting) {
				t.Errorf("it says %s, %q", own.Role, own.Reason)
			}
		})
	}
}

// TestMetricsAreWellNamed asks Prometheus' own linter, of all that a node shows.
func TestMetricsAreWellNamed(t *testing.T) {
	a := openLone(t)
	a.board.Update(func(s *status.Node) { s.Leader, s.Mysqld = a.self.ID, status.MysqldRunning }) // its lag is known
	if err := a.api.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.api.Run(ctx) }()
	resp, err := http.Get("http://" + a.api.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "\nquorate_lag_seconds 0\n") {
		t.Errorf("%s, %v:\n%s", resp.Status, err, body)
	}
	if !strings.Contains(string(body), "\nquorate_applier_stopped 0\n") {
		t.Error("it does not say that the applier runs")
	}
	a.board.Update(func(s *status.Node) { s.ApplierStopped = "replication is not running" })
	stopped := false
	for _, m := range (provider{a}).Metrics() {
		stopped = stopped || m.Name == "quorate_applier_stopped" && m.Value == 1
	}
	if !stopped {
		t.Error("it does not say that the applier has stopped")
	}
	problems, err := promlint.New(bytes.NewReader(body)).Lint()
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestStateMetrics: what pages somebody at night.
func TestStateMetrics(t *testing.T) {
	a := openLone(t)
	check := func(what string, want ...string) {
		t.Helper()
		var shown []string
		for _, m := range (provider{a}).stateMetrics(provider{a}.Status()) {
			if m.Value != 0 && m.Name != "quorate_build_info" {
				shown = append(shown, fmt.Sprintf("%s %s %v", strings.TrimPrefix(m.Name, "quorate_"), m.Labels["state"], m.Value))
			}
		}
		if d := cmp.Diff(want, shown); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	check("it starts", "node_state starting 1", "log_state ok 1", "voters  1", "voters_reachable  1", "failures_survived  -1")
	a.board.Update(func(s *status.Node) {
		s.Role, s.Mysqld, s.LogState = status.RolePromoting, status.MysqldRunning, status.LogFull
	})
	check("its log is full", "node_state promoting 1", "log_state full 1", "mysqld_up  1", "voters  1", "voters_reachable  1", "failures_survived  -1")
	state := a.board.State()
	state.Version++
	state.Members[0].Weight = cluster.WeightDefault
	state.Maintenance = &cluster.Maintenance{Primary: a.self.Name}
	a.board.SetState(state)
	a.keptDown.Store(true)
	a.board.Update(func(s *status.Node) { s.Role, s.LogState = status.RoleErrant, "" })
	check("errant, and more", "maintenance  1", "fenced  1", "errant  1", "node_state errant 1", "log_state ok 1", "mysqld_up  1",
		"voters  1", "voters_reachable  1", "failures_survived  -1")
	a.board.Update(func(s *status.Node) { s.Role = status.RolePromoting })
	check("it opens", "maintenance  1", "fenced  1", "node_state promoting 1", "log_state ok 1", "mysqld_up  1", "voters  1", "voters_reachable  1")
}
