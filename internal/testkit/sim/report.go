package sim

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Summary returns the run on one line. took is the run's time on the real clock.
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
	if r.Maintained > 0 {
		nodes += fmt.Sprintf(", %d times in maintenance", r.Maintained)
	}
	if r.Fenced > 0 {
		nodes += fmt.Sprintf(", %d times fenced", r.Fenced)
	}
	if r.Settles.Deposed > 0 {
		nodes += fmt.Sprintf(", %d deposed, %d settled, %d late", r.Settles.Deposed, r.Settles.Kept, r.Settles.Late)
	}
	if r.LedInNeed > 0 {
		nodes += fmt.Sprintf(", %d terms in need", r.LedInNeed)
	}
	if r.Ahead > 0 {
		nodes += fmt.Sprintf(", read ahead %d times", r.Ahead)
	}
	if r.Members {
		nodes += fmt.Sprintf(", %d changes of the members, %d joint, %d joined, %d by a copy of the data", r.MemberChanges, r.Joints, r.Joins, r.Clones)
	}
	if r.Losses {
		nodes += fmt.Sprintf(", %d recoveries forced, %d transactions given up, %d times accepted, %d times rejected, two sides %t",
			r.Recoveries, r.GivenUp, r.Accepted, r.Rejections, r.TwoSides)
	}
	if r.TimingsDiffer {
		nodes += ", timings differ"
	}
	if r.UsesXA {
		nodes += fmt.Sprintf(", XA: %+v", r.XA)
	}
	if r.LongApplies > 0 {
		nodes += fmt.Sprintf(", %d applied for long", r.LongApplies)
	}
	if r.ClocksJump {
		nodes += ", clocks jump"
	}
	if r.Reseeds > 0 {
		nodes += fmt.Sprintf(", %d rebuilt by a leader", r.Reseeds)
	}
	if r.Sources {
		nodes += fmt.Sprintf(", %d times left to a source, %d times not", r.LeftToSources, r.Fallbacks)
	}
	if r.AppliersStop {
		nodes += fmt.Sprintf(", %d times an applier stopped", r.ApplierStops)
	}
	if r.Slowings+r.LagsKnown > 0 {
		nodes += fmt.Sprintf(", %d times slowed down or let go, %d lags known", r.Slowings, r.LagsKnown)
	}
	if r.TakenUp > 0 {
		nodes += fmt.Sprintf(", %d states taken up", r.TakenUp)
	}
	if r.Policy != "" {
		nodes += fmt.Sprintf(" (%s; dropped %d times)", r.Policy, r.AckDrops)
	}
	if r.Struck != (Struck{}) {
		nodes += ", " + r.Struck.String()
	}
	return fmt.Sprintf("%s, %d faults, %d epochs, %d purged, %d staged, %d of %d requests were commits with OK, %.1f s in %.2f s, %d events, hash %016x: %s",
		nodes, len(r.Faults), r.Epochs, r.Purged, r.Staged, r.OK, r.Requests, r.Virtual.Seconds(), took.Seconds(), r.Events, r.Hash, verdict)
}

// Report says what failed, and how to repeat it.
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
	members, losses, xa, appliers := -1, 0, -1, -1
	if r.AppliersStop {
		appliers = 1
	}
	if r.UsesXA {
		xa = 1
	}
	switch {
	case r.Losses:
		losses = 1
	case r.Pair:
		members = MembersPair
	case r.Sourced:
		members = MembersSourced
	case r.Members:
		members = 1
	}
	fmt.Fprintf(b, "replay: go run ./internal/testkit/sim/cmd -seed %d -nodes %d -loggers %d -members %d -losses %d -blips=%t -late-clocks=%t -xa %d -appliers %d -faults %s -events\n",
		r.Seed, r.Nodes, cmp.Or(r.Loggers, -1), members, losses, r.Blips, r.LateClocks, xa, appliers, faults)
	return b.String()
}
