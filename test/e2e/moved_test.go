package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// voterMoves: the host of a node with a vote gets another address while clients write. The four voters of this
// cluster are never less than three.
func (f *fixture) voterMoves(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	others := f.others(primary)
	mover, idle := others[0], others[1]
	name, old := f.Name(mover), f.PeerAddr(mover)
	_, port, err := net.SplitHostPort(old)
	if err != nil {
		t.Fatal(err)
	}
	to, nobody := net.JoinHostPort("127.9.9.7", port), net.JoinHostPort("127.9.9.8", port)
	l := f.start(t, 2)
	l.awaitAcks(t, ctx, 10)
	set := func(peer string, more ...string) []string {
		return append([]string{"node", "set", name, "--peer", peer}, more...)
	}
	f.refused(t, ctx, primary, []int{1}, name+" does not answer at "+to, set(to)...)
	f.refused(t, ctx, primary, []int{1}, name+" does not answer at "+f.PeerAddr(idle), set(f.PeerAddr(idle))...)
	f.refused(t, ctx, primary, []int{1}, f.Name(primary)+" leads", "node", "set", f.Name(primary), "--peer", to)
	if err := f.Terminate(ctx, idle); err != nil {
		t.Fatal(err)
	}
	f.refused(t, ctx, primary, []int{1}, name+" moves: "+f.Name(idle), set(to)...)
	if err := f.Start(ctx, idle); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	f.readdress(t, ctx, mover, old, to)
	f.awaitStatus(t, ctx, primary, "listens on "+to+": \"quorate "+strings.Join(set(to), " "))
	f.must(t, ctx, primary, set(to, "--dry-run")...)
	f.must(t, ctx, primary, set(to)...)
	f.awaitReached(t, ctx, mover)
	f.must(t, ctx, primary, set(nobody, "--force")...) // a wrong address harms only this node
	l.awaitAcks(t, ctx, 10)
	f.awaitStatus(t, ctx, primary, "listens on "+to)
	f.must(t, ctx, primary, set(to)...)
	f.awaitReached(t, ctx, mover)
	f.readdress(t, ctx, mover, to, old)
	f.awaitStatus(t, ctx, primary, "listens on "+old)
	f.must(t, ctx, primary, set(old)...)
	f.awaitReached(t, ctx, mover)
	l.awaitAcks(t, ctx, 10)
	l.stop(t)
	f.check(t, ctx)
}

// readdress lets node i listen for the others at another address.
func (f *fixture) readdress(t *testing.T, ctx context.Context, i int, from, to string) {
	t.Helper()
	text, err := os.ReadFile(f.ConfigPath(i))
	if err != nil {
		t.Fatal(err)
	}
	moved := bytes.ReplaceAll(text, fmt.Appendf(nil, "%q", from), fmt.Appendf(nil, "%q", to))
	if bytes.Equal(moved, text) {
		t.Fatalf("%s is not in %s", from, text)
	}
	if err := errors.Join(f.Terminate(ctx, i), os.WriteFile(f.ConfigPath(i), moved, 0o644), f.Start(ctx, i)); err != nil {
		t.Fatal(err)
	}
}

// awaitStatus waits until the status that node i shows has a text.
func (f *fixture) awaitStatus(t *testing.T, ctx context.Context, i int, want string) {
	t.Helper()
	if err := devcluster.PollCommand(ctx, "status shows "+want, func(ctx context.Context) (bool, string, error) {
		out, _ := f.quorate(t, ctx, i, "status")
		return strings.Contains(out, want), out, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitReached waits until node i is a replica that all hear of.
func (f *fixture) awaitReached(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	for via := range f.Len() {
		if err := devcluster.PollCommand(ctx, f.Name(via)+" hears of "+f.Name(i), func(ctx context.Context) (bool, string, error) {
			out, _ := f.quorate(t, ctx, via, "status", "--json")
			var st status.Cluster
			if err := json.Unmarshal([]byte(out), &st); err != nil {
				return false, out, nil
			}
			return slices.ContainsFunc(st.Nodes, func(n status.Node) bool {
				return n.Name == f.Name(i) && n.Reachable && n.Role == status.RoleReplica
			}), out, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
