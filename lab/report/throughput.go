package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/quorate/quorate/lab/result"
)

// drainShownS: a longer drain is shown in the table of TPS, because the backlog is work that was not done yet.
const drainShownS = 1

// loadSection is a workload of the throughput experiment.
type loadSection struct {
	Workload string
	Charts   []chart
	Main     table // the articles' layout
	Details  table
	Costs    table // the costs of a transaction
	Stages   table // the stages of a commit in quorate
}

type chart struct {
	Title string
	Image template.HTML
}

// ratioTable is quorate's TPS divided by the others', at a glance.
type ratioTable struct {
	Workload string
	Networks []group
	Threads  []int // of each column
	Rows     []tableRow
}

type group struct {
	Name string
	Span int
}

func loadOf(workload string, cs cells, arts articles) loadSection {
	section := loadSection{Workload: workload, Main: articleTable(cs, workload, arts), Details: loadDetails(cs), Costs: costsOf(cs), Stages: stagesOf(cs)}
	for _, network := range cs.networks() {
		of := cs.of(func(c *cell) bool { return c.Network == network })
		name := fmt.Sprintf("%s on %s: TPS by threads", workload, network)
		var list []curve
		var rows []bar
		// If other systems have lines, a system with only one number of threads is shown only in the tables.
		threads := shared(of)
		for _, v := range of.variants() {
			c := curve{variant: v}
			for _, t := range threads {
				if s := of.at(v, network, workload, t).metric(result.TPS); s.n > 0 {
					c.points = append(c.points, point{float64(t), s})
				}
			}
			if len(c.points) > 0 {
				list = append(list, c)
			}
			if len(threads) == 1 {
				at := of.at(v, network, workload, threads[0])
				if at != nil {
					rows = append(rows, bar{v, label(v), at.metric(result.TPS), at.reason()})
				}
			}
		}
		switch {
		case len(threads) == 1:
			section.Charts = append(section.Charts, chart{fmt.Sprintf("%s, %d threads, TPS", network, threads[0]), bars(name, rows, number)})
		case len(list) > 0:
			section.Charts = append(section.Charts, chart{network, curves(name, threads, list)})
		}
	}
	return section
}

// shared are the numbers of threads that curves use: those with at least half as many systems as the number with the
// most.
func shared(cs cells) []int {
	count := map[int]int{}
	most := 0
	for _, c := range cs.list {
		count[c.Threads]++
		most = max(most, count[c.Threads])
	}
	return slices.DeleteFunc(cs.threads(), func(t int) bool { return 3*count[t] < most })
}

// articleTable has the articles' layout: systems by threads, then the ratios, for each network.
func articleTable(cs cells, workload string, arts articles) table {
	threads := cs.threads()
	t := table{Head: []string{"threads"}}
	for _, n := range threads {
		t.Head = append(t.Head, fmt.Sprint(n))
	}
	for _, network := range cs.networks() {
		of := cs.of(func(c *cell) bool { return c.Network == network })
		first := len(t.Rows)
		for _, v := range of.variants() {
			row := tableRow{Name: label(v), Class: classOf(v)}
			for _, n := range threads {
				row.Cells = append(row.Cells, tpsEntry(of.at(v, network, workload, n)))
			}
			t.Rows = append(t.Rows, row)
		}
		for _, other := range []string{"mgr", singleLeader("mgr"), "mgr-after", singleLeader("mgr-after"), singleLeader("router")} {
			row := tableRow{Name: ours + " / " + label(other), Class: "ratio"}
			some := false
			for _, n := range threads {
				e := ratioEntry(of.at(ours, network, workload, n), of.at(other, network, workload, n), arts)
				some = some || e.Value != ""
				row.Cells = append(row.Cells, e)
			}
			if some {
				t.Rows = append(t.Rows, row)
			}
		}
		if first < len(t.Rows) {
			t.Rows[first].Group = network
		}
	}
	return t
}

// singleLeader is the variant of a group whose consensus has one leader: the group's best variant on networks with
// delays.
func singleLeader(system string) string { return system + ",paxos-single-leader=true" }

func classOf(variant string) string {
	if strings.HasPrefix(variant, ours) {
		return "ours"
	}
	return ""
}

func tpsEntry(c *cell) entry {
	if c == nil {
		return entry{}
	}
	s := c.metric(result.TPS)
	if s.n == 0 {
		return failure(c)
	}
	e := entry{Value: number(s.median), Note: span(s), More: s.words("TPS")}
	if len(c.bad) > 0 {
		e.Note += fmt.Sprintf("\n%d failed", len(c.bad))
		e.Class = "bad"
	}
	e.Note += c.failedBefore("\n")
	if drain := c.metric(result.DrainS); drain.median > drainShownS {
		if effective := c.metric(result.EffectiveTPS); effective.n > 0 {
			e.Note += "\ndrained " + number(effective.median)
		}
	}
	e.Note = strings.TrimSpace(e.Note)
	return e
}

// failure is the entry of a cell without a figure.
func failure(c *cell) entry {
	if c.reason() == "" {
		return entry{}
	}
	return entry{Value: string(c.bad[0].Status), Class: "bad", More: c.reason()}
}

// span is the spread as a short text; "" if there is only one repetition.
func span(s spread) string {
	if s.n < 2 {
		return ""
	}
	return number(s.min) + "–" + number(s.max)
}

