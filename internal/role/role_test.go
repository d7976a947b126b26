package role

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestScripts runs the files in testdata. Each file is a life of node 1. The node is a logger if the file's
// name begins with "logger". A deposed primary is killed at once, unless the name begins with "settle". A
// directive has one input or several, one on each line. Its output is the effects and the state after them.
//
//	tick 100ms | raft term=2 leader=1 | done ok [incarnation=1] | done failed why
//	exited [incarnation:]why | progress | doubt why | log why | log ok | stop
//	peers 2:replica:10 3:starting:0:dead 4:replica:10:log-bad 5:logger:0:logger
//	move to=2 | restart [dry-run] | chosen term=3 | fenced why | fenced ok
//	peers no-lease=n3-is-old 3:replica:10 (as the leader it would get none)
//	peers held=2 1::10 2:replica:10 (maintenance: only node 2 may open)
//	peers 1::10:w0 2:replica:10:w9:lag=700ms:log=20 (node 1 is this one)
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		cfg := testConfig()
		if strings.HasPrefix(filepath.Base(path), "logger") {
			cfg.Kind = cluster.KindLogger
		}
		if strings.HasPrefix(filepath.Base(path), "settle") {
			cfg.SettleTimeout = 2 * time.Second
		}
		n := New(cfg)
		now := time.Duration(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.SplitSeq(strings.TrimSpace(d.Cmd+" "+argText(d)+"\n"+d.Input), "\n") {
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
	return Config{Self: 1, Kind: cluster.KindFull, Weight: cluster.WeightDefault, RetryAfter: time.Second, FencedAfter: 5 * time.Second,
		PromotionTimeout: 30 * time.Second, IdleLeaderTimeout: 5 * time.Second, StopTimeout: 3 * time.Second, SteadyAfter: time.Minute}
}

func argText(d *datadriven.TestData) string {
	var words []string
	for _, a := range d.CmdArgs {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

func parseInput(t *testing.T, n *Machine, now *time.Duration, line string) Input {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "tick":
		*now += mustDuration(t, rest)
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
		in := MysqldExited{Incarnation: n.mysqld.incarnation, Reason: unquote(rest)}
		if number, why, ok := strings.Cut(rest, ":"); ok {
			in.Incarnation, in.Reason = mustUint(t, number), unquote(why)
		}
		return in
	case "progress":
		return Progress{}
	case "doubt":
		return Doubt{Incarnation: n.mysqld.incarnation, Reason: unquote(rest)}
	case "log":
		return LogTrouble{Reason: unquote(strings.TrimSpace(strings.TrimPrefix(rest, "ok")))}
	case "peers":
		return parsePeers(t, rest)
	case "stop":
		return Stop{}
	}
	return parseOperator(t, verb, rest)
}

// parseOperator reads an operator's request.
func parseOperator(t *testing.T, verb, rest string) Input {
	switch verb {
	case "move":
		return Move{To: cluster.NodeID(mustUint(t, strings.TrimPrefix(rest, "to="))), Reason: "as asked"}
	case "restart":
		return Restart{Reason: "as asked", DryRun: rest == "dry-run"}
	case "chosen":
		return Chosen{Term: mustUint(t, strings.TrimPrefix(rest, "term="))}
	case "fenced":
		return Fenced{Reason: unquote(strings.TrimSpace(strings.TrimPrefix(rest, "ok")))}
	}
	t.Fatalf("unknown input %q", verb)
	return nil
}

func unquote(s string) string { return strings.ReplaceAll(s, "-", " ") }

func parseDone(t *testing.T, n *Machine, rest string) Input {
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
	in := Peers{Own: Peer{ID: 1, Weight: cluster.WeightDefault}}
	for w := range strings.FieldsSeq(rest) {
		if id, ok := strings.CutPrefix(w, "held="); ok {
			in.Held, in.HeldFor = true, cluster.NodeID(mustUint(t, id))
			continue
		}
		if why, ok := strings.CutPrefix(w, "no-lease="); ok {
			in.NoLease = unquote(why)
			continue
		}
		f := strings.Split(w, ":")
		p := Peer{
			ID: cluster.NodeID(mustUint(t, f[0])), Name: "n" + f[0], Live: true, Role: status.Role(f[1]),
			Kind: cluster.KindFull, Weight: cluster.WeightDefault, Applied: mustUint(t, f[2]), LogLast: mustUint(t, f[2]),
		}
		for _, what := range f[3:] {
			log, isLog := strings.CutPrefix(what, "log=")
			lag, isLag := strings.CutPrefix(what, "lag=")
			weight, isWeight := strings.CutPrefix(what, "w")
			switch {
			case what == "dead":
				p.Live = false
			case what == "unlike":
				p.Unlike = true
			case what == "log-bad":
				p.LogBad = true
			case what == "logger":
				p.Kind = cluster.KindLogger
			case isLog:
				p.LogLast = mustUint(t, log)
			case isLag:
				p.Lag = mustDuration(t, lag)
			case isWeight:
				p.Weight = int(mustUint(t, weight))
			default:
				t.Fatalf("unknown word %q of a peer", what)
			}
		}
		if p.ID == 1 {
			in.Own = p
		} else {
			in.Peers = append(in.Peers, p)
		}
	}
	return in
}

func mustDuration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustUint(t *testing.T, s string) uint64 {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
