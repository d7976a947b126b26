package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// TestLagMetrics: a lag that is not known is absent: 0 would be the best value of all.
func TestLagMetrics(t *testing.T) {
	n := status.Node{LagTransactions: 3, LagBytes: 7, LagSeconds: 1.5}
	if m := lagMetrics(n); len(m) != 3 || m[0].Value != 3 || m[1].Value != 7 || m[2].Value != 1.5 {
		t.Errorf("known: %+v", m)
	}
	n.LagUnknown = true
	if m := lagMetrics(status.Node{Role: status.RoleReplica, LagAge: 4}); m[2].Value != 4 {
		t.Errorf("of a mysqld that does not answer: %+v", m)
	}
	if m := lagMetrics(n); len(m) != 0 {
		t.Errorf("not known: %+v", m)
	}
}

// TestLagIsUnknown: the lag needs both what mysqld has and what is committed, and that takes a leader and a log.
func TestLagIsUnknown(t *testing.T) {
	a := openLone(t)
	if !a.ownStatus().LagUnknown {
		t.Error("mysqld never said what it has, and the lag is known")
	}
	a.local.LagAt.Store(new(time.Now()))
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

// TestScrape: all metrics of a node without a mysqld are in the list, whatever fails around it.
func TestScrape(t *testing.T) {
	a := openLone(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Collector(provider{a}.Metrics))
	registry.MustRegister(provider{a}.Collectors()...)
	gather := func() map[string]*dto.MetricFamily {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]*dto.MetricFamily{}
		for _, f := range families {
			shown[f.GetName()] = f
		}
		return shown
	}
	value := func(name string) float64 { return gather()[name].GetMetric()[0].GetGauge().GetValue() }
	if shown := gather(); shown["quorate_mysqld_up"] == nil || shown["quorate_lag_seconds"] != nil || shown["quorate_log_disk_free_bytes"] != nil {
		t.Errorf("without a mysqld it shows %v", shown)
	}
	a.board.Update(func(s *status.Node) { s.Seed = &status.Seed{Phase: status.SeedLog, Bytes: 7} })
	if got := value("quorate_join_bytes"); got != 7 {
		t.Errorf("a node that joins shows %v bytes, want 7", got)
	}
	a.board.Update(func(s *status.Node) { s.Seed = nil })
	look := func() {
		a.logDisk.Store(a.lookAtDisk("log"))
		_ = a.lookAtDataDisk()
	}
	look()
	if gather()["quorate_data_disk_free_bytes"] != nil {
		t.Error("there are no data of a mysqld, and it shows their disk")
	}
	if err := os.Mkdir(a.data.Join("mysql"), 0o750); err != nil {
		t.Fatal(err)
	}
	look()
	a.local.LagAt.Store(new(time.Now()))
	a.board.Update(func(s *status.Node) {
		s.Leader, s.Mysqld, s.LagBytes, s.ApplierStopped = a.self.ID, status.MysqldRunning, 7, "replication is not running"
	})
	for name, want := range map[string]float64{"quorate_mysqld_up": 1, "quorate_lag_bytes": 7, "quorate_applier_stopped": 1, "quorate_purge_blocked": 0, "quorate_primary_known": 0, "quorate_log_disk_shared": 1} {
		if got := value(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, disk := range []string{"log", "data"} {
		if free, size := value("quorate_"+disk+"_disk_free_bytes"), value("quorate_"+disk+"_disk_size_bytes"); free <= 0 || size < free {
			t.Errorf("%s: %v of %v bytes are free", disk, free, size)
		}
	}
}

// TestPrimaryKnown: a node that is not the primary says whether it knows one.
func TestPrimaryKnown(t *testing.T) {
	p := provider{openLone(t)}
	for name, want := range map[string]float64{"b": 1, "": 0} {
		shown := map[string]float64{}
		for _, m := range p.stateMetrics(status.Cluster{Primary: name}) {
			shown[m.Name] = m.Value
		}
		if shown["quorate_primary_known"] != want || shown["quorate_primary"] != 0 {
			t.Errorf("primary %q: known %v, itself %v", name, shown["quorate_primary_known"], shown["quorate_primary"])
		}
	}
}

// TestChangeMetrics: openings are counted by kind, and the newest one has its write gap.
func TestChangeMetrics(t *testing.T) {
	row := cluster.HistoryRow{At: time.Unix(100, 0), What: cluster.HistoryFailover, LastWriteMs: 1500}
	want := []metrics.Sample{
		metrics.Of("quorate_last_primary_change_timestamp_seconds", 100, "failover"),
		metrics.Of("quorate_last_primary_change_last_write_seconds", 1.5, "failover"),
	}
	if d := cmp.Diff(want, changeMetrics(&row)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	a := openLone(t)
	for term, planned := range map[uint64]bool{3: false, 4: true} {
		a.chronicle.LookBack(board.LastPrimary{Name: "other"}, time.Time{}, time.Time{})
		if planned {
			a.chronicled(history.Step{In: role.Chosen{Term: term}, After: role.PhasePrimary})
		}
		a.chronicled(history.Step{After: role.PhasePrimary, Effects: []role.Effect{{Kind: role.Serve, Term: term}}})
	}
	for what, c := range a.changes {
		m := dto.Metric{}
		if err := c.Write(&m); err != nil {
			t.Fatal(err)
		}
		want := 0.0
		if what == cluster.HistoryFailover || what == cluster.HistorySwitchover {
			want = 1
		}
		if got := m.GetCounter().GetValue(); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
}

// TestKeyMetrics: how agents talk to each other, whether the key changes, and when mysqld's certificate ends.
func TestKeyMetrics(t *testing.T) {
	a := openLone(t)
	shown := func() (found []string) {
		for _, m := range (provider{a}).keyMetrics() {
			if m.Value != 0 {
				found = append(found, fmt.Sprintf("%s%v %v", strings.TrimPrefix(m.Name, "quorate_"), m.Labels, m.Value))
			}
		}
		return found
	}
	if d := cmp.Diff([]string{"peer_security[plain] 1"}, shown()); d != "" {
		t.Errorf("plain (-want +got):\n%s", d)
	}
	state := a.board.State()
	state.Version++
	state.PeerSecurity, state.Members[0].NextKey = cluster.PeersRequire, "q1:x"
	a.board.SetState(state)
	a.local.CertificateEnds.Store(5)
	if d := cmp.Diff([]string{"key_changing[] 1", "peer_security[require] 1", "certificate_end_timestamp_seconds[mysqld] 5"}, shown()); d != "" {
		t.Errorf("with TLS (-want +got):\n%s", d)
	}
}

// TestStateMetrics: the metrics that page somebody at night.
func TestStateMetrics(t *testing.T) {
	a := openLone(t)
	check := func(what string, want ...string) {
		t.Helper()
		var shown []string
		for _, m := range (provider{a}).stateMetrics(provider{a}.Status()) {
			if m.Value != 0 && m.Name != "quorate_build_info" {
				shown = append(shown, fmt.Sprintf("%s %s %v", strings.TrimPrefix(m.Name, "quorate_"), strings.Join(m.Labels, ""), m.Value))
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

// TestOneDisk: what has the same room is one disk, whatever its devices are. By the device alone two subvolumes of btrfs were two
// disks, and the copy of a full backup raised the alert of the log's.
func TestOneDisk(t *testing.T) {
	data := diskRoom{device: 40, free: 5 << 30, size: 100 << 30}
	for name, c := range map[string]struct {
		log  diskRoom
		want bool
	}{
		"one directory of the other's file system": {diskRoom{40, 5<<30 - 8192, 100 << 30, false}, true}, // it was written meanwhile
		"subvolumes of btrfs":                      {diskRoom{41, 5 << 30, 100 << 30, false}, true},
		"datasets of a ZFS pool":                   {diskRoom{41, 5<<30 - 5*16<<10, 7 << 30, false}, true}, // of other records
		"two equal disks":                          {diskRoom{41, 6 << 30, 100 << 30, false}, false},
	} {
		if got := data.is(c.log); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if (diskRoom{device: 40}).is(diskRoom{device: 41}) {
		t.Error("two full disks are one")
	}
}
