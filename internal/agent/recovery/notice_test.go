package recovery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/cluster"
)

// TestDecide: a node that has just started, or whose log is being healed, uses what the others say.
func TestDecide(t *testing.T) {
	silent, led, refuses := Word{}, Word{Led: true}, Word{Refuses: true}
	own := func(since time.Duration) Own { return Own{News: true, SinceLeader: since} }
	started, rejected, superseded := own(NeverLed), own(NeverLed), own(0)
	rejected.Rejected, superseded.Superseded = true, true
	for _, c := range []struct {
		name   string
		own    Own
		others []Word
		want   Decision
	}{
		{"has just started", started, nil, Accept},
		{"nobody knows a leader", started, []Word{silent, silent}, Accept},
		{"has a leader", own(0), nil, Reject},
		{"had one just now", own(1), []Word{silent}, Defer},
		{"had one lately", own(LedWithin - 1), nil, Defer},
		{"had one long ago", own(LedWithin), nil, Accept},
		{"another one had", started, []Word{silent, led}, Defer},
		{"another one rejects", started, []Word{led, refuses}, Reject},
		{"another one rejects, and this one had a leader lately", own(1), []Word{refuses}, Reject},
		{"has rejected it before", rejected, []Word{silent}, Reject},
		{"has accepted an earlier one", superseded, nil, Accept},
		{"no news", Own{}, []Word{refuses}, Ignore},
	} {
		if got := Decide(c.own, c.others...); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// town is former members that hear of recoveries, with a clock and a network.
type town struct {
	now   time.Duration
	nodes map[string]*citizen
	names []string
}

// citizen is one of the former members. These fields are durable: known, superseded, rejected.
type citizen struct {
	known      uint64
	superseded *cluster.Recovery
	rejected   Rejected
	unnoted    Rejected // until it restarts
	led        bool
	ledAt      time.Duration // -1 = never
	stopped    *cluster.Recovery
	broken     bool // its disk takes nothing
}

var errBroken = errors.New("disk")

func newTown(names ...string) *town {
	w := &town{nodes: map[string]*citizen{}, names: names}
	for _, n := range names {
		w.nodes[n] = &citizen{ledAt: -1}
	}
	return w
}

func (w *town) own(c *citizen, r cluster.Recovery) Own {
	o := Own{News: r.Version > c.known, Rejected: c.rejected.Has(r), Unnoted: c.unnoted.Has(r), SinceLeader: NeverLed}
	if c.superseded != nil {
		o.Superseded, o.News = true, o.News && r.Version > c.superseded.Version
	}
	switch {
	case c.led:
		o.SinceLeader = 0
	case c.ledAt >= 0:
		o.SinceLeader = max(1, w.now-c.ledAt)
	}
	return o
}

func (w *town) notices(c *citizen) Notices {
	return Notices{
		Look: func(r cluster.Recovery) Own { return w.own(c, r) },
		Reject: func(r cluster.Recovery) error {
			if c.broken {
				c.unnoted = c.unnoted.With(r)
				return errBroken
			}
			c.rejected = c.rejected.With(r)
			return nil
		},
	}
}

// hear tells a node of a recovery; it asks those in reach.
func (w *town) hear(name string, r cluster.Recovery, reach ...string) (Decision, []Word, error) {
	c := w.nodes[name]
	var words []Word
	d, err := w.notices(c).Decide(r, func() []Word {
		for _, other := range reach {
			word, _ := w.notices(w.nodes[other]).Word(r)
			words = append(words, word)
		}
		return words
	})
	if d == Accept {
		c.stopped = &r
		if c.led {
			c.led, c.ledAt = false, w.now
		}
	}
	return d, words, err
}

// confirm ends a node that has accepted.
func (w *town) confirm(name string) (Decision, error) {
	c := w.nodes[name]
	r := *c.stopped
	d, err := w.notices(c).Confirm(r)
	if d == Accept {
		if c.broken {
			err = errBroken
		} else {
			c.superseded = &r
		}
	}
	w.restart(name)
	return d, err
}

func (w *town) restart(name string) {
	c := w.nodes[name]
	c.stopped, c.led, c.ledAt, c.unnoted = nil, false, -1, nil
}

// TestLives runs the scripts of testdata.
func TestLives(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var w *town
		recoveries := map[string]cluster.Recovery{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			arg := func(key string) string {
				if a, ok := d.Arg(key); ok && len(a.Vals) > 0 {
					return a.Vals[0]
				}
				return ""
			}
			list := func(key string) []string { a, _ := d.Arg(key); return a.Vals }
			var node *citizen
			if w != nil && len(d.CmdArgs) > 0 {
				node = w.nodes[d.CmdArgs[0].Key]
			}
			out := ""
			switch d.Cmd {
			case "nodes":
				w = newTown(strings.Fields(strings.TrimSpace(d.Input))...)
				return "ok"
			case "recovery": // of a node, at a version
				version := uint64(0)
				if _, err := fmt.Sscan(arg("version"), &version); err != nil {
					t.Fatal(err)
				}
				recoveries[d.CmdArgs[0].Key] = cluster.Recovery{Version: version, Node: d.CmdArgs[0].Key, At: time.Unix(int64(version), 0)}
				return "ok"
			case "pass":
				took, err := time.ParseDuration(d.CmdArgs[0].Key)
				if err != nil {
					t.Fatal(err)
				}
				w.now += took
				return "ok"
			case "led":
				node.led = true
			case "leaderless":
				node.led, node.ledAt = false, w.now
			case "restart":
				w.restart(d.CmdArgs[0].Key)
			case "disk":
				node.broken = arg("broken") == "true"
			case "asked":
				word, err := w.notices(node).Word(recoveries[arg("of")])
				out = fmt.Sprintf("says refuses=%t led=%t", word.Refuses, word.Led) + failed(err)
			case "hears":
				decision, words, err := w.hear(d.CmdArgs[0].Key, recoveries[arg("of")], list("reaches")...)
				out = decision.String() + failed(err)
				for i, word := range words {
					out += fmt.Sprintf("\n%s says refuses=%t led=%t", list("reaches")[i], word.Refuses, word.Led)
				}
			case "stops":
				decision, err := w.confirm(d.CmdArgs[0].Key)
				out = decision.String() + failed(err)
			default:
				t.Fatalf("%s: no such command", d.Cmd)
			}
			if node.superseded != nil {
				out += "\nout, by the recovery on " + node.superseded.Node
			}
			for _, r := range node.rejected {
				out += "\nrejects the recovery on " + r.Node
			}
			return strings.TrimPrefix(out, "\n")
		})
	})
}

