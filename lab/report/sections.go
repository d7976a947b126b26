package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/lab/result"
)

type jitterSection struct {
	Groups []panelGroup
	Table  table
}

type panelGroup struct {
	Title  string
	Images []chart
}

func jitterOf(cs cells, arts articles) jitterSection {
	var section jitterSection
	networks := cs.networks()
	section.Table.Head = append([]string{"coefficient of variation"}, networks...)
	for _, workload := range cs.workloads() {
		for _, n := range cs.threads() {
			of := cs.of(func(c *cell) bool { return c.Workload == workload && c.Threads == n })
			if len(of.list) == 0 {
				continue
			}
			first := len(section.Table.Rows)
			for _, v := range of.variants() {
				row := tableRow{Name: label(v), Class: classOf(v)}
				for _, network := range networks {
					row.Cells = append(row.Cells, cvEntry(of.at(v, network, workload, n)))
				}
				section.Table.Rows = append(section.Table.Rows, row)
			}
			section.Table.Rows[first].Group = fmt.Sprintf("%s, %d threads", workload, n)
			section.Groups = append(section.Groups, panels(of, workload, n)...)
		}
	}
	if len(section.Table.Rows) > 0 {
		section.Table.Rows = append(section.Table.Rows, articleJitter(networks, arts)...)
	}
	return section
}

func cvEntry(c *cell) entry {
	s := c.metric(result.CVPercent)
	if s.n == 0 {
		return failure(c)
	}
	e := entry{Value: number(s.median) + " %", More: s.words("%")}
	if s.n > 1 {
		e.Note = number(s.min) + "–" + number(s.max) + " %"
	}
	return e
}

func articleJitter(networks []string, arts articles) []tableRow {
	mgr, dn := tableRow{Name: "mgr", Class: "quiet", Group: "article: oltp_read_write, 256 threads, 96 processors"}, tableRow{Name: "DN", Class: "quiet"}
	for _, network := range networks {
		var a, b entry
		for _, j := range arts.Jitter {
			if j.Network == network {
				a, b = entry{Value: number(j.MGR) + " %"}, entry{Value: number(j.DN) + " %"}
			}
		}
		mgr.Cells, dn.Cells = append(mgr.Cells, a), append(dn.Cells, b)
	}
	return []tableRow{mgr, dn}
}

