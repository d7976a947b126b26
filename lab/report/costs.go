package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/lab/result"
)

// costsOf is the table of a transaction's costs: CPU by component and by node, wake-ups, messages.
func costsOf(cs cells) table {
	t := table{Text: true, Head: []string{"system", "threads", "CPU µs, all nodes", "on the primary's host", "by component", "by node", "wake-ups", "messages between agents"}}
	for _, network := range cs.networks() {
		first := len(t.Rows)
		for _, v := range cs.variants() {
			for _, c := range cs.list {
				nodes := byName(c, result.NodeCPU)
				if c.Network != network || c.Variant() != v || len(nodes) == 0 {
					continue
				}
				sum := 0.0
				for _, n := range nodes {
					sum += n.median
				}
				t.Rows = append(t.Rows, tableRow{Name: label(v), Class: classOf(v), Cells: []entry{
					{Value: fmt.Sprint(c.Threads)}, {Value: number(sum)}, plain(c, result.PrimaryCPU),
					{Value: words(byName(c, result.CPU), ", "), Class: "text"}, {Value: nodeWords(nodes), Class: "text"},
					plain(c, result.WakeUps), plain(c, result.Messages),
				}})
			}
		}
		if first < len(t.Rows) {
			t.Rows[first].Group = network
		}
	}
	return t
}

// stagesOf is the table that says where a commit's time goes in quorate.
func stagesOf(cs cells) table {
	t := table{Text: true, Head: append([]string{"p50 / p99 in ms", "threads"}, result.Stages()...)}
	for _, network := range cs.networks() {
		first := len(t.Rows)
		for _, v := range cs.variants() {
			for _, c := range cs.list {
				if c.Network != network || c.Variant() != v || len(byName(c, result.StageP50)) == 0 {
					continue
				}
				row := tableRow{Name: label(v), Class: classOf(v), Cells: []entry{{Value: fmt.Sprint(c.Threads)}}}
				for _, stage := range result.Stages() {
					row.Cells = append(row.Cells, entry{Value: number(c.metric(result.StageP50+stage).median) + " / " + number(c.metric(result.StageP99+stage).median)})
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

// named is the median of one of several metrics whose names have a common beginning.
type named struct {
	name   string // without the common beginning
	median float64
}

// byName returns a cell's metrics that begin with prefix, sorted.
func byName(c *cell, prefix string) []named {
	var all []named
	for _, r := range c.ok {
		for metric := range r.Metrics {
			name, is := strings.CutPrefix(metric, prefix)
			if is && !slices.ContainsFunc(all, func(n named) bool { return n.name == name }) {
				all = append(all, named{name, c.metric(metric).median})
			}
		}
	}
	slices.SortFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })
	return all
}

func words(all []named, separator string) string {
	var parts []string
	for _, n := range all {
		parts = append(parts, n.name+" "+number(n.median))
	}
	return strings.Join(parts, separator)
}

// nodeWords writes "a: agent 120, mysqld 700; b: …" of names such as a.agent.
func nodeWords(all []named) string {
	var nodes []string
	parts := map[string][]named{}
	for _, n := range all {
		node, component, _ := strings.Cut(n.name, ".")
		if parts[node] == nil {
			nodes = append(nodes, node)
		}
		parts[node] = append(parts[node], named{component, n.median})
	}
	for i, node := range nodes {
		nodes[i] = node + ": " + words(parts[node], ", ")
	}
	return strings.Join(nodes, "; ")
}
