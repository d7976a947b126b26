package recovery

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	u1 = "11111111-1111-1111-1111-111111111111"
	u2 = "22222222-2222-2222-2222-222222222222"
)

// reports makes a node that answers. of is what it has beside u1's first ten transactions.
func reports(name string, term, last uint64, of string, change ...func(*Report)) Finding {
	r := &Report{Node: name, Log: Log{First: 1, Last: last, Term: term, GTIDs: strings.TrimSuffix(u1+":1-10,"+of, ",")}}
	for _, c := range change {
		c(r)
	}
	return Finding{Name: name, Voter: true, Reachable: true, Report: r}
}

// refuses makes a node that answers, but does not talk to the survivor.
func refuses(name string) Finding {
	return Finding{Name: name, Voter: true, Reachable: true, Refuses: true, Problem: "another data directory"}
}

func silent(name string) Finding {
	return Finding{Name: name, Voter: true, Problem: "connection refused"}
}

// checkCase is one line of the table: may the survivor go on, and what is lost? The survivor is a, with a log of 20
// entries, the last of term 3.
type checkCase struct {
	name   string
	voters []string
	change func(*Situation)
	nodes  []Finding
	// accept is what a person names. refused is a part of the reason why the recovery is refused nevertheless; "" if
	// it is allowed.
	accept, refused string
	loss            string
}

func voters(names ...string) []string { return names }

// gone returns the nodes of there, and behind them nodes that do not answer.
func gone(names string, there ...Finding) []Finding {
	for name := range strings.FieldsSeq(names) {
		there = append(there, silent(name))
	}
	return there
}

// whoIsThere: if a majority is there, no recovery is needed.
func whoIsThere() []checkCase {
	three, five := voters("a", "b", "c"), voters("a", "b", "c", "d", "e")
	hearsC := func(r *Report) { r.Hears = []string{"c"} }
	followsC := func(r *Report) { r.Leader = "c" }
	before := func(s *Situation) { s.Outgoing = three }
	out := func(s *Situation) { s.Out = "recovered on b" }
	outAsWell := func(r *Report) { r.Out = "b was recovered without" }
	heals := Finding{Name: "c", Voter: true, Reachable: true, Problem: "its log is being healed"}
	return []checkCase{
		{name: "nobody answers", voters: three, nodes: gone("b c"), loss: None},
		{name: "nobody answers, and nothing is given up", voters: three, nodes: gone("b c"), accept: None, loss: None},
		{name: "a majority is there", voters: three, nodes: gone("c", reports("b", 3, 20, "")),
			refused: "there is nothing to recover: b of the 3 voters are up: with node a they are a majority, which elects by itself; start the agent of node a", loss: None},
		{name: "a majority is there, whatever is said", voters: three, nodes: gone("c", reports("b", 4, 20, u2+":1")),
			accept: u2 + ":1", refused: "start the agent of node a; if it ends because its data are an older copy, put the newest data_dir back, or \"quorate node rebuild a\" on another node, and start it again", loss: u2 + ":1"},
		{name: "a majority is there, seen by another node", voters: five, nodes: gone("c d e", reports("b", 3, 20, "", hearsC)),
			refused: "there is nothing to recover: b, c of the 5 voters are up: with node a they are a majority", loss: None},
		{name: "a majority would be there, with one that cannot vote", voters: five, nodes: gone("d e", reports("b", 3, 20, "", hearsC), heals),
			refused: "node c answers, but does not say what it has: its log is being healed", loss: None},
		{name: "with one that cannot vote, which is given up", voters: five, nodes: gone("d e", reports("b", 3, 20, "", hearsC), heals),
			accept: None, loss: None},
		{name: "a majority would be there, with one that is out", voters: three, nodes: gone("c", reports("b", 3, 20, "", outAsWell)),
			refused: "b was recovered without", loss: None},
		{name: "one that is out, which is given up", voters: three, nodes: gone("c", reports("b", 3, 20, u2+":1", outAsWell)),
			accept: u2 + ":1", loss: u2 + ":1"},
		{name: "a leader that nobody here sees", voters: five, nodes: gone("c d e", reports("b", 3, 20, "", followsC)),
			accept: None, refused: "node b follows a leader, c", loss: None},
		{name: "a learner alone", voters: voters("b", "c", "d"), nodes: gone("b c d"), loss: None},
		{name: "a voter beside a learner", voters: voters("b", "c", "d"), nodes: gone("c d", reports("b", 3, 20, "")), loss: None},
		{name: "the voters change: no majority of before", voters: voters("a", "b"), change: before, nodes: gone("b c"), loss: None},
		{name: "the voters change: a majority of before alone", voters: voters("a", "d"), change: before,
			nodes: gone("c d", reports("b", 3, 20, "")), loss: None},
		{name: "the voters change: a majority of both", voters: voters("a", "b"), change: before,
			nodes: gone("c", reports("b", 3, 20, "")), refused: "there is nothing to recover", loss: None},
		{name: "a cluster of one", voters: voters("a"), accept: None, refused: "there is nothing to recover: node a is the only voter; start the agent of node a", loss: None},
		{name: "recovered elsewhere already", voters: three, change: out, nodes: gone("b c"), refused: "recovered on b", loss: None},
		{name: "recovered elsewhere already, and that one is gone", voters: three, change: out, nodes: gone("b c"), accept: None, loss: None},
		{name: "a cluster of one that was recovered elsewhere", voters: voters("a"), change: out, accept: None, loss: None},
	}
}

