package mutation

const (
	settleFile   = "internal/mysql/tap/settle.go"
	settlingFile = "internal/agent/primary/settling.go"
	serverFile   = "internal/testkit/sim/mysqld.go"
	blipsFile    = "internal/testkit/sim/blips.go"
	replicaFile  = "internal/agent/primary/replicate.go"
)

// settling breaks what becomes of a deposed primary.
func settling() []mutation {
	return []mutation{
		{
			name: "settle-uncommitted", what: "a deposed primary acknowledges all that it proposed", seeds: 20, nodes: 3, blips: true,
			edits: one(settleFile, "; !ok {\n\t\treturn 0, false\n\t}\n", "; !ok {\n\t\tm.acks.commit(m.acks.handedOut)\n\t\treturn 0, true\n\t}\n"),
		},
		{
			name: "settle-open", what: "a deposed primary is settled before its writes are closed", seeds: 20, nodes: 3, blips: true,
			edits: one(settlingFile, "if err := s.Server.SetSuperReadOnly(ctx, true, SettleTimeout); err != nil {", "if err := error(nil); err != nil {"),
		},
		{
			name: "settle-unproven", what: "writes that super_read_only lets pass are not looked for", seeds: 30, nodes: 3, blips: true,
			// A tap that reads late: else the gate refuses what it brings before anybody is settled.
			setup: []edit{
				{serverFile, "socketMean  = 20 * time.Microsecond", "socketMean  = 5 * time.Millisecond"},
				{serverFile, "sqlSpread   = 300 * time.Microsecond", "sqlSpread   = time.Millisecond"},
				{blipsFile, "dbaEvery = 20 * time.Millisecond", "dbaEvery = 5 * time.Millisecond"},
			},
			edits: one(settlingFile, "\t\tcase !ends:\n", "\t\tcase true:\n\t\t\treturn nil\n\t\tcase !ends:\n"),
		},
		{
			name: "settle-waiters", what: "a session that has begun to wait for a lock is not ended before a deposed primary lets other sessions go", seeds: 40, nodes: 3, blips: true,
			edits: one(settlingFile, "\t\tif _, ends := s.Tap.Ends(number); ends {\n", "\t\tif _, ends := s.Tap.Ends(number); ends && s.Term == 0 {\n"),
		},
		{
			name: "tidy-again", what: "a former primary whose mysqld was kept is made a replica once more", seeds: 60, nodes: 3, blips: true,
			edits: one(replicaFile, "\t\tr.Tidied()\n", ""),
		},
	}
}
