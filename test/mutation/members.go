package mutation

const (
	membersFile  = "internal/raft/consensus/members.go"
	stateGoFile  = "internal/raft/consensus/state.go"
	storageFile  = "internal/raft/consensus/storage.go"
	leaveFile    = "internal/cluster/leave.go"
	handFile     = "internal/role/handover.go"
	remindFile   = "internal/agent/membership/remind.go"
	knownFile    = "internal/agent/membership/directories.go"
	votesFile    = "internal/agent/membership/votes.go"
	operatorFile = "internal/testkit/sim/members.go"
	seedGoFile   = "internal/mysql/replay/seed.go"
	newcomeFile  = "internal/agent/join/newcomer.go"
	planFile     = "internal/agent/join/plan.go"
	followFile   = "internal/agent/membership/follower.go"
)

// changingMembers breaks how the members change, in worlds where they do.
func changingMembers() []mutation {
	return []mutation{
		{
			name: "no-joint", what: "voters change without joint consensus", seeds: 20, nodes: 3, members: true,
			edits: one(membersFile, "\t\ttransition = pb.ConfChangeTransitionJointImplicit\n", "\t\ttransition = pb.ConfChangeTransitionAuto\n"),
		},
		{
			name: "forget-joint", what: "a restarted node forgets the former voters while their change is not complete", seeds: 60, nodes: 3, members: true,
			edits: one(membersFile, "\tfor _, id := range p.Outgoing {\n\t\tcs.VotersOutgoing", "\tfor _, id := range p.Outgoing[:0] {\n\t\tcs.VotersOutgoing"),
		},
		{
			name: "miss-changes", what: "a restarted node does not look for the changes that its cluster.json lacks", seeds: 60, nodes: 3, members: true,
			edits: one(storageFile, "min(log.HardState().Commit, through)", "log.HardState().Commit"),
		},
		{
			name: "leave-in-the-middle", what: "a node gives up its data while its vote is still needed", from: 120, seeds: 80, nodes: 3, members: true,
			edits: one(leaveFile, "\treturn len(p.Outgoing) == 0 && keep > len(voters)/2\n", "\treturn keep >= 0\n"),
		},
		{
			name: "leave-at-once", what: "a node gives up its data as soon as it sees that it has no vote", seeds: 20, nodes: 3, pair: true,
			// The leader loses its power before its log says that the change is complete, and is away for longer than the
			// other node needs.
			setup: append(pairRebuilt(), edit{faultsFile, "w.sched.after(around(i.rng, 150*time.Microsecond), func() {", "w.sched.after(around(i.rng, 20*time.Microsecond), func() {"},
				edit{operatorFile, "f.lasts = 200*time.Millisecond + ", "f.lasts = 3*time.Second + "}),
			edits: one(leaveFile, "\treturn len(p.Outgoing) == 0 && keep > len(voters)/2\n", "\treturn len(p.Outgoing) == 0 && keep >= 0\n"),
		},
		{
			name: "no-taking-up", what: "the last voter of two, which does not know that it is the last, asks nobody", seeds: 60, nodes: 3, pair: true,
			edits: one(leaveFile, "\treturn p.Index > own.Index && slices", "\treturn p.Index < own.Index && slices"),
		},
		{
			name: "vote-for-the-old", what: "a node that is being rebuilt gets its vote over the data that it gives up", seeds: 20, nodes: 3, pair: true,
			// The leader is mostly left alone meanwhile.
			setup: append(pairRebuilt(), edit{operatorFile, "(o.pair || chance(o.rng, 40))", "chance(o.rng, 20)"}),
			edits: one(votesFile, " && !GivesUp(m, n) && CaughtUp", " && CaughtUp"),
		},
		{
			name: "seed-behind", what: "the log of a new node begins behind what others may still need", from: 120, seeds: 5, nodes: 3, members: true,
			edits: one(seedGoFile, "\t\tif needed || s.FirstIndex > committed {\n", "\t\tif needed && false || s.FirstIndex > committed {\n"),
		},
		{
			name: "weight-zero-opens", what: "a node of weight 0 opens for writes", seeds: 60, nodes: 3,
			edits: one(handFile, "\tcase n.nodes.Own.Weight == 0:\n\t\treturn \"its weight is 0\"\n", ""),
		},
		{
			name: "single-voter-barrier", what: "a single voter answers a barrier before it knows what is committed", seeds: 120, nodes: 3, members: true,
			edits: one(groupFile, "\tif g.role.Leading && !g.knowsCommitted() {\n\t\tif len(g.barriers)", "\tif false {\n\t\tif len(g.barriers)"),
		},
		{
			name: "join-unheard", what: "a node joins in a directory although no member has seen it empty", from: 204, seeds: 3, nodes: 3, members: true,
			edits: one(newcomeFile, "\tcase r != nil || i.Joins && len(got.Welcomes) > 0:\n", "\tcase r != nil || i.Joins:\n"),
		},
		{
			name: "no-reseed", what: "no leader rebuilds a node that has lost its disk", seeds: 60, nodes: 3, members: true,
			edits: one(repairFile, "\tcase sight.Empty && s.Reseed != ReseedManual && ", "\tcase sight.Empty && s.Reseed == ReseedManual && "),
		},
	}
}

