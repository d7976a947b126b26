package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/lab/result"
)

// head is the beginning of the page.
type head struct {
	Runs, When, Commands  []string
	Cells                 int
	OK, Failed, Skipped   int
	FailedBefore          int // failed attempts that a later attempt replaced
	Repetitions           string
	Machine               []result.Setting
	Torn                  bool
	Experiments, Networks string
}

const timeLayout = "2006-01-02 15:04"

func headOf(rows []result.Row, res result.Results) head {
	h := head{Torn: res.Torn}
	var begin, end time.Time
	repetitions := map[string]int{}
	for _, r := range rows {
		switch r.Status {
		case result.OK:
			h.OK++
		case result.Skipped:
			h.Skipped++
		default:
			h.Failed++
		}
		h.FailedBefore += r.FailedBefore
		repetitions[r.Name()]++
		if begin.IsZero() || r.Started.Before(begin) {
			begin = r.Started
		}
		if r.Started.After(end) {
			end = r.Started
		}
		if !slices.Contains(h.Runs, r.Run) {
			h.Runs = append(h.Runs, r.Run)
		}
	}
	h.Cells = len(repetitions)
	if !begin.IsZero() {
		h.When = []string{begin.UTC().Format(timeLayout), end.UTC().Format(timeLayout)}
	}
	least, most := 0, 0
	for _, n := range repetitions {
		most = max(most, n)
		if least == 0 || n < least {
			least = n
		}
	}
	h.Repetitions = fmt.Sprint(most)
	if least != most {
		h.Repetitions = fmt.Sprintf("%d to %d", least, most)
	}
	machine := map[string][]string{}
	for _, f := range res.Facts {
		for name, value := range f.Machine {
			if !slices.Contains(machine[name], value) {
				machine[name] = append(machine[name], value)
			}
		}
		if f.Command != "" && !slices.Contains(h.Commands, f.Command) {
			h.Commands = append(h.Commands, f.Command)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(machine)) {
		h.Machine = append(h.Machine, result.Setting{Name: name, Value: severally(machine[name])})
	}
	return h
}

// severally joins values that differ between systems.
func severally(values []string) string {
	if n := len(values); n > 2 {
		return fmt.Sprintf("%s … %s (%d values)", values[0], values[n-1], n)
	}
	return strings.Join(values, ", ")
}

// glance is a table with one row per system: the figures that most people look for first.
func glance(all cells) table {
	type column struct {
		head string
		get  func(variant string) entry
	}
	var columns []column
	load := all.experiment(result.Throughput).of(func(c *cell) bool { return c.Workload == "oltp_write_only" })
	if threads := load.threads(); len(threads) > 0 {
		n := threads[len(threads)/2]
		if slices.Contains(threads, 16) {
			n = 16
		}
		for _, network := range load.networks() {
			columns = append(columns, column{fmt.Sprintf("writes/s, %s, %d threads", network, n),
				func(v string) entry { return tpsEntry(load.at(v, network, "oltp_write_only", n)) }})
		}
	}
	for _, c := range []struct {
		head, experiment, workload string
		get                        func(c *cell) entry
	}{
		{"no writes after kill -9 of the primary", result.RTO, "kill-primary", func(c *cell) entry { return timeEntry(c.metric(result.GapMS)) }},
		{"lost in majority-crash", result.RPO, "majority-crash", lostEntry},
		{"lost in power-loss", result.RPO, "power-loss", lostEntry},
		{"time to apply 50k", result.Apply, "50k", func(c *cell) entry { return timeEntry(scaled(c.metric(result.ApplyS), 1000)) }},
	} {
		of := all.experiment(c.experiment).of(func(x *cell) bool { return x.Workload == c.workload })
		if len(of.list) == 0 {
			continue
		}
		network, threads := of.networks()[0], of.threads()[0]
		columns = append(columns, column{c.head, func(v string) entry {
			found := of.at(v, network, c.workload, threads)
			if found.reason() != "" {
				return failure(found)
			}
			return c.get(found)
		}})
	}
	t := table{Head: []string{"system"}}
	for _, c := range columns {
		t.Head = append(t.Head, c.head)
	}
	for _, v := range all.variants() {
		row := tableRow{Name: label(v), Class: classOf(v)}
		some := false
		for _, c := range columns {
			e := c.get(v)
			some = some || e.Value != ""
			row.Cells = append(row.Cells, e)
		}
		if some {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func scaled(s spread, by float64) spread {
	return spread{s.n, s.min * by, s.median * by, s.max * by}
}

// networkTable has the round trips of all cells: the median of the cells' own figures.
func networkTable(rows []result.Row) table {
	t := table{Head: []string{"link", "configured ms", "least", "p50", "p99", "p50 under load", "cells"}}
	byNetwork := map[string]map[string][]result.RTT{}
	for _, r := range rows {
		for link, rtt := range r.RTT {
			if byNetwork[r.Network] == nil {
				byNetwork[r.Network] = map[string][]result.RTT{}
			}
			byNetwork[r.Network][link] = append(byNetwork[r.Network][link], rtt)
		}
	}
	for _, network := range slices.SortedFunc(maps.Keys(byNetwork), byRank(networkOrder)) {
		for i, link := range slices.Sorted(maps.Keys(byNetwork[network])) {
			list := byNetwork[network][link]
			row := tableRow{Name: link}
			if i == 0 {
				row.Group = network
			}
			for _, get := range []func(result.RTT) float64{
				func(r result.RTT) float64 { return r.Configured }, func(r result.RTT) float64 { return r.Min },
				func(r result.RTT) float64 { return r.P50 }, func(r result.RTT) float64 { return r.P99 }, func(r result.RTT) float64 { return r.Loaded },
			} {
				var values []float64
				for _, r := range list {
					if v := get(r); v > 0 {
						values = append(values, v)
					}
				}
				e := entry{}
				if s := spreadOf(values); s.n > 0 {
					e = entry{Value: number(s.median), More: s.words("ms")}
				}
				row.Cells = append(row.Cells, e)
			}
			row.Cells = append(row.Cells, entry{Value: fmt.Sprint(len(list))})
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// mishap is a reason for which cells failed.
type mishap struct {
	Status, Reason string
	Cells          []string
}

func mishapsOf(rows []result.Row) []mishap {
	type key struct{ status, reason, cell string }
	at := map[key]int{} // the index of the mishap, by its key without the cell
	repetitions := map[key]string{}
	var out []mishap
	for _, r := range rows {
		if r.Status == result.OK {
			continue
		}
		k := key{status: string(r.Status), reason: r.Reason}
		i, seen := at[k]
		if !seen {
			i = len(out)
			at[k] = i
			out = append(out, mishap{Status: k.status, Reason: k.reason})
		}
		if k.cell = r.Name(); repetitions[k] == "" {
			out[i].Cells = append(out[i].Cells, k.cell)
		} else {
			repetitions[k] += ", "
		}
		repetitions[k] += fmt.Sprintf("#%d", r.Repetition)
	}
	for i, m := range out {
		slices.Sort(m.Cells)
		for j, name := range m.Cells {
			out[i].Cells[j] += " " + repetitions[key{m.Status, m.Reason, name}]
		}
	}
	return out
}

// systemFacts are a system's versions, and the settings that not all systems share.
type systemFacts struct {
	Name     string
	Versions string
	Settings []result.Setting
}

// factsOf separates the settings that all systems share. If a system has several facts, the last counts.
func factsOf(list []result.Facts) (systems []systemFacts, shared []result.Setting) {
	last := map[string]result.Facts{}
	var variants []string
	for _, f := range list {
		if f.Variant == "" {
			continue
		}
		if _, seen := last[f.Variant]; !seen {
			variants = append(variants, f.Variant)
		}
		last[f.Variant] = f
	}
	rank := byRank(systemOrder)
	slices.SortStableFunc(variants, func(a, b string) int {
		return rank(strings.SplitN(a, ",", 2)[0], strings.SplitN(b, ",", 2)[0])
	})
	count := map[result.Setting]int{}
	for _, f := range last {
		for _, s := range f.Settings {
			count[s]++
		}
	}
	everywhere := func(s result.Setting) bool { return len(last) > 1 && count[s] == len(last) }
	for i, v := range variants {
		f := last[v]
		own := systemFacts{Name: label(v)}
		var versions []string
		for _, name := range slices.Sorted(maps.Keys(f.Versions)) {
			versions = append(versions, name+" "+f.Versions[name])
		}
		own.Versions = strings.Join(versions, ", ")
		for _, s := range f.Settings {
			switch {
			case !everywhere(s):
				own.Settings = append(own.Settings, s)
			case i == 0:
				shared = append(shared, s)
			}
		}
		systems = append(systems, own)
	}
	return systems, shared
}
