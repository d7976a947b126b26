package plan

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/lab/result"
)

// Steps expands the plan: every repetition of every cell once, in the order of doc.go. If
// cells come twice, the longer load and the most repetitions count.
func (p Plan) Steps() ([]Step, error) {
	order := map[string]int{} // the rank of networks and variants: their first appearance
	place := func(kind, name string) int {
		if _, seen := order[kind+name]; !seen {
			order[kind+name] = len(order)
		}
		return order[kind+name]
	}
	at := map[string]int{}
	var steps []Step
	for _, cells := range p.Cells {
		for cell := range cells.all {
			place("network ", cell.Network)
			place("variant ", cell.Variant())
			for n := 1; n <= cells.Repetitions; n++ {
				s := Step{Cell: cell, Repetition: n, Duration: seconds(cells.Seconds), Warmup: seconds(*cells.WarmupSeconds)}
				i, seen := at[s.Key()]
				switch {
				case seen:
					steps[i].Duration = max(steps[i].Duration, s.Duration)
				case len(steps) == stepsMax:
					return nil, fmt.Errorf("plan %s: more than %d repetitions of cells", p.Name, stepsMax)
				default:
					at[s.Key()] = len(steps)
					steps = append(steps, s)
				}
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		if c := cmp.Compare(a.Repetition, b.Repetition); c != 0 {
			return c
		}
		way := 1 // every second repetition goes backwards
		if a.Repetition%2 == 0 {
			way = -1
		}
		return cmp.Or(
			cmp.Compare(stage(a.Experiment), stage(b.Experiment)),
			way*cmp.Compare(place("network ", a.Network), place("network ", b.Network)),
			way*cmp.Compare(place("variant ", a.Variant()), place("variant ", b.Variant())))
	})
	markReuse(steps)
	return steps, nil
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// all yields the combinations.
func (c Cells) all(yield func(result.Cell) bool) {
	for _, network := range c.Networks {
		for _, variant := range c.Systems {
			system, options, err := result.ParseVariant(variant)
			if err != nil {
				continue // Check has reported it
			}
			for _, workload := range c.Workloads {
				for _, threads := range c.Threads {
					if !yield(result.Cell{Experiment: c.Experiment, System: system, Options: options, Network: network, Workload: workload, Threads: threads}) {
						return
					}
				}
			}
		}
	}
}

// stage ranks experiments: those that leave a system as it was come first, together.
func stage(experiment string) int {
	if reusable(experiment) {
		return 0
	}
	return 1 + slices.Index(result.Experiments(), experiment)
}

func reusable(experiment string) bool {
	return experiment == result.Throughput || experiment == result.Jitter
}

func markReuse(steps []Step) {
	for i := range steps {
		steps[i].Reuse = i > 0 && reusable(steps[i].Experiment) && reusable(steps[i-1].Experiment) &&
			steps[i].Variant() == steps[i-1].Variant() && steps[i].Network == steps[i-1].Network
	}
}

// Select keeps the steps that a pattern of only matches (all steps, if only is empty) and no pattern of
// skip. A pattern without a slash matches one part of a cell's name: experiment, workload,
// network, system, system with options, threads. A pattern with slashes matches a name, or its beginning. Both may
// have the wildcards of path.Match. A pattern that matches nothing is an error.
func Select(steps []Step, only, skip []string) ([]Step, error) {
	for _, pattern := range slices.Concat(only, skip) {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		if !slices.ContainsFunc(steps, func(s Step) bool { return matches(pattern, s.Cell) }) {
			return nil, fmt.Errorf("pattern %q matches no cell of the plan: `quorate-lab plans PLAN` lists them", pattern)
		}
	}
	var chosen []Step
	for _, s := range steps {
		is := func(pattern string) bool { return matches(pattern, s.Cell) }
		if (len(only) == 0 || slices.ContainsFunc(only, is)) && !slices.ContainsFunc(skip, is) {
			chosen = append(chosen, s)
		}
	}
	markReuse(chosen)
	return chosen, nil
}

func matches(pattern string, c result.Cell) bool {
	match := func(name string) bool {
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	}
	if !strings.Contains(pattern, "/") {
		return slices.ContainsFunc([]string{c.Experiment, c.Workload, c.Network, c.System, c.Variant(), strconv.Itoa(c.Threads)}, match)
	}
	parts := strings.Split(c.Name(), "/")
	n := min(len(parts), 1+strings.Count(pattern, "/"))
	return match(strings.Join(parts[:n], "/"))
}

// Pending leaves out the steps whose keys are done (result.Results.Done).
func Pending(steps []Step, done map[string]bool) []Step {
	pending := slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return done[s.Key()] })
	markReuse(pending)
	return pending
}
