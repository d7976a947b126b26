package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/plan"
	"github.com/quorate/quorate/lab/result"
)

// runFacts is the first row of a run: the facts that must be the same in all of its cells.
func runFacts(run, command string, p plan.Plan, install peers.Installations) result.Facts {
	return result.Facts{
		ID: run, Run: run, Plan: p.Name, Command: command, Versions: install.Versions(), Machine: machine(),
		Settings: []result.Setting{
			{Name: "tables", Value: strconv.Itoa(p.Tables), Why: "the plan's"},
			{Name: "rows", Value: strconv.Itoa(p.Rows), Why: "the plan's, in each table"},
		},
	}
}

// Mixes says how a resumed run would differ from the rows that are there: other data, other programs, or another
// duration under the same cell's name. steps are all steps of the plan, also those that are done.
func Mixes(before result.Results, p plan.Plan, install peers.Installations, steps []plan.Step) (out []string) {
	now := runFacts("", "", p, install)
	for _, f := range slices.Backward(before.Facts) {
		if f.Variant != "" {
			continue
		}
		was := map[string]string{}
		for _, s := range f.Settings {
			was[s.Name] = s.Value
		}
		for _, s := range now.Settings {
			if v, known := was[s.Name]; known && v != s.Value {
				out = append(out, fmt.Sprintf("%s were %s and are %s", s.Name, v, s.Value))
			}
		}
		for _, program := range slices.Sorted(maps.Keys(now.Versions)) {
			if v, known := f.Versions[program]; known && v != now.Versions[program] {
				out = append(out, fmt.Sprintf("%s was %s and is %s", program, v, now.Versions[program]))
			}
		}
		break
	}
	times := map[string]plan.Step{}
	for _, s := range steps {
		times[s.Key()] = s
	}
	for _, r := range before.Latest() {
		s, asked := times[r.Key()]
		if !asked || r.Status != result.OK || r.LoadSeconds == 0 {
			continue
		}
		if r.LoadSeconds != s.Duration.Seconds() || r.WarmupSeconds != s.Warmup.Seconds() {
			out = append(out, fmt.Sprintf("cell %s has %g s after a warm-up of %g s, the plan %g s after %g s",
				r.Key(), r.LoadSeconds, r.WarmupSeconds, s.Duration.Seconds(), s.Warmup.Seconds()))
		}
	}
	return out
}
