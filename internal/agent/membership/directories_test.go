package membership

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/transport"
)

// memStore keeps what is written, or fails.
type memStore struct {
	pins, met Known
	err       error
	writes    int    // of met
	during    func() // is called while something is written
}

func (s *memStore) WritePins(k Known) error {
	if s.during != nil {
		s.during()
	}
	if s.err == nil {
		s.pins = maps.Clone(k)
	}
	return s.err
}

func (s *memStore) WriteMet(k Known) error {
	if s.during != nil {
		s.during()
	}
	if s.err == nil {
		s.met = maps.Clone(k)
		s.writes++
	}
	return s.err
}

// rejection is what a node is told that is refused with a reason for its agent.
func rejection(t *testing.T, d *Directories, id transport.Identity) *transport.RejectedError {
	t.Helper()
	r, ok := errors.AsType[*transport.RejectedError](d.Check(id))
	if !ok {
		t.Fatalf("%s is not rejected", id.NodeName)
	}
	return r
}

// answers is what nodes with these data directories are told. If that is to begin again, it has the instance, by state
// 7.
func answers(t *testing.T, d *Directories, asking []transport.Identity, instance string) (codes []transport.Code) {
	for _, id := range asking {
		err := d.Check(id)
		r, ok := errors.AsType[*transport.RejectedError](err)
		switch {
		case err == nil:
			codes = append(codes, 0)
			continue
		case !ok:
			codes = append(codes, transport.CodePeer)
			continue
		}
		codes = append(codes, r.Code)
		if o := r.Order; r.Code == transport.CodeRebuild && (o.Instance != instance || o.StateVersion != 7) {
			t.Errorf("%q orders %+v", r.Text, o)
		}
	}
	return codes
}

