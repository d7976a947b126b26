package mutation

import "fmt"

const (
	noticeFile   = "internal/agent/recovery/notice.go"
	recoveryFile = "internal/agent/recovery/recovery.go"
	stanceFile   = "internal/agent/quorumloss/stance.go"
	reactionFile = "internal/agent/membership/rejection.go"
	lossesFile   = "internal/testkit/sim/losses.go"
)

// recovering breaks how a recovery is forced, and what former members make of it, in worlds
// in which a majority is lost for good.
func recovering() []mutation {
	return []mutation{
		{
			name: "obey-no-recovery", what: "a former member never accepts a recovery by itself", seeds: 60, nodes: 3, losses: true,
			edits: one(noticeFile, "\t\treturn Defer\n\t}\n\treturn Accept\n", "\t\treturn Defer\n\t}\n\treturn Defer\n"),
		},
		{
			name: "accept-beside-leader", what: "a former member that has, or had, a leader accepts a recovery", seeds: 120, nodes: 3, losses: true,
			edits: append(one(noticeFile, "\treturn o.News && (o.Rejected || o.Unnoted || !o.Superseded && o.SinceLeader == 0)\n", "\treturn o.News && o.Rejected\n"),
				one(noticeFile, "return o.Unnoted || !o.Superseded && o.SinceLeader < LedWithin", "return false")...),
		},
		{
			name: "accept-alone", what: "a former member does not heed the rejections of others", seeds: 20, nodes: 5, losses: true,
			setup: latecomer("lasts", 2),
			edits: one(noticeFile, "\t\trefuses, led = refuses || o.Refuses, led || o.Led\n", "\t\tled = led || o.Led\n"),
		},
		{
			name: "accept-after-leader", what: "a former member does not heed that others had a leader a moment ago", seeds: 20, nodes: 5, losses: true,
			setup: latecomer("lasts + 14*time.Second", 1),
			edits: one(noticeFile, "\t\trefuses, led = refuses || o.Refuses, led || o.Led\n", "\t\trefuses = refuses || o.Refuses\n"),
		},
		{
			name: "obey-strangers", what: "a running member begins again because a cluster that was recovered without it orders that", seeds: 40, nodes: 3, losses: true,
			edits: append(one(reactionFile, "o != nil && self.Supersedes(*o) {", "o != nil && self.Supersedes(*o) && r.Code != transport.CodeRebuild {"),
				one(reactionFile, "return own != nil && own.Is(*o.Recovery)", "return own == nil || own.Is(*o.Recovery)")...),
		},
		{
			name: "forget-rejection", what: "a rejection is not noted", seeds: 200, nodes: 3, losses: true,
			edits: one(noticeFile, "\tif d != Reject || n.Look(r).Rejected {\n", "\tif true {\n"),
		},
		{
			name: "refusal-in-memory", what: "a rejection is not in `refused.json`", seeds: 60, nodes: 3, losses: true,
			edits: one(stanceFile, "\tif err := s.cfg.Dir.WriteRefused(list); err != nil {\n", "\tif err := error(nil); err != nil {\n"),
		},
		{
			name: "recover-beside-majority", what: "a recovery is forced beside a majority that answers", seeds: 60, nodes: 3, losses: true,
			edits: one(recoveryFile, "\tif there, voters := v.majority(); there != nil {\n", "\tif there, voters := v.majority(); there != nil && false {\n"),
		},
		{
			name: "loss-unnamed", what: "transactions that another node has and the survivor lacks are not named", seeds: 20, nodes: 5, losses: true,
			setup: behindAtTheLoss(),
			edits: one(recoveryFile, "\t\tlacking.Union(set)\n", ""),
		},
	}
}

// latecomer has a node be recovered by mistake: it was only cut off. Four former members reach it later: the first of them at
// another moment than the others, which are apart from it for so long. Before the first reaches it, the last two are gone,
// and so many of the first two have started again. So the first hears of the recovery when it has no leader, and only the
// second tells it what speaks against that recovery.
func latecomer(apart string, restarted int) []edit {
	return []edit{
		{faultsFile, "at += 500*time.Millisecond + around(rng, 2*time.Second) {", "at += 5 * time.Second {"},
		{lossesFile, "\tif chance(l.rng, 25) {\n", "\tif chance(l.rng, 100) {\n"},
		{lossesFile, "\tlasts := 2*time.Second + around(l.rng, 6*time.Second)\n", fmt.Sprintf(`	lasts := 7 * time.Second
	others := slices.DeleteFunc(slices.Clone(l.w.nodes), func(o *node) bool { return o == n })
	for k, o := range others {
		apart := %s
		if k == 0 {
			apart = lasts + 6*time.Second
		}
		l.w.faults.until(apart, l.w.net.cutLink(o.id, n.id, false))
		l.w.faults.until(apart, l.w.net.cutLink(n.id, o.id, false))
	}
	l.w.sched.after(lasts+2*time.Second, func() {
		for k, o := range others {
			switch {
			case l.over || !n.isRecovered():
			case k < %d:
				o.killAgent("killed")
				o.startAgent()
			case k > 1:
				o.losePower()
				o.off = true
				l.w.sched.after(8*time.Second, func() { l.comeBack(o) })
			}
		}
	})
`, apart, restarted)},
	}
}

// behindAtTheLoss has one of the nodes that are left hear nothing in the seconds before a majority is lost, and an operator
// who recovers that node although another node has a newer log.
func behindAtTheLoss() []edit {
	return []edit{
		{faultsFile, "at += 500*time.Millisecond + around(rng, 2*time.Second) {", "at += 5 * time.Second {"},
		{lossesFile, "\tif chance(l.rng, 25) {\n", "\tif chance(l.rng, 0) {\n"},
		{lossesFile, "\tfor _, k := range order[:least+l.rng.IntN(max(1, len(order)-least))] {\n", `	behind := l.w.nodes[order[least]]
	for _, o := range l.w.nodes {
		if o != behind {
			l.w.faults.until(4500*time.Millisecond, l.w.net.cutLink(o.id, behind.id, false))
			l.w.faults.until(4500*time.Millisecond, l.w.net.cutLink(behind.id, o.id, false))
			l.w.watchConnection(behind, o)
		}
	}
	for _, k := range order[:least] {
`},
		{lossesFile, "\t\tl.w.sched.after(around(l.rng, 200*time.Millisecond), func() {\n\t\t\tif l.over {", "\t\tl.w.sched.after(2500*time.Millisecond+around(l.rng, 200*time.Millisecond), func() {\n\t\t\tif l.over {"},
		{lossesFile, "away := around(l.rng, 9*time.Second)\n\t\tif chance(l.rng, 40) {", "away := 15 * time.Second\n\t\tif false {"},
		{lossesFile, "500*time.Millisecond+around(l.rng, 3*time.Second), l.rescue)", "5*time.Second+around(l.rng, time.Second), l.rescue)"},
		{lossesFile, "operators = 2", "operators = 1"},
		{lossesFile, "left[l.rng.IntN(len(left))]", "slices.MinFunc(left, func(a, b *node) int { return len(a.durable.terms) - len(b.durable.terms) })"},
		{lossesFile, "chance(l.rng, 80)", "chance(l.rng, 0)"},
	}
}
