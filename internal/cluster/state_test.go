package cluster

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testState() State {
	return NewState([]Member{
		{ID: 1, Name: "a", Peer: "a:7400", Kind: KindFull, Weight: WeightDefault},
		{ID: 2, Name: "b", Peer: "b:7400", Kind: KindFull, Weight: WeightDefault},
		{ID: 3, Name: "c", Peer: "c:7400", Kind: KindLogger, Weight: WeightDefault},
	})
}

func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

func change(c Change) Change {
	c.ID, c.By, c.At = "1f", "ann@db1", noon()
	return c
}

func TestStateWith(t *testing.T) {
	inMaintenance := testState()
	inMaintenance.Maintenance = &Maintenance{Reason: "disks", By: "bob@db2", Since: noon().Add(-time.Hour)}
	oldReason := testState()
	oldReason.Maintenance = &Maintenance{Reason: "two\nlines", By: "bob@db2", Since: noon().Add(-time.Hour)}
	bounded := inMaintenance.Clone()
	bounded.Maintenance.Until = noon().Add(time.Minute)
	sites := testState()
	for i, site := range []string{"x", "x", "y"} {
		sites.Members[i].Site = site
	}
	for name, c := range map[string]struct {
		from   State
		change Change
		want   func(*State)
		says   string
	}{
		"weight": {testState(), Change{Node: &NodeChange{Name: "b", Weight: new(7)}},
			func(s *State) { s.Members[1].Weight = 7 }, "node b: weight 7"},
		"site and weight": {testState(), Change{Node: &NodeChange{Name: "a", Weight: new(0), Site: new("east-1")}},
			func(s *State) { s.Members[0].Weight, s.Members[0].Site = 0, "east-1" }, `node a: weight 0, site "east-1"`},
		"require-ack": {testState(), Change{Node: &NodeChange{Name: "b", RequireAck: new(true), DropAfter: new(time.Minute)}},
			func(s *State) { s.Members[1].RequireAck, s.Members[1].DropAfter = true, time.Minute },
			"node b: require-ack true, degrade drop-after=1m"},
		"maintenance on": {testState(), Change{Maintenance: &MaintenanceChange{On: true, Reason: "disks"}},
			func(s *State) { s.Maintenance = &Maintenance{Reason: "disks", By: "ann@db1", Since: noon()} }, "maintenance on: disks"},
		"maintenance, another reason": {inMaintenance, Change{Maintenance: &MaintenanceChange{On: true, Reason: "racks"}},
			func(s *State) { s.Maintenance.Reason, s.Maintenance.By = "racks", "ann@db1" }, "maintenance on: racks"},
		"maintenance for a time": {testState(), Change{Maintenance: &MaintenanceChange{On: true, For: time.Hour, Primary: "a"}},
			func(s *State) {
				s.Maintenance = &Maintenance{By: "ann@db1", Since: noon(), Until: noon().Add(time.Hour), Primary: "a"}
			}, "maintenance on for 1h"},
		"maintenance, another node": {inMaintenance, Change{Maintenance: &MaintenanceChange{On: true, Reason: "disks", Primary: "b"}},
			func(s *State) { s.Maintenance.Primary = "b" }, "maintenance on: disks"},
		"maintenance, another time": {bounded, Change{Maintenance: &MaintenanceChange{On: true, For: time.Hour}},
			func(s *State) { s.Maintenance.Until = noon().Add(time.Hour) }, "maintenance on for 1h"},
		"maintenance, the reason alone": {bounded, Change{Maintenance: &MaintenanceChange{On: true, Reason: "racks"}},
			func(s *State) { s.Maintenance.Reason, s.Maintenance.By = "racks", "ann@db1" }, "maintenance on: racks"},
		"maintenance, a reason of before the check": {oldReason, Change{Maintenance: &MaintenanceChange{On: true, Reason: "two\nlines", Primary: "b"}},
			func(s *State) { s.Maintenance.Primary = "b" }, "maintenance on: two\nlines"},
		"maintenance off": {inMaintenance, Change{Maintenance: &MaintenanceChange{}},
			func(s *State) { s.Maintenance = nil }, "maintenance off"},
		"durability": {sites, Change{Durability: new(DurabilitySiteMajority)},
			func(s *State) { s.Durability = DurabilitySiteMajority }, "durability site-majority"},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.from.Clone()
			got, err := c.from.With(change(c.change))
			if d := cmp.Diff(before, c.from); d != "" {
				t.Errorf("With changed what it was called on (-want +got):\n%s", d)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := before.Clone()
			c.want(&want)
			want.Version = before.Version + 1
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if text := c.change.String(); text != c.says {
				t.Errorf("it says %q, want %q", text, c.says)
			}
		})
	}
}

