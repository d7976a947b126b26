package mutation

const (
	lagFile   = "internal/raft/consensus/lag.go"
	heardFile = "internal/agent/freshness/heard.go"
)

// reading breaks what a replica says of its lag to clients that read it.
func reading() []mutation {
	return []mutation{
		{
			name: "lag-after-kill", what: "a mysqld that was killed is taken to have what it had", seeds: 20, nodes: 3,
			edits: one(lagFile, "\tif l.applied.Index > 0 && !has(l.applied) {\n", "\tif false {\n"),
		},
		{
			name: "lag-of-what-it-missed", what: "a replica that was cut off knows its lag as soon as it hears its leader", seeds: 20, nodes: 3,
			edits: one(heardFile, "\t\th.from = a.index\n", "\t\th.from = 0\n"),
		},
		{
			name: "lag-unasked", what: "a replica knows its lag without asking its leader", seeds: 20, nodes: 3,
			edits: one(heardFile, "\tif s.Role == status.RoleReplica && asks {\n", "\tif s.Role == status.RoleReplica && !asks {\n"),
		},
		{
			name: "ask-without-majority", what: "a leader answers its followers without asking whether a majority still follows it", seeds: 40, nodes: 5,
			edits: one(leaseFile, "\tl.asks = append(l.asks, m)\n", `	g.out.Send = append(g.out.Send, &pb.Message{
		Type: pb.MsgReadIndexResp.Enum(), From: m.To, To: m.From, Term: new(g.role.Term), Index: new(g.rn.BasicStatus().GetCommit()), Entries: m.Entries,
	})
`),
		},
	}
}
