package netlab

import (
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPresets(t *testing.T) {
	type row struct {
		Name                   string
		Kind                   Kind
		AB, AC, BC, BD, CE, DE time.Duration
		ClientA, ClientC       time.Duration
	}
	var got []row
	for _, p := range Presets() {
		if err := p.check(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if want := len(p.Nodes) * (len(p.Nodes) - 1); len(p.Links) != want {
			t.Errorf("%s has %d links, want %d", p.Name, len(p.Links), want)
		}
		for pair, l := range p.Links {
			if l != p.Links[pair.Reverse()] {
				t.Errorf("%s: %v is not as its reverse", p.Name, pair)
			}
		}
		r := p.RTT
		got = append(got, row{p.Name, p.Kind, r("a", "b"), r("a", "c"), r("b", "c"), r("b", "d"), r("c", "e"), r("d", "e"), r(Client, "a"), r(Client, "c")})
	}
	tenth := ms / 10
	want := []row{
		{"same-rack", Veth, tenth, tenth, tenth, tenth, tenth, tenth, tenth, tenth},
		{"same-city", TUN, ms, ms, ms, tenth, tenth, ms, tenth, ms},
		{"two-city", TUN, ms, 30 * ms, 30 * ms, tenth, tenth, 30 * ms, tenth, 30 * ms},
		{"three-city", TUN, 5 * ms, 30 * ms, 30 * ms, tenth, tenth, 30 * ms, tenth, 30 * ms},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("presets (-want +got):\n%s", diff)
	}
}

func TestPresetNamesTheOthers(t *testing.T) {
	if p, err := Preset("two-city"); err != nil || p.Name != "two-city" {
		t.Errorf("Preset(two-city) = %q, %v", p.Name, err)
	}
	_, err := Preset("moon")
	if err == nil || !strings.Contains(err.Error(), `"moon"`) || !strings.Contains(err.Error(), "same-rack, same-city, two-city, three-city") {
		t.Errorf("Preset(moon): %v", err)
	}
}

func TestBadTopologiesAreRefused(t *testing.T) {
	for _, c := range []struct {
		want   string
		spoil  func(*Topology)
		preset string
	}{
		{"has 1 nodes", func(p *Topology) { p.Nodes = p.Nodes[:1] }, "two-city"},
		{`two nodes "a"`, func(p *Topology) { p.Nodes = append(p.Nodes, "a") }, "two-city"},
		{"longer than 12 bytes", func(p *Topology) { p.Nodes = append(p.Nodes, "a-long-long-name") }, "two-city"},
		{`no node "x"`, func(p *Topology) { p.Links[Pair{"a", "x"}] = Link{} }, "two-city"},
		{"to itself", func(p *Topology) { p.Links[Pair{"a", "a"}] = Link{} }, "two-city"},
		{"delay -1ns", func(p *Topology) { p.Links[Pair{"a", "b"}] = Link{Delay: -1} }, "two-city"},
		{"delay 11s", func(p *Topology) { p.Links[Pair{"a", "b"}] = Link{Delay: 11 * time.Second} }, "two-city"},
		{"jitter 2ms", func(p *Topology) { p.Links[Pair{"a", "b"}] = Link{Delay: ms, Jitter: 2 * ms} }, "two-city"},
		{"loss of 1001", func(p *Topology) { p.Links[Pair{"a", "b"}] = Link{LossPerMille: 1001} }, "two-city"},
		{"rate of -1", func(p *Topology) { p.Links[Pair{"a", "b"}] = Link{RateBytesPerSecond: -1} }, "two-city"},
		{"is a veth pair", func(p *Topology) { p.Links[Pair{"a", Client}] = Link{LossPerMille: 1} }, "two-city"},
		{"is a veth pair", func(p *Topology) { p.Links[Pair{"a", "b"}] = Link{RateBytesPerSecond: 1} }, "same-rack"},
		{"unknown kind 7", func(p *Topology) { p.Kind = 7 }, "two-city"},
	} {
		p, err := Preset(c.preset)
		if err != nil {
			t.Fatal(err)
		}
		p.Links = maps.Clone(p.Links)
		c.spoil(&p)
		if _, err := New(p, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New: %v, want %q", err, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		sorted  []time.Duration
		percent int
		want    time.Duration
	}{{hundred, 50, 50}, {hundred, 99, 99}, {hundred[:1], 50, 1}, {hundred[:1], 99, 1}, {hundred[:3], 50, 2}, {hundred[:20], 99, 20}} {
		if got := quantile(c.sorted, c.percent); got != c.want {
			t.Errorf("quantile %d of %d values: %d, want %d", c.percent, len(c.sorted), got, c.want)
		}
	}
}
