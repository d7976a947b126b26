package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sourcedState has a learner d, whose source is b.
func sourcedState() State {
	s := testState()
	s.Members = append(s.Members, Member{ID: 4, Name: "d", Peer: "d:7400", Kind: KindLearner, Source: "b", SourceApplied: true})
	return s
}

func membership(op MembershipOp, name string) Change {
	c := MembershipChange{Op: op, Name: name, Kind: KindFull}
	if op == OpRebuild {
		c.Instance = "new"
	}
	return change(Change{Membership: &c})
}

func TestSourceIsRefused(t *testing.T) {
	learners := sourcedState()
	learners.Members = append(learners.Members, Member{ID: 5, Name: "e", Peer: "e:7400", Kind: KindLearner})
	for name, c := range map[string]struct {
		change Change
		says   string
	}{
		"a node with a vote": {Change{Node: &NodeChange{Name: "a", Source: new("b")}}, "node a is a full node: only a learner has a source"},
		"itself":             {Change{Node: &NodeChange{Name: "d", Source: new("d")}}, "its own source"},
		"a learner":          {Change{Node: &NodeChange{Name: "d", Source: new("e")}}, "node e is a learner"},
		"nobody":             {Change{Node: &NodeChange{Name: "d", Source: new("x")}}, `there is no node "x"`},
		"require-ack":        {Change{Node: &NodeChange{Name: "d", RequireAck: new(true)}}, "do not go together"},
		"applied alone":      {Change{Node: &NodeChange{Name: "e", SourceApplied: new(true)}}, "has no source"},
		"one that is to vote": {Change{Membership: &MembershipChange{Op: OpAdd, Name: "f", ID: 6, Peer: "f:1", Kind: KindFull, Source: "b"}},
			"only a learner has a source"},
	} {
		if _, err := learners.With(change(c.change)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestSourceFollowsTheMembers: a learner that gets a vote has no source any more. Neither has a learner whose
// source loses its vote. A source that is rebuilt becomes the source again later.
func TestSourceFollowsTheMembers(t *testing.T) {
	for name, c := range map[string]struct {
		change  Change
		source  string
		feeding bool
	}{
		"another weight": {change(Change{Node: &NodeChange{Name: "a", Weight: new(9)}}), "b", true},
		"none":           {change(Change{Node: &NodeChange{Name: "d", Source: new("")}}), "", false},
		"another":        {change(Change{Node: &NodeChange{Name: "d", Source: new("c")}}), "c", true},
		"promote":        {membership(OpPromote, "d"), "", false},
		"demote":         {membership(OpDemote, "b"), "", false},
		"remove":         {membership(OpRemove, "b"), "", false},
		"rebuild source": {membership(OpRebuild, "b"), "b", false},
		"rebuild":        {membership(OpRebuild, "d"), "b", true},
	} {
		got, err := sourcedState().With(c.change)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m, _ := got.Member("d")
		if _, ok := got.SourceOf(m); m.Source != c.source || ok != c.feeding || m.SourceApplied && m.Source == "" {
			t.Errorf("%s: source %q, applied %t, feeds %t", name, m.Source, m.SourceApplied, ok)
		}
	}
}

func TestSettings(t *testing.T) {
	s := testState()
	for _, step := range []struct {
		change SettingsChange
		want   settings
		format int
	}{
		{SettingsChange{Errant: new(ErrantRebuild)}, settings{DurabilityMajority, "", ErrantRebuild, 0, "", false, false}, 2},
		{SettingsChange{Reseed: new(ReseedManual), RetainBytesMax: new(int64(RetainBytesMin))},
			settings{DurabilityMajority, ReseedManual, ErrantRebuild, RetainBytesMin, "", false, false}, 2},
		{SettingsChange{Reseed: new(ReseedAuto), Errant: new(ErrantKeep), RetainBytesMax: new(int64(0)), Durability: new(DurabilityAll)},
			settings{DurabilityAll, "", "", 0, "", false, false}, 1},
		{SettingsChange{MySQLRouter: new(true)}, settings{DurabilityAll, "", "", 0, "", true, false}, 5},
		{SettingsChange{EventsOff: new(true)}, settings{DurabilityAll, "", "", 0, "", true, true}, 6},
		{SettingsChange{EventsOff: new(false)}, settings{DurabilityAll, "", "", 0, "", true, false}, 5},
		{SettingsChange{MySQLRouter: new(false)}, settings{DurabilityAll, "", "", 0, "", false, false}, 1},
	} {
		next, err := s.With(change(step.change.Change()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, next.settings(), cmp.AllowUnexported(settings{})); diff != "" || next.Format() != step.format {
			t.Errorf("%s: format %d (-want +got):\n%s", step.change, next.Format(), diff)
		}
		if _, err := next.With(change(step.change.Change())); !errors.Is(err, ErrUnchanged) {
			t.Errorf("%s again: %v", step.change, err)
		}
		s = next
	}
	for _, c := range []SettingsChange{{Reseed: new(Reseed("x"))}, {Errant: new(ErrantPolicy("x"))}, {RetainBytesMax: new(int64(5))},
		{RetainBytesMax: new(int64(-1))}, {}, {Durability: new(Durability("x")), Errant: new(ErrantKeep)}} {
		if _, err := s.With(change(Change{Settings: &c})); err == nil || errors.Is(err, ErrUnchanged) {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// TestRepair: a node is rebuilt automatically only for a reason that the settings allow. It is not rebuilt
// while somebody is at work on it, not together with another node, and not too often. It is also not rebuilt if
// that would break a promise about the node, or leave only one voter.
func TestRepair(t *testing.T) {
	empty := RepairSight{Empty: true, Silence: repairSilence}
	errant := RepairSight{Errant: true, Saved: true}
	away := RepairSight{Holds: true, LogBytes: RetainBytesMin + 1, Silence: retainSilence}
	stopped := RepairSight{Holds: true, LogBytes: RetainBytesMin + 1, Still: retainSilence, Stopped: "it is fenced"}
	retain := func(s *State) { s.RetainBytesMax = RetainBytesMin }
	with := func(s RepairSight, f func(*RepairSight)) RepairSight { f(&s); return s }
	repaired := func(ago ...time.Duration) RepairSight {
		return with(empty, func(s *RepairSight) { s.Repairs = ago })
	}
	const yes, no = "yes", ""
	for name, c := range map[string]struct {
		sight  RepairSight
		change func(*State)
		want   string // yes, no, or the obstacle
	}{
		"nothing":                 {RepairSight{}, nil, no},
		"empty":                   {empty, nil, yes},
		"empty, manual":           {empty, func(s *State) { s.Reseed = ReseedManual }, no},
		"empty, and it is there":  {with(empty, func(s *RepairSight) { s.Silence = repairSilence - 1 }), nil, no},
		"errant, keep":            {errant, nil, no},
		"errant, rebuild":         {errant, func(s *State) { s.Errant = ErrantRebuild }, yes},
		"errant, not all saved":   {with(errant, func(s *RepairSight) { s.Saved = false }), func(s *State) { s.Errant = ErrantRebuild }, no},
		"away, no bound":          {away, nil, no},
		"away":                    {away, retain, yes},
		"away, log is not longer": {with(away, func(s *RepairSight) { s.LogBytes-- }), retain, no},
		"away, another holds it":  {with(away, func(s *RepairSight) { s.Holds = false }), retain, no},
		"away, not long enough":   {with(away, func(s *RepairSight) { s.Silence-- }), retain, no},
		"stopped":                 {stopped, retain, yes},
		"stopped, not for long":   {with(stopped, func(s *RepairSight) { s.Still-- }), retain, no},
		"stopped, no bound":       {stopped, nil, no},
		"starting":                {with(stopped, func(s *RepairSight) { s.Stopped, s.Still = "", retainStarting }), retain, yes},
		"starting, not for long":  {with(stopped, func(s *RepairSight) { s.Stopped, s.Still = "", retainStarting-1 }), retain, no},
		"errant, and it holds":    {with(stopped, func(s *RepairSight) { s.Errant, s.Saved = true, true }), retain, yes},
		"errant, none is saved":   {with(stopped, func(s *RepairSight) { s.Errant = true }), retain, "not all saved"},
		"maintenance":             {empty, func(s *State) { s.Maintenance = &Maintenance{} }, "maintenance is on"},
		"being rebuilt":           {with(empty, func(s *RepairSight) { s.Leaving = true }), rebuilt("b", KindFull, "new"), no},
		"wiped while it is":       {empty, rebuilt("b", KindFull, "new"), yes},
		"wiped while it joins":    {empty, rebuilt("b", KindFull, ""), yes},
		"rebuilt, then away":      {away, func(s *State) { rebuilt("b", KindFull, "new")(s); s.RetainBytesMax = RetainBytesMin }, yes},
		"short of the log":        {RepairSight{Short: true}, rebuilt("b", KindFull, "new"), yes},
		"short, as a learner":     {RepairSight{Short: true}, rebuilt("b", "", "new"), no},
		"short, and errant":       {RepairSight{Short: true, Errant: true}, rebuilt("b", KindFull, "new"), no},
		"another is rebuilt":      {empty, rebuilt("c", KindLogger, "new"), "node c is being rebuilt"},
		"another joins":           {empty, func(s *State) { s.Members = append(s.Members, Member{ID: 4, Kind: KindLearner, Becomes: KindFull}) }, yes},
		"one voter left":          {empty, rebuilt("c", "", ""), "only one node would have a vote"},
		"it has no vote":          {empty, func(s *State) { rebuilt("b", "", "")(s); rebuilt("c", "", "")(s) }, yes},
		"waited for":              {empty, func(s *State) { s.Members[1].RequireAck = true }, "because of its require-ack"},
		"waited for, so long":     {empty, func(s *State) { s.Members[1].RequireAck, s.Members[1].DropAfter = true, time.Second }, yes},
		"all are waited for":      {empty, func(s *State) { s.Durability = DurabilityAll }, "because of durability all"},
		"just repaired":           {repaired(repairPause - 1), nil, "less than 10m ago"},
		"repaired before":         {repaired(repairPause), nil, yes},
		"too often":               {repaired(repairsWithin-1, time.Hour, repairPause), nil, "3 times within 1d"},
		"often, long ago":         {repaired(repairsWithin, time.Hour, repairPause), nil, yes},
	} {
		s := testState()
		if c.change != nil {
			c.change(&s)
		}
		checkRepair(t, name, s, c.sight, c.want)
	}
}

// rebuilt makes a member lose its vote for a rebuild. If becomes is a kind, the member gets the vote back
// later.
func rebuilt(name string, becomes Kind, instance string) func(*State) {
	return func(s *State) {
		m, _ := s.Member(name)
		i := slices.Index(s.Members, m)
		s.Members[i].Kind, s.Members[i].Becomes, s.Members[i].Instance = KindLearner, becomes, instance
	}
}

// TestRepairBesideTheGone: a node that was told to begin again and is not there does not block the next rebuild
// for ever. A majority still keeps its votes.
func TestRepairBesideTheGone(t *testing.T) {
	const yes = "yes"
	for name, c := range map[string]struct {
		nodes         NodeID
		rebuilt, gone []NodeID
		want          string
	}{
		"one of 3":               {3, []NodeID{3}, []NodeID{3}, "only one node would have a vote"},
		"one of 4":               {4, []NodeID{4}, []NodeID{4}, "only 2 of 4 nodes would have a vote"},
		"one of 5":               {5, []NodeID{5}, []NodeID{5}, yes},
		"one of 5, it is there":  {5, []NodeID{5}, []NodeID{4}, "node e is being rebuilt"},
		"two of 5":               {5, []NodeID{4, 5}, []NodeID{4, 5}, "only 2 of 5 nodes would have a vote"},
		"one of 5, and it again": {5, []NodeID{2, 4}, []NodeID{2, 4}, yes},
		"two of 7":               {7, []NodeID{4, 5}, []NodeID{4, 5}, yes},
		"two of 7, one is there": {7, []NodeID{4, 5}, []NodeID{4}, "node e is being rebuilt"},
	} {
		s := State{}
		for id := NodeID(1); id <= c.nodes; id++ {
			s.Members = append(s.Members, Member{ID: id, Name: string(rune('a' + id - 1)), Kind: KindFull})
		}
		for _, id := range c.rebuilt {
			rebuilt(s.Members[id-1].Name, KindFull, "new")(&s)
		}
		checkRepair(t, name, s, RepairSight{Empty: true, Silence: repairSilence, Gone: c.gone}, c.want)
	}
}

// checkRepair compares what happens to the second member: "yes" = it is rebuilt, "" = there is no reason to,
// else the obstacle.
func checkRepair(t *testing.T, name string, s State, sight RepairSight, want string) {
	t.Helper()
	const yes, no = "yes", ""
	why, held := s.Repair(s.Members[1], sight)
	if (why != "") != (want == yes) || why != "" && held != "" || want != yes && (held != "") != (want != no) ||
		want != yes && !strings.Contains(held, want) {
		t.Errorf("%s: why %q, in the way %q, want %q", name, why, held, want)
	}
}