// rebuiltOften has an operator rebuild the nodes that would only lose their vote.
func rebuiltOften() []edit {
	return one(operatorFile, "\tcase k < 62:\n\t\to.ask(a, cluster.MembershipChange{Op: cluster.OpDemote, Name: m.Name})\n",
		"\tcase k < 62:\n\t\to.ask(a, cluster.MembershipChange{Op: cluster.OpRebuild, Name: m.Name, Instance: n.newInstance()})\n")
}

// pairRebuilt has, of two nodes, the node rebuilt that would only lose its vote.
func pairRebuilt() []edit {
	return one(operatorFile, "cluster.MembershipChange{Op: cluster.OpDemote, Name: m.Name})\n\t\t\treturn\n",
		"cluster.MembershipChange{Op: cluster.OpRebuild, Name: m.Name, Instance: o.w.node(m.ID).newInstance()})\n\t\t\treturn\n")
}

// lostOnceMore has a node that was rebuilt lose its disk once more, before it has a vote.
func lostOnceMore() []edit {
	return []edit{
		{operatorFile, "\tn := o.w.node(m.ID)\n\tswitch k := o.rng.IntN(100); {\n", `	for _, r := range p.State.Members {
		if !r.Votes() && o.w.joinedAs[r.Instance] {
			o.loseDisk(a, o.w.node(r.ID), p)
		}
	}
	n := o.w.node(m.ID)
	switch k := o.rng.IntN(100); {
`},
		{operatorFile, "\tsoon := now < max(o.accepted, o.lost)+loseDiskApart\n", "\tsoon := now < o.lost+loseDiskApart\n"},
	}
}

// meeting breaks whom a node takes for a member, and who lets a node begin.
func meeting() []mutation {
	return []mutation{
		{
			name: "any-directory", what: "a peer is taken with any data directory", seeds: 20, nodes: 3, members: true,
			setup: lostOnceMore(),
			edits: one(knownFile, "\tcase !ok || pinned == instance:\n", "\tcase true:\n"),
		},
		{
			name: "plan-without-barrier", what: "a member says what it can give without a read barrier", seeds: 40, nodes: 3, members: true,
			edits: one(planFile, "\tif err := m.Barrier(ctx); err != nil {\n", "\tif err := ctx.Err(); err != nil {\n"),
		},
		{
			name: "remind-who-is-heard", what: "a node that has to begin again is told a second time only if its leader hears it", seeds: 40, nodes: 3, members: true,
			edits: one(remindFile, "if !n.Leaving {", "if !n.Leaving || !n.Reachable {"),
		},
		{
			name: "rebuild-met", what: "a node is told to begin again in a directory with which it has already shaken hands", seeds: 80, nodes: 3, members: true,
			setup: lostOnceMore(),
			edits: one(knownFile, "d.rebuilt[id.Node] && d.heard[id.Node] != pinned", "d.rebuilt[id.Node]"),
		},
		{
			name: "met-in-memory", what: "the directories that have shaken hands are not written to met.json", seeds: 80, nodes: 3, members: true,
			// All agents start again when a node has lost its disk.
			setup: append(lostOnceMore(), edit{operatorFile, "\to.w.sched.after(around(o.rng, time.Second), n.startAgent)\n", `	for _, other := range o.w.nodes {
		other.killAgent("killed")
		if other != n {
			o.w.sched.after(around(o.rng, 50*time.Millisecond), other.startAgent)
		}
	}
	o.w.sched.after(100*time.Millisecond+around(o.rng, time.Second), n.startAgent)
`}),
			edits: one(knownFile, "\tif err := d.cfg.Store.WriteMet(met); err != nil {\n\t\treturn err\n\t}\n", ""),
		},
		{
			name: "tell-unkept", what: "a node follows a cluster state that it could not write down, and sends other nodes away by it", seeds: 40, nodes: 3, members: true,
			// Nodes are rebuilt, and all disks are full, while the voters change.
			setup: append(rebuiltOften(), edit{operatorFile, "\t\ta.w.happened(pointJoint, a.n)\n", `		a.w.happened(pointJoint, a.n)
		for _, n := range a.w.nodes {
			if a.w.faults.ended {
				return
			}
			n.disk.full++
			a.w.faults.until(3*time.Second, func() { n.disk.full-- })
		}
`}),
			edits: one(followFile, "if kept && followed != changed {", "if followed != changed {"),
		},
	}
}
