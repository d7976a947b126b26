package sim

import "slices"

// Shrink looks for fewer faults with which a run still breaks the same promise (ddmin), and returns the result
// of that run. run runs the simulation, as Run does. progress is called for each smaller run that breaks the
// promise.
func Shrink(o Options, failed Result, run func(Options) Result, progress func(Result)) Result {
	o.Events = nil
	left := failed.FaultIDs
	for parts := 2; len(left) > 0; {
		parts = min(parts, len(left))
		smaller := func() bool {
			for i := range parts {
				from, to := i*len(left)/parts, (i+1)*len(left)/parts
				o.Only = slices.Concat([]int{}, left[:from], left[to:])
				r := run(o)
				if r.Failure != nil && r.Failure.Name == failed.Failure.Name {
					failed, left = r, o.Only
					progress(r)
					return true
				}
			}
			return false
		}()
		switch {
		case smaller:
			parts = max(parts-1, 2)
		case parts == len(left):
			return failed
		default:
			parts *= 2
		}
	}
	return failed
}
