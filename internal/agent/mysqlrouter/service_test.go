package mysqlrouter

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/routermeta"
)

// node is a Service, and what mysqld has.
type node struct {
	*Service
	there  routermeta.Metadata
	looks  int
	err    error
	hasty  []string // Routers that do not wait for own writes
	serves bool
	now    time.Duration
}

func newNode() *node {
	n := &node{serves: true}
	state := cluster.NewState([]cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull}})
	state.MySQLRouter = true
	self := status.Node{ID: 1, Name: "a", Role: status.RolePrimary, Mysqld: status.MysqldRunning, ServerUUID: "uuid", MySQLRouter: "a:3306"}
	n.Service = New(Config{
		Board: board.New(board.Config{Self: self, State: state, Known: &membership.Directories{}, Now: time.Now}),
		Self:  1, Cluster: "shop", ClusterID: 7,
		Serves: func() bool { return n.serves }, Term: func() uint64 { return 1 }, Update: n.update,
		Impatient: func(context.Context, time.Duration) ([]string, error) { return n.hasty, nil }, Logger: slog.New(slog.DiscardHandler),
	})
	return n
}

func (n *node) update(_ context.Context, _ bool, want func(routermeta.Metadata) routermeta.Metadata) (is routermeta.Metadata, wrote bool, err error) {
	n.looks++
	if n.err != nil {
		return routermeta.Metadata{}, false, n.err
	}
	wanted := want(n.there)
	wrote = !wanted.Same(n.there)
	n.there = wanted
	return n.there, wrote, nil
}

// pass lets time pass, with two looks a second.
func (n *node) pass(t *testing.T, d time.Duration) {
	for end := n.now + d; n.now < end; n.now += 500 * time.Millisecond {
		n.keep(t.Context(), n.now)
	}
}

// TestServiceWritesWhileItServes: what Router reads is written once, and only by a primary.
func TestServiceWritesWhileItServes(t *testing.T) {
	n := newNode()
	n.serves = false
	n.pass(t, time.Second)
	if n.looks != 0 {
		t.Fatal("a replica has looked")
	}
	n.serves = true
	n.pass(t, 10*time.Second)
	if n.there.Primary() != "a" || n.writes != 1 || n.looks != 1 {
		t.Errorf("%+v after %d writes, %d looks", n.there, n.writes, n.looks)
	}
	state := n.Board.State()
	state.Version++
	state.Follow = &cluster.Follow{Site: "east"}
	n.Board.SetState(state)
	n.there = routermeta.Metadata{}
	n.pass(t, 2*time.Minute)
	if n.writes != 1 {
		t.Error("a site that follows another one has written")
	}
}

// TestServiceSaysWhatFails: a failure is shown, counted and tried again at a pace; once it is over the status says so.
func TestServiceSaysWhatFails(t *testing.T) {
	n := newNode()
	n.err = errors.New("lost connection")
	n.pass(t, 5*time.Second)
	if got := n.Board.Trouble(about); !strings.Contains(got, "lost connection") || n.failures != uint64(n.looks) || n.looks < 4 || n.looks > 5 {
		t.Errorf("the status says %q, %d failures, %d looks", got, n.failures, n.looks)
	}
	n.err = nil
	n.pass(t, 2*time.Second)
	if got := n.Board.Trouble(about); got != "" || n.writes != 1 {
		t.Errorf("the status says %q, %d writes", got, n.writes)
	}
}

// TestServiceNamesHastyRouters: within a minute the status names Routers that wait too short, three of them, and no longer.
func TestServiceNamesHastyRouters(t *testing.T) {
	n := newNode()
	n.pass(t, 5*time.Second)
	n.hasty = []string{"r1@x", "r2@x", "r3@x", "r4@x"}
	n.pass(t, time.Minute+time.Second)
	if got := n.Board.Trouble(about); !strings.Contains(got, "r1@x, r2@x, r3@x and 1 more") || strings.Contains(got, "r4") {
		t.Errorf("the status says %q", got)
	}
	n.hasty = nil
	n.pass(t, time.Minute+time.Second)
	if got := n.Board.Trouble(about); got != "" {
		t.Errorf("the status says %q", got)
	}
}

// TestUUID: Router keeps the cluster's name in its files, so it must never change.
func TestUUID(t *testing.T) {
	if got, want := uuid(7), "0eb6f56f-9d73-83b9-ea14-ba0573ac2ff4"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
