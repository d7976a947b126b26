package agent

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/role"
)

// TestPromisesOutliveTheAgent: after a restart with a shorter election timeout the
// longer one counts, until it is over.
func TestPromisesOutliveTheAgent(t *testing.T) {
	d, quiet := &dataDir{Locked: datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, t.TempDir()), datadir.Identity{}, false))}, slog.New(slog.DiscardHandler)
	start := func(own, want time.Duration) {
		t.Helper()
		if got, noted, err := d.Promised(own, config.ElectionTimeoutMax, quiet); err != nil || got != want || !noted {
			t.Errorf("a start with %v: what was promised is %v, %v; want %v", own, got, err, want)
		}
	}
	start(time.Second, time.Second)
	start(5*time.Second, 5*time.Second)
	start(time.Second, 5*time.Second)
	start(2*time.Second, 5*time.Second) // the first has ended before five seconds were over
	if err := d.WritePromise(2 * time.Second); err != nil {
		t.Fatal(err)
	}
	start(time.Second, 2*time.Second)
	for _, damaged := range []string{"{", "{}", `{"election_timeout_ns": -1}`, `{"election_timeout_ns": 60000000001}`} {
		if err := os.WriteFile(d.Join(datadir.Promise), []byte(damaged), 0o644); err != nil {
			t.Fatal(err)
		}
		start(time.Second, config.ElectionTimeoutMax)
		if b, err := os.ReadFile(d.Join(datadir.Promise)); err != nil || !strings.Contains(string(b), ": 60000000000\n") {
			t.Errorf("damaged as %s, it is written anew as %s, %v", damaged, b, err)
		}
	}
}

// TestPromiseOnAFullDisk: a disk that takes nothing ends no agent, unless what it has
// would promise less than the configuration; what is not noted is, once it can be.
func TestPromiseOnAFullDisk(t *testing.T) {
	for name, c := range map[string]struct {
		file    string // "" = none
		want    time.Duration
		refused bool
	}{
		"none":    {"", 2 * time.Second, false},
		"longer":  {`{"election_timeout_ns": 5000000000}`, 5 * time.Second, false},
		"damaged": {"{", config.ElectionTimeoutMax, false},
		"shorter": {`{"election_timeout_ns": 1000000000}`, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &Agent{data: &dataDir{Locked: datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, t.TempDir()), datadir.Identity{}, false))}, logger: slog.New(slog.DiscardHandler)}
			a.cfg.Raft.ElectionTimeout = 2 * time.Second
			path := a.data.Join(datadir.Promise)
			if c.file != "" {
				if err := os.WriteFile(path, []byte(c.file), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			full := path + ".tmp" // where it is written first
			if err := os.Mkdir(full, 0o755); err != nil {
				t.Fatal(err)
			}
			var err error
			a.promised, a.promiseNoted, err = a.data.Promised(2*time.Second, config.ElectionTimeoutMax, a.logger)
			if a.promised != c.want && !c.refused || (err != nil) != c.refused {
				t.Fatalf("%s: %v, %v", name, a.promised, err)
			}
			if c.refused {
				return
			}
			ended := make(chan error, 1)
			go func() { ended <- a.runPromise(t.Context()) }()
			time.Sleep(a.promised + 3*promiseRetry + time.Second)
			select {
			case err := <-ended:
				t.Fatalf("%s: it ends with %v while the disk is full", name, err)
			default:
			}
			if err := os.Remove(full); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), ": 2000000000\n") {
				t.Errorf("%s: in the end it has %s, %v", name, b, err)
			}
		})
	}
}

// TestTimingsAreJudged: a node whose heartbeat is too long for another's election timeout
// says so, and the role machine is told that it could get no lease beside agents of before.
func TestTimingsAreJudged(t *testing.T) {
	a := &Agent{cfg: testConfig(t, t.TempDir()), logger: slog.New(slog.DiscardHandler)}
	a.self = a.cfg.Self()
	openBoard(a)
	hear := func(timeout time.Duration) (in role.Peers) {
		t.Helper()
		for _, m := range a.board.Members() {
			if m.ID == a.self.ID {
				continue
			}
			hears(t, a, status.Node{ID: m.ID, Name: m.Name, Kind: m.Kind, Role: status.RoleReplica,
				AgentVersion: "0.1", Heartbeat: timeout / 10, ElectionTimeout: timeout})
		}
		a.judgeTimings(a.board.Own(), &in)
		a.board.SetRole(status.RoleReplica, "")
		return in
	}
	if in := hear(time.Second); in.NoLease != "" || a.board.Own().Reason != "" {
		t.Errorf("equal settings: %q, %q", in.NoLease, a.board.Own().Reason)
	}
	hear(300 * time.Millisecond)
	if got := a.board.Own().Reason; !strings.Contains(got, "raft.heartbeat 100ms is too long for node") {
		t.Errorf("a short election timeout of the others: %q", got)
	}
	if in := hear(0); !strings.Contains(in.NoLease, "runs quorate 0.1") || a.board.Own().Reason != "" {
		t.Errorf("agents of before: %q, %q", in.NoLease, a.board.Own().Reason)
	}
}
