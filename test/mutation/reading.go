package mutation

const (
	lagFile   = "internal/raft/consensus/lag.go"
	heardFile = "internal/agent/freshness/heard.go"
	readsFile = "internal/testkit/sim/reads.go"
)

// reading breaks what a replica says of its lag to clients that read it.
func reading() []mutation {
	return []mutation{
		{
			name: "lag-after-kill", what: "a mysqld that was killed is taken to have what it had", seeds: 20, nodes: 3,
			// Little else happens than that the mysqlds of all replicas crash, once no client writes any more and their
			// agents have seen what they have. Their appliers stand still afterwards.
			setup: append(readEverywhere(), edit{faultsFile, "{killMysqld, 10}", "{killMysqld, 5000}"},
				edit{faultsFile, "at += 500*time.Millisecond + around(rng, 2*time.Second) {", "at += 9 * time.Second {"},
				edit{faultsFile, "for range 1 + rng.IntN(3) {", "for range 1 {"}, edit{faultsFile, "if chance(rng, 35) {", "if false {"},
				edit{faultsFile, "\t\ta.process.kill(\"crashed\")\n", `		i.w.load.idle++
		i.until(7*time.Second, func() { i.w.load.idle-- })
		i.w.sched.after(600*time.Millisecond, func() {
			for _, n := range i.w.nodes {
				if a := n.agent; a != nil && a.process != nil && n != i.w.primary() && !i.ended {
					a.process.kill("crashed")
					n.applierBlocked++
					i.until(7*time.Second, n.unblock)
				}
			}
		})
`}),
			edits: one(lagFile, "\tif l.applied.Index > 0 && !has(l.applied) {\n", "\tif false {\n"),
		},
		{
			name: "lag-of-what-it-missed", what: "a replica that was cut off knows its lag as soon as it hears its leader", seeds: 20, nodes: 3,
			setup: readEverywhere(),
			edits: one(heardFile, "\t\th.from = a.index\n", "\t\th.from = 0\n"),
		},
		{
			name: "lag-unasked", what: "a replica knows its lag without asking its leader", seeds: 20, nodes: 3,
			setup: readEverywhere(),
			edits: one(heardFile, "\tif s.Role == status.RoleReplica && asks {\n", "\tif s.Role == status.RoleReplica && !asks {\n"),
		},
		{
			name: "ask-without-majority", what: "a leader answers its followers without asking whether a majority still follows it", seeds: 40, nodes: 5,
			// Little else happens than that the primary is split off with one other node. It also stands still for a
			// moment, so that it resigns after the others have elected another primary.
			setup: append(readEverywhere(),
				edit{faultsFile, "at += 500*time.Millisecond + around(rng, 2*time.Second) {", "at += 10 * time.Second {"},
				edit{faultsFile, "at += around(rng, 8*time.Second) {", "at += 5*time.Second + around(rng, time.Second) {"},
				edit{faultsFile, "lasts: time.Second + around(rng, 2*time.Second), size: rng.IntN(100)", "lasts: 3 * time.Second, size: 2 * rng.IntN(50)"},
				edit{faultsFile, "\tside := map[*node]bool{n: true}\n", "\tside := map[*node]bool{n: true}\n\tn.stall(1200 * time.Millisecond)\n"}),
			edits: one(leaseFile, "\tl.asks = append(l.asks, m)\n", `	g.out.Send = append(g.out.Send, &pb.Message{
		Type: pb.MsgReadIndexResp.Enum(), From: m.To, To: m.From, Term: new(g.role.Term), Index: new(g.rn.BasicStatus().GetCommit()), Entries: m.Entries,
	})
`),
		},
	}
}

// readEverywhere has clients read replicas in all worlds.
func readEverywhere() []edit {
	return one(readsFile, "chance(w.random(streamLags), 33)", "chance(w.random(streamLags), 100)")
}
