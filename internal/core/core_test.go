package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/quorate/quorate/internal/cluster"
)

// TestScripts runs testdata: each file is a life of node 1. A directive is an
// input, its output the effects and the state after it.
//
//	tick 100ms | raft term=2 leader=1 | done ok [incarnation=1] | done failed why
//	exited [incarnation:]why | progress | doubt why | log why | log ok | stop
//	peers 2:replica:10 3:starting:0:dead 4:replica:10:log-bad
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		n := New(testConfig())
		now := time.Duration(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.SplitSeq(strings.TrimSpace(d.Cmd+" "+argText(d)), "\n") {
				in := parseInput(t, n, &now, line)
				for _, e := range n.Step(in) {
					fmt.Fprintln(&out, e)
				}
			}
			fmt.Fprintf(&out, "= %s (%s)", n.Phase(), n.Role())
			if n.Reason() != "" {
				fmt.Fprintf(&out, ": %s", n.Reason())
			}
			return out.String() + "\n"
		})
	})
}

func testConfig() Config {
	return Config{Self: 1, RetryAfter: time.Second, FencedAfter: 5 * time.Second,
		PromotionTimeout: 30 * time.Second, IdleLeaderTimeout: 5 * time.Second, StopTimeout: 3 * time.Second}
}

func argText(d *datadriven.TestData) string {
	var words []string
	for _, a := range d.CmdArgs {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

func parseInput(t *testing.T, n *Node, now *time.Duration, line string) Input {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "tick":
		d, err := time.ParseDuration(rest)
		if err != nil {
			t.Fatal(err)
		}
		*now += d
		return Tick{Now: *now}
	case "raft":
		var r RaftChanged
		if _, err := fmt.Sscanf(rest, "term=%d leader=%d", &r.Term, &r.Leader); err != nil {
			t.Fatal(err)
		}
		r.Leading = r.Leader == 1
		return r
	case "done":
		return parseDone(t, n, rest)
	case "exited":
		in := MysqldExited{Incarnation: n.incarnation, Reason: unquote(rest)}
		if number, why, ok := strings.Cut(rest, ":"); ok {
			in.Incarnation, in.Reason = mustUint(t, number), unquote(why)
		}
		return in
	case "progress":
		return Progress{}
	case "doubt":
		return Doubt{Incarnation: n.incarnation, Reason: unquote(rest)}
	case "log":
		return LogTrouble{Reason: unquote(strings.TrimSpace(strings.TrimPrefix(rest, "ok")))}
	case "peers":
		return parsePeers(t, rest)
	case "stop":
		return Stop{}
	}
	t.Fatalf("unknown input %q", line)
	return nil
}

func unquote(s string) string { return strings.ReplaceAll(s, "-", " ") }

func parseDone(t *testing.T, n *Node, rest string) Input {
	words := strings.Fields(rest)
	d := Done{Op: n.op, Verdict: Verdict(words[0])}
	for _, w := range words[1:] {
		if v, ok := strings.CutPrefix(w, "incarnation="); ok {
			d.Incarnation = mustUint(t, v)
		} else if v, ok := strings.CutPrefix(w, "op="); ok {
			d.Op = OpID(mustUint(t, v))
		} else {
			d.Reason = unquote(w)
		}
	}
	return d
}

func parsePeers(t *testing.T, rest string) Input {
	var in Peers
	for w := range strings.FieldsSeq(rest) {
		f := strings.Split(w, ":")
		in.Peers = append(in.Peers, Peer{
			ID: cluster.NodeID(mustUint(t, f[0])), Live: !slices.Contains(f[3:], "dead"),
			LogBad: slices.Contains(f[3:], "log-bad"), Role: cluster.Role(f[1]),
			Applied: mustUint(t, f[2]), LogLast: mustUint(t, f[2]),
		})
	}
	return in
}

func mustUint(t *testing.T, s string) uint64 {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