// TestRebuiltPeer: once a node's vote is gone, its old data directory is refused, and the answer names the new
// instance. That instance goes to one directory: once it was met, no other directory gets it, even after a restart.
func TestRebuiltPeer(t *testing.T) {
	old, next := transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{1}}, transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{2}}
	empty, other := transport.Identity{Node: 2, NodeName: "b"}, transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{3}}
	const instance = "02000000000000000000000000000000"
	running, kept := false, true
	store := &memStore{}
	start := func() *Directories {
		d := New(Config{Self: 1, Name: "a", Store: store, Now: func() time.Duration { return 0 }, Lives: func(cluster.NodeID) bool { return running }})
		d.Load(store.pins, store.met)
		return d
	}
	d := start()
	meet := func() {
		if err := d.Check(next); err != nil {
			t.Errorf("its new data directory: %v", err)
		}
	}
	p := cluster.StatePoint{State: cluster.State{Version: 7, Members: []cluster.Member{{ID: 1, Kind: cluster.KindFull, Instance: "x"}, {ID: 2, Name: "b", Kind: cluster.KindLearner, Instance: instance}}}}
	const refused, rebuild, reseed = transport.CodePeer, transport.CodeRebuild, transport.CodeReseed
	var under *transport.RejectedError
	for _, step := range []struct {
		name   string
		change func()
		want   []transport.Code
	}{
		{"before", func() {}, []transport.Code{0, refused, refused}},
		{"while it is under way", func() { p.Outgoing = []cluster.NodeID{1, 2} }, []transport.Code{0, reseed, refused}},
		{"complete", func() { p.Outgoing = nil }, []transport.Code{rebuild, rebuild, rebuild}},
		{"told by a node without a vote", func() { p.State.Members[0].Kind = cluster.KindLearner }, []transport.Code{refused, rebuild, refused}},
		{"and by one that keeps no such state", func() { p.State.Members[0].Kind, kept = cluster.KindFull, false }, []transport.Code{refused, rebuild, refused}},
		{"that does", func() { kept = true }, []transport.Code{rebuild, rebuild, rebuild}},
		{"and with one", func() { p.State.Members[0].Kind = cluster.KindFull }, []transport.Code{rebuild, rebuild, rebuild}},
		{"it has begun again", meet, []transport.Code{refused, reseed, refused}},
		{"and after a restart", func() { d = start() }, []transport.Code{refused, reseed, refused}},
		{"rebuilt", func() { p.State.Members[1].Kind = cluster.KindFull }, []transport.Code{refused, reseed, refused}},
		{"and it runs", func() { running = true }, []transport.Code{refused, refused, refused}},
		{"as a learner for good", func() { p.State.Members[1].Kind = cluster.KindLearner }, []transport.Code{refused, refused, refused}},
		{"by operators alone", func() { running, p.State.Reseed = false, cluster.ReseedManual }, []transport.Code{refused, refused, refused}},
	} {
		step.change()
		if step.name != "before" {
			if err := d.Expect(p, kept); err != nil {
				t.Fatal(err)
			}
		}
		if step.name == "while it is under way" {
			under = rejection(t, d, empty)
		}
		if step.name == "complete" { // a node that has asked before, and asks again, begins from nothing
			if got := Weightiest([]*transport.RejectedError{under, rejection(t, d, empty)}); got.Code != rebuild {
				t.Errorf("a node that asked while it was under way goes by %v, then by %v", under, got)
			}
		}
		if diff := cmp.Diff(step.want, answers(t, d, []transport.Identity{old, empty, other}, instance)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	meet()
	if d.Pinned(2) != instance || d.Pinned(1) != "" {
		t.Errorf("it knows %v", store.pins)
	}
}

// TestNothingCountsThatIsNotDurable: what cannot be written does not count, and is not told to others. Only the word of
// another node counts at once: this node waits for the node that has begun again, and refuses its former directory.
func TestNothingCountsThatIsNotDurable(t *testing.T) {
	const instance = "02000000000000000000000000000000"
	store := &memStore{err: errors.New("no space")}
	d := New(Config{Self: 1, Name: "a", Store: store, Now: func() time.Duration { return 0 }, Lives: func(cluster.NodeID) bool { return false }})
	b := transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{1}}
	p := cluster.StatePoint{State: cluster.NewState([]cluster.Member{{ID: 1, Name: "a"}, {ID: 2, Kind: cluster.KindLearner, Instance: instance}})}
	for what, err := range map[string]error{"a pin": d.Check(b), "a state": d.Expect(p, true)} {
		if !errors.Is(err, store.err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(d.Met()) != 0 || d.Pinned(2) != "" {
		t.Errorf("it knows %v, %q", d.Met(), d.Pinned(2))
	}
	store.err = nil
	if err := d.Expect(p, true); err != nil {
		t.Fatal(err)
	}
	if r := rejection(t, d, b); r.Code != transport.CodeRebuild {
		t.Errorf("b has not begun again, and hears: %v", r)
	}
	store.err = errors.New("no space")
	d.Hear(Known{2: instance})
	if r := rejection(t, d, b); !errors.Is(d.Note(), store.err) || d.Met()[2] != instance || r.Code != transport.CodePeer || len(d.Joined()) != 0 {
		t.Errorf("heard, and not written: it knows %v, tells others %v, and b's former directory hears: %v", d.Met(), d.Joined(), r)
	}
	store.err = nil
	if err := d.Note(); err != nil || store.met[2] != instance || d.Joined()[2] != instance {
		t.Errorf("it writes %v (%v), and tells others %v", store.met, err, d.Joined())
	}
}

// TestSlowDiskHoldsUpNobody: while a directory is written down, which may take seconds, this node takes the word of
// others, says what it knows, and lets in or refuses nodes of which there is nothing to be written. A second write waits
// for the first.
func TestSlowDiskHoldsUpNobody(t *testing.T) {
	store := &memStore{}
	d := New(Config{Self: 1, Name: "a", Store: store, Now: func() time.Duration { return 0 }, Lives: func(cluster.NodeID) bool { return false }})
	peer := func(id cluster.NodeID, directory byte) transport.Identity {
		return transport.Identity{Node: id, NodeName: "x", Instance: [16]byte{directory}}
	}
	const two, three, four = "02000000000000000000000000000000", "03000000000000000000000000000000", "04000000000000000000000000000000"
	d.Load(Known{2: two}, Known{2: two})
	p := cluster.StatePoint{State: cluster.NewState([]cluster.Member{{ID: 1, Name: "a"}, {ID: 2}, {ID: 3}, {ID: 4, Kind: cluster.KindLearner, Instance: four}})}
	if err := d.Expect(p, true); err != nil {
		t.Fatal(err)
	}
	writes, goOn := make(chan struct{}), make(chan struct{})
	store.during = func() { writes <- struct{}{}; <-goOn }
	first, second := make(chan error), make(chan error)
	go func() { first <- d.Check(peer(3, 3)) }()
	<-writes
	did := make(chan struct{})
	go func() {
		defer close(did)
		d.Hear(Known{2: two})
		d.Hear(Known{4: four})
		if want := (Known{2: two, 4: four}); !maps.Equal(d.Met(), want) || len(d.Joined()) != 0 || len(d.Empty()) != 0 || len(d.Pins()) != 2 || d.Pinned(3) != "" {
			t.Errorf("it has heard of %v, want %v; tells others %v; pins %v", d.Met(), want, d.Joined(), d.Pins())
		}
		if err := errors.Join(d.Check(peer(2, 2)), d.Compare(peer(2, 2))); err != nil {
			t.Errorf("a known node: %v", err)
		}
		if d.Check(peer(2, 9)) == nil {
			t.Error("another directory is let in")
		}
	}()
	select {
	case <-did:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the disk")
	}
	go func() { second <- d.Check(peer(3, 9)) }()
	select {
	case err := <-second:
		t.Fatalf("another directory of the node that is written down just now: %v", err)
	case goOn <- struct{}{}: // the pin
	}
	<-writes
	goOn <- struct{}{} // met
	if err := <-first; err != nil {
		t.Errorf("the first: %v", err)
	}
	if <-second == nil {
		t.Error("two directories of one node are let in")
	}
	if want := (Known{2: two, 3: three, 4: four}); !maps.Equal(store.met, want) || !maps.Equal(d.Joined(), Known{4: four}) || d.Pinned(3) != three {
		t.Errorf("it has written %v, want %v; tells others %v", store.met, want, d.Joined())
	}
}

// TestEmpty: the leader has a node rebuilt that came a moment ago with an empty directory; not a node that came long
// ago, or that has begun again since.
func TestEmpty(t *testing.T) {
	now := time.Second
	d := New(Config{Self: 1, Name: "a", Store: &memStore{}, Now: func() time.Duration { return now }, Lives: func(cluster.NodeID) bool { return false }})
	d.Load(Known{2: "01"}, Known{2: "01"})
	if err := d.Expect(cluster.StatePoint{}, true); err != nil {
		t.Fatal(err)
	}
	if got := d.Empty(); len(got) > 0 {
		t.Error("it has not come")
	}
	if r := rejection(t, d, transport.Identity{Node: 2, NodeName: "b"}); r.Code != transport.CodeReseed {
		t.Errorf("it hears %v", r)
	}
	now += emptyAskedFor - 1
	if got := d.Empty(); !slices.Equal(got, []cluster.NodeID{2}) {
		t.Errorf("%v came just now", got)
	}
	if now++; len(d.Empty()) > 0 {
		t.Error("it came long ago")
	}
	_ = rejection(t, d, transport.Identity{Node: 2, NodeName: "b"})
	const next = "02000000000000000000000000000000"
	rebuilt := cluster.State{Members: []cluster.Member{{ID: 2, Kind: cluster.KindLearner, Instance: next}}}
	if err := d.Expect(cluster.StatePoint{State: rebuilt}, true); err != nil {
		t.Fatal(err)
	}
	d.Hear(Known{2: next})
	if got := d.Empty(); len(got) > 0 {
		t.Error("it has begun again")
	}
}

// TestHearsOfMembers: what a peer says is noted only of members, and written once.
func TestHearsOfMembers(t *testing.T) {
	store := &memStore{}
	d := New(Config{Self: 1, Name: "a", Store: store, Now: func() time.Duration { return 0 }, Lives: func(cluster.NodeID) bool { return false }})
	p := cluster.StatePoint{State: cluster.State{Version: 1, Members: []cluster.Member{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}}}}
	if err := d.Expect(p, true); err != nil {
		t.Fatal(err)
	}
	said := Known{2: "02", 3: "03", 4: strings.Repeat("4", instanceCharsMax+1)}
	for id := range cluster.NodeID(1000) {
		said[100+id] = "ff"
	}
	for range 3 {
		d.Hear(said)
		if err := d.Note(); err != nil {
			t.Fatal(err)
		}
	}
	if want := (Known{2: "02", 3: "03"}); !maps.Equal(d.Met(), want) || store.writes != 1 {
		t.Errorf("it notes %d nodes, in %d writes", len(d.Met()), store.writes)
	}
}

// TestRebuiltNodeVouchesForNobody: an initial member that was rebuilt has forgotten who was there, so an
// initial member with an empty directory may not begin by its word.
func TestRebuiltNodeVouchesForNobody(t *testing.T) {
	ask := func(rebuilt func(d *Directories), initial ...cluster.NodeID) error {
		d := New(Config{Self: 1, Name: "a", Initial: initial, Store: &memStore{}, Now: func() time.Duration { return 0 }, Lives: func(cluster.NodeID) bool { return false }})
		rebuilt(d)
		return d.Check(transport.Identity{Node: 2, NodeName: "b"})
	}
	joins := func(d *Directories) {
		if err := d.Forget(); err != nil {
			t.Error(err)
		}
	}
	told := func(d *Directories) { // after a restart it knows by the state
		p := cluster.StatePoint{State: cluster.NewState([]cluster.Member{{ID: 1, Name: "a", Instance: "01"}, {ID: 2, Name: "b"}})}
		if err := d.Expect(p, true); err != nil {
			t.Error(err)
		}
	}
	for word, rebuilt := range map[transport.Code]func(*Directories){transport.CodeEmpty: joins, 0: told} {
		r, ok := errors.AsType[*transport.RejectedError](ask(rebuilt, 1, 2))
		if !ok || r.Code != transport.CodeReseed {
			t.Fatalf("b is an initial member: %v", r)
		}
		// It may have lost its data, or may never have begun.
		if !strings.Contains(r.Text, `cannot tell whether node "b" had data before`) || !strings.Contains(r.Text, `run "quorate node rebuild b"`) {
			t.Errorf("b is told: %s", r.Text)
		}
		for _, initial := range [][]cluster.NodeID{{1}, {2}} { // one of the two was added: b waits for nobody's word, or begins by nobody's
			var got transport.Code
			if r, ok := errors.AsType[*transport.RejectedError](ask(rebuilt, initial...)); ok {
				got = r.Code
			}
			if got != word {
				t.Errorf("initial members %v: code %d, want %d", initial, got, word)
			}
		}
	}
	if err := ask(func(*Directories) {}, 1, 2); err != nil {
		t.Errorf("a was there from the beginning: %v", err)
	}
}

// TestJoinerLearnsWhoWasThere: a node that joins knows no data directories. So a node with an empty directory does
// not begin by its word. Once a member has told it the directories, it refuses a node that was away and has lost its
// data.
func TestJoinerLearnsWhoWasThere(t *testing.T) {
	store := &memStore{}
	d := New(Config{Self: 5, Name: "e", Store: store, Now: func() time.Duration { return 0 }, Lives: func(cluster.NodeID) bool { return false }})
	if err := d.Forget(); err != nil {
		t.Fatal(err)
	}
	code := func(id cluster.NodeID, instance byte) (c transport.Code) {
		if r, ok := errors.AsType[*transport.RejectedError](d.Compare(transport.Identity{Node: id, NodeName: "x", Instance: [16]byte{instance}})); ok {
			c = r.Code
		}
		return c
	}
	if got := code(4, 0); got != transport.CodeEmpty {
		t.Errorf("before a member has told it: code %d", got)
	}
	p := cluster.StatePoint{State: cluster.NewState([]cluster.Member{{ID: 1, Name: "a"}, {ID: 4, Name: "d"}, {ID: 5, Name: "e"}, {ID: 6, Name: "f"}})}
	four, long := "04000000000000000000000000000000", strings.Repeat("0", instanceCharsMax+1)
	if err := errors.Join(d.Expect(p, false), d.Learn(Known{4: four, 5: "05", 6: long, 7: "07"})); err != nil {
		t.Fatal(err)
	}
	if want := (Known{4: four}); !maps.Equal(d.Pins(), want) || !maps.Equal(store.pins, want) {
		t.Errorf("it pins %v, and keeps %v", d.Pins(), store.pins)
	}
	for instance, want := range map[byte]transport.Code{0: transport.CodeReseed, 4: 0, 9: transport.CodePeer} {
		if got := code(4, instance); got != want {
			t.Errorf("node 4 with directory %d: code %d, want %d", instance, got, want)
		}
	}
	if got := code(6, 0); got != 0 {
		t.Errorf("nobody has met node 6: code %d", got)
	}
	if err := d.Learn(Known{4: "ff"}); err != nil || d.Pinned(4) != four {
		t.Errorf("another member knows another directory: %q, %v", d.Pinned(4), err)
	}
	store.err = errors.New("disk")
	if err := d.Learn(Known{1: four}); err == nil || d.Pinned(1) != "" {
		t.Errorf("the disk fails: %q, %v", d.Pinned(1), err)
	}
}
