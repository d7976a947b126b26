package mutation

const (
	noticeFile   = "internal/agent/recovery/notice.go"
	recoveryFile = "internal/agent/recovery/recovery.go"
	stanceFile   = "internal/agent/quorumloss/stance.go"
	reactionFile = "internal/agent/membership/rejection.go"
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
			name: "accept-alone", what: "a former member does not heed the rejections of others", from: 112, seeds: 5, nodes: 5, losses: true,
			edits: one(noticeFile, "\t\trefuses, led = refuses || o.Refuses, led || o.Led\n", "\t\tled = led || o.Led && o.Refuses && false\n"),
		},
		{
			name: "obey-strangers", what: "a running member begins anew because a cluster that was recovered without it orders that", seeds: 40, nodes: 3, losses: true,
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
			name: "loss-unnamed", what: "transactions that another node has and the survivor lacks are not named", seeds: 200, nodes: 5, losses: true,
			edits: one(recoveryFile, "\t\tlacking.Union(set)\n", ""),
		},
	}
}
