package status

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// TestAckSentences: a plain cluster says nothing about ACKs. A requirement is mentioned, and a problem with it
// is an alarm.
func TestAckSentences(t *testing.T) {
	c := Cluster{Durability: cluster.DurabilityMajority, Nodes: []Node{
		{Name: "a", Reachable: true, AcksWait: []cluster.AckWait{{Node: "c", Entries: 1, Seconds: 0.2}}}, {Name: "c", Reachable: true},
	}}
	if said := c.ackSentences(); said != nil {
		t.Errorf("majority: %v", said)
	}
	c.Nodes[1].RequireAck = "drop-after=2s"
	required := Sentence{LevelOK, topicAcks, "durability majority, require-ack of c (drop-after=2s)"}
	if d := cmp.Diff([]Sentence{required}, c.ackSentences()); d != "" {
		t.Errorf("all is well (-want +got):\n%s", d)
	}
	if one := c.Nodes[0].AcksWait[0].Lacks(); one != "1 entry" {
		t.Errorf("one: %q", one)
	}
	c.Nodes[0].AcksWait = []cluster.AckWait{{Node: "c", Entries: 12, Seconds: 1.25}}
	c.Nodes[0].AcksDropped = []cluster.AckWait{{Node: "d", Unknown: true, Seconds: 61}}
	want := []Sentence{
		required,
		{LevelAlarm, topicAcks, "WRITES WAIT for c: it lacks 12 entries, for 1.2 s. Bring it back; or, if an OK may mean less: `quorate node set c --require-ack=false`"},
		{LevelAlarm, topicAcks, "REQUIRE-ACK DROPPED: writes do not wait for d, which lacks an unknown number of entries, for 61.0 s"},
	}
	if d := cmp.Diff(want, c.ackSentences()); d != "" {
		t.Errorf("alarms (-want +got):\n%s", d)
	}
	c.Durability = cluster.DurabilityAll
	if got := c.waitNoMore("c"); got != ". Bring it back; or, if an OK may mean less: `quorate node set c --require-ack=false` and `quorate cluster set --durability majority`" {
		t.Errorf("both have writes wait: %q", got)
	}
	c.Durability = cluster.DurabilityMajority
	c.Nodes[0].AcksWait, c.Nodes[0].AcksDropped = nil, nil
	c.Nodes[0].StageBlocked = "commits wait for stage 7-41 (3GiB): no majority has room for it, no space left on the disk of b, c"
	c.Primary = c.Nodes[0].Name
	want = []Sentence{required, {LevelAlarm, topicAcks, "WRITES WAIT for a large transaction: stage 7-41 (3GiB): no majority has room for it, no space left on the disk of b, c"}}
	if d := cmp.Diff(want, c.ackSentences()); d != "" {
		t.Errorf("a large transaction waits (-want +got):\n%s", d)
	}
	for i, text := range []string{"no space left on this node's disk for stage 7-41, after 1GiB of it were written", c.Nodes[0].StageBlocked} {
		c.Nodes[i].StageBlocked = text // the second node is no primary
	}
	if d := cmp.Diff([]Sentence{required}, c.ackSentences()); d != "" {
		t.Errorf("no commit waits (-want +got):\n%s", d)
	}
	c.Nodes[0].AcksWait, c.Nodes[0].StageBlocked = []cluster.AckWait{{Node: "c", Entries: 12, Seconds: 1.25}}, c.Nodes[1].StageBlocked
	c.Nodes[0].Reachable = false
	if d := cmp.Diff([]Sentence{required}, c.ackSentences()); d != "" {
		t.Errorf("what an old status says is shown as of now (-want +got):\n%s", d)
	}
}

// TestInWords: the answer has the sentences, and the value that it was made of is unchanged.
func TestInWords(t *testing.T) {
	c := Cluster{Cluster: "orders", Self: "a", Primary: "a", Quorum: &Quorum{Voters: []string{"a", "b"}, Running: []string{"a"}, Away: []string{"b is not heard of"}}, Nodes: []Node{
		{Name: "a", Role: RolePrimary, Reachable: true, Pace: "slow\nreplica"}, {Name: "b", Role: RoleReplica, AgeMs: 2000},
	}}
	got := c.InWords()
	want := []Sentence{{LevelOK, topicPrimary, "cluster orders, primary a, as node a sees it"}, {LevelNotice, topicSurvives, "survives no further failure: 1 of 2 voters run, b is not heard of"}}
	if d := cmp.Diff(want, got.Summary); d != "" {
		t.Errorf("summary (-want +got):\n%s", d)
	}
	about := map[string][]string{"a ok": {"writes: slow replica"}, "b alarm": {"last heard 2s ago, as replica"}}
	for _, n := range got.Nodes {
		if d := cmp.Diff(about[n.Name+" "+string(n.Level)], n.About); d != "" {
			t.Errorf("%s, %s (-want +got):\n%s", n.Name, n.Level, d)
		}
	}
	if c.Summary != nil || c.Nodes[0].Level != "" {
		t.Error("the cluster that was asked has changed")
	}
}

