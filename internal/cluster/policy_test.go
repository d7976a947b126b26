package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sitesState has voters a and b in x, c in y, d in z, and a learner e in y.
func sitesState(durability Durability) State {
	s := State{Durability: durability}
	for i, site := range []string{"x", "x", "y", "z", "y"} {
		m := Member{ID: NodeID(i + 1), Name: string(rune('a' + i)), Kind: KindFull, Weight: WeightDefault, Site: site}
		if i == 4 {
			m.Kind = KindLearner
		}
		s.Members = append(s.Members, m)
	}
	return s
}

func onDisks(indexes ...uint64) map[NodeID]uint64 {
	on := map[NodeID]uint64{}
	for i, index := range indexes {
		on[NodeID(i+1)] = index
	}
	return on
}

func TestAckIndex(t *testing.T) {
	required := sitesState(DurabilityMajority)
	required.Members[2].RequireAck = true
	degrades := sitesState(DurabilityMajority)
	degrades.Members[2].RequireAck, degrades.Members[2].DropAfter = true, time.Second
	learner := sitesState(DurabilityMajority)
	learner.Members[4].RequireAck = true
	both := sitesState(DurabilityAll)
	both.Members[2].RequireAck, both.Members[2].DropAfter = true, time.Second
	c := map[NodeID]bool{3: true}
	for _, test := range []struct {
		name    string
		state   State
		commit  uint64
		on      map[NodeID]uint64
		dropped map[NodeID]bool
		want    uint64
		waits   string
	}{
		{"majority", sitesState(DurabilityMajority), 9, onDisks(9, 9, 9), nil, 9, ""},
		{"all", sitesState(DurabilityAll), 9, onDisks(9, 10, 9, 7, 0), nil, 7, "d"},
		{"all have it", sitesState(DurabilityAll), 9, onDisks(9, 10, 9, 11, 0), nil, 9, ""},
		{"a new leader knows nothing", sitesState(DurabilityAll), 9, nil, nil, 0, "abcd"},
		{"two sites", sitesState(DurabilitySiteMajority), 9, onDisks(9, 9, 8, 7, 9), nil, 8, "cd"},
		{"the second site is ahead", sitesState(DurabilitySiteMajority), 9, onDisks(9, 9, 12, 0, 0), nil, 9, ""},
		{"a learner is no copy", sitesState(DurabilitySiteMajority), 9, onDisks(9, 9, 0, 0, 9), nil, 0, "cd"},
		{"one site alone", sitesState(DurabilitySiteMajority), 5, onDisks(9, 9), nil, 0, "cd"},
		{"required", required, 9, onDisks(9, 9, 4, 9, 9), nil, 4, "c"},
		{"required, dropped", degrades, 9, onDisks(9, 9, 4, 9, 9), c, 9, ""},
		{"it was changed to wait just now", required, 9, onDisks(9, 9, 4, 9, 9), c, 4, "c"},
		{"a required learner", learner, 9, onDisks(9, 9, 9, 9, 3), nil, 3, "e"},
		{"a policy is not dropped", both, 9, onDisks(9, 9, 4, 9), c, 4, "c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.state.AckIndex(test.commit, test.on, test.dropped)
			if got != test.want {
				t.Errorf("up to %d, want %d", got, test.want)
			}
			waits := ""
			if got < test.commit {
				for _, m := range test.state.AckWaitsFor(got+1, test.on, test.dropped) {
					waits += m.Name
				}
			}
			if waits != test.waits {
				t.Errorf("it waits for %q, want %q", waits, test.waits)
			}
		})
	}
}

// mayAck says, for one entry, whether the policy of a state lets it be acknowledged.
func mayAck(s State, index, commit uint64, on map[NodeID]uint64, dropped map[NodeID]bool) bool {
	sites := map[string]bool{}
	for _, m := range s.Members {
		has := on[m.ID] >= index
		if !has && (m.RequireAck && (m.DropAfter == 0 || !dropped[m.ID]) || s.Durability == DurabilityAll && m.Kind != KindLearner) {
			return false
		}
		if has && m.Kind != KindLearner {
			sites[m.Site] = true
		}
	}
	return index <= commit && (s.Durability != DurabilitySiteMajority || len(sites) >= 2)
}

