package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/install"
)

// loopback returns a random address of 127.0.0.0/8: a port that is free on it stays
// free, also beside other tests and their outgoing connections.
func loopback() string {
	octet := func() int { return 1 + rand.IntN(254) }
	return fmt.Sprintf("127.%d.%d.%d", octet(), octet(), octet())
}

// loneConfig is the configuration of a cluster of one whose ports are free.
func loneConfig(t testing.TB) config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Cluster, cfg.Node, cfg.DataDir = "orders", "a", filepath.Join(t.TempDir(), "data")
	var addrs []string
	host := loopback()
	for range 6 {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // at the end, so that no port is given out twice
		addrs = append(addrs, l.Addr().String())
	}
	cfg.Members = []config.Member{{Name: "a", Peer: addrs[0], Kind: cluster.KindFull}}
	cfg.Router.ReadWrite, cfg.API.Listen, cfg.Feed.Listen = addrs[1], addrs[2], addrs[3]
	_, port, err := net.SplitHostPort(addrs[4])
	if err != nil {
		t.Fatal(err)
	}
	cfg.Router.ReadOnly = addrs[5]
	cfg.MySQL.Bind = host
	if cfg.MySQL.Port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func loneAgent(t testing.TB, cfg config.Config) *Agent {
	t.Helper()
	a, err := newAgent(cfg, &install.Installation{}, slog.New(slog.DiscardHandler), "test")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestOpenPasswordFileIsSaid: an agent starts although its group may read a password, because the group may be its
// own; it logs a warning.
func TestOpenPasswordFileIsSaid(t *testing.T) {
	cfg := loneConfig(t)
	path := filepath.Join(t.TempDir(), "password")
	cfg.Readers = []config.Reader{{User: "cdc", PasswordFile: path}}
	cfg.Site = config.Site{Name: "west", PasswordFile: path}
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o640: 2} {
		if err := errors.Join(os.WriteFile(path, []byte("secret"), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if _, err := newAgent(cfg, &install.Installation{}, slog.New(slog.NewTextHandler(&text, nil)), "test"); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text.String(), "is open to others (mode 0640): let the agent's account own it, and chmod 600 "+path); n != want {
			t.Errorf("mode %v: %d warnings, want %d:\n%s", mode, n, want, text.String())
		}
	}
}

// TestBindIsNamed: an agent that ends because this host does not have mysqld's own address names the setting.
func TestBindIsNamed(t *testing.T) {
	cfg := loneConfig(t)
	cfg.MySQL.Bind = "203.0.113.3"
	a := loneAgent(t, cfg)
	defer func() { a.feed.Unlisten() }()
	ctx, end := context.WithCancel(t.Context())
	end() // it tries once
	if err := a.listenMysqld(ctx); err == nil || !strings.HasPrefix(err.Error(), "open mysqld's port at its own address (mysql.bind): listen tcp 203.0.113.3:") {
		t.Errorf("%v", err)
	}
}

// TestReadersPortIsOpenedOnce: a node opens its ports again after it has joined.
func TestReadersPortIsOpenedOnce(t *testing.T) {
	cfg := loneConfig(t)
	l, err := net.Listen("tcp", net.JoinHostPort(loopback(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Feed.ReadersListen = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a := loneAgent(t, cfg)
	if err := a.listen(); err != nil {
		t.Fatal(err)
	}
	defer a.unlisten()
	a.peers.Unlisten() // the servers of the time of the join have ended
	a.router.Unlisten()
	a.reads.Unlisten()
	a.api.Unlisten()
	if err := a.listen(); err != nil {
		t.Error(err)
	}
}

// TestFailedStartFreesItsPorts: an agent may end while its process goes on with another agent, for example if a log
// that was healed is damaged again when it is opened.
func TestFailedStartFreesItsPorts(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, cfg config.Config)
		want  string
	}{
		"log": {func(t *testing.T, cfg config.Config) {
			if err := os.MkdirAll(filepath.Join(cfg.DataDir, "log"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(cfg.DataDir, "log", "state"), make([]byte, 8192), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "the log"},
		"last port": {func(t *testing.T, cfg config.Config) {
			l, err := net.Listen("tcp", cfg.Feed.Listen)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}, "open feed port (feed.listen)"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := loneConfig(t)
			a := loneAgent(t, cfg)
			if err := a.data.open(); err != nil { // the directory is not empty any more
				t.Fatal(err)
			}
			if err := a.data.Close(); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, cfg)
			for range 2 {
				if err := loneAgent(t, cfg).Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("Run: %v, want something of %q", err, c.want)
				}
			}
			for _, addr := range []string{cfg.Members[0].Peer, cfg.Router.ReadWrite, cfg.Router.ReadOnly, cfg.API.Listen} {
				l, err := net.Listen("tcp", addr)
				if err != nil {
					t.Errorf("a port is still bound: %v", err)
					continue
				}
				_ = l.Close()
			}
		})
	}
}

// TestTakenPortSaysWhatToDo: a second agent of a node is the most frequent reason.
func TestTakenPortSaysWhatToDo(t *testing.T) {
	if err := peerPort.opened(nil); err != nil {
		t.Error(err)
	}
	cfg := loneConfig(t)
	l, err := net.Listen("tcp", cfg.Members[0].Peer)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = loneAgent(t, cfg).Run(t.Context())
	for _, want := range []string{"open peer port (peer of this [[member]]): ", "this node's agent may run already", `"quorate doctor" says which program`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestOnLoopbackIsSaid: an agent that listens where only its own host reaches it says so, in its log and beside each
// reason of its role. It runs: somebody may pass connections on.
func TestOnLoopbackIsSaid(t *testing.T) {
	for other, want := range map[string]bool{"203.0.113.2:7400": true, loopback() + ":7400": false} {
		cfg := loneConfig(t)
		cfg.Members = append(cfg.Members, config.Member{Name: "b", Peer: other, Kind: cluster.KindFull})
		a := loneAgent(t, cfg)
		a.noteLoopback(t.Context())
		keyed{a}.Trouble("another key")
		a.board.SetRole(status.RoleReplica, "no leader")
		reason := a.board.Own().Reason
		if said := strings.Contains(reason, other+" is on another host, and cannot reach it"); said != want || !strings.HasPrefix(reason, "no leader; ") || !strings.HasSuffix(reason, "; another key") && want {
			t.Errorf("with %s: %s", other, reason)
		}
	}
}