// TestTwoSides: that two sides may take writes comes first and is an alarm, on either side. On the recovered side nobody is
// advised to rebuild the others. It was all green, while its alert was critical.
func TestTwoSides(t *testing.T) {
	c := Cluster{Cluster: "shop", Self: "c", Primary: "c", Recovered: &cluster.Recovery{Node: "c", Without: []cluster.Member{{Name: "a"}, {Name: "b"}}},
		Nodes: []Node{{Name: "c", Role: RolePrimary, Reachable: true}, {Name: "d", TwoSides: true}}}
	if said := c.Sentences(); said[0].Topic != topicPrimary || !strings.Contains(said[1].Text, "node rebuild") {
		t.Errorf("what a node said that is not heard any more counts: %+v", said)
	}
	c.Nodes[0].TwoSides = true
	said := c.Sentences()
	if d := cmp.Diff(Sentence{LevelAlarm, topicTwoSides, "TWO SIDES MAY TAKE WRITES: the cluster was recovered although its majority may run; the line of node c says which agent to stop now"}, said[0]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if said[2].Topic != topicRecovered || strings.Contains(said[2].Text, "rebuild") {
		t.Errorf("%+v", said[2])
	}
}

// TestAboutADeadNode: of a node that is not heard only what lasts is said, such as its own transactions. That its commits
// wait was said for as long as it was down, while all was well elsewhere.
func TestAboutADeadNode(t *testing.T) {
	dead := Node{Name: "a", Role: RolePrimary, AgeMs: 3600e3, Errant: "uuid:1", StageBlocked: "commits wait for stage 7-12 (2GiB)", Pace: "slowed down",
		PurgeBlocked: "node c lacks entries", Source: "b", Events: 2, EventNames: "e1, e2"}
	c := Cluster{Self: "b", Primary: "b", Nodes: []Node{dead, {Name: "b", Role: RolePrimary, Reachable: true}}}
	if d := cmp.Diff([]string{"last heard 1h0m0s ago, as primary", "errant: uuid:1"}, c.AboutNode(dead)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestCutoverSentences: a cutover that was called off while its source may be closed is an alarm, because no
// server takes writes.
func TestCutoverSentences(t *testing.T) {
	for name, c := range map[string]struct {
		closing *cluster.Closing
		want    Level
	}{
		"none": {nil, LevelNotice}, "under way": {&cluster.Closing{}, LevelNotice}, "called off": {&cluster.Closing{CalledOff: true}, LevelAlarm}, "left": {&cluster.Closing{CalledOff: true, Left: "orc has set it"}, LevelAlarm},
	} {
		last, said := LevelOK, 0
		for _, s := range (Cluster{Follow: &cluster.Follow{Source: "db0:3306"}, Closing: c.closing}).Sentences() {
			if s.Topic == topicFollow {
				last = s.Level
				said++
			}
		}
		if last != c.want || (said == 2) != (c.closing != nil) {
			t.Errorf("%s: level %v, %d sentences", name, last, said)
		}
	}
}

// TestUrgency: only a state that a person can rely on counts as well.
func TestUrgency(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Node)
		want   Level
	}{
		"replica":                  {func(*Node) {}, LevelOK},
		"replica, behind":          {func(n *Node) { n.LagSeconds = 300 }, LevelOK},
		"replica that lacks a lag": {func(n *Node) { n.LagUnknown = true }, LevelNotice},
		"replica, applier stopped": {func(n *Node) { n.ApplierStopped = "error 1146: no such table" }, LevelAlarm},
		"starts after it stopped":  {func(n *Node) { n.Role, n.ApplierStopped = RoleStarting, "error 1146: no such table" }, LevelNotice},
		"primary":                  {func(n *Node) { n.Role = RolePrimary }, LevelOK},
		"primary, two sides":       {func(n *Node) { n.Role, n.TwoSides = RolePrimary, true }, LevelAlarm},
		"primary, a trouble":       {func(n *Node) { n.Role, n.Reason = RolePrimary, "the certificate has ended" }, LevelNotice},
		"replica, a trouble":       {func(n *Node) { n.Reason = "its log is damaged" }, LevelNotice},
		"replica, standing advice": {func(n *Node) { n.Reason, n.Advice = "its certificate ends on 2026-05-30", true }, LevelOK},
		"primary, log full":        {func(n *Node) { n.Role, n.LogState = RolePrimary, LogFull }, LevelAlarm},
		"starting":                 {func(n *Node) { n.Role = RoleStarting }, LevelNotice},
		"fenced":                   {func(n *Node) { n.Role = RoleFenced }, LevelAlarm},
		"logger":                   {func(n *Node) { n.Role = RoleLogger }, LevelOK},
		"not heard of":             {func(n *Node) { n.Reachable = false }, LevelAlarm},
	} {
		n := Node{ID: 2, Kind: cluster.KindFull, Role: RoleReplica, Reachable: true, LogState: LogOK}
		c.change(&n)
		if got := n.Urgency(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestSettingsThatAreNotTheRule: default settings get no line.
func TestSettingsThatAreNotTheRule(t *testing.T) {
	c := Cluster{Reseed: cluster.ReseedAuto, Errant: cluster.ErrantKeep}
	if got := c.settings(); got != "" {
		t.Errorf("the rule: %q", got)
	}
	c = Cluster{Reseed: cluster.ReseedManual, Errant: cluster.ErrantRebuild, RetainBytesMax: 3 << 30}
	if got, want := c.settings(), "reseed manual, errant rebuild, retain-max 3GiB"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c.Nodes = []Node{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}
	for by, want := range map[string]string{"b": "fed by b", "": "fed by the leader, not by its source b"} {
		if got := c.fedBy(Node{Source: "b", FedBy: by, Leader: 1}); got != want {
			t.Errorf("fed by %q: %q, want %q", by, got, want)
		}
	}
	if got := c.fedBy(Node{Source: "b", Leader: 2}); got != "fed by b" {
		t.Errorf("its source leads: %q", got)
	}
}

// TestPeersHaveLastLag: agents decide by the last known figures of a node, even if they do not know the present
// ones. A review found this: null became 0, and a replica that was far behind would have been the best one.
func TestPeersHaveLastLag(t *testing.T) {
	n := Node{Name: "a", LagUnknown: true, LagSeconds: 7, LagBytes: 8, LagTransactions: 9}
	text, err := json.Marshal(n.Bounded())
	var got Node
	if err := errors.Join(err, json.Unmarshal(text, &got)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(n, got); d != "" {
		t.Errorf("what a peer has (-want +got):\n%s", d)
	}
}

// TestNotHeardNow: the answer has no role and no lag for a node that is not heard now. The node that receives
// the answer and makes it into words again says the same.
func TestNotHeardNow(t *testing.T) {
	c := Cluster{Self: "a", Nodes: []Node{
		{Name: "a", Role: RoleRemoved},
		{Name: "b", Role: RolePrimary, AgeMs: 3000, LagSeconds: 1, Events: 2, EventNames: "shop.a, shop.b"},
		{Name: "c"},
		{Name: "d", Role: RoleReplica, Refusal: &Refusal{By: "d"}},
		{Name: "e", Role: RoleReplica, Reachable: true},
	}}
	text, err := json.Marshal(c.InWords())
	if err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Nodes []struct {
			Role Role
			Last Role     `json:"role_last"`
			Lag  *float64 `json:"lag_seconds"`
		}
	}
	if err := json.Unmarshal(text, &sent); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		role, last Role
		lag        bool
	}{{RoleRemoved, "", false}, {RoleUnreachable, RolePrimary, false}, {RoleUnknown, "", false}, {RoleRefused, RoleReplica, false}, {RoleReplica, "", true}} {
		if n := sent.Nodes[i]; n.Role != want.role || n.Last != want.last || (n.Lag != nil) != want.lag {
			t.Errorf("node %d is %+v, want %+v", i, n, want)
		}
	}
	var got Cluster
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, got.InWords()); d != "" {
		t.Errorf("in words once more (-first +again):\n%s", d)
	}
}

// TestStranded: a node without a leader that is dialled by nodes which it does not know says so, beside what else is known.
func TestStranded(t *testing.T) {
	c := Cluster{Cluster: "x", Self: "c", Nodes: []Node{{Name: "c", Role: RoleUnverified, Strangers: []Stranger{{"d", "10.0.0.4"}, {"e", "10.0.0.5"}}}},
		Quorum: &Quorum{Voters: []string{"a", "b", "c"}, Running: []string{"c"}, Needed: 2, Survives: -1, Start: [][]string{{"a"}, {"b"}}}}
	said := c.primarySentences()
	if len(said) != 6 || said[1].Text != "Nodes of this cluster that node c does not know dial it: d (from 10.0.0.4) and e (from 10.0.0.5). "+
		"The members were changed while it was away, so the cluster may run without it." || !strings.Contains(said[2].Text, "do not recover this node") {
		t.Errorf("%+v", said)
	}
}

// TestRefusedBySelf: a node that refuses another one because of its data says when the other one is right.
func TestRefusedBySelf(t *testing.T) {
	r := Refusal{By: "c", Of: "a", Why: "another data directory", Data: true}
	if got := r.Sentence("a"); !strings.HasSuffix(got, `"quorate node rebuild c" there takes node c in again`) {
		t.Error(got)
	}
	if got := r.Sentence("c"); strings.Contains(got, "rebuild") {
		t.Error(got)
	}
}
