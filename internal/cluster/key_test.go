package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// TestKey: which texts name a key, and which do not.
func TestKey(t *testing.T) {
	good := KeyOf([]byte("a public key"))
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	if KeyOf([]byte("another")) == good {
		t.Error("two keys have one name")
	}
	text := string(good)
	last := "A"
	if strings.HasSuffix(text, last) {
		last = "E"
	}
	for _, bad := range []Key{"", "q1:", Key(text[3:]), "q2" + Key(text[2:]), Key(text + "A"), Key(text[:len(text)-1]), Key(text[:10] + "=" + text[11:]), Key(text[:len(text)-1] + "\n")} {
		if bad.Check() == nil {
			t.Errorf("%q names a key", bad)
		}
	}
}

// keyedState returns a state of the nodes a, b and c. The nodes in names have a key.
func keyedState(names string) State {
	var members []Member
	for i, name := range []string{"a", "b", "c"} {
		m := Member{ID: NodeID(i + 1), Name: name, Peer: name + ":7400", Kind: KindFull, Weight: WeightDefault}
		if strings.Contains(names, name) {
			m.Key = KeyOf([]byte(name))
		}
		members = append(members, m)
	}
	return NewState(members)
}

func security(s PeerSecurity) Change {
	return Change{ID: "1", Settings: &SettingsChange{PeerSecurity: &s}}
}

// TestPeerSecurity: the security rises one step at a time, once all keys are known, and never goes back.
func TestPeerSecurity(t *testing.T) {
	if s := keyedState("abc"); s.PeerSecurity != PeersRequire || s.Format() != 3 {
		t.Errorf("all have keys at the beginning: %q, format %d", s.PeerSecurity, s.Format())
	}
	plain := keyedState("ab")
	if plain.PeerSecurity != PeersPlain {
		t.Errorf("c has no key: %q", plain.PeerSecurity)
	}
	if _, err := plain.With(security(PeersBoth)); err == nil || !strings.Contains(err.Error(), "node c") {
		t.Errorf("c has no key: %v", err)
	}
	key := KeyOf([]byte("c"))
	s, err := plain.With(Change{ID: "1", Keys: &KeysChange{Name: "c", Key: &key}})
	if err != nil || s.PeerSecurity != PeersPlain {
		t.Fatalf("%q, %v", s.PeerSecurity, err)
	}
	if _, err := s.With(security(PeersRequire)); err == nil {
		t.Error("a step is left out")
	}
	for _, step := range []PeerSecurity{PeersBoth, PeersRequire} {
		if s, err = s.With(security(step)); err != nil || s.PeerSecurity != step {
			t.Fatalf("%s: %q, %v", step, s.PeerSecurity, err)
		}
	}
	for _, step := range []PeerSecurity{PeersPlain, PeersBoth, "tls"} {
		if _, err := s.With(security(step)); err == nil {
			t.Errorf("from require to %q", step)
		}
	}
}

// TestKeysChange: a key is replaced by way of a second key, and no node may get the key of another one.
func TestKeysChange(t *testing.T) {
	s := keyedState("abc")
	change := func(c KeysChange) Change { return Change{ID: "1", Keys: &c} }
	next, none, b, bad := KeyOf([]byte("next")), Key(""), KeyOf([]byte("b")), Key("q1:x")
	for _, c := range []KeysChange{{Name: "a", NextKey: &b}, {Name: "a", Key: &b}, {Name: "a", Key: &none}, {Name: "a", NextKey: &bad}, {Name: "x", Key: &next}} {
		if _, err := s.With(change(c)); err == nil {
			t.Errorf("%s", c)
		}
	}
	s, err := s.With(change(KeysChange{Name: "a", NextKey: &next}))
	if err != nil || !s.Members[0].Has(next) || !s.Members[0].Has(KeyOf([]byte("a"))) {
		t.Fatalf("%+v, %v", s.Members[0], err)
	}
	if _, err := s.With(change(KeysChange{Name: "b", Key: &next})); err == nil {
		t.Error("two nodes have one key")
	}
	s, err = s.With(change(KeysChange{Name: "a", Key: &next, NextKey: &none}))
	if err != nil || !s.Members[0].Has(next) || s.Members[0].Has(KeyOf([]byte("a"))) || s.Members[0].Has("") {
		t.Fatalf("%+v, %v", s.Members[0], err)
	}
}

