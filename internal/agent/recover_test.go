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

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/transport"
)

// TestRecoverySupersedes: a node believes that the cluster was recovered without it only if that is newer than what
// it knows.
func TestRecoverySupersedes(t *testing.T) {
	order := cluster.Recovery{Version: 1_000_000, Cluster: "x", Node: "b"}
	for _, tc := range []struct {
		name  string
		known uint64
		id    datadir.Identity
		fresh bool
		want  bool
	}{
		{name: "of before", known: 41, want: true},
		{name: "never changed", want: true},
		{name: "recovered itself", known: 1_000_000},
		{name: "joined since", known: 1_000_002},
		{name: "joins", id: datadir.Identity{Joining: true}},
		{name: "empty directory", fresh: true},
		{name: "first start of all", fresh: true, id: datadir.Identity{Log: true}, want: true},
		{name: "knows", known: 41, id: datadir.Identity{Superseded: &order}},
		{name: "knows of an earlier one", known: 41, id: datadir.Identity{Superseded: &cluster.Recovery{Version: 5}}, want: true},
	} {
		a := &Agent{data: &dataDir{Locked: datadir.NewLocked(datadir.NewHome(datadir.New(vfs.NewMem(), "."), tc.id, tc.fresh))}}
		openBoard(a)
		a.board.SetState(cluster.State{Version: tc.known})
		if got := a.asSelf().Supersedes(order); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// TestRecoveredStateIsNotMadeUp: the log of a recovered cluster knows only the former members; the present ones are
// in cluster.json alone.
func TestRecoveredStateIsNotMadeUp(t *testing.T) {
	a := &Agent{data: &dataDir{Locked: datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, t.TempDir()), datadir.Identity{State: true, Recovered: true}, false))}}
	openBoard(a)
	if err := a.state.Load(a.data.Home, nil, 1); err == nil || !strings.Contains(err.Error(), "Only this file says that the cluster was recovered") {
		t.Errorf("it starts without: %v", err)
	}
	a.data.Home = datadir.NewHome(a.data.Dir, datadir.Identity{State: true}, false)
	if err := a.state.Load(a.data.Home, nil, 1); err != nil {
		t.Error(err)
	}
}

// lastLogger is the data directory of a logger whose peers do not answer, with a log
// of one entry.
func lastLogger(t *testing.T) config.Config {
	t.Helper()
	cfg := testConfig(t, filepath.Join(t.TempDir(), "data"))
	cfg.MySQL.BaseDir = "/nonexistent"
	cfg.Members[0].Kind = cluster.KindLogger
	for i := range cfg.Members {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback(), "0"))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Members[i].Peer = l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	oneEntry(t, cfg)
	return cfg
}