func TestStateRefuses(t *testing.T) {
	inMaintenance := testState()
	inMaintenance.Maintenance = &Maintenance{Reason: "disks"}
	for name, c := range map[string]struct {
		from   State
		change Change
		want   string
	}{
		"weight as it is":       {testState(), Change{Node: &NodeChange{Name: "b", Weight: new(5)}}, "it is so already: node b: weight 5"},
		"weight too high":       {testState(), Change{Node: &NodeChange{Name: "b", Weight: new(10)}}, "weight must be 0 (never the primary) to 9"},
		"weight too low":        {testState(), Change{Node: &NodeChange{Name: "b", Weight: new(-1)}}, "weight must be 0 (never the primary) to 9"},
		"weight of a logger":    {testState(), Change{Node: &NodeChange{Name: "c", Weight: new(1)}}, "node c is a logger"},
		"unknown node":          {testState(), Change{Node: &NodeChange{Name: "d", Weight: new(1)}}, `no node "d": the nodes are a, b, c`},
		"nothing of a node":     {testState(), Change{Node: &NodeChange{Name: "a"}}, "the change names no setting of node a"},
		"bad site":              {testState(), Change{Node: &NodeChange{Name: "a", Site: new("x y")}}, `letters, digits, '.', '-' and '_', not "x y"`},
		"before now":            {testState(), Change{Node: &NodeChange{Name: "a", DropAfter: new(-time.Second)}}, "must be above 0, not -1s"},
		"nothing":               {testState(), Change{}, "this change says 0"},
		"two things":            {testState(), Change{Maintenance: &MaintenanceChange{}, Durability: new(DurabilityAll)}, "this change says 2"},
		"no maintenance to end": {testState(), Change{Maintenance: &MaintenanceChange{}}, "it is so already: maintenance off"},
		"the same maintenance":  {inMaintenance, Change{Maintenance: &MaintenanceChange{On: true, Reason: "disks"}}, "it is so already"},
		"long reason":           {testState(), Change{Maintenance: &MaintenanceChange{On: true, Reason: strings.Repeat("x", 501)}}, "at most 500"},
		"maintenance on twice":  {inMaintenance, Change{Maintenance: &MaintenanceChange{On: true}}, "it is so already: maintenance on"},
		"escape in a reason":    {testState(), Change{Maintenance: &MaintenanceChange{On: true, Reason: "\x1b[2Jx"}}, "control characters are not kept"},
		"line break in one":     {inMaintenance, Change{Maintenance: &MaintenanceChange{On: true, Reason: "x\ny"}}, "control characters are not kept"},
		"override in one":       {testState(), Change{Maintenance: &MaintenanceChange{On: true, Reason: "x\u202ey"}}, "control characters are not kept"},
		"too short":             {testState(), Change{Maintenance: &MaintenanceChange{On: true, For: time.Second}}, "the time of maintenance must be 1m to 30d, not 1s"},
		"too long":              {testState(), Change{Maintenance: &MaintenanceChange{On: true, For: 721 * time.Hour}}, "must be 1m to 30d, not 30d1h"},
		"before it begins":      {testState(), Change{Maintenance: &MaintenanceChange{On: true, For: -time.Hour}}, "must be 1m to 30d, not -1h"},
		"unknown durability":    {testState(), Change{Durability: new(Durability("some"))}, `durability must be majority, all or site-majority, not "some"`},
		"no sites":              {testState(), Change{Durability: new(DurabilitySiteMajority)}, "some voters have no site"},
	} {
		if _, err := c.from.With(change(c.change)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q in one line", name, err, c.want)
		}
	}
}

// TestWhoAsksIsShownAsItIs: the audit shows the name on a terminal, so it must be printable.
func TestWhoAsksIsShownAsItIs(t *testing.T) {
	for by, refused := range map[string]bool{
		"ann@db1": false, "jürgen m@db1": false, "ann\x1b[8m@db1": true, "ann\nbob@db1": true, "ann\u2066@db1": true, "ann\xff": true,
	} {
		c := change(Change{Maintenance: &MaintenanceChange{On: true}})
		c.By = by
		if _, err := testState().With(c); (err != nil) != refused {
			t.Errorf("%q: %v", by, err)
		}
	}
}

// TestStateKeepsALeader: no change leaves a cluster in which no node could lead.
func TestStateKeepsALeader(t *testing.T) {
	s := testState()
	s, err := s.With(change(Change{Node: &NodeChange{Name: "a", Weight: new(0)}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.With(change(Change{Node: &NodeChange{Name: "b", Weight: new(0)}})); err == nil || !strings.Contains(err.Error(), "nobody could lead") {
		t.Errorf("the last full node got weight 0: %v", err)
	}
	s.Durability = DurabilitySiteMajority
	for i, site := range []string{"x", "x", "y"} {
		s.Members[i].Site = site
	}
	if _, err := s.With(change(Change{Node: &NodeChange{Name: "c", Site: new("x")}})); err == nil || !strings.Contains(err.Error(), "all in one site") {
		t.Errorf("durability site-majority with one site: %v", err)
	}
}

func TestUnchangedIsTold(t *testing.T) {
	_, err := testState().With(change(Change{Maintenance: &MaintenanceChange{}}))
	if !errors.Is(err, ErrUnchanged) {
		t.Errorf("error %v", err)
	}
	_, err = testState().With(Change{Maintenance: &MaintenanceChange{On: true}})
	if err == nil || errors.Is(err, ErrUnchanged) {
		t.Errorf("a change without an id: %v", err)
	}
}

// TestStateJSON: the JSON names are an interface and a file format, and must not change.
func TestStateJSON(t *testing.T) {
	s := testState()
	s.Members = s.Members[:1]
	s, err := s.With(change(Change{Maintenance: &MaintenanceChange{On: true, Reason: "disks"}}))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"members":[{"id":"1","name":"a","peer":"a:7400","kind":"full","weight":5}],` +
		`"maintenance":{"reason":"disks","by":"ann@db1","since":"2026-01-02T12:00:00Z"},"durability":"majority"}`
	if d := cmp.Diff(want, string(b)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
