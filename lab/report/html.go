package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/quorate/quorate/lab/result"
)

//go:embed page.html
var pageFile string

//go:embed style.css
var styleFile string

// page is everything that the template shows.
type page struct {
	Style      template.CSS
	Head       head
	Glance     table
	Ratios     []ratioTable
	Pairs      table
	Loads      []loadSection
	Jitter     jitterSection
	RTO        []rtoSection
	RPO        table
	RPONotes   []string
	RPODrawn   []drawing
	Apply      applySection
	Large      table
	LargeDrawn []drawing
	Networks   table
	Failed     []mishap
	Systems    []systemFacts
	Shared     []result.Setting
	Articles   articles
}

// table is any table: a head, and rows whose first cell is their name.
type table struct {
	Head []string
	Rows []tableRow
	// Text: the last column is text.
	Text bool
}

type tableRow struct {
	Name, Class string
	// Group is a heading before the row, if it begins a group.
	Group string
	Cells []entry
}

// entry is a table's cell: a value, and a note below it.
type entry struct {
	Value, Class string
	// Note has lines.
	Note string
	// More is a tool tip.
	More string
}

// HTML writes the report.
func HTML(w io.Writer, res result.Results) error {
	p, err := build(res)
	if err != nil {
		return err
	}
	t, err := template.New("page").Funcs(template.FuncMap{"label": label}).Parse(pageFile)
	if err != nil {
		return fmt.Errorf("parse the report's template: %w", err)
	}
	if err := t.Execute(w, p); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// build makes the page's parts. Markdown uses the same tables.
func build(res result.Results) (page, error) {
	arts, err := loadArticles()
	if err != nil {
		return page{}, err
	}
	rows := res.Latest()
	all := cellsOf(rows)
	load := all.experiment(result.Throughput)
	p := page{
		Style: template.CSS(styleFile), Articles: arts, Pairs: pairTable(load, arts),
		Head: headOf(rows, res), Glance: glance(all),
		Jitter: jitterOf(all.experiment(result.Jitter), arts), RTO: rtoOf(all.experiment(result.RTO), arts),
		RPO: rpoTable(all.experiment(result.RPO)), Apply: applyOf(all.experiment(result.Apply), arts),
		Large: largeTable(all.experiment(result.Large)), Networks: networkTable(rows), Failed: mishapsOf(rows),
	}
	for _, workload := range load.workloads() {
		of := load.of(func(c *cell) bool { return c.Workload == workload })
		p.Loads = append(p.Loads, loadOf(workload, of, arts))
		for _, v := range of.variants() {
			if v != ours && !strings.HasPrefix(v, ours+",clients=") {
				continue
			}
			if r, ok := ratios(workload, v, of, arts); ok {
				p.Ratios = append(p.Ratios, r)
			}
		}
	}
	p.RPODrawn = drawingsOf(all.experiment(result.RPO), result.Lost)
	p.LargeDrawn = drawingsOf(all.experiment(result.Large), result.StallMS)
	for _, s := range arts.RPO {
		p.RPONotes = append(p.RPONotes, s.Text)
	}
	p.Systems, p.Shared = factsOf(res.Facts)
	return p, nil
}
