package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/quorate/quorate/lab/result"
)

// markdown writes the page's tables.
type markdown struct{ w *bufio.Writer }

// Markdown writes the summary.
func Markdown(w io.Writer, res result.Results) error {
	p, err := build(res)
	if err != nil {
		return err
	}
	m := markdown{bufio.NewWriter(w)}
	m.head(p.Head)
	m.section("At a glance", p.Glance)
	for i, r := range p.Ratios {
		if i == 0 {
			m.title(2, "How many times the others")
			m.line("Effective TPS of quorate (with the time in which replicas finish the same work) divided by that of the other. In brackets the ratio of the raw TPS, if it is another, and the articles' ratio of DN to the same rival. ≈: within the spread.")
		}
		m.title(3, r.Workload)
		m.table(r.flat())
	}
	if len(p.Pairs.Rows) > 0 {
		m.title(3, "The other articles")
		m.table(p.Pairs)
	}
	for i, l := range p.Loads {
		if i == 0 {
			m.title(2, "Throughput (TPS)")
		}
		m.title(3, l.Workload)
		m.table(l.Main)
		if len(l.Costs.Rows) > 0 {
			m.line("What a transaction costs (CPU in µs):")
			m.table(l.Costs)
		}
		if len(l.Stages.Rows) > 0 {
			m.line("Where a commit's time goes, by the histograms of the primary's agent:")
			m.table(l.Stages)
		}
	}
	m.section("Jitter", p.Jitter.Table)
	for i, r := range p.RTO {
		if i == 0 {
			m.title(2, "RTO")
		}
		m.title(3, r.Title)
		if r.Article != "" {
			m.line("Article: " + r.Article)
		}
		m.table(r.Table)
		if len(r.Detected) > 0 {
			m.line("Detected after:\n\n- " + escapeLines(r.Detected))
		}
	}
	m.section("RPO", p.RPO)
	m.section("Replica apply", p.Apply.Table)
	m.section("Large transactions", p.Large)
	m.section("Networks (round trips, ms)", p.Networks)
	if len(p.Failed) > 0 {
		m.title(2, "Failed and skipped")
	}
	for _, f := range p.Failed {
		m.line(escape(f.Status+": "+f.Reason) + "\n\n- " + strings.Join(f.Cells, "\n- "))
	}
	if err := m.w.Flush(); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

func (m markdown) line(text string) { fmt.Fprintf(m.w, "\n%s\n", text) }

func (m markdown) title(level int, text string) { m.line(strings.Repeat("#", level) + " " + text) }

func (m markdown) section(title string, t table) {
	if len(t.Rows) > 0 {
		m.title(2, title)
		m.table(t)
	}
}

func (m markdown) head(h head) {
	fmt.Fprintf(m.w, "# quorate lab\n")
	m.line(fmt.Sprintf("%d cells, %s repetitions: %d ok, %d failed, %d skipped. Figures are medians, in brackets the least and the greatest.", h.Cells, h.Repetitions, h.OK, h.Failed, h.Skipped))
	if h.FailedBefore > 0 {
		m.line(fmt.Sprintf("%d attempts failed before the cell was tried again.", h.FailedBefore))
	}
	if len(h.When) > 0 {
		m.line("From " + h.When[0] + " to " + h.When[1] + " UTC.")
	}
	var machine []string
	for _, s := range h.Machine {
		machine = append(machine, s.Name+": "+s.Value)
	}
	if len(machine) > 0 {
		m.line("Machine: " + strings.Join(machine, "; ") + ".")
	}
	for _, c := range h.Commands {
		m.line("    " + c)
	}
	if h.Torn {
		m.line("The last line of the results is torn: a run was killed while it wrote it.")
	}
}

// table writes a table; a group becomes a row of its own.
func (m markdown) table(t table) {
	fmt.Fprintln(m.w)
	m.row(t.Head)
	rule := make([]string, len(t.Head))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = ":---"
	m.row(rule)
	for _, r := range t.Rows {
		if r.Group != "" {
			m.row(append([]string{"**" + escape(r.Group) + "**"}, make([]string, len(t.Head)-1)...))
		}
		line := []string{escape(r.Name)}
		for _, c := range r.Cells {
			line = append(line, c.text())
		}
		for len(line) < len(t.Head) {
			line = append(line, "")
		}
		m.row(line)
	}
}

func (m markdown) row(columns []string) { fmt.Fprintf(m.w, "| %s |\n", strings.Join(columns, " | ")) }

func (e entry) text() string {
	if e.Note == "" {
		return escape(e.Value)
	}
	return escape(e.Value + " (" + strings.ReplaceAll(e.Note, "\n", "; ") + ")")
}

var escape = strings.NewReplacer("|", `\|`, "\n", " ", "\u202f", " ").Replace

func escapeLines(lines []string) string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = escape(l)
	}
	return strings.Join(out, "\n- ")
}

// flat makes a table with one heading for networks and threads.
func (r ratioTable) flat() table {
	t := table{Head: []string{"quorate /"}, Rows: r.Rows}
	i := 0
	for _, g := range r.Networks {
		for range g.Span {
			t.Head = append(t.Head, fmt.Sprintf("%s %d", g.Name, r.Threads[i]))
			i++
		}
	}
	return t
}
