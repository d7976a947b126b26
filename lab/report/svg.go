package report

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// svg builds one inline image. Text is escaped; numbers have one decimal.
type svg struct{ b strings.Builder }

// newSVG begins an image of a size in its own units, with a name for readers who cannot see it.
func newSVG(class string, width, height float64, name string) *svg {
	s := &svg{}
	fmt.Fprintf(&s.b, `<svg class="%s" viewBox="0 0 %s %s" role="img" aria-label="%s">`, esc(class), num(width), num(height), esc(name))
	return s
}

func esc(s string) string { return template.HTMLEscapeString(s) }

func num(v float64) string { return trim(strconv.FormatFloat(v, 'f', 1, 64)) }

func (s *svg) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&s.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, esc(class), num(x1), num(y1), num(x2), num(y2))
}

func (s *svg) rect(class string, x, y, w, h float64, title string) {
	fmt.Fprintf(&s.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s">%s</rect>`, esc(class), num(x), num(y), num(max(w, 0)), num(max(h, 0)), titleOf(title))
}

func (s *svg) circle(class string, x, y, r float64, title string) {
	fmt.Fprintf(&s.b, `<circle class="%s" cx="%s" cy="%s" r="%s">%s</circle>`, esc(class), num(x), num(y), num(r), titleOf(title))
}

// text writes at a point; anchor is start, middle or end.
func (s *svg) text(class, anchor string, x, y float64, text string) {
	fmt.Fprintf(&s.b, `<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`, esc(class), num(x), num(y), anchor, esc(text))
}

// path draws through points, and down to base at both ends if it is an area.
func (s *svg) path(class string, points [][2]float64, area bool, base float64) {
	if len(points) == 0 {
		return
	}
	var d strings.Builder
	command := "M"
	if area {
		fmt.Fprintf(&d, "M%s %s", num(points[0][0]), num(base))
		command = "L"
	}
	for _, p := range points {
		fmt.Fprintf(&d, "%s%s %s", command, num(p[0]), num(p[1]))
		command = "L"
	}
	if area {
		fmt.Fprintf(&d, "L%s %sZ", num(points[len(points)-1][0]), num(base))
	}
	fmt.Fprintf(&s.b, `<path class="%s" d="%s"/>`, esc(class), d.String())
}

func (s *svg) html() template.HTML {
	return template.HTML(s.b.String() + "</svg>") // esc has escaped every text in it
}

func titleOf(title string) string {
	if title == "" {
		return ""
	}
	return "<title>" + esc(title) + "</title>"
}

// color is the class that has a system's colour; a variant with options is dotted.
func color(variant string) string {
	system, _, options := strings.Cut(variant, ",")
	class := "c-" + system
	if options {
		class += " c-variant"
	}
	return class
}

// axis is a scale from values to a stretch of an image.
type axis struct {
	from, to, low, high float64
	log                 bool
}

func (a axis) at(v float64) float64 {
	f := func(v float64) float64 { return v }
	if a.log {
		f = func(v float64) float64 { return math.Log10(max(v, a.low)) }
	}
	return a.from + (a.to-a.from)*(f(v)-f(a.low))/(f(a.high)-f(a.low))
}

// linear is an axis from 0 to a round number above high.
func linear(from, to, high float64) axis {
	ticks := ticksTo(high)
	return axis{from: from, to: to, high: ticks[len(ticks)-1]}
}

// ticksTo are 0 and three to six round steps, the last not below high.
func ticksTo(high float64) []float64 {
	if !(high > 0) || math.IsInf(high, 0) {
		high = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(high/3)))
	for _, m := range []float64{1, 2, 5, 10} {
		if high/(step*m) <= 5 {
			step *= m
			break
		}
	}
	ticks := []float64{0}
	for v := step; ; v += step {
		ticks = append(ticks, v)
		if v >= high*(1-1e-9) {
			return ticks
		}
	}
}

// decades is a logarithmic axis around low and high, and its ticks: 1, 2, 5, or only powers of ten.
func decades(from, to, low, high float64) (axis, []float64) {
	var all []float64
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range []float64{1, 2, 5} {
			all = append(all, m*math.Pow(10, e))
		}
	}
	first, last := 0, len(all)-1
	for first+1 < len(all) && all[first+1] <= low {
		first++
	}
	for last-1 > first && all[last-1] >= high {
		last--
	}
	ticks := all[first : last+1]
	a := axis{from: from, to: to, low: ticks[0], high: ticks[len(ticks)-1], log: true}
	if len(ticks) > 7 { // only powers of ten
		var tens []float64
		for _, t := range ticks {
			if e := math.Log10(t); math.Abs(e-math.Round(e)) < 1e-9 {
				tens = append(tens, t)
			}
		}
		ticks = tens
	}
	return a, ticks
}

// apartBy moves the wanted places, which are sorted, so that they are at least gap apart, and between low and high if
// there is room.
func apartBy(wanted []float64, gap, low, high float64) []float64 {
	out := make([]float64, len(wanted))
	for i, w := range wanted {
		out[i] = max(w, low)
		if i > 0 {
			out[i] = max(out[i], out[i-1]+gap)
		}
	}
	for i := len(out) - 1; i >= 0; i-- {
		limit := high
		if i < len(out)-1 {
			limit = out[i+1] - gap
		}
		out[i] = min(out[i], limit)
	}
	return out
}
