package mutation

const (
	copyFile = "internal/raft/logcopy/copy.go"
	aimFile  = "internal/raft/logcopy/heal.go"
	noteFile = "internal/agent/datadir/mark.go"
)

// copying breaks how a log is copied, and what a change of the members leaves on a node.
func copying() []mutation {
	return []mutation{
		{
			name: "join-early", what: "a node joins without all that its leader has", from: 45, seeds: 20, nodes: 3, members: true,
			edits: one(copyFile, "\tlast, term, err := c.target(ctx)\n", "\tlast, term, err := c.target(ctx)\n\tlast = 0\n"),
		},
		{
			name: "copy-without-stage", what: "an entry that names a stage is copied without it", seeds: 20, nodes: 3, members: true,
			edits: one(copyFile, "\t\tif err := c.Peers.FetchStage(ctx, s, from); err != nil {\n\t\t\treturn err\n\t\t}\n", ""),
		},
		{
			name: "mark-in-memory", what: "a durable mark is told to others before it is on disk", seeds: 30, nodes: 3,
			edits: one(noteFile, "\tif err := m.dir.WriteMark(serverUUID, mark); err != nil {\n\t\treturn err\n\t}\n", ""),
		},
		{
			name: "joint-unnoted", what: "the former voters are forgotten as soon as a change of them is committed", seeds: 20, nodes: 3, members: true,
			edits: one(stateGoFile, "\tif cc != nil && votersChange(c.state.State, next.State) {\n", "\tif false {\n"),
		},
		{
			name: "joint-ends-twice", what: "a restarted node applies again the end of a change that its cluster.json already has", seeds: 20, nodes: 3, members: true,
			edits: one(membersFile, "\tif index <= c.state.Index || len(c.state.Outgoing) == 0 {\n\t\treturn false", "\tif index == 0 {\n\t\treturn false"),
		},
		{
			name: "pins-in-joint", what: "a node that is losing its vote is known by its next data directory before the vote is gone", from: 100, seeds: 20, nodes: 3, members: true,
			edits: one(knownFile, "m.ID != d.cfg.Self && !slices.Contains(p.Outgoing, m.ID) {", "m.ID != d.cfg.Self {"),
		},
		{
			name: "no-check-quorum", what: "a follower votes for others while it hears its leader", seeds: 60, nodes: 3,
			edits: one(groupFile, "CheckQuorum:               true,", "CheckQuorum:               false,"),
		},
	}
}
