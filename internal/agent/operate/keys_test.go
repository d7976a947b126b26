package operate

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
)

// TestStepsOfPeerSecurity: a step waits until all nodes can take it, and takes the keys that they show.
func TestStepsOfPeerSecurity(t *testing.T) {
	s, n := serve(t)
	keyA, keyB := cluster.KeyOf([]byte("a")), cluster.KeyOf([]byte("b"))
	n.board.Update(func(own *status.Node) { own.Key = keyA })
	hear := func(b status.Node) {
		t.Helper()
		b.ID, b.Name, b.Role = 2, "b", status.RoleReplica
		if err := n.board.Received(2, b); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(to cluster.PeerSecurity, why string) {
		t.Helper()
		if _, _, err := s.keysFor(to); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", to, err, why)
		}
	}
	refused(cluster.PeersBoth, "node b is away")
	n.board.PeerUp(2, true)
	hear(status.Node{PlainPeers: []string{"a"}})
	refused(cluster.PeersBoth, "node b has no key")
	hear(status.Node{Key: keyB, PlainPeers: []string{"a"}})
	if lacking, notes, err := s.keysFor(cluster.PeersRequire); lacking != nil || notes != nil || err != nil {
		t.Errorf("not the next step: %v, %v, %v", lacking, notes, err)
	}
	lacking, notes, err := s.keysFor(cluster.PeersBoth)
	if err != nil || len(lacking) != 2 || *lacking[0].Key != keyA || *lacking[1].Key != keyB || len(notes) != 3 || !strings.Contains(notes[1], string(keyB)) {
		t.Fatalf("%v, %v, %v", lacking, notes, err)
	}
	state := n.board.State()
	state.Members[0].Key, state.Members[1].Key, state.PeerSecurity = keyA, keyB, cluster.PeersBoth
	n.board.SetState(state)
	refused(cluster.PeersRequire, "node b has connections without TLS, to a")
	hear(status.Node{Key: keyB})
	if lacking, notes, err = s.keysFor(cluster.PeersRequire); err != nil || len(lacking) > 0 || len(notes) != 3 {
		t.Errorf("%v, %v, %v", lacking, notes, err)
	}
}

// TestWhoChangesKeys: a member's agent changes its own key, an operator on the leader's host the key of any node.
// Nobody else can: a stolen key of one member does not make its thief another member.
func TestWhoChangesKeys(t *testing.T) {
	s, _ := serve(t) // node a
	key := cluster.KeyOf([]byte("k"))
	for _, c := range []struct {
		from, name    string
		key, next     *cluster.Key
		refused, what string
	}{
		{"b", "b", nil, &key, "", "b rotates"},
		{"b", "b", &key, new(cluster.Key), "", "b has rotated"},
		{"", "a", nil, &key, "", "the leader rotates"},
		{"", "b", &key, new(cluster.Key), "", "an operator, on the leader's host"},
		{"", "b", nil, &key, "is made on its own host", "a next key that b does not have"},
		{"b", "c", nil, &key, "are not taken from node b", "a key beside another's"},
		{"b", "c", &key, new(cluster.Key), "are not taken from node b", "a key in place of another's"},
		{"b", "a", nil, &key, "on the host of node a, which leads", "a key beside the leader's"},
	} {
		err := s.keysFrom(c.from, cluster.KeysChange{Name: c.name, Key: c.key, NextKey: c.next})
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", c.what, err, c.refused)
		}
	}
}

// TestKeyOfAuthority: a key that an authority has issued is refused while a node knows no authority.
func TestKeyOfAuthority(t *testing.T) {
	s, n := serve(t)
	n.board.PeerUp(2, true)
	ask := func(b status.Node, args string) string {
		t.Helper()
		b.ID, b.Name, b.Role = 2, "b", status.RoleReplica
		if err := n.board.Received(2, b); err != nil {
			t.Fatal(err)
		}
		_, err := s.all["node.key"].Run(t.Context(), control.Request{Name: "node.key", Args: []byte(args)})
		if err == nil {
			t.Fatalf("%s is done without a group", args)
		}
		return err.Error()
	}
	const next = `{"name":"a","next_key":"ca:quorate://orders/a"`
	n.board.Update(func(own *status.Node) { own.PeerAuthority = true })
	if said := ask(status.Node{}, next+"}"); !strings.Contains(said, "no authority is known to node b") {
		t.Errorf("b knows none: %s", said)
	}
	for _, said := range []string{ask(status.Node{PeerAuthority: true}, next+"}"), ask(status.Node{}, next+`,"force":true}`), ask(status.Node{}, `{"name":"a","next_key":"q1:x"}`)} {
		if strings.Contains(said, "authority") {
			t.Error(said)
		}
	}
}