// panels show the TPS over time of the repetitions with the median variation.
func panels(of cells, workload string, threads int) []panelGroup {
	var groups []panelGroup
	for _, network := range of.networks() {
		high := 0.0
		g := panelGroup{Title: fmt.Sprintf("%s, %s, %d threads, TPS", network, workload, threads)}
		var rows []*result.Row
		for _, v := range of.variants() {
			r := of.at(v, network, workload, threads).typical(result.CVPercent)
			rows = append(rows, r)
			if r != nil {
				for _, x := range r.Series[result.SeriesTPS].Values {
					high = max(high, x)
				}
			}
		}
		for _, r := range rows {
			if r == nil || len(r.Series[result.SeriesTPS].Values) == 0 {
				continue
			}
			note := "CV " + number(r.Metrics[result.CVPercent]) + " %"
			g.Images = append(g.Images, chart{label(r.Variant()), panel(r.Variant(), note, r.Series[result.SeriesTPS], high, "TPS")})
		}
		if len(g.Images) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

type rtoSection struct {
	Title, Article string
	drawing
	Table table
	// Detected says what "detected after" means, for each way of detection.
	Detected []string
}

// drawing is a timeline, and its events in words.
type drawing struct {
	Timeline chart
	Events   []eventList
}

type eventList struct {
	Name   string
	Events []string
}

func rtoOf(cs cells, arts articles) []rtoSection {
	var sections []rtoSection
	for _, workload := range cs.workloads() {
		for _, network := range cs.networks() {
			for _, n := range cs.threads() {
				of := cs.of(func(c *cell) bool { return c.Workload == workload && c.Network == network && c.Threads == n })
				if len(of.list) > 0 {
					sections = append(sections, rtoSectionOf(of, workload, network, n, said(arts.RTO, workload)))
				}
			}
		}
	}
	return sections
}

func rtoSectionOf(of cells, workload, network string, threads int, article string) rtoSection {
	title := workload + " on " + network
	if threads > 0 {
		title += fmt.Sprintf(", beside %d threads of sysbench", threads)
	}
	section := rtoSection{Title: title, Article: article}
	section.Table.Head = []string{"system", "detected after", "longest gap", "writable after", "of it the script", "gap of the return", "all nodes back after", "worst second", "below half", "acknowledged", "lost", "diverged", "steps of people"}
	for _, v := range of.variants() {
		section.Table.Rows = append(section.Table.Rows, rtoRow(v, of.at(v, network, workload, threads)))
	}
	section.Detected = detected(of)
	section.Timeline, section.Events = timelineOf(of, title, result.GapMS)
	return section
}

// timelineOf draws the cells of different systems one below the other. For each cell it draws the repetition with the
// median of a metric.
func timelineOf(of cells, title, metric string) (chart, []eventList) {
	var list []lane
	var events []eventList
	some := false
	for _, v := range of.variants() {
		for _, c := range of.list {
			if c.Variant() != v {
				continue
			}
			r := c.typical(metric)
			l := lane{variant: v, row: r, note: c.reason()}
			if gap := c.metric(result.GapMS); gap.n > 0 {
				l.facts = "gap " + duration(gap.median)
				if gap.n > 1 {
					l.facts = "median " + l.facts
				}
			}
			if _, _, drawn := l.series(); drawn {
				some = true
			} else if r != nil {
				l.note = "no series in the results"
			}
			list = append(list, l)
			if happened := told(r); len(happened) > 0 {
				events = append(events, eventList{label(v), happened})
			}
		}
	}
	if !some {
		return chart{}, events
	}
	return chart{title, lanes(title, list)}, events
}

func rtoRow(variant string, c *cell) tableRow {
	row := tableRow{Name: label(variant) + c.failedBefore(", "), Class: classOf(variant)}
	if why := c.reason(); why != "" {
		row.Cells = []entry{{Value: why, Class: "bad wide"}}
		return row
	}
	for _, m := range []string{result.DetectMS, result.GapMS, result.WritableMS, result.ScriptMS, result.RejoinGapMS, result.RestoredMS} {
		e := timeEntry(c.metric(m))
		if open := c.said(result.TextOpen); m == result.GapMS && open != "" {
			e.Note, e.More = strings.TrimSpace(e.Note+"\nopen until the return"), open
		}
		if m == result.WritableMS && never(c) != "" {
			e = entry{Value: "✗ never", Class: "worse", More: never(c)}
		}
		if m == result.RestoredMS {
			e = notBack(c, e)
		}
		row.Cells = append(row.Cells, e)
	}
	lost := judged(c, result.Lost, result.TextNoWitness)
	if since := c.metric(result.LostMS); since.n > 0 {
		lost.Note = "of the last " + duration(since.max)
	}
	dip := c.metric(result.DipPercent)
	row.Cells = append(row.Cells, unitEntry(dip, func(v float64) string { return "−" + number(v) + " %" }), unitEntry(c.metric(result.LowS), func(v float64) string { return number(v) + " s" }),
		plain(c, result.Acknowledged), lost, judged(c, result.Diverged, result.TextLagging), plain(c, result.HumanSteps))
	return row
}

// said is the text called name in the last row of the cell that has it.
func (c *cell) said(name string) string {
	if c == nil {
		return ""
	}
	for _, r := range slices.Backward(c.ok) {
		if r.Text[name] != "" {
			return r.Text[name]
		}
	}
	return ""
}

// detected groups the systems by their way of detection.
func detected(of cells) (lines []string) {
	by := map[string][]string{}
	var ways []string
	for _, v := range of.variants() {
		for _, c := range of.list {
			way := c.said(result.TextDetection)
			if c.Variant() != v || way == "" {
				continue
			}
			if by[way] == nil {
				ways = append(ways, way)
			}
			by[way] = append(by[way], label(v))
		}
	}
	for _, way := range ways {
		lines = append(lines, strings.Join(by[way], ", ")+": "+way)
	}
	return lines
}

// never says that in some repetition no write was acknowledged after the fault.
func never(c *cell) string {
	for _, r := range c.ok {
		if _, again := r.Metric(result.WritableMS); !again && r.Text[result.TextVerdict] != "" {
			return r.Text[result.TextVerdict]
		}
	}
	return ""
}

func timeEntry(s spread) entry { return unitEntry(s, duration) }

func unitEntry(s spread, write func(float64) string) entry {
	if s.n == 0 {
		return entry{}
	}
	e := entry{Value: write(s.median)}
	if least, most := write(s.min), write(s.max); least != most {
		e.Note = least + "–" + most
	}
	return e
}

// badIfAny is a count that should be 0; the worst repetition counts.
func badIfAny(s spread) entry {
	switch {
	case s.n == 0:
		return entry{}
	case s.max > 0:
		return entry{Value: "✗ " + number(s.max), Class: "worse"}
	}
	return entry{Value: "✓ 0", Class: "better"}
}

// judged is a count that should be 0. If a repetition has a text why it does not know, the cell does not say 0.
func judged(c *cell, metric, why string) entry {
	e := badIfAny(c.metric(metric))
	if said := c.said(why); said != "" && e.Class != "worse" {
		return entry{Value: "✗ not known", Class: "bad", More: said}
	}
	return e
}

// notBack replaces e if in some repetition not all nodes came back.
func notBack(c *cell, e entry) entry {
	n := 0
	for _, r := range c.ok {
		if r.Text[result.TextNotBack] != "" {
			n++
		}
	}
	if n == 0 {
		return e
	}
	e = entry{Value: "✗ not back", Class: "worse", More: c.said(result.TextNotBack)}
	if len(c.ok) > 1 {
		e.Note = fmt.Sprintf("%d of %d", n, len(c.ok))
	}
	return e
}

// drawingsOf are the timelines of an experiment, one for each workload and network.
func drawingsOf(cs cells, metric string) []drawing {
	var out []drawing
	for _, workload := range cs.workloads() {
		for _, network := range cs.networks() {
			of := cs.of(func(c *cell) bool { return c.Workload == workload && c.Network == network })
			if len(of.list) == 0 {
				continue
			}
			timeline, events := timelineOf(of, workload+" on "+network, metric)
			if timeline.Image != "" || len(events) > 0 {
				out = append(out, drawing{timeline, events})
			}
		}
	}
	return out
}

// cellTable has a row for each cell, grouped by workload and network. The row of a cell without
// figures has the reason.
func cellTable(cs cells, head []string, entries func(c *cell) []entry) table {
	t := table{Text: true, Head: head}
	for _, workload := range cs.workloads() {
		for _, network := range cs.networks() {
			of := cs.of(func(c *cell) bool { return c.Workload == workload && c.Network == network })
			first := len(t.Rows)
			for _, v := range of.variants() {
				for _, c := range of.list {
					if c.Variant() == v {
						t.Rows = append(t.Rows, cellRow(c, entries))
					}
				}
			}
			if first < len(t.Rows) {
				t.Rows[first].Group = workload + " on " + network
			}
		}
	}
	return t
}

func cellRow(c *cell, entries func(c *cell) []entry) tableRow {
	row := tableRow{Name: label(c.Variant()) + c.failedBefore(", "), Class: classOf(c.Variant())}
	if why := c.reason(); why != "" {
		row.Cells = []entry{{Value: why, Class: "bad wide"}}
		return row
	}
	row.Cells = entries(c)
	return row
}

func rpoTable(cs cells) table {
	return cellTable(cs, []string{"system", "acknowledged", "lost", "diverged", "unknown outcome", "steps of people", "back after", "verdict"}, rpoEntries)
}

func rpoEntries(c *cell) []entry {
	back := c.metric(result.RecoverS)
	worst := c.typical(result.Lost)
	for i := range c.ok {
		if c.ok[i].Metrics[result.Lost] > worst.Metrics[result.Lost] {
			worst = &c.ok[i]
		}
	}
	return []entry{plain(c, result.Acknowledged), lostEntry(c), judged(c, result.Diverged, result.TextLagging),
		plain(c, result.Unknown), plain(c, result.HumanSteps), unitEntry(back, func(v float64) string { return duration(v * 1000) }),
		{Value: worst.Text[result.TextVerdict], Class: "text", More: worst.Text[result.TextExamples]}}
}

// lostEntry is what a system lost. The control, a server that does not fsync, has to lose some.
func lostEntry(c *cell) entry {
	if !c.control() {
		return judged(c, result.Lost, result.TextNoWitness)
	}
	s := c.metric(result.Lost)
	if s.n > 0 && s.max == 0 {
		return entry{Value: "✗ the control lost nothing: this table proves nothing", Class: "worse"}
	}
	return unitEntry(s, number)
}

// control tells whether the cell is of a server that does not fsync.
func (c *cell) control() bool { return c != nil && c.Options["no-sync"] == "true" }

type applySection struct {
	Article string
	Charts  []chart
	Table   table
}

func applyOf(cs cells, arts articles) applySection {
	section := applySection{Table: table{Head: []string{"system", "transactions", "time to apply", "applied per second"}}}
	if len(arts.Apply) > 0 {
		section.Article = arts.Apply[0].Text
	}
	for _, workload := range cs.workloads() {
		for _, network := range cs.networks() {
			of := cs.of(func(c *cell) bool { return c.Workload == workload && c.Network == network })
			var rows []bar
			first := len(section.Table.Rows)
			for _, v := range of.variants() {
				for _, c := range of.list {
					if c.Variant() != v {
						continue
					}
					s := c.metric(result.ApplyS)
					rows = append(rows, bar{v, label(v), s, c.reason()})
					section.Table.Rows = append(section.Table.Rows, cellRow(c, func(c *cell) []entry {
						return []entry{plain(c, result.Transactions), unitEntry(s, func(v float64) string { return duration(v * 1000) }), plain(c, result.ApplyTPS)}
					}))
				}
			}
			if len(rows) > 0 {
				title := fmt.Sprintf("%s transactions on %s: time to apply", workload, network)
				section.Charts = append(section.Charts, chart{title, bars(title, rows, func(v float64) string { return duration(v * 1000) })})
				section.Table.Rows[first].Group = title
			}
		}
	}
	return section
}

func largeTable(cs cells) table {
	return cellTable(cs, []string{"system", "committed", "commit took", "others stalled", "nodes expelled", "verdict"}, largeEntries)
}

func largeEntries(c *cell) []entry {
	committed := entry{Value: "✗ no", Class: "worse"}
	if c.metric(result.Committed).min > 0 {
		committed = entry{Value: "✓ yes", Class: "better"}
	}
	if c.metric(result.Committed).n == 0 {
		committed = entry{}
	}
	var verdicts []string
	for _, r := range c.ok {
		if v := r.Text[result.TextVerdict]; v != "" {
			verdicts = []string{v}
		}
	}
	expelled := badIfAny(c.metric(result.Expelled))
	if back := notBack(c, entry{}); back.Value != "" {
		expelled = entry{Value: strings.TrimSpace(expelled.Value + " " + back.Value), Note: back.Note, Class: back.Class, More: back.More}
	}
	return []entry{committed, unitEntry(c.metric(result.CommitS), func(v float64) string { return duration(v * 1000) }),
		timeEntry(c.metric(result.StallMS)), expelled, {Value: strings.Join(verdicts, ""), Class: "text"}}
}
