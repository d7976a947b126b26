package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// sightOf reads a text like "a:primary b:replica:away c:logger": the name of each node, its role, and its
// peculiarities. The roles logger and learner are also kinds.
func sightOf(t *testing.T, text string) (s Sight) {
	t.Helper()
	s.State.Durability = cluster.DurabilityMajority
	for i, word := range strings.Fields(text) {
		f := strings.Split(word, ":")
		m := cluster.Member{ID: cluster.NodeID(i + 1), Name: f[0], Kind: cluster.KindFull, Weight: cluster.WeightDefault}
		n := Node{ID: m.ID, Name: m.Name, Role: Role(f[1]), Reachable: true, LogState: LogOK}
		switch f[1] {
		case "logger":
			m.Kind = cluster.KindLogger
		case "learner":
			m.Kind, n.Role = cluster.KindLearner, RoleReplica
		case "primary":
			s.Primary = m.Name
		}
		for _, flag := range f[1:] {
			site, isSite := strings.CutPrefix(flag, "site=")
			switch {
			case flag == f[1] && flag != "never":
			case flag == "away":
				n.Reachable = false
			case flag == "never":
				n = Node{ID: m.ID, Name: m.Name}
			case flag == "w0":
				m.Weight = 0
			case flag == "ack":
				m.RequireAck = true
			case flag == "drops":
				m.RequireAck, m.DropAfter = true, time.Second
			case flag == "becomes":
				m.Becomes = cluster.KindFull
			case flag == "full" || flag == "stalled" || flag == "repairing":
				n.LogState = LogState(flag)
			case flag == "new":
				n.AgentVersion, n.ElectionTimeout = "2", time.Second
			case flag == "old":
				n.AgentVersion = "1"
			case flag == "older":
				n.StateFormat = 5
			case flag == "joins":
				n.Role = RoleJoining
			case isSite:
				m.Site = site
			default:
				t.Fatalf("%s: unknown flag %q", word, flag)
			}
		}
		n.Kind, n.Weight = m.Kind, m.Weight
		s.State.Members = append(s.State.Members, m)
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// quorumRow is a sight and the text that is expected for it.
type quorumRow struct {
	sight string
	with  func(*Sight)
	want  string // the line of Quorum, or without a primary the first line of NoPrimary
}

func durabilityAll(s *Sight)  { s.State.Durability = cluster.DurabilityAll }
func durabilitySite(s *Sight) { s.State.Durability = cluster.DurabilitySiteMajority }

func maintenanceOf(primary string) func(*Sight) {
	return func(s *Sight) { s.State.Maintenance = &cluster.Maintenance{Primary: primary} }
}

func outgoing(ids ...cluster.NodeID) func(*Sight) { return func(s *Sight) { s.Outgoing = ids } }

// TestQuorum: how many failures the cluster survives now.
func TestQuorum(t *testing.T) {
	checkQuorum(t, []quorumRow{
		// One to five full nodes, all well.
		{"a:primary", nil, "survives no failure: 1 of 1 voters run"},
		{"a:primary b:replica", nil, "survives no failure: 2 of 2 voters run"},
		{"a:primary b:replica c:replica", nil, "survives the failure of any 1 node: 3 of 3 voters run"},
		{"a:primary b:replica c:replica d:replica", nil, "survives the failure of any 1 node: 4 of 4 voters run"},
		{"a:primary b:replica c:replica d:replica e:replica", nil, "survives the failure of any 2 nodes: 5 of 5 voters run"},
		// Some are away.
		{"a:primary b:replica c:replica:away", nil, "survives no further failure: 2 of 3 voters run, c is not heard of"},
		{"a:primary b:replica c:never", nil, "survives no further failure: 2 of 3 voters run, c is not heard of"},
		{"a:primary b:replica c:replica d:replica:away", nil, "survives no further failure: 3 of 4 voters run, d is not heard of"},
		{"a:primary b:replica c:replica d:replica e:replica:away", nil, "survives the failure of any 1 node: 4 of 5 voters run, e is not heard of"},
		{"a:primary b:replica c:replica d:replica:away e:replica:away", nil,
			"survives no further failure: 3 of 5 voters run, d and e are not heard of"},
		// Some run but do not count.
		{"a:primary b:replica c:replica:full", nil, "survives no further failure: 2 of 3 voters run, c has a log that is full"},
		{"a:primary b:replica c:replica:stalled", nil, "survives no further failure: 2 of 3 voters run, c has a log that is stalled"},
		{"a:primary b:replica c:starting:repairing", nil, "survives no further failure: 2 of 3 voters run, c has a log that is repairing"},
		{"a:primary b:replica c:removed", nil, "survives no further failure: 2 of 3 voters run, c is removed"},
		{"a:primary b:replica c:replica:joins", nil, "survives no further failure: 2 of 3 voters run, c is joining"},
		// Some vote but cannot take over.
		{"a:primary b:fenced c:errant", nil, "survives no failure: 3 of 3 voters run; without a no node could be the primary"},
		{"a:primary b:fenced c:replica", nil, "survives the failure of any 1 node: 3 of 3 voters run"},
		{"a:primary b:starting c:replica d:unverified e:starting", nil,
			"survives the failure of any 1 node: 5 of 5 voters run; without a and c no node could be the primary"},
		{"a:primary b:replica:w0 c:replica:w0", nil, "survives no failure: 3 of 3 voters run; without a no node could be the primary"},
		// Loggers and learners.
		{"a:primary b:replica l:logger", nil, "survives the failure of any 1 node: 3 of 3 voters run"},
		{"a:primary b:replica l:logger:away", nil, "survives no further failure: 2 of 3 voters run, l is not heard of"},
		{"a:primary b:replica:away l:logger", nil, "survives no further failure: 2 of 3 voters run, b is not heard of"},
		{"a:primary l:logger m:logger", nil, "survives no failure: 3 of 3 voters run; without a no node could be the primary"},
		{"a:primary b:replica c:replica d:learner", nil, "survives the failure of any 1 node: 3 of 3 voters run"},
		{"a:primary b:replica c:replica d:learner:away", nil, "survives the failure of any 1 node: 3 of 3 voters run"},
		{"a:primary d:learner", nil, "survives no failure: 1 of 1 voters run"},
		{"a:primary b:replica c:learner:becomes", nil, "survives no failure: 2 of 2 voters run"},
		{"a:primary b:replica:away c:replica d:learner:becomes", nil, "survives no further failure: 2 of 3 voters run, b is not heard of"},
	})
}

// TestQuorumOfPolicies: what is needed besides a majority of the voters.
func TestQuorumOfPolicies(t *testing.T) {
	checkQuorum(t, []quorumRow{
		// A change of the members is not complete: two majorities are needed.
		{"a:primary b:replica c:replica d:replica", outgoing(1, 2, 3), "survives the failure of any 1 node: 4 of 4 voters run"},
		{"a:primary b:replica:away c:replica d:replica", outgoing(1, 2, 3), "survives no further failure: 3 of 4 voters run, b is not heard of"},
		{"a:primary b:learner:away c:replica", outgoing(1, 2, 3), "survives no further failure: 2 of 2 voters run, b is not heard of"},
		{"a:replica b:learner:away c:learner:away", outgoing(1, 2, 3), "1 of 1 voters run, a majority, but a change of the members is not complete, " +
			"and a majority of the old voters has to run, too (b and c are not heard of). Start the agent on b or c: nothing is lost, and writes go on by themselves."},
		// Policies.
		{"a:primary b:replica c:replica", durabilityAll, "survives no failure: 3 of 3 voters run; OKs wait for every voter (durability all)"},
		{"a:primary b:replica c:replica:away", durabilityAll, "writes cannot go on: 2 of 3 voters run, c is not heard of; OKs wait for c (durability all)"},
		{"a:primary b:replica c:replica d:learner:away", durabilityAll, "survives no failure: 3 of 3 voters run; OKs wait for every voter (durability all)"},
		{"a:primary:site=x b:replica:site=x c:replica:site=y", durabilitySite, "survives no failure: 3 of 3 voters run; OKs wait for c (durability site-majority)"},
		{"a:primary:site=x b:replica:site=y c:replica:site=z", durabilitySite, "survives the failure of any 1 node: 3 of 3 voters run"},
		{"a:primary:site=x b:replica:site=x c:replica:site=y d:replica:site=y e:replica:site=z", durabilitySite, "survives the failure of any 2 nodes: 5 of 5 voters run"},
		{"a:primary b:replica:ack c:replica", nil, "survives no failure: 3 of 3 voters run; OKs wait for b (require-ack)"},
		{"a:primary b:replica:drops c:replica", nil, "survives the failure of any 1 node: 3 of 3 voters run"},
		{"a:primary b:replica c:replica d:learner:ack", nil, "survives no failure: 3 of 3 voters run; OKs wait for d (require-ack)"},
		{"a:primary b:replica c:replica d:learner:ack:away", nil, "writes cannot go on: 3 of 3 voters run; OKs wait for d (require-ack)"},
		// Maintenance.
		{"a:primary b:replica c:replica", maintenanceOf("a"), "survives no failure: 3 of 3 voters run; maintenance is on, no node but a may be the primary"},
		{"a:primary b:replica c:replica:away", maintenanceOf("a"), "survives no further failure: 2 of 3 voters run, c is not heard of"},
	})
}

// TestQuorumInAnUpgrade: a node with a new quorate opens only if a majority runs a new quorate, too. A node
// with an old one needs no such majority.
func TestQuorumInAnUpgrade(t *testing.T) {
	const whole = "survives the failure of any 1 node: 3 of 3 voters run"
	checkQuorum(t, []quorumRow{
		{"a:primary:new b:replica:new l:logger:new", nil, whole},
		{"a:primary:old b:replica:old l:logger:old", nil, whole},
		// The documented order, and back.
		{"a:primary:old b:replica:old l:logger:new", nil, whole},
		{"a:primary:old b:replica:new l:logger:new", nil, whole},
		{"a:primary:new b:replica:old l:logger:new", nil, whole},
		{"a:replica:new b:primary:old l:logger:new", nil, whole},
		{"a:primary:old b:replica:old c:replica:new", nil, whole},
		{"a:primary:old b:replica:new c:replica:new", nil, whole},
		{"a:primary:new b:replica:new c:replica:old", nil, whole},
		{"a:primary:old b:replica:new c:replica:old", nil, whole},
		// The logger last.
		{"a:primary:old b:replica:new l:logger:old", nil, "survives no failure: 3 of 3 voters run; l runs quorate 1, which promises no lease: upgrade it"},
		{"a:primary:new b:replica:new l:logger:old", nil, "survives no failure: 3 of 3 voters run; l runs quorate 1, which promises no lease: upgrade it"},
		{"a:primary:new b:replica:new:away l:logger:old", nil, "writes cannot go on: 2 of 3 voters run, b is not heard of; l runs quorate 1, which promises no lease: upgrade it"},
		{"a:demoting:old:away b:replica:new l:logger:old", nil, "2 of 3 voters run, a majority, but l runs quorate 1, which promises no lease: upgrade it (a is not heard of). " +
			"Start the agent on a: nothing is lost, and writes go on by themselves."},
		{"a:never b:replica:new l:logger:old", nil, "2 of 3 voters run, a majority, but l runs quorate 1, which promises no lease: upgrade it (a is not heard of). " +
			"Start the agent on a: nothing is lost, and writes go on by themselves."},
	})
}

// TestQuorumWithoutAnOlderQuorate: a node that does not know all of the cluster state acknowledges nothing. Of a node that is
// to be added nobody has heard what it knows.
func TestQuorumWithoutAnOlderQuorate(t *testing.T) {
	added := func(s *Sight) {
		s.State.EventsOff = true
		for i := range s.Nodes[:2] {
			s.Nodes[i].StateFormat, s.Nodes[i].StateVersion = cluster.StateFormat, new(uint64)
		}
	}
	eventsOff := func(s *Sight) {
		added(s)
		s.Nodes[2].StateVersion = new(uint64)
	}
	checkQuorum(t, []quorumRow{
		{"a:primary b:replica c:replica:older", nil, "survives the failure of any 1 node: 3 of 3 voters run"},
		{"a:primary b:replica c:replica:older", eventsOff, "survives no further failure: 2 of 3 voters run, c has an older quorate, which refuses the cluster state: upgrade it"},
		{"a:primary b:replica c:replica:older", added, "survives the failure of any 1 node: 3 of 3 voters run"},
	})
}

// TestNoPrimary: which agents have to be started.
func TestNoPrimary(t *testing.T) {
	checkQuorum(t, []quorumRow{
		{"a:replica b:replica:away c:replica:away", nil, "2 of 3 voters must run, and 1 does: a (b and c are not heard of). " +
			"Start the agent on b or c: nothing is lost, and writes go on by themselves."},
		{"a:replica b:replica:away", nil, "2 of 2 voters must run, and 1 does: a (b is not heard of). Start the agent on b: nothing is lost, and writes go on by themselves."},
		{"a:unverified b:replica:away c:replica:away d:never", nil, "3 of 4 voters must run, and 1 does: a (b, c and d are not heard of). " +
			"Start the agents on any 2 of b, c and d: nothing is lost, and writes go on by themselves."},
		{"a:replica b:replica c:never d:never e:never", nil, "3 of 5 voters must run, and 2 do: a and b (c, d and e are not heard of). " +
			"Start the agent on c, d or e: nothing is lost, and writes go on by themselves."},
		{"a:replica b:never c:never d:never e:never", nil, "3 of 5 voters must run, and 1 does: a (b, c, d and e are not heard of). " +
			"Start the agents on any 2 of b, c, d and e: nothing is lost, and writes go on by themselves."},
		{"a:replica:full b:replica:away c:replica", nil, "2 of 3 voters must run, and 1 does: c (a has a log that is full, b is not heard of). " +
			"Start the agent on b: nothing is lost, and writes go on by themselves."},
		{"a:replica:full b:replica:full c:replica", nil, "2 of 3 voters must run, and 1 does: c (a and b have a log that is full). What each node waits for is below."},
		{"a:replica:full", nil, "1 of 1 voters must run, and 0 do (a has a log that is full). What each node waits for is below."},
		{"a:learner b:never", nil, "1 of 1 voters must run, and 0 do (b is not heard of). Start the agent on b: nothing is lost, and writes go on by themselves."},
		// Only a logger is left, or only loggers: one of the nodes to start has to be full, even if a logger
		// would make the majority.
		{"l:logger b:replica:away c:replica:away", nil, "2 of 3 voters must run, and 1 does: l (b and c are not heard of). " +
			"Start the agent on b or c: nothing is lost, and writes go on by themselves."},
		{"l:logger b:replica:away m:logger:away", nil, "2 of 3 voters must run, and 1 does: l (b and m are not heard of). " +
			"Start the agent on b: nothing is lost, and writes go on by themselves."},
		{"l:logger m:logger b:replica:away", nil, "2 of 3 voters run, a majority, but no node that runs may be the primary (b is not heard of). " +
			"Start the agent on b: nothing is lost, and writes go on by themselves."},
		{"l:logger b:replica:w0 c:replica:away", nil, "2 of 3 voters run, a majority, but no node that runs may be the primary: b has weight 0 (c is not heard of). " +
			"Start the agent on c: nothing is lost, and writes go on by themselves."},
		{"l:logger b:fenced c:errant", nil, "3 of 3 voters run, a majority, but no node that runs may be the primary: b is fenced, c is errant. What each node waits for is below."},
		{"l:logger b:errant:away c:replica:away", nil, "2 of 3 voters must run, and 1 does: l (b and c are not heard of). " +
			"Start the agent on c: nothing is lost, and writes go on by themselves."},
		{"l:logger m:logger:away n:logger:away b:replica:away c:replica:away", nil, "3 of 5 voters must run, and 1 does: l (m, n, b and c are not heard of). " +
			"Start the agents on m and b, or n and b, or m and c, or n and c, or others: nothing is lost, and writes go on by themselves."},
		{"a:replica:w0 b:replica:w0 c:replica:w0", nil, "3 of 3 voters run, a majority, but no node that runs may be the primary: a has weight 0, b has weight 0, c has weight 0."},
		// A majority runs, but needs time.
		{"a:starting b:starting c:starting", nil, "3 of 3 voters run, a majority: no agent has to be started. What each node waits for is below."},
		{"a:promoting b:replica c:primary:away", func(s *Sight) { s.Primary = "" }, "2 of 3 voters run, a majority (c is not heard of): no agent has to be started. What each node waits for is below."},
		{"a:replica b:replica c:replica:away", nil, "2 of 3 voters run, a majority (c is not heard of): no agent has to be started. What each node waits for is below."},
		{"a:replica b:replica c:replica", durabilityAll, "3 of 3 voters run, a majority: no agent has to be started. What each node waits for is below."},
		// Policies and maintenance hold the majority back.
		{"a:replica b:replica c:replica:away", durabilityAll, "2 of 3 voters run, a majority, but OKs wait for c (durability all) (c is not heard of). " +
			"Start the agent on c: nothing is lost, and writes go on by themselves."},
		{"a:replica:site=x b:replica:site=x c:replica:site=y:away d:replica:site=z:away", durabilitySite, "3 of 4 voters must run, and 2 do: a and b (c and d are not heard of). " +
			"Start the agent on c or d: nothing is lost, and writes go on by themselves."},
		{"a:replica b:replica c:replica:away", maintenanceOf("c"), "2 of 3 voters run, a majority, but no node that runs may be the primary: a may not open while maintenance is on, " +
			"b may not open while maintenance is on (c is not heard of). Start the agent on c: nothing is lost, and writes go on by themselves."},
		{"a:replica b:replica:away c:replica:away", maintenanceOf("c"), "2 of 3 voters must run, and 1 does: a (b and c are not heard of). " +
			"Start the agent on c: nothing is lost, and writes go on by themselves."},
		{"a:replica b:replica c:replica", maintenanceOf(""), "3 of 3 voters run, a majority, but no node that runs may be the primary: a may not open while maintenance is on, " +
			"b may not open while maintenance is on, c may not open while maintenance is on."},
	})
}

func checkQuorum(t *testing.T, rows []quorumRow) {
	t.Helper()
	for _, c := range rows {
		s := sightOf(t, c.sight)
		if c.with != nil {
			c.with(&s)
		}
		q := s.Quorum()
		got := q.String()
		if s.Primary == "" {
			got = q.NoPrimary("a")[0]
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%+v", c.sight, diff, q)
		}
	}
}

// TestQuorumIsWhatHappens breaks each combination of nodes: the cluster survives as many failures as it says,
// and some combination with one failure more is too many.
func TestQuorumIsWhatHappens(t *testing.T) {
	for _, text := range []string{
		"a:primary b:replica c:replica", "a:primary b:replica c:replica d:replica e:replica", "a:primary b:replica l:logger",
		"a:primary b:replica:w0 c:replica d:learner:ack", "a:primary b:replica c:replica:away d:replica e:replica",
		"a:primary:site=x b:replica:site=x c:replica:site=y d:replica:site=y e:replica:site=z",
		"a:primary:old b:replica:new l:logger:old", "a:primary:new b:replica:new c:replica:old d:replica:old e:replica:new",
	} {
		s := sightOf(t, text)
		if strings.Contains(text, "site=") {
			s.State.Durability = cluster.DurabilitySiteMajority
		}
		survives, least := s.Quorum().Survives, len(s.Nodes)
		for lost := range 1 << len(s.Nodes) {
			failures := 0
			broken := reached(s, func(n Node) bool {
				fails := n.Reachable && lost&(1<<(n.ID-1)) != 0
				if fails {
					failures++
				}
				return n.Reachable && !fails
			})
			if q := broken.Quorum(); q.Survives < 0 {
				least = min(least, failures)
				checkStarts(t, text, broken, q.Start)
			}
		}
		if survives != least-1 {
			t.Errorf("%s: survives %d, and %d failures are too many", text, survives, least)
		}
	}
}

// reached returns the sight with other nodes reachable.
func reached(s Sight, is func(Node) bool) Sight {
	s.Nodes = slices.Clone(s.Nodes)
	for i, n := range s.Nodes {
		s.Nodes[i].Reachable = is(n)
	}
	return s
}

// checkStarts: each of the sets of starts is enough, and no smaller set is.
func checkStarts(t *testing.T, text string, broken Sight, sets [][]string) {
	t.Helper()
	for _, set := range sets {
		for without := -1; without < len(set); without++ {
			mended := reached(broken, func(n Node) bool {
				i := slices.Index(set, n.Name)
				return n.Reachable || i >= 0 && i != without
			})
			if goesOn := mended.Quorum().Survives >= 0; goesOn != (without < 0) {
				t.Errorf("%s: start %v without number %d of them: writes go on %t", text, set, without, goesOn)
			}
		}
	}
}

// TestNoPrimaryText checks the whole text for one case.
func TestNoPrimaryText(t *testing.T) {
	got := strings.Join(sightOf(t, "a:replica b:replica:away c:replica:away").Quorum().NoPrimary("a"), "\n")
	want := `2 of 3 voters must run, and 1 does: a (b and c are not heard of). Start the agent on b or c: nothing is lost, and writes go on by themselves.
If one of these agents runs already, node a is cut off from it: see ` + "`quorate status`" + ` there.
If disks are gone for good: docs/operations.md, "A majority is gone for good".`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNoPrimaryNamesTheCommand: where a majority runs and none of it may be the primary, the lines say which
// command lets a node, and no word of a majority that is gone.
func TestNoPrimaryNamesTheCommand(t *testing.T) {
	const cutOff = "If one of these agents runs already, node a is cut off from it: see `quorate status` there."
	for _, c := range []struct {
		sight string
		with  func(*Sight)
		want  []string // behind the first line
	}{
		{"a:replica b:replica c:replica:away", maintenanceOf("c"), []string{cutOff, "Or let another node open: `quorate switchover --to a`, or `quorate maintenance off`."}},
		{"a:fenced b:replica c:replica:away", maintenanceOf("c"), []string{cutOff, "Or let another node open: `quorate switchover --to b`, or `quorate maintenance off`."}},
		{"a:fenced b:replica:w0 c:replica:away", maintenanceOf("c"), []string{cutOff, "If disks are gone for good: docs/runbook.md, \"QuorateNoPrimary\"."}},
		{"a:replica b:replica c:replica", maintenanceOf(""), []string{"Let a node open: `quorate switchover --to a`, or `quorate maintenance off`."}},
		{"l:logger b:replica:w0 c:replica:away", nil, []string{cutOff, "Or let another node open: `quorate node set b --weight 5`."}},
		{"a:replica:w0 b:replica:w0 c:replica:w0", nil, []string{"Let a node open: `quorate node set a --weight 5`."}},
		{"a:replica b:replica c:replica:away", durabilityAll, []string{cutOff, "If disks are gone for good: docs/runbook.md, \"QuorateNoPrimary\"."}},
		{"a:replica b:learner:away c:learner:away", outgoing(1, 2, 3), []string{cutOff, "If disks are gone for good: docs/operations.md, \"A majority is gone for good\"."}},
	} {
		s := sightOf(t, c.sight)
		if c.with != nil {
			c.with(&s)
		}
		if diff := cmp.Diff(c.want, s.Quorum().NoPrimary("a")[1:]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.sight, diff)
		}
	}
}

// TestNoLeaseOfVotersOfBefore: while a change of the members is not complete, a majority of the old voters must
// promise a lease, too.
func TestNoLeaseOfVotersOfBefore(t *testing.T) {
	s := sightOf(t, "a:primary:new b:replica:new c:replica:old d:learner:old")
	if why := s.NoLease("b"); why != "" {
		t.Errorf("without a change: %s", why)
	}
	s.Outgoing = []cluster.NodeID{2, 3, 4}
	if why := s.NoLease("b"); why != "c runs quorate 1, d runs quorate 1, which promises no lease: upgrade it" {
		t.Errorf("with two of three former voters old: %q", why)
	}
	if why := s.NoLease("c"); why != "" {
		t.Errorf("an old one: %s", why)
	}
}

// TestFailoverNeedsAMajority: one of three voters is down. If the primary's mysqld dies, there is a failover.
// If the primary's agent dies, there is none, because its vote is missing.
func TestFailoverNeedsAMajority(t *testing.T) {
	times := FailoverTimes{Process: 200 * time.Millisecond, Host: 1500 * time.Millisecond, Open: 100 * time.Millisecond}
	whole := func(to string) string {
		return fmt.Sprintf("failover now ≈ 0.3 s to %s (≈ 1.6 s if the host of the primary is gone)", to)
	}
	part := func(until string) string {
		return "if a's mysqld dies, b takes over in ≈ 0.3 s; if a's agent or host dies, no writes until " + until
	}
	for sight, want := range map[string]string{
		"a:primary b:replica c:replica":                                    whole("b"),
		"a:primary b:replica c:replica:away":                               part("a or c is back"),
		"a:primary b:replica":                                              part("a is back"),
		"a:primary b:replica l:logger":                                     whole("b"),
		"a:primary b:replica l:logger:away":                                part("a or l is back"),
		"a:primary b:replica c:replica d:replica":                          whole("b"),
		"a:primary b:replica c:replica d:replica:away":                     part("a or d is back"),
		"a:primary b:replica c:replica d:replica:away e:replica:away":      part("a, d or e is back"),
		"a:primary b:replica c:replica d:replica e:replica:away":           whole("b"),
		"a:primary:ack b:replica c:replica":                                part("a is back"),
		"a:primary b:replica c:replica:full":                               part("a is back"),
		"a:primary:site=x b:replica:site=y c:replica:site=y":               part("a is back"),
		"a:primary:site=x b:replica:site=y c:replica:site=y d:never:w0":    part("a is back"),
		"a:primary:site=x b:replica:site=y c:starting:site=z d:replica:w0": whole("b"),
		"a:primary:old b:replica:new l:logger:new":                         whole("b"),
		"a:primary:old b:replica:old l:logger:new":                         whole("b"),
		"a:primary:new b:replica:new l:logger:old":                         part("a is back"),
		"a:primary:old b:replica:new l:logger:old":                         "failover now: b cannot open: a runs quorate 1, l runs quorate 1, which promises no lease: upgrade it",
	} {
		s := sightOf(t, sight)
		if strings.Contains(sight, "site=") {
			s.State.Durability = cluster.DurabilitySiteMajority
		}
		f := EstimateFailover(s, "b", times)
		if got := f.String(); got != want || f.To != "" && (f.HostSeconds == 0) != (f.Until != nil) {
			t.Errorf("%s:\n got %s\nwant %s\n%+v", sight, got, want, f)
		}
	}
}

// TestFailoverWhileWritesWait: no word of a failover reads as if writes went on.
func TestFailoverWhileWritesWait(t *testing.T) {
	times := FailoverTimes{Process: 200 * time.Millisecond, Host: 1500 * time.Millisecond, Open: 100 * time.Millisecond}
	for sight, want := range map[string]string{
		"a:replica b:primary c:replica:ack:away": "if b's mysqld dies, a takes over in ≈ 0.3 s, and writes wait there, too; if b's agent or host dies, they wait until c is back",
		"a:replica b:primary c:replica:ack:full": "if b's mysqld dies, a takes over in ≈ 0.3 s, and writes wait there, too",
	} {
		f := EstimateFailover(sightOf(t, sight), "a", times)
		if f.String() != want || !f.Waiting || f.HostSeconds != 0 {
			t.Errorf("%s:\n got %s\nwant %s\n%+v", sight, f, want, f)
		}
	}
}