func failed(err error) string {
	if err == nil {
		return ""
	}
	return ", not noted: " + err.Error()
}

// TestNotices drives former members by chance, and checks the invariants of package doc.
func TestNotices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTown("b", "c", "d", "e")
		// Two recoveries that exclude each other, and a third whose node knew of the first.
		recoveries := []cluster.Recovery{
			{Version: 1_000_000, Node: "a", At: time.Unix(1, 0)}, {Version: 1_000_000, Node: "x", At: time.Unix(2, 0)},
			{Version: 2_000_000, Node: "y", At: time.Unix(3, 0)},
		}
		everRejected := map[string]Rejected{}
		pick := func() string { return rapid.SampledFrom(w.names).Draw(t, "node") }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := pick()
			c := w.nodes[name]
			before := c.superseded
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				if c.superseded == nil && c.stopped == nil || c.stopped != nil && c.superseded == nil {
					c.led = true // elected, also while it stops
				}
			case 1:
				if c.led {
					c.led, c.ledAt = false, w.now
				}
			case 2:
				w.restart(name)
			case 3:
				c.broken = !c.broken
			case 4:
				w.now += time.Duration(rapid.IntRange(1, 12).Draw(t, "seconds")) * time.Second
			case 5:
				if c.stopped == nil {
					r := rapid.SampledFrom(recoveries).Draw(t, "recovery")
					var reach []string
					for _, other := range w.names {
						if other != name && rapid.Bool().Draw(t, "reaches") {
							reach = append(reach, other)
						}
					}
					w.mustHear(t, name, r, reach)
				}
			case 6:
				if c.stopped != nil {
					r, own := *c.stopped, w.own(c, *c.stopped)
					if d, _ := w.confirm(name); d == Accept && (own.led() || own.Rejected || own.Unnoted) {
						t.Fatalf("%s notes recovery %v, with %+v", name, r, own)
					}
				}
			}
			if after := c.superseded; after != before && before != nil && after.Version <= before.Version {
				t.Fatalf("%s accepts %v after %v: they exclude each other", name, after, before)
			}
			for _, r := range c.rejected {
				if !everRejected[name].Has(r) {
					everRejected[name] = append(everRejected[name], r)
				}
			}
			if c.superseded != nil && c.superseded != before && everRejected[name].Has(*c.superseded) {
				t.Fatalf("%s accepts %v, which it had rejected", name, c.superseded)
			}
		}
	})
}

// mustHear checks that a node's decision follows from what it and the nodes in reach know.
func (w *town) mustHear(t *rapid.T, name string, r cluster.Recovery, reach []string) {
	led, rejects := false, false
	for _, n := range append(slices.Clone(reach), name) {
		own := w.own(w.nodes[n], r)
		led = led || own.News && own.led()
		rejects = rejects || own.News && (own.Rejected || own.Unnoted)
	}
	d, words, err := w.hear(name, r, reach...)
	if d == Accept && (led || rejects) {
		t.Fatalf("%s accepts %v: led %t, rejects %t", name, r, led, rejects)
	}
	if d == Reject && err == nil && !w.nodes[name].rejected.Has(r) {
		t.Fatalf("%s rejects %v, and has not noted it", name, r)
	}
	for i, word := range words {
		if word.Refuses && !w.nodes[reach[i]].rejected.Has(r) {
			t.Fatalf("%s says that it rejects %v, and has not noted it", reach[i], r)
		}
	}
}

// TestRejectedIsBounded: the newest rejected recoveries are kept.
func TestRejectedIsBounded(t *testing.T) {
	var l Rejected
	r := cluster.Recovery{Node: "c", GTIDs: u1 + ":1-9", Without: []cluster.Member{{Name: "a"}}}
	first := r
	for range rejectedMax + 1 {
		r.Version++
		l = l.With(r)
	}
	first.Version = 1
	if len(l) != rejectedMax || !l.Has(r) || l.Has(first) || l.Version() != r.Version {
		t.Errorf("it keeps %d: %+v", len(l), l)
	}
	if l[0].GTIDs != "" || l[0].Without != nil {
		t.Errorf("it keeps %+v", l[0])
	}
}