// whoRefuses: voters that answer may be a majority, whether or not they say what they have.
func whoRefuses() []checkCase {
	three, five := voters("a", "b", "c"), voters("a", "b", "c", "d", "e")
	older := func(name string) Finding {
		return Finding{Name: name, Voter: true, Reachable: true, Problem: "its quorate is older"}
	}
	hearsC := func(r *Report) { r.Hears = []string{"c"} }
	before := func(s *Situation) { s.Outgoing = three }
	const majority = "voters may run without the data of this node, because these nodes answer: "
	return []checkCase{
		{name: "all others refuse", voters: three, nodes: []Finding{refuses("b"), refuses("c")}, refused: "a majority of the 3 " + majority + "b, c;", loss: None},
		{name: "all others refuse, whatever is said", voters: three, nodes: []Finding{refuses("b"), refuses("c")}, accept: None,
			refused: "a majority of the 3 " + majority + "b, c;", loss: None},
		{name: "no other says what it has", voters: three, nodes: []Finding{older("b"), older("c")}, accept: None, refused: majority + "b, c;", loss: None},
		{name: "one refuses, and another is in the survivor's place", voters: three, nodes: gone("c", refuses("b")), accept: None,
			refused: majority + "b;", loss: None},
		{name: "one refuses, and another hears it", voters: five, nodes: gone("d e", reports("b", 3, 20, "", hearsC), refuses("c")), accept: None,
			refused: majority + "b, c;", loss: None},
		{name: "one refuses, too few answer", voters: five, nodes: gone("c d e", refuses("b")),
			refused: "node b answers, but does not say what it has: another data directory", loss: None},
		{name: "one refuses, too few answer, and it is given up", voters: five, nodes: gone("c d e", refuses("b")), accept: None, loss: None},
		{name: "learners refuse", voters: voters("a", "d", "e"), nodes: gone("d e", refuses("b"), refuses("c")), accept: None, loss: None},
		{name: "the voters change: a majority of before refuses", voters: voters("a", "d", "e"), change: before,
			nodes: gone("d e", refuses("b"), refuses("c")), accept: None, refused: majority + "b, c;", loss: None},
		{name: "a learner is refused", voters: voters("b"), nodes: []Finding{refuses("b")}, accept: None, refused: majority + "b;", loss: None},
	}
}