// TestAckIndexAgainstModel: AckIndex is the newest entry that may be acknowledged, and all entries before it
// may be, too. When the nodes that AckWaitsFor names get the next entry, the index goes forward.
func TestAckIndexAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 20_000 {
		s := sitesState([]Durability{DurabilityMajority, DurabilityAll, DurabilitySiteMajority}[rng.IntN(3)])
		on, dropped := map[NodeID]uint64{}, map[NodeID]bool{}
		for i := range s.Members {
			m := &s.Members[i]
			m.RequireAck, m.DropAfter = rng.IntN(4) == 0, time.Duration(rng.IntN(2))*time.Second
			on[m.ID] = rng.Uint64N(12)
			if m.RequireAck && rng.IntN(3) == 0 {
				dropped[m.ID] = true
			}
		}
		commit := rng.Uint64N(12)
		got := s.AckIndex(commit, on, dropped)
		for index := uint64(1); index < 14; index++ {
			if may := mayAck(s, index, commit, on, dropped); may != (index <= got) {
				t.Fatalf("entry %d of %+v, commit %d, on %v, dropped %v: may be acknowledged %t, index %d", index, s, commit, on, dropped, may, got)
			}
		}
		if got < commit {
			for _, m := range s.AckWaitsFor(got+1, on, dropped) {
				on[m.ID] = got + 1
			}
			if next := s.AckIndex(commit, on, dropped); next <= got {
				t.Fatalf("%+v, commit %d: whom it waits for have entry %d, on %v, and it stays at %d", s, commit, got+1, on, next)
			}
		}
	}
}

// watching drives an AckWatch over three members, every 25 ms. c is required, with drop-after 2 s.
type watching struct {
	watch  AckWatch
	state  State
	sight  AckSight
	events []string
}

func newWatching() *watching {
	s := testState()
	s.Members[2].RequireAck, s.Members[2].DropAfter = true, 2*time.Second
	return &watching{state: s, sight: AckSight{
		Now: time.Minute, Commit: 10, On: onDisks(10, 10, 0), Heard: map[NodeID]time.Duration{}, Silence: time.Second,
	}}
}

// run lets time pass. The leader hears c unless silent is set. c is behind by so many entries.
func (w *watching) run(d time.Duration, perTick, behind uint64, silent bool) *watching {
	for end := w.sight.Now + d; w.sight.Now < end; w.sight.Now += 25 * time.Millisecond {
		w.sight.Commit += perTick
		for _, m := range w.state.Members {
			if m.Name != "c" || !silent {
				w.sight.Heard[m.ID] = w.sight.Now
			}
			if m.Name != "c" {
				w.sight.On[m.ID] = w.sight.Commit
			} else if behind < w.sight.Commit {
				w.sight.On[m.ID] = max(w.sight.On[m.ID], w.sight.Commit-behind)
			}
		}
		for _, e := range w.watch.Look(w.state, w.sight) {
			w.events = append(w.events, fmt.Sprintf("%v %s %t", w.sight.Now-time.Minute, e.Node, e.Dropped))
		}
	}
	return w
}

const never = 1 << 40 // so far behind that it takes no entries

