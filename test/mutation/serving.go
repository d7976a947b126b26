package mutation

const driverFile = "internal/raft/consensus/driver.go"

// serving breaks the lease by which a leader serves.
func serving() []mutation {
	return []mutation{
		{
			name: "serve-without-lease", what: "a node serves as soon as it thinks that it leads", seeds: 40, nodes: 3,
			edits: one(driverFile, "\treturn clocks{boot: boot, wall: wall}.before(*d.lease.Load())\n", "\treturn d.Role().Leading\n"),
		},
		{
			name: "lease-alone", what: "a lease rests on the leader's own answer and that of any one other node", seeds: 40, nodes: 5,
			edits: one(leaseFile, "seq := uint64(voters.CommittedIndex(answeredRounds{g}))", "seq := l.seq"),
		},
		{
			name: "lease-by-boot-clock", what: "a lease ends by the boot clock alone, which a paused machine stops", seeds: 120, nodes: 3,
			edits: one(clocksFile, "return c.boot < until.boot && c.wall < until.wall", "return c.boot < until.boot"),
		},
		{
			name: "lease-by-wall-clock", what: "a lease ends by the wall clock alone, which somebody sets back", seeds: 200, nodes: 3,
			edits: one(clocksFile, "return c.boot < until.boot && c.wall < until.wall", "return c.wall < until.wall"),
		},
		{
			name: "settle-beyond-policy", what: "a deposed primary acknowledges, although ACKs wait for more than a commit", seeds: 20, nodes: 3, blips: true,
			edits: append(one(settlingFile, "if !s.AcksAreCommits() {", "if false {"),
				one(epochFile, "case acksAreCommits && e.Answering", "case e.Answering")...),
		},
	}
}