// whoCalls: nodes that the survivor cannot ask dial it.
func whoCalls() []checkCase {
	three, five := voters("a", "b", "c"), voters("a", "b", "c", "d", "e")
	from := func(callers ...Caller) func(*Situation) { return func(s *Situation) { s.Callers = callers } }
	recovers := func(r *Report) { r.Recovers = true }
	return []checkCase{
		{name: "a node that it does not know", voters: three, change: from(Caller{Name: "x", From: "10.0.0.9", Stranger: true}), nodes: gone("b c"), accept: None,
			refused: "node x of this cluster dials this node from 10.0.0.9, and node a does not know it", loss: None},
		{name: "a node that has removed it", voters: three, change: from(Caller{Name: "x", From: "10.0.0.9:7400", Stranger: true, Said: "node a was removed"}), nodes: gone("b c"), accept: None,
			refused: "node x, which [[added]] in the node.toml of node a names, answers at 10.0.0.9:7400: node a was removed. The cluster may run without node a", loss: None},
		{name: "a member with another data directory", voters: five, change: from(Caller{Name: "b", From: "10.0.0.9", Stranger: true}), nodes: gone("b c d e"), accept: None,
			refused: "node b of this cluster dials this node from 10.0.0.9", loss: None},
		{name: "a member that is not reached", voters: five, change: from(Caller{Name: "b", From: "10.0.0.9"}), nodes: gone("b c d e"),
			refused: "node b answers, but does not say what it has: it dials this node from 10.0.0.9, and this node does not reach it: connection refused", loss: None},
		{name: "members that are not reached, a majority", voters: five, change: from(Caller{Name: "b", From: "1"}, Caller{Name: "c", From: "2"}, Caller{Name: "d", From: "3"}),
			nodes: gone("b c d e"), accept: None, refused: "because these nodes answer: b, c, d;", loss: None},
		{name: "a member that was asked", voters: five, change: from(Caller{Name: "b", From: "10.0.0.9"}), nodes: gone("c d e", reports("b", 3, 20, "")), loss: None},
		{name: "two are recovered at once, a majority", voters: three, nodes: gone("c", reports("b", 3, 20, "", recovers)), accept: None,
			refused: "\"quorate recover\" runs on node b, too", loss: None},
		{name: "all are recovered at once", voters: three, nodes: []Finding{reports("b", 3, 20, "", recovers), reports("c", 3, 20, "", recovers)}, accept: None,
			refused: "\"quorate recover\" runs on node b, too", loss: None},
		{name: "two are recovered at once, and a majority is there", voters: five, nodes: gone("e", reports("b", 3, 20, "", recovers), reports("c", 3, 20, ""), reports("d", 3, 20, "")),
			accept: None, refused: "there is nothing to recover: c, d of the 5 voters are up", loss: None},
		{name: "two are recovered at once", voters: five, nodes: gone("c d e", reports("b", 3, 20, "", recovers)), accept: None,
			refused: "\"quorate recover\" runs on node b, too", loss: None},
	}
}

// whatIsLost: the recovery has to be on the node that has the most.
func whatIsLost() []checkCase {
	three, five := voters("a", "b", "c"), voters("a", "b", "c", "d", "e")
	healing := Finding{Name: "b", Voter: true, Reachable: true, Problem: "its log is being healed"}
	learner := Finding{Name: "l", Reachable: true, Report: reports("l", 3, 22, u2+":1-2").Report}
	longer := gone("c d e", reports("b", 3, 21, u2+":1-3"))
	logger := func(first uint64) func(*Situation) {
		return func(s *Situation) { s.Mysqld, s.Log.First = false, first }
	}
	return []checkCase{
		{name: "what is not lost is given up", voters: three, nodes: gone("b c"), accept: u1 + ":11",
			refused: "what is known to be lost is none, not " + u1 + ":11", loss: None},
		{name: "a later term", voters: five, nodes: gone("c d e", reports("b", 4, 2, u2+":1-3")),
			refused: "node b has a newer log", loss: u2 + ":1-3"},
		{name: "a longer log", voters: five, nodes: longer, refused: "node b has a newer log", loss: u2 + ":1-3"},
		{name: "an older term, though longer", voters: five, nodes: gone("c d e", reports("b", 2, 99, "")), loss: None},
		{name: "the best of two", voters: five, nodes: gone("c d e", reports("b", 3, 21, u2+":1"), learner),
			refused: "node l has a newer log", loss: u2 + ":1-2"},
		{name: "a longer log is given up, too little", voters: five, nodes: longer, accept: u2 + ":1-2",
			refused: "what is known to be lost is " + u2 + ":1-3", loss: u2 + ":1-3"},
		{name: "a longer log is given up", voters: five, nodes: longer, accept: strings.ToUpper(u2) + ":3:1-2", loss: u2 + ":1-3"},
		{name: "an older log has more transactions", voters: five, nodes: gone("c d e", reports("b", 2, 99, u2+":7")),
			refused: "1 transactions of other nodes would be lost: " + u2 + ":7; --accept-loss", loss: u2 + ":7"}, // of a term of which nothing was committed
		{name: "one answers and does not say", voters: three, nodes: gone("c", healing),
			refused: "node b answers, but does not say what it has: its log is being healed", loss: None},
		{name: "one answers and does not say, and is given up", voters: three, nodes: gone("c", healing), accept: None, loss: None},
		{name: "a logger", voters: three, change: logger(1), nodes: gone("b c"), loss: None},
		{name: "a logger without the beginning", voters: three, change: logger(5), nodes: gone("b c"),
			accept: None, refused: "its log begins at entry 5: no mysqld can be built from it", loss: None},
	}
}