func TestAckWatch(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(w *watching)
		want []string
	}{
		"it keeps up": {func(w *watching) { w.run(20*time.Second, 5, 10, false) }, nil},
		"a new leader waits as long": {func(w *watching) { w.run(10*time.Second, 5, never, true) },
			[]string{"2s c true"}},
		"it dies and comes back": {func(w *watching) {
			w.run(5*time.Second, 5, 5, false).run(5*time.Second, 5, never, true).run(5*time.Second, 5, 5, false)
		}, []string{"6.95s c true", "10.025s c false"}},
		"its disk hangs": {func(w *watching) { w.run(5*time.Second, 5, 0, false).run(5*time.Second, 5, never, false) },
			[]string{"6.975s c true"}},
		"it dies while nothing is written": {func(w *watching) {
			w.run(5*time.Second, 0, 0, false).run(5*time.Second, 0, 0, true).run(5*time.Second, 0, 0, false)
		}, []string{"6.975s c true", "10s c false"}},
		"nothing is written for long": {func(w *watching) { w.run(time.Minute, 0, 0, false) }, nil},
		// At 200 entries a second, 1000 entries behind are 5 s, and 100 entries are half a second.
		"it is far behind when it comes back": {func(w *watching) {
			w.run(time.Second, 5, 5, false).run(5*time.Second, 5, never, true).run(10*time.Second, 5, 1000, false).run(5*time.Second, 5, 100, false)
		}, []string{"2.95s c true", "16.5s c false"}},
		"wait is for as long as it takes": {func(w *watching) {
			w.state.Members[2].DropAfter = 0
			w.run(time.Minute, 5, never, true)
		}, nil},
		"wait, once it is dropped": {func(w *watching) {
			w.run(5*time.Second, 5, never, true)
			w.state.Members[2].DropAfter = 0
			w.run(5*time.Second, 5, never, true)
		}, []string{"2s c true", "5s c false"}},
		"not required, once it is dropped": {func(w *watching) {
			w.run(5*time.Second, 5, never, true)
			w.state.Members[2].RequireAck = false
			w.run(5*time.Second, 5, never, true)
		}, []string{"2s c true", "5s c false"}},
		"removed, once it is dropped": {func(w *watching) {
			w.run(5*time.Second, 5, never, true)
			w.state.Members = w.state.Members[:2]
			w.run(time.Second, 5, never, true)
		}, []string{"2s c true"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatching()
			c.run(w)
			if d := cmp.Diff(c.want, w.events); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestAckWatchEnd: a new leader does not treat a node as dropped because the old leader did. The end of a drop
// is reported.
func TestAckWatchEnd(t *testing.T) {
	w := newWatching().run(5*time.Second, 5, never, true)
	if e := w.watch.End(w.state); len(e) != 1 || e[0].Dropped || e[0].Node != "c" {
		t.Errorf("its end says %+v", e)
	}
	if w.watch.Dropped()[3] || len(w.watch.End(w.state)) > 0 {
		t.Error("c is dropped after the end")
	}
}

func TestAckStatus(t *testing.T) {
	w := newWatching().run(1500*time.Millisecond, 2, never, true)
	index := w.state.AckIndex(w.sight.Commit, w.sight.On, w.watch.Dropped())
	want := AckStatus{Waiting: []AckWait{{Node: "c", Unknown: true, Seconds: 1.5}}} // a new leader
	if d := cmp.Diff(want, w.watch.Status(w.state, w.sight, index)); d != "" {
		t.Errorf("while it waits (-want +got):\n%s", d)
	}
	w.run(time.Second, 2, never, true)
	w.sight.On[3] = 8
	index = w.state.AckIndex(w.sight.Commit, w.sight.On, w.watch.Dropped())
	want = AckStatus{Index: 210, Dropped: []AckWait{{Node: "c", Entries: 202, Seconds: 2.5}}}
	if d := cmp.Diff(want, w.watch.Status(w.state, w.sight, index)); d != "" {
		t.Errorf("once it is dropped (-want +got):\n%s", d)
	}
}

func TestDegrade(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"wait": 0, "drop-after=10s": 10 * time.Second, "drop-after 2m": 2 * time.Minute,
	} {
		if d, err := ParseDegrade(text); d != want || err != nil {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "never", "drop-after", "drop-after=x", "drop-after=-1s", "drop-after=0s"} {
		if d, err := ParseDegrade(text); err == nil {
			t.Errorf("%q: %v", text, d)
		}
	}
	for _, c := range []struct {
		m    Member
		want string
	}{
		{Member{}, ""}, {Member{RequireAck: true}, "wait"}, {Member{RequireAck: true, DropAfter: time.Minute}, "drop-after=1m"},
	} {
		if got := c.m.Degrade(); got != c.want {
			t.Errorf("%+v: %q", c.m, got)
		}
	}
}

func TestRequireAckChanges(t *testing.T) {
	s, err := testState().With(change(Change{Node: &NodeChange{Name: "b", RequireAck: new(true), DropAfter: new(time.Minute)}}))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change NodeChange
		says   string
	}{
		"too short":    {NodeChange{Name: "b", DropAfter: new(time.Millisecond)}, "must be 500ms at least"},
		"not required": {NodeChange{Name: "a", DropAfter: new(time.Minute)}, "without require-ack"},
		"not any more": {NodeChange{Name: "b", RequireAck: new(false), DropAfter: new(time.Minute)}, "without require-ack"},
	} {
		if _, err := s.With(change(Change{Node: &c.change})); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s, err = s.With(change(Change{Node: &NodeChange{Name: "b", RequireAck: new(false)}})); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(s.Members, func(m Member) bool { return m.DropAfter != 0 }); i >= 0 {
		t.Errorf("%+v", s.Members[i])
	}
}