// ratioEntry is a divided by b, with the articles' ratio.
func ratioEntry(a, b *cell, arts articles) entry {
	e := divided(a, b)
	if e.Value == "" {
		return e
	}
	if r := arts.ratio(b.Variant(), b.Network, b.Workload, b.Threads); r > 0 {
		e.Note = strings.TrimSpace(e.Note + "\narticle " + times(r))
	}
	return e
}

// colouredMin is how many repetitions both figures of a coloured ratio need: two say nearly nothing about a spread.
const colouredMin = 3

// divided is a's effective TPS divided by b's: transactions that replicas had not applied when the load ended are work
// that was not done. Beside it is the ratio of the raw TPS, if that is different. Its class says whether the spreads are
// apart.
func divided(a, b *cell) entry {
	rawX, rawY := a.metric(result.TPS), b.metric(result.TPS)
	x, y, unit := a.metric(result.EffectiveTPS), b.metric(result.EffectiveTPS), "effective TPS"
	if x.n == 0 || y.n == 0 {
		x, y, unit = rawX, rawY, "TPS"
	}
	if x.n == 0 || y.n == 0 || y.median == 0 {
		return entry{}
	}
	e := entry{Value: times(x.median / y.median), Class: "same", More: fmt.Sprintf("%s: %s; %s: %s", a.Label(), x.words(unit), b.Label(), y.words(unit))}
	if rawY.median > 0 {
		if raw := times(rawX.median / rawY.median); raw != e.Value {
			e.Note = "raw " + raw
		}
	}
	switch {
	case !apart(x, y):
		e.Value = "≈ " + e.Value
	case min(x.n, y.n) < colouredMin:
		e.Class = ""
	case x.median > y.median:
		e.Class = "better"
	default:
		e.Class = "worse"
	}
	return e
}

// pairTable has the comparisons of the other articles, and our figures for them.
func pairTable(cs cells, arts articles) table {
	t := table{Head: []string{"the other articles", "theirs", "here", "quorate in the first one's place"}}
	for _, p := range arts.Pair {
		for _, network := range cs.networks() {
			a, b := cs.at(p.System, network, p.Workload, p.Threads), cs.at(p.Other, network, p.Workload, p.Threads)
			if a == nil || b == nil {
				continue
			}
			us := entry{}
			if q := cs.at(ours, network, p.Workload, p.Threads); q != nil {
				us = divided(q, b)
			}
			here := divided(a, b)
			here.Class = ""
			t.Rows = append(t.Rows, tableRow{Name: fmt.Sprintf("%s / %s, %s, %d threads, %s", p.System, p.Other, p.Workload, p.Threads, network),
				Cells: []entry{{Value: times(p.SystemTPS / p.OtherTPS), Note: p.Source}, here, us}})
		}
	}
	return t
}

// ratios compares us, quorate or a variant of it, with every other system.
func ratios(workload, us string, cs cells, arts articles) (ratioTable, bool) {
	out := ratioTable{Workload: workload}
	if us != ours {
		out.Workload += ", " + label(us)
	}
	type place struct {
		network string
		threads int
	}
	var places []place
	for _, network := range cs.networks() {
		span := 0
		for _, n := range cs.threads() {
			if cs.at(us, network, workload, n).metric(result.TPS).n > 0 {
				places = append(places, place{network, n})
				out.Threads = append(out.Threads, n)
				span++
			}
		}
		if span > 0 {
			out.Networks = append(out.Networks, group{network, span})
		}
	}
	for _, v := range cs.variants() {
		row := tableRow{Name: label(v)}
		some := false
		for _, p := range places {
			e := ratioEntry(cs.at(us, p.network, workload, p.threads), cs.at(v, p.network, workload, p.threads), arts)
			some = some || e.Value != ""
			row.Cells = append(row.Cells, e)
		}
		if v != us && (us == ours || classOf(v) != "ours") && some {
			out.Rows = append(out.Rows, row)
		}
	}
	return out, len(out.Rows) > 0
}

// loadDetails is a table with all other figures that the experiment measured.
func loadDetails(cs cells) table {
	t := table{Text: true, Head: []string{"system", "threads", "QPS", "p50 ms", "p95 ms", "p99 ms", "errors", "lag at the end", "drain s", "effective TPS"}}
	for _, network := range cs.networks() {
		first := len(t.Rows)
		for _, v := range cs.variants() {
			for _, c := range cs.list {
				if c.Network != network || c.Variant() != v {
					continue
				}
				row := tableRow{Name: label(v) + c.failedBefore(", "), Class: classOf(v), Cells: []entry{{Value: fmt.Sprint(c.Threads)}}}
				for _, m := range []string{result.QPS, result.P50MS, result.P95MS, result.P99MS, result.Errors, result.LagTx, result.DrainS, result.EffectiveTPS} {
					row.Cells = append(row.Cells, plain(c, m))
				}
				t.Rows = append(t.Rows, row)
			}
		}
		if first < len(t.Rows) {
			t.Rows[first].Group = network
		}
	}
	return t
}

// plain is a metric's median with its spread in the tool tip.
func plain(c *cell, metric string) entry {
	s := c.metric(metric)
	if s.n == 0 {
		return entry{}
	}
	return entry{Value: number(s.median), More: s.words("")}
}
