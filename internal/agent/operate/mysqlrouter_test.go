package operate

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
)

// TestRouterOn: router on is refused while a node that is heard has its mysqld on loopback alone, also as a dry run.
func TestRouterOn(t *testing.T) {
	s, n := serve(t)
	hear := func(addr string) {
		t.Helper()
		if err := n.board.Received(2, status.Node{ID: 2, Name: "b", Role: status.RoleReplica, StateFormat: cluster.StateFormat, StateVersion: new(uint64), MySQLRouter: addr}); err != nil {
			t.Fatal(err)
		}
	}
	n.board.PeerUp(2, true)
	hear("")
	for _, args := range []string{`{"mysql_router": true}`, `{"mysql_router": true, "dry_run": true}`} {
		n.board.Update(func(own *status.Node) { own.MySQLRouter, own.Reachable = "", true })
		if _, err := s.all["cluster.set"].Run(context.Background(), control.Request{Args: json.RawMessage(args)}); err == nil || !strings.Contains(err.Error(), "mysqld of node a is on loopback alone") {
			t.Errorf("%s: %v", args, err)
		}
		n.board.Update(func(own *status.Node) { own.MySQLRouter = "10.0.0.1:3306" })
		if _, err := s.all["cluster.set"].Run(context.Background(), control.Request{Args: json.RawMessage(args)}); err == nil || !strings.Contains(err.Error(), "mysqld of node b is on loopback alone") {
			t.Errorf("%s: %v", args, err)
		}
	}
	hear("10.0.0.2:3306")
	if err := s.routable(); err != nil {
		t.Error(err)
	}
	n.board.PeerUp(2, false) // a node that is away is looked at when it is back
	hear("")
	if err := s.routable(); err != nil {
		t.Error(err)
	}
}