// oneEntry makes the data directory of a node, with a log of one entry.
func oneEntry(t *testing.T, cfg config.Config) {
	t.Helper()
	a, err := New(cfg, slog.New(slog.DiscardHandler), "v")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.data.open(); err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(a.logOptions())
	if err == nil {
		err = log.Append([]seglog.Entry{{Index: 1, Term: 4}}, &seglog.HardState{Term: 4, Vote: 1})
	}
	if err == nil {
		err = errors.Join(a.data.HasLog(), log.Close(), a.data.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// openRecovery opens the node of a configuration. It does not wait for callers.
func openRecovery(t *testing.T, cfg config.Config) *Recovery {
	t.Helper()
	r, err := OpenRecovery(cfg, slog.New(slog.DiscardHandler), "v")
	if err != nil {
		t.Fatal(err)
	}
	r.heard = nil
	return r
}

// recoverTest recovers the node of a configuration.
func recoverTest(t *testing.T, cfg config.Config, accepted string) cluster.Recovery {
	t.Helper()
	r := openRecovery(t, cfg)
	v, err := r.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if why, err := v.Refusal(accepted); err != nil || why != "" {
		t.Fatalf("it is refused: %s, %v", why, err)
	}
	done, err := r.Do("somebody", v)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return done
}

// TestRecoverAgain: each recovery is later than all that the node knows of, so the former members believe the newest.
func TestRecoverAgain(t *testing.T) {
	cfg := lastLogger(t)
	first := recoverTest(t, cfg, "")
	if first.Version != 1_000_000 || len(first.Without) != 2 {
		t.Errorf("recovered: %+v", first)
	}
	a, err := New(cfg, slog.New(slog.DiscardHandler), "v")
	if err != nil {
		t.Fatal(err)
	}
	point, err := a.data.LastState()
	if err != nil || len(point.State.Members) != 1 || point.State.Members[0].Instance != a.data.Own().Instance || point.Index != 1 {
		t.Errorf("it keeps %+v, %v; its instance is %s", point, err, a.data.Own().Instance)
	}
	// Then another former member was recovered, and told this node so.
	if err := a.data.Supersede(cluster.Recovery{Version: 3_000_000, Cluster: "x", Node: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := datadir.Replace(vfs.OS{}, a.data.Join(), datadir.Fence, cluster.Fence{By: "ann@db1", Reason: "its disk"}); err != nil {
		t.Fatal(err)
	}
	r := openRecovery(t, cfg)
	v, err := r.Check(t.Context())
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(v.Fenced, "fenced by ann@db1 ") {
		t.Errorf("it says nothing of the fence: %q", v.Fenced)
	}
	if why, err := v.Refusal(""); err != nil || !strings.Contains(why, "was recovered on node b") {
		t.Errorf("it is not refused: %q, %v", why, err)
	}
	if again := recoverTest(t, cfg, "none"); again.Version != 4_000_000 {
		t.Errorf("recovered again: %+v", again)
	}
}

// TestRecoveryIsFinishedAtStart: a recovery that was begun is finished before the node does anything else.
func TestRecoveryIsFinishedAtStart(t *testing.T) {
	cfg := lastLogger(t)
	record := quorumloss.Record{Format: quorumloss.Format, Identity: datadir.Identity{Format: 1, Node: "a", Instance: "new"}.AsMember(true)}
	if err := datadir.Replace(vfs.OS{}, cfg.DataDir, quorumloss.File, record); err != nil {
		t.Fatal(err)
	}
	d := &dataDir{Locked: datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, cfg.DataDir), datadir.Identity{}, false))}
	if err := d.TakeLock(); err != nil {
		t.Fatal(err)
	}
	if err := FinishRecovery(cfg); err == nil {
		t.Error("it is finished beside an agent")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), cfg, slog.New(slog.DiscardHandler), "v"); err == nil {
		t.Error("a node of no cluster runs")
	}
	b, err := vfs.ReadFile(vfs.OS{}, filepath.Join(cfg.DataDir, datadir.IdentityFile))
	if err != nil || !strings.Contains(string(b), `"instance": "new"`) {
		t.Errorf("identity: %s, %v", b, err)
	}
	if err := FinishRecovery(cfg); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestRecoverBesideWhoRefuses: a majority that answers is there, even if it does not talk to this node, which perhaps
// has the wrong data. A node of another cluster at the address of a voter is not that voter.
func TestRecoverBesideWhoRefuses(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		cfg := lastLogger(t)
		for _, m := range cfg.ClusterMembers()[1:] {
			id := transport.Identity{ClusterID: cfg.ClusterID(), ClusterName: cfg.Cluster, Node: m.ID, NodeName: m.Name, Instance: [16]byte{1}}
			if elsewhere {
				id.ClusterID++
			}
			self, h := cfg.Self(), &refuser{}
			h.code.Store(uint32(transport.CodePeer))
			answering := transport.New(transport.Config{Identity: id, Listen: m.Peer, Handler: h, Logger: slog.New(slog.DiscardHandler),
				Peers: []transport.Peer{{ID: self.ID, Name: self.Name, Addr: self.Peer}}})
			answers(t, answering)
		}
		r := openRecovery(t, cfg)
		v, err := r.Check(t.Context())
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		why, err := v.Refusal(recovery.None)
		if err != nil || strings.Contains(why, "a majority of the 3 voters may run") == elsewhere || v.Nodes[0].Reachable == elsewhere {
			t.Errorf("elsewhere %t: refused with %q, %v: %+v", elsewhere, why, err, v.Nodes)
		}
	}
}

// TestRecoverBesideStrangers: while a node was away, all members that it knows were replaced. The new members dial it,
// and that ends a recovery, although the node can ask none of them. A node that is recovered at the same time counts, too.
func TestRecoverBesideStrangers(t *testing.T) {
	cfg := lastLogger(t)
	self := cfg.Self()
	dial := func(name string, instance byte) {
		id := transport.Identity{ClusterID: cfg.ClusterID(), ClusterName: cfg.Cluster, Node: config.MemberID(cfg.Cluster, name), NodeName: name, Instance: [16]byte{instance}}
		transport.New(transport.Config{Identity: id, Handler: stranger{}, Logger: slog.New(slog.DiscardHandler),
			Peers: []transport.Peer{{ID: self.ID, Name: self.Name, Addr: self.Peer}}}).Introduce(t.Context())
	}
	r := openRecovery(t, cfg)
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	judge := func() string {
		t.Helper()
		v, err := r.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		why, err := v.Refusal(recovery.None)
		if err != nil {
			t.Fatal(err)
		}
		return why
	}
	dial("d", 0) // it has nothing, and serves nothing
	dial("b", 7)
	if why := judge(); why != "" {
		t.Errorf("refused: %s", why)
	}
	dial("d", 7)
	if why := judge(); !strings.Contains(why, "node d of this cluster dials this node from 127.0.0.1, and node a does not know it") {
		t.Errorf("refused with %q", why)
	}
	other := cfg
	other.Members = slices.Clone(cfg.Members)
	other.Node, other.DataDir, other.Members[1].Kind = "b", filepath.Join(t.TempDir(), "data"), cluster.KindLogger
	oneEntry(t, other)
	r2 := openRecovery(t, other)
	v, err := r2.Check(t.Context())
	if err := errors.Join(err, r2.Close()); err != nil {
		t.Fatal(err)
	}
	if n := v.Nodes[0]; n.Report == nil || !n.Report.Recovers || n.Report.Log.Term != 4 {
		t.Errorf("node a says %+v, %s", n.Report, n.Problem)
	}
}

// TestRecoverAfterRemoval: a node was removed while it was away, and then all members that it knows were replaced. Nobody
// dials it. A node that its [[added]] names says that the cluster goes on. A node that waits to join says nothing.
func TestRecoverAfterRemoval(t *testing.T) {
	for _, tc := range []struct {
		name     string
		instance byte
		removed  bool
		want     string
	}{
		{"removed", 7, true, "node \"a\" was removed from cluster \"orders\". The cluster may run without node a"},
		{"unknown", 7, false, "is not a member of cluster \"orders\" as node \"d\" knows it. The cluster may run without node a"},
		{"waits to join", 0, false, ""},
	} {
		cfg := lastLogger(t)
		d := config.Added{Name: "d", Peer: loneConfig(t).Members[0].Peer}
		cfg.Added = append(cfg.Added, d)
		self := cfg.Self()
		answering := transport.New(transport.Config{
			Identity: transport.Identity{ClusterID: cfg.ClusterID(), ClusterName: cfg.Cluster, Node: config.MemberID(cfg.Cluster, "d"), NodeName: "d", Instance: [16]byte{tc.instance}},
			Listen:   d.Peer, Handler: stranger{}, Logger: slog.New(slog.DiscardHandler),
		})
		switch {
		case tc.removed:
			answering.SetFormer(transport.Former{Removed: []cluster.NodeID{self.ID}})
		case tc.instance == 0:
			answering.SetPeers([]transport.Peer{transport.PeerOf(self)})
		}
		answers(t, answering)
		r := openRecovery(t, cfg)
		v, err := r.Check(t.Context())
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if why, err := v.Refusal(recovery.None); err != nil || !strings.Contains(why, tc.want) || tc.want == "" && why != "" {
			t.Errorf("%s: refused with %q, %v", tc.name, why, err)
		}
	}
}

// answers has a peer answer until the test ends.
func answers(t *testing.T, peer *transport.Transport) {
	t.Helper()
	if err := peer.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- peer.Answer(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestRecoverHearsBeforeItAsks: the members are asked only after the time in which they may dial. One that starts within
// that time says what it has.
func TestRecoverHearsBeforeItAsks(t *testing.T) {
	cfg := lastLogger(t)
	other := cfg
	other.Members = slices.Clone(cfg.Members)
	other.Node, other.DataDir, other.Members[1].Kind = "b", filepath.Join(t.TempDir(), "data"), cluster.KindLogger
	oneEntry(t, other)
	r, heard := openRecovery(t, cfg), make(chan time.Time)
	r.heard = heard
	type result struct {
		recovery.Verdict
		error
	}
	judged := make(chan result, 1)
	go func() {
		v, err := r.Check(t.Context())
		judged <- result{v, err}
	}()
	select {
	case <-judged:
		t.Fatal("it did not wait")
	case <-time.After(200 * time.Millisecond): // nobody listens at b's address: a question there ends at once
	}
	r2 := openRecovery(t, other)
	heard <- time.Time{}
	v := <-judged
	if err := errors.Join(v.error, r.Close(), r2.Close()); err != nil {
		t.Fatal(err)
	}
	if n := v.Nodes[0]; n.Report == nil {
		t.Errorf("node b was asked too early: %s", n.Problem)
	}
}
