package status

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

func TestTimingTrouble(t *testing.T) {
	status := func(heartbeat, election time.Duration) Node {
		return Node{Name: "b", Kind: cluster.KindFull, Heartbeat: heartbeat, ElectionTimeout: election}
	}
	learner := status(time.Second, 5*time.Second)
	learner.Kind = cluster.KindLearner
	for name, c := range map[string]struct {
		own, other Node
		want       string
	}{
		"equal":         {status(100*time.Millisecond, time.Second), status(100*time.Millisecond, time.Second), ""},
		"just":          {status(200*time.Millisecond, 5*time.Second), status(time.Second, time.Second), ""},
		"not known":     {status(time.Second, 5*time.Second), status(0, 0), ""},
		"never leads":   {status(100*time.Millisecond, time.Second), learner, ""},
		"own heartbeat": {status(400*time.Millisecond, 5*time.Second), status(100*time.Millisecond, time.Second), "raft.heartbeat 400ms is too long for node b, whose raft.election_timeout is 1s: at most a fifth of that"},
		"own timeout":   {status(100*time.Millisecond, time.Second), status(400*time.Millisecond, 5*time.Second), "raft.election_timeout 1s is too short for node b, whose raft.heartbeat is 400ms: at least five times that"},
	} {
		if got := TimingTrouble(c.own, c.other); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestNoLease(t *testing.T) {
	const now, before, away = "now", "before", "away"
	for name, c := range map[string]struct {
		nodes []string
		want  bool // there is a reason
	}{
		"all new":                       {[]string{now, now, now}, false},
		"one of before":                 {[]string{now, now, before}, false},
		"two of before":                 {[]string{now, before, before}, true},
		"one of before, one away":       {[]string{now, away, before}, true},
		"no majority anyway":            {[]string{now, away, away}, false},
		"two of four of before":         {[]string{now, now, before, before}, true},
		"alone":                         {[]string{now}, false},
		"five, two of before, one away": {[]string{now, now, away, before, before}, true},
	} {
		var members []cluster.Member
		var nodes []Node
		for i, kind := range c.nodes {
			id := cluster.NodeID(i + 1)
			members = append(members, cluster.Member{ID: id, Name: string(rune('a' + i)), Kind: cluster.KindFull})
			n := Node{ID: id, Reachable: kind != away, AgentVersion: "0.1"}
			if kind == now {
				n.ElectionTimeout = time.Second
			}
			nodes = append(nodes, n)
		}
		members = append(members, cluster.Member{ID: 9, Name: "learner", Kind: cluster.KindLearner})
		if got := NoLease(members, nodes); (got != "") != c.want {
			t.Errorf("%s: %q, want a reason: %t", name, got, c.want)
		}
	}
}