// TestKeysOfMembers: a node that is added needs a key if the connections need one. The key of a removed node is
// kept.
func TestKeysOfMembers(t *testing.T) {
	s := keyedState("abc")
	member := func(c MembershipChange) Change { return Change{ID: "1", Membership: &c} }
	add := MembershipChange{Op: OpAdd, Name: "d", ID: 9, Peer: "d:7400"}
	if _, err := s.With(member(add)); err == nil || !strings.Contains(err.Error(), "key show") {
		t.Errorf("without a key: %v", err)
	}
	add.Key = KeyOf([]byte("d"))
	before, err := s.With(member(add))
	if err != nil {
		t.Fatal(err)
	}
	s, err = before.With(member(MembershipChange{Op: OpRemove, Name: "d"}))
	if err != nil || s.RemovedKeys[9] != add.Key || before.RemovedKeys != nil {
		t.Fatalf("%v, %v", s.RemovedKeys, err)
	}
	left := before.Clone()
	left.Recovered = &Recovery{Without: left.Members[3:]}
	left.Members = left.Members[:3]
	if left, err = left.With(member(MembershipChange{Op: OpRemove, Name: "d"})); err != nil || left.RemovedKeys[9] != add.Key {
		t.Errorf("a node that a recovery left behind: %v, %v", left.RemovedKeys, err)
	}
	add.Name, add.ID, add.Peer = "e", 10, "e:7400"
	if _, err := s.With(member(add)); err == nil {
		t.Error("the key of a removed node is used again")
	}
}

// TestRemovedKeysAreBounded: after the removal of many nodes with keys a node can still be added, and each of the removed
// ones comes back no more, also if its key is not kept any longer.
func TestRemovedKeysAreBounded(t *testing.T) {
	const removed = 2000
	s := keyedState("abc")
	change := func(c MembershipChange) (err error) {
		var next State
		if next, err = s.With(Change{ID: "1", Membership: &c}); err == nil {
			s = next
		}
		return err
	}
	id := func(i int) NodeID { return NodeID(1<<63) + NodeID(i) } // as long as most ids
	node := func(i int) MembershipChange {
		name := fmt.Sprintf("node%d", i)
		return MembershipChange{Op: OpAdd, Name: name, ID: id(i), Peer: name + ":7400", Key: KeyOf([]byte(name))}
	}
	for i := range removed {
		if err := change(node(i)); err != nil {
			t.Fatal(err)
		}
		s.Members[3].NextKey = "" // no change of its key is under way
		if i >= removed-10 {
			s.Members[3].NextKey = KeyOf([]byte{byte(i)})
		}
		if err := change(MembershipChange{Op: OpRemove, Name: s.Members[3].Name}); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Bytes(); n > StateBytesMax || len(s.Removed) != removed {
		t.Errorf("the state has %d bytes, and knows of %d removed nodes", n, len(s.Removed))
	}
	for _, i := range []int{0, removed - 257, removed - 256, removed - 1} {
		if _, kept := s.RemovedKeys[id(i)]; kept != (i >= removed-256) {
			t.Errorf("the key of removed node %d: kept %t", i, kept)
		}
		if err := change(node(i)); err == nil {
			t.Errorf("removed node %d comes back", i)
		}
	}
	if len(s.RemovedKeys) != 256 || len(s.RemovedNextKeys) != 10 {
		t.Errorf("%d and %d keys are kept", len(s.RemovedKeys), len(s.RemovedNextKeys))
	}
}

// TestRemovedDuringRotation: a node that is removed while its key changes may show either key.
func TestRemovedDuringRotation(t *testing.T) {
	next := KeyOf([]byte("next"))
	s, err := keyedState("abc").With(Change{ID: "1", Keys: &KeysChange{Name: "c", NextKey: &next}})
	if err != nil {
		t.Fatal(err)
	}
	s, err = s.With(Change{ID: "2", Membership: &MembershipChange{Op: OpRemove, Name: "c"}})
	if err != nil || s.RemovedKeys[3] != KeyOf([]byte("c")) || s.RemovedNextKeys[3] != next {
		t.Fatalf("%v, %v, %v", s.RemovedKeys, s.RemovedNextKeys, err)
	}
	if _, err := s.With(Change{ID: "3", Membership: &MembershipChange{Op: OpAdd, Name: "e", ID: 10, Peer: "e:7400", Key: next}}); err == nil {
		t.Error("the next key of a removed node is used again")
	}
}

// TestTakenBackWithKey: a node that a recovery left behind comes back with a key that no other node has.
func TestTakenBackWithKey(t *testing.T) {
	rebuild := Change{ID: "1", Membership: &MembershipChange{Op: OpRebuild, Name: "c", Instance: "x"}}
	left := func(names string) State {
		s := keyedState(names)
		s.PeerSecurity = PeersRequire
		s.Recovered = &Recovery{Without: s.Clone().Members[2:]}
		s.Members = s.Members[:2]
		return s
	}
	if s, err := left("abc").With(rebuild); err != nil || s.Members[2].Key != KeyOf([]byte("c")) {
		t.Errorf("%+v, %v", s.Members, err)
	}
	if _, err := left("ab").With(rebuild); err == nil || !strings.Contains(err.Error(), "quorate node remove c") {
		t.Errorf("it has no key: %v", err)
	}
	taken := left("abc")
	taken.Members[1].Key = KeyOf([]byte("c"))
	if _, err := taken.With(rebuild); err == nil || !strings.Contains(err.Error(), "node b") {
		t.Errorf("b has its key: %v", err)
	}
}
