package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
)

// point is a value at a place of the x axis.
type point struct {
	x float64
	spread
}

// curve is a system's line.
type curve struct {
	variant string
	points  []point
}

// curveWidth and curveHeight are the size of a chart, of which several are in a row.
const (
	curveWidth, curveHeight = 400.0, 270.0
	left, right             = 46.0, 104.0
	top, bottom             = 12.0, 36.0
	labelGap                = 12.5
	labelRunesMax           = 16
)

// curves draws TPS by threads, both axes logarithmic: a straight line scales, a flat one does not.
func curves(name string, threads []int, list []curve) template.HTML {
	s := newSVG("chart", curveWidth, curveHeight, name)
	low, high := math.Inf(1), 0.0
	for _, c := range list {
		for _, p := range c.points {
			if p.min > 0 {
				low = min(low, p.min)
			}
			high = max(high, p.max)
		}
	}
	if !(high > 0) {
		return ""
	}
	y, ticks := decades(curveHeight-bottom, top, low, high)
	x := axis{from: left + 8, to: curveWidth - right - 8, low: float64(max(threads[0], 1)), high: float64(max(threads[len(threads)-1], 2)), log: true}
	for _, t := range ticks {
		s.line("grid", left, y.at(t), curveWidth-right, y.at(t))
		s.text("tick", "end", left-6, y.at(t)+4, number(t))
	}
	last := math.Inf(-1)
	for _, t := range threads {
		at := x.at(float64(t))
		s.line("grid", at, curveHeight-bottom, at, curveHeight-bottom+4)
		if at-last > 18 {
			s.text("tick", "middle", at, curveHeight-bottom+16, fmt.Sprint(t))
			last = at
		}
	}
	s.text("axis", "middle", (left+curveWidth-right)/2, curveHeight-3, "threads")
	for _, c := range list {
		drawCurve(s, c, x, y)
	}
	drawLabels(s, list, x, y)
	return s.html()
}

func drawCurve(s *svg, c curve, x, y axis) {
	var line [][2]float64
	for _, p := range c.points {
		line = append(line, [2]float64{x.at(p.x), y.at(p.median)})
	}
	s.path("curve "+color(c.variant), line, false, 0)
	for _, p := range c.points {
		at := x.at(p.x)
		if p.n > 1 {
			s.line("whisker "+color(c.variant), at, y.at(p.min), at, y.at(p.max))
		}
		s.circle("dot "+color(c.variant), at, y.at(p.median), 3, fmt.Sprintf("%s, %g threads: %s", label(c.variant), p.x, p.words("TPS")))
	}
}

// words has a value and its spread as text.
func (p spread) words(unit string) string {
	if p.n < 2 {
		return number(p.median) + " " + unit + " (one repetition)"
	}
	return fmt.Sprintf("%s %s (%s to %s, %d repetitions)", number(p.median), unit, number(p.min), number(p.max), p.n)
}

// drawLabels writes the names at the lines' ends, apart from each other.
func drawLabels(s *svg, list []curve, x, y axis) {
	type end struct {
		variant string
		x, y    float64
	}
	var ends []end
	for _, c := range list {
		if n := len(c.points); n > 0 {
			ends = append(ends, end{c.variant, x.at(c.points[n-1].x), y.at(c.points[n-1].median)})
		}
	}
	slices.SortStableFunc(ends, func(a, b end) int { return cmp.Compare(a.y, b.y) })
	var wanted []float64
	for _, e := range ends {
		wanted = append(wanted, e.y)
	}
	places := apartBy(wanted, labelGap, top, curveHeight-bottom+6)
	for i, e := range ends {
		at := curveWidth - right + 10
		s.line("leader "+color(e.variant), e.x+4, e.y, at, places[i])
		s.text("label "+color(e.variant), "start", at+3, places[i]+4, short(label(e.variant)))
	}
}

// short shortens a name for a chart's right margin; the tables have the whole name.
func short(name string) string {
	if runes := []rune(name); len(runes) > labelRunesMax {
		return string(runes[:labelRunesMax-1]) + "…"
	}
	return name
}

// bar is a row of a bar chart.
type bar struct {
	variant, name string
	spread
	note string // instead of a value: a failure
}

const (
	barsWidth, barHeight = 720.0, 22.0
	barsLeft             = 210.0
)

// bars draws horizontal bars from 0, with their spread and value. write makes the text of a value.
func bars(name string, list []bar, write func(float64) string) template.HTML {
	high := 0.0
	for _, b := range list {
		high = max(high, b.max)
	}
	height := float64(len(list))*barHeight + 6
	s := newSVG("chart wide", barsWidth, height, name)
	x := axis{from: barsLeft, to: barsWidth - 110, high: high}
	if high == 0 {
		x.high = 1
	}
	for i, b := range list {
		y := float64(i)*barHeight + 4
		s.text("name", "end", barsLeft-8, y+13, b.name)
		if b.n == 0 {
			s.text("note", "start", barsLeft+4, y+13, b.note)
			continue
		}
		s.rect("bar "+color(b.variant), barsLeft, y+2, x.at(b.median)-barsLeft, barHeight-8, b.words(""))
		end := x.at(b.median)
		if b.n > 1 {
			s.line("whisker over", x.at(b.min), y+2+(barHeight-8)/2, x.at(b.max), y+2+(barHeight-8)/2)
			end = x.at(b.max)
		}
		s.text("value", "start", end+6, y+13, write(b.median))
	}
	s.line("grid", barsLeft, 0, barsLeft, height)
	return s.html()
}
