package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/quorate/quorate/lab/result"
)

const (
	panelWidth, panelHeight = 320.0, 130.0
	panelLeft, panelTop     = 44.0, 24.0
	panelBottom             = 22.0
)

// panel draws one system's series over time. high is the common maximum of all panels beside it.
func panel(variant, note string, s result.Series, high float64, unit string) template.HTML {
	out := newSVG("chart", panelWidth, panelHeight, label(variant)+": "+unit+" over time")
	y := linear(panelHeight-panelBottom, panelTop, high)
	seconds := float64(len(s.Values)) * s.EveryMS / 1000
	x := axis{from: panelLeft, to: panelWidth - 6, high: max(seconds, 1)}
	for _, t := range []float64{0, y.high / 2, y.high} {
		out.line("grid", panelLeft, y.at(t), panelWidth-6, y.at(t))
		out.text("tick", "end", panelLeft-5, y.at(t)+4, number(t))
	}
	var line [][2]float64
	for i, v := range s.Values {
		line = append(line, [2]float64{x.at((float64(i) + 0.5) * s.EveryMS / 1000), y.at(v)})
	}
	out.path("area "+color(variant), line, true, y.at(0))
	out.path("curve thin "+color(variant), line, false, 0)
	out.text("name strong", "start", panelLeft, 14, label(variant))
	out.text("value", "end", panelWidth-6, 14, note)
	out.text("tick", "start", panelLeft, panelHeight-6, "0")
	out.text("tick", "end", panelWidth-6, panelHeight-6, number(seconds)+" s")
	return out.html()
}

// lane is one system's run through a fault.
type lane struct {
	variant string
	row     *result.Row // nil: there is none, note says why
	note    string
	facts   string // under the name
}

const (
	lanesWidth  = 760.0
	lanesLeft   = 150.0
	laneHeight  = 64.0
	laneTop     = 18.0 // for the events' texts
	lanesBottom = 26.0
	charWidth   = 5.6 // of the events' texts
)

// lanes draws the systems' acknowledged writes around a fault, all on one time axis
// whose 0 is the fault. The time without writes is shaded.
func lanes(name string, list []lane) template.HTML {
	low, high := -1.0, 1.0
	for _, l := range list {
		if s, zero, ok := l.series(); ok {
			low = min(low, -zero/1000)
			high = max(high, (float64(len(s.Values))*s.EveryMS-zero)/1000)
		}
	}
	height := float64(len(list))*(laneHeight+6) + lanesBottom
	out := newSVG("chart timeline", lanesWidth, height, name)
	x := axis{from: lanesLeft, to: lanesWidth - 12, low: low, high: high}
	step := secondsStep(high - low)
	for t := math.Ceil(low/step) * step; t <= high; t += step {
		out.line("grid", x.at(t), 0, x.at(t), height-lanesBottom)
		out.text("tick", "middle", x.at(t), height-lanesBottom+15, number(t)+" s")
	}
	for i, l := range list {
		l.draw(out, x, float64(i)*(laneHeight+6))
	}
	return out.html()
}

func secondsStep(span float64) float64 {
	for _, step := range []float64{1, 2, 5, 10, 15, 30, 60} {
		if span/step <= 10 {
			return step
		}
	}
	return math.Ceil(span/10/60) * 60
}

// series has the prober's writes, and the time of the fault in that series.
func (l lane) series() (s result.Series, zeroMS float64, ok bool) {
	if l.row == nil {
		return s, 0, false
	}
	for _, name := range []string{result.SeriesAcked, result.SeriesTPS} {
		if s, ok = l.row.Series[name]; ok && s.EveryMS > 0 {
			break
		}
	}
	if len(l.row.Events) > 0 {
		zeroMS = l.row.Events[0].AtMS
	}
	return s, zeroMS, ok
}

func (l lane) draw(out *svg, x axis, top float64) {
	base := top + laneHeight
	system, options, _ := strings.Cut(label(l.variant), " ")
	out.text("name strong", "end", lanesLeft-10, top+laneTop+12, system)
	y := top + laneTop + 26
	for _, text := range []string{options, l.facts} {
		if text != "" {
			out.text("tick", "end", lanesLeft-10, y, text)
			y += 13
		}
	}
	out.line("base", lanesLeft, base, lanesWidth-12, base)
	s, zero, ok := l.series()
	if !ok {
		out.text("note", "start", lanesLeft+6, top+laneTop+16, l.note)
		return
	}
	if until, title := l.outage(x.high); until > 0 {
		out.rect("gap", x.at(0), top+laneTop, x.at(until)-x.at(0), laneHeight-laneTop, title)
	}
	rate := axis{from: base, to: top + laneTop, high: max(1, slices.Max(append([]float64{0}, s.Values...)))}
	var area [][2]float64
	for i, v := range s.Values {
		// Steps, not slopes: writes stop at once.
		from, to := (float64(i)*s.EveryMS-zero)/1000, (float64(i+1)*s.EveryMS-zero)/1000
		area = append(area, [2]float64{x.at(from), rate.at(v)}, [2]float64{x.at(to), rate.at(v)})
	}
	out.path("area solid "+color(l.variant), area, true, base)
	if load, there := l.row.Series[result.SeriesTPS]; there && load.EveryMS > 0 && load.EveryMS != s.EveryMS {
		drawLoad(out, load, x, zero, top, base)
	}
	l.drawEvents(out, x, zero, top)
}

// outage is the time, in seconds after the fault, until which no write was acknowledged.
func (l lane) outage(end float64) (seconds float64, title string) {
	if writable, again := l.row.Metric(result.WritableMS); again {
		return writable / 1000, "no acknowledged write: " + duration(writable)
	}
	if verdict := l.row.Text[result.TextVerdict]; l.row.Experiment == result.RTO && verdict != "" {
		return end, verdict
	}
	return 0, ""
}

// drawLoad draws the rate of sysbench beside the prober, to its own scale.
func drawLoad(out *svg, load result.Series, x axis, zero, top, base float64) {
	y := axis{from: base, to: top + laneTop, high: max(1, slices.Max(append([]float64{0}, load.Values...)))}
	var line [][2]float64
	for i, v := range load.Values {
		line = append(line, [2]float64{x.at(((float64(i)+0.5)*load.EveryMS - zero) / 1000), y.at(v)})
	}
	out.path("load", line, false, 0)
}

// drawEvents marks the events, and names those for which there is room.
func (l lane) drawEvents(out *svg, x axis, zero, top float64) {
	free := lanesLeft - 20
	for _, e := range l.row.Events {
		at := x.at((e.AtMS - zero) / 1000)
		out.line("event", at, top+laneTop-4, at, top+laneHeight)
		width := float64(len(e.What)) * charWidth
		start := max(min(at, lanesWidth-12-width), lanesLeft)
		if start > free {
			out.text("event-name", "start", start, top+laneTop-6, e.What)
			free = start + width + 8
		}
	}
}

// told are the events in words.
func told(r *result.Row) []string {
	if r == nil || len(r.Events) == 0 {
		return nil
	}
	var out []string
	for _, e := range r.Events {
		out = append(out, fmt.Sprintf("%+.2f s %s", (e.AtMS-r.Events[0].AtMS)/1000, e.What))
	}
	if steps := r.Text[result.TextSteps]; steps != "" {
		out = append(out, "people did: "+steps)
	}
	return out
}
