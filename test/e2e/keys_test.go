package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/raft/nodekey/nodekeytest"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestKeys: a cluster that began without keys gets them; they are changed, lost, and taken away.
func TestKeys(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, PlainPeers: true})
	f.scenario(t, "ChangeOver", f.changeOver)
	f.scenario(t, "Rotate", f.rotate)
	f.scenario(t, "Lost", f.keyLost)
	f.scenario(t, "TakenAway", f.keyTakenAway)
	f.scenario(t, "TakenAwayWhileAway", f.takenAwayWhileAway)
	f.scenario(t, "LostDisk", f.keysOfBefore)
	f.scenario(t, "Swapped", f.keysSwapped)
	f.scenario(t, "Authority", f.keysOfAuthority)
}

func (f *fixture) keyFile(i int) string {
	return filepath.Join(filepath.Dir(f.ConfigPath(i)), "node.key")
}

// shownKey is the key that a node's file holds.
func (f *fixture) keyOf(t *testing.T, i int) cluster.Key {
	t.Helper()
	k, err := nodekey.Load(f.keyFile(i))
	if err != nil {
		t.Fatal(err)
	}
	return k.Name()
}

// awaitSecurity waits until a step of peer-security is accepted: it is refused while there are connections
// that are not ready for it.
func (f *fixture) awaitSecurity(t *testing.T, ctx context.Context, i int, step string) (out string) {
	t.Helper()
	if err := devcluster.PollCommand(ctx, "peer-security "+step, func(ctx context.Context) (bool, string, error) {
		var err error
		out, err = f.quorate(t, ctx, i, "cluster", "set", "--peer-security", step)
		return err == nil, out, nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// changeOver: from plain connections to required TLS, while clients write and a primary dies.
func (f *fixture) changeOver(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	asked, away := (primary+1)%3, (primary+2)%3
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	if out := f.must(t, ctx, asked, "status"); !strings.Contains(out, "not protected: quorate cluster set --peer-security both") {
		t.Errorf("status: %s", out)
	}
	f.refused(t, ctx, asked, []int{2}, "must be both first", "cluster", "set", "--peer-security", "require")
	if err := f.Terminate(ctx, away); err != nil {
		t.Fatal(err)
	}
	f.refused(t, ctx, asked, []int{1}, "is away", "cluster", "set", "--peer-security", "both")
	f.heal(t, ctx)
	dry := f.must(t, ctx, asked, "cluster", "set", "--peer-security", "both", "--dry-run")
	done := f.awaitSecurity(t, ctx, asked, "both")
	for i := range f.Len() {
		for _, out := range []string{dry, done} {
			if want := string(f.keyOf(t, i)); !strings.Contains(out, want) {
				t.Errorf("%q is not in %s", want, out)
			}
		}
	}
	load.awaitAcks(t, ctx, 50)
	if err := f.KillBoth(f.heal(t, ctx)); err != nil {
		t.Fatal(err)
	}
	primary = f.heal(t, ctx)
	f.awaitSecurity(t, ctx, primary, "require")
	f.refused(t, ctx, asked, []int{2}, "cannot go back", "cluster", "set", "--peer-security", "both")
	load.awaitAcks(t, ctx, 50)
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	for i := range f.Len() {
		st, err := f.Status(ctx, i)
		if err != nil {
			t.Fatal(err)
		}
		if st.PeerSecurity != cluster.PeersRequire || len(f.status(t, ctx, i).PlainPeers) > 0 {
			t.Errorf("node %s: %q, plain to %v", f.Name(i), st.PeerSecurity, f.status(t, ctx, i).PlainPeers)
		}
	}
	f.check(t, ctx)
}

// rotate: a key is changed while clients write, and one node is away for a part of it.
func (f *fixture) rotate(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i, away := (primary+1)%3, (primary+2)%3
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	before := f.keyOf(t, i)
	if err := f.Terminate(ctx, away); err != nil {
		t.Fatal(err)
	}
	if out, err := f.quorate(t, ctx, i, "key", "rotate", "--wait", "3s"); exitCode(err) != 1 || !strings.Contains(out, "to learn the new key: "+f.Name(away)) {
		t.Errorf("while %s is away: %v, %s", f.Name(away), err, out)
	}
	if err := f.KillBoth(i); err != nil { // in the middle of it
		t.Fatal(err)
	}
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitNode(ctx, i, "it shows the key that node "+f.Name(away)+" knows", func(n status.Node) bool { return n.Key == before }); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	session, err := openDSN(t, f.DSN(i), nil).Conn(ctx) // through the node whose key is changed
	if err != nil {
		t.Fatal(err)
	}
	out := f.must(t, ctx, i, "key", "rotate", "--json")
	var shown struct{ Key cluster.Key }
	if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.Key == before || shown.Key != f.keyOf(t, i) {
		t.Errorf("%v, %s; the file holds %s", err, out, f.keyOf(t, i))
	}
	f.knownBy(t, ctx, i, shown.Key) // it is done when the command says so
	for n := range f.Len() {        // it was the only change: the old key is good for nothing
		f.awaitAudit(t, ctx, n, "node "+f.Name(i)+": key "+string(shown.Key)+", no next key")
	}
	load.awaitAcks(t, ctx, 50)
	if _, err := session.ExecContext(ctx, "DO 0"); err != nil {
		t.Errorf("a session through node %s: %v", f.Name(i), err)
	}
	if err := f.KillBoth(i); err != nil {
		t.Fatal(err)
	}
	primary = f.heal(t, ctx)
	load.awaitAcks(t, ctx, 50)
	f.must(t, ctx, primary, "key", "rotate")
	f.knownBy(t, ctx, primary, f.keyOf(t, primary))
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
}

// knownBy fails the test unless a node's status says that the cluster knows it only by that key.
func (f *fixture) knownBy(t *testing.T, ctx context.Context, i int, k cluster.Key) {
	t.Helper()
	if n := f.status(t, ctx, i); n.Key != k || !slices.Equal(n.KnownBy, []cluster.Key{k}) {
		t.Errorf("node %s shows %s and is known by %v, want %s", f.Name(i), n.Key, n.KnownBy, k)
	}
}

// keyLost: a node that has lost its key makes another one, and is a member again once an operator gives the new key
// to the cluster.
func (f *fixture) keyLost(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	load := f.start(t, 4)
	if err := f.Terminate(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.keyFile(i)); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	f.awaitReason(t, ctx, i, "the cluster knows this node by the key")
	load.awaitAcks(t, ctx, 50)
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--key", string(f.keyOf(t, i)))
	f.heal(t, ctx)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
}

// keyTakenAway: a key that somebody else may have is made useless.
func (f *fixture) keyTakenAway(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	k, err := nodekey.New()
	if err != nil {
		t.Fatal(err)
	}
	f.refused(t, ctx, primary, []int{1}, "with another key it is cut off", "node", "set", f.Name(i), "--key", string(k.Name()))
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--key", string(k.Name()), "--force")
	if err := f.WaitNode(ctx, i, "it hears of nobody", func(n status.Node) bool { return n.Leader == 0 }); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	if err := f.Terminate(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.keyFile(i)); err != nil {
		t.Fatal(err)
	}
	if err := k.Save(f.keyFile(i), nil); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
}

// takenAwayWhileAway: a node comes back with a key that was made useless meanwhile, and is refused.
func (f *fixture) takenAwayWhileAway(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	load := f.start(t, 4)
	k, err := nodekey.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Terminate(ctx, i); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--key", string(k.Name()), "--force")
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	f.awaitReason(t, ctx, i, "the node does not know this node's key")
	load.awaitAcks(t, ctx, 50)
	if n := f.status(t, ctx, i); n.Leader != 0 {
		t.Errorf("it hears of leader %d", n.Leader)
	}
	if err := errors.Join(f.Terminate(ctx, i), os.Remove(f.keyFile(i)), k.Save(f.keyFile(i), nil)); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
}

// keysOfBefore: a node loses its disk. Its file has a member's old key from before a change, or no keys. The members
// whose keys it has accept it again.
func (f *fixture) keysOfBefore(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i, other := (primary+1)%3, (primary+2)%3
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	f.awaitReason(t, ctx, i, "node.toml lacks keys that the cluster has")
	aside := f.DataDir(i) + ".aside" // its disk is not mounted for a while
	if err := errors.Join(f.Terminate(ctx, i), os.Rename(f.DataDir(i), aside), f.Start(ctx, i)); err != nil {
		t.Fatal(err)
	}
	f.awaitReason(t, ctx, i, "if it requires TLS, write the key of each node into node.toml")
	without, err := os.ReadFile(f.ConfigPath(i))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.WriteFile(f.ConfigPath(i), without, 0o644) }()
	text := without
	for n := range f.Len() {
		name := fmt.Sprintf("[[member]]\nname = %q\n", f.Name(n))
		text = bytes.Replace(text, []byte(name), fmt.Appendf(nil, "%skey = %q\n", name, f.keyOf(t, n)), 1)
	}
	if err := errors.Join(f.Terminate(ctx, i), os.WriteFile(f.ConfigPath(i), text, 0o644), os.RemoveAll(f.DataDir(i)), os.Rename(aside, f.DataDir(i))); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	f.must(t, ctx, other, "key", "rotate")
	f.awaitReason(t, ctx, i, "of node "+f.Name(other)+", key = ")
	if err := errors.Join(f.Terminate(ctx, i), os.RemoveAll(f.DataDir(i)), f.Start(ctx, i)); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
}

// keysSwapped: two nodes with each other's key are refused, and nothing is lost by it.
func (f *fixture) keysSwapped(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	one, two := (primary+1)%3, (primary+2)%3
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	swap := func() {
		for _, i := range []int{one, two} {
			if err := f.Terminate(ctx, i); err != nil {
				t.Fatal(err)
			}
		}
		for _, names := range [][2]string{{f.keyFile(one), "x"}, {f.keyFile(two), f.keyFile(one)}, {"x", f.keyFile(two)}} {
			for i := range names {
				if names[i] == "x" {
					names[i] = f.keyFile(one) + ".x"
				}
			}
			if err := os.Rename(names[0], names[1]); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range []int{one, two} {
			if err := f.Start(ctx, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	swap()
	for _, i := range []int{one, two} {
		f.awaitReason(t, ctx, i, "the cluster knows this node by the key")
	}
	acks := load.Stats().Acknowledged
	time.Sleep(time.Second) // long enough for many a commit, if one could be
	if now := load.Stats().Acknowledged; now != acks {
		t.Errorf("%d rows were acknowledged by nodes that do not know each other", now-acks)
	}
	swap()
	f.heal(t, ctx)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
}

// keysOfAuthority: the nodes change to an operator's authority, whose certificates end and are issued again,
// while clients write.
func (f *fixture) keysOfAuthority(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	dir := t.TempDir()
	ca := nodekeytest.NewAuthority(t, filepath.Join(dir, "ca.pem"))
	cert := func(i int) string { return filepath.Join(dir, f.Name(i)+".pem") }
	issue := func(i int, ends time.Duration) {
		ca.Issue(t, cert(i), filepath.Join(dir, f.Name(i)+"-key.pem"), time.Now().Add(ends), "quorate://dev/"+f.Name(i))
	}
	load := f.start(t, 4)
	for n, i := range append(f.others(primary), primary) {
		if n == 1 {
			first := f.others(primary)[0]
			f.refused(t, ctx, first, []int{1}, "no authority is known to node", "key", "rotate")
		}
		issue(i, time.Hour)
		text, err := os.ReadFile(f.ConfigPath(i))
		if err != nil {
			t.Fatal(err)
		}
		text = fmt.Appendf(text, "\n[peer_tls]\nca_file = %q\ncertificate_file = %q\nkey_file = %q\n", ca.File, cert(i), filepath.Join(dir, f.Name(i)+"-key.pem"))
		if err := os.WriteFile(f.ConfigPath(i), text, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := f.Terminate(ctx, i); err != nil {
			t.Fatal(err)
		}
		f.heal(t, ctx)
	}
	for i := range f.Len() {
		if out, want := f.must(t, ctx, i, "key", "rotate"), "ca:quorate://dev/"+f.Name(i); !strings.Contains(out, want) {
			t.Errorf("%s, want %s", out, want)
		}
	}
	load.awaitAcks(t, ctx, 50)
	f.awaitReason(t, ctx, primary, "connections still work; renew it") // it ends within 30 days
	for i := range f.Len() {
		issue(i, -time.Hour)
	}
	primary = f.heal(t, ctx)
	if err := f.KillBoth(primary); err != nil { // all connections are made again, with certificates that have ended
		t.Fatal(err)
	}
	f.heal(t, ctx)
	load.awaitAcks(t, ctx, 50)
	for i := range f.Len() { // and back
		f.must(t, ctx, i, "key", "rotate", "--own")
		f.knownBy(t, ctx, i, f.keyOf(t, i))
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
}