// TestCheck checks each line of the table.
func TestCheck(t *testing.T) {
	for _, tc := range slices.Concat(whoIsThere(), whoRefuses(), whoCalls(), whatIsLost()) {
		t.Run(tc.name, func(t *testing.T) {
			s := Situation{Cluster: "x", Survivor: "a", Mysqld: true, Voters: tc.voters, Nodes: tc.nodes,
				Log: Log{First: 1, Last: 20, Term: 3, GTIDs: u1 + ":1-10"}}
			if tc.change != nil {
				tc.change(&s)
			}
			v, err := Check(s)
			if err != nil {
				t.Fatal(err)
			}
			why, err := v.Refusal(tc.accept)
			if err != nil {
				t.Fatal(err)
			}
			if (why == "") != (tc.refused == "") || !strings.Contains(why, tc.refused) {
				t.Errorf("refused with %q, want %q", why, tc.refused)
			}
			if diff := cmp.Diff(tc.loss, v.Loss()); diff != "" {
				t.Errorf("loss (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRecord: what is unknown is not written down as nothing.
func TestRecord(t *testing.T) {
	for _, c := range []struct {
		nodes []Finding
		want  string
	}{
		{gone("", reports("b", 3, 19, ""), reports("c", 3, 19, "")), "none"},
		{gone("", reports("b", 3, 19, ""), reports("c", 2, 99, u2+":7")), u2 + ":7"},
		{gone("b c"), "what only b, c had, which is not known"},
		{gone("c", reports("b", 3, 19, "")), "what only c had, which is not known"},
		{gone("c", reports("b", 2, 99, u2+":7")), u2 + ":7, and what only c had, which is not known"},
	} {
		v, err := Check(Situation{Survivor: "a", Mysqld: true, Voters: voters("a", "b", "c"),
			Log: Log{First: 1, Last: 20, Term: 3, GTIDs: u1 + ":1-10"}, Nodes: c.nodes})
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Record(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestChanged: what is done is what a person has agreed to.
func TestChanged(t *testing.T) {
	three := []string{"a", "b", "c"}
	check := func(nodes []Finding) Verdict {
		v, err := Check(Situation{Survivor: "a", Mysqld: true, Voters: three, Log: Log{First: 1, Last: 20, Term: 3, GTIDs: u1 + ":1-10"}, Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	older := reports("b", 2, 9, "")
	for name, c := range map[string]struct {
		later []Finding
		want  bool
	}{
		"the same":              {gone("c", older), false},
		"it does not answer":    {gone("b c"), true},
		"it has something":      {gone("c", reports("b", 2, 9, u2+":1")), true},
		"it does not say":       {gone("c", Finding{Name: "b", Voter: true, Reachable: true, Problem: "x"}), true},
		"it follows a leader":   {gone("c", reports("b", 2, 9, "", func(r *Report) { r.Leader = "c" })), true},
		"the other one is back": {[]Finding{older, reports("c", 2, 9, "")}, true},
	} {
		v := check(gone("c", older))
		if got := v.Changed(check(c.later)); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestRefusalReadsWhatIsAccepted: a text that is no GTID set is no acceptance.
func TestRefusalReadsWhatIsAccepted(t *testing.T) {
	v, err := Check(Situation{Survivor: "a", Mysqld: true, Voters: []string{"a", "b", "c"}, Nodes: []Finding{silent("b"), silent("c")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Refusal("everything"); err == nil || !strings.Contains(err.Error(), `it is "none" or a set of GTIDs`) {
		t.Errorf("it takes it: %v", err)
	}
}
