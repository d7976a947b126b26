package sim

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Summary is the run on one line. took is how long it was on the real clock.
func (r Result) Summary(took time.Duration) string {
	verdict := "ok"
	if r.Failure != nil {
		verdict = "FAILED " + r.Failure.Error()
	}
	nodes := fmt.Sprintf("%d nodes", r.Nodes)
	if r.Loggers > 0 {
		nodes += fmt.Sprintf(" (%d loggers)", r.Loggers)
	}
	if r.Plans > 0 {
		nodes += fmt.Sprintf(", %d plans", r.Plans)
	}
	if r.LedInNeed > 0 {
		nodes += fmt.Sprintf(", %d terms in need", r.LedInNeed)
	}
	if r.Policy != "" {
		nodes += fmt.Sprintf(" (%s; dropped %d times)", r.Policy, r.AckDrops)
	}
	return fmt.Sprintf("%s, %d faults, %d epochs, %d purged, %d staged, %d of %d requests were commits with OK, %.1f s in %.2f s, %d events, hash %016x: %s",
		nodes, len(r.Faults), r.Epochs, r.Purged, r.Staged, r.OK, r.Requests, r.Virtual.Seconds(), took.Seconds(), r.Events, r.Hash, verdict)
}

// Report says what failed, and how to see it again.
func (r Result) Report() string {
	if r.Failure == nil {
		return ""
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "\nFAILED %s\n%s\n", r.Failure.Error(), r.Failure.Stack)
	ids := make([]string, len(r.FaultIDs))
	for i, id := range r.FaultIDs {
		ids[i] = fmt.Sprint(id)
		fmt.Fprintf(b, "  fault %s\n", r.Faults[i])
	}
	faults := strings.Join(ids, ",")
	if faults == "" {
		faults = "none"
	}
	fmt.Fprintf(b, "replay: go run ./internal/sim/cmd -seed %d -nodes %d -loggers %d -faults %s -events\n", r.Seed, r.Nodes, cmp.Or(r.Loggers, -1), faults)
	return b.String()
}
