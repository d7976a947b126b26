package mutation

// mutation is one broken rule.
type mutation struct {
	name string
	// what is broken, in a few words.
	what  string
	edits []edit
	// setup only makes the moment come more often at which the rule matters: with
	// it alone nothing may fail.
	setup []edit
	// seeds is within how many the simulator has to fail, nodes the size of its
	// clusters.
	seeds, nodes int
	// from is the first of the seeds; 0 = 1. What happens rarely is looked for where it does.
	from int
	// blips: the seeds are of a world whose primary is deposed again and again.
	blips bool
	// members: in its world the members change; pair: in that of two nodes of which one
	// loses its vote and gets it back, again and again.
	// sourced: learners have sources, and those fail.
	members, pair, sourced bool
	// losses: in its world a majority is lost for good.
	losses bool
	// xa: clients use XA transactions.
	xa bool
	// appliers: appliers stop with errors, and the bound on the apply lag is short.
	appliers bool
}

// edit replaces a text, which is there exactly once, in a file of the repository.
type edit struct{ file, find, replace string }

// one is the edits of a mutation in one place.
func one(file, find, replace string) []edit { return []edit{{file, find, replace}} }

const (
	ackQueueFile  = "internal/mysql/tap/ackqueue.go"
	batchFile     = "internal/mysql/tap/batch.go"
	machineFile   = "internal/mysql/tap/machine.go"
	fullDiskFile  = "internal/raft/consensus/fulldisk.go"
	writesFile    = "internal/raft/consensus/driver_write.go"
	groupFile     = "internal/raft/consensus/group.go"
	leaseFile     = "internal/raft/consensus/lease.go"
	clocksFile    = "internal/raft/consensus/clocks.go"
	noticesFile   = "internal/raft/consensus/notices.go"
	timingsFile   = "internal/testkit/sim/timings.go"
	faultsFile    = "internal/testkit/sim/faults.go"
	simDumpFile   = "internal/testkit/sim/mysqld_dump.go"
	simEpochFile  = "internal/testkit/sim/node_epoch.go"
	workloadFile  = "internal/testkit/sim/workload.go"
	committedFile = "internal/raft/consensus/committed.go"
	progressFile  = "internal/raft/consensus/progress.go"
	tapFile       = "internal/mysql/mysqlwire/tap.go"
	serveFile     = "internal/raft/bulk/serve.go"
	tallyFile     = "internal/raft/bulk/tally.go"
	uploadsFile   = "internal/raft/bulk/uploads.go"
	epochFile     = "internal/agent/primary/epoch.go"
	catchUpFile   = "internal/agent/primary/catchup.go"
	judgingFile   = "internal/agent/primary/judge.go"
	dutiesFile    = "internal/agent/primary/duties.go"
	dumpFile      = "internal/mysql/mysqlwire/feeddump.go"
	policyFile    = "internal/cluster/policy.go"
	healFile      = "internal/raft/consensus/heal.go"
	promotionFile = "internal/role/promotion.go"
	primaryFile   = "internal/role/primary.go"
	closingFile   = "internal/role/closing.go"
	appendFile    = "internal/log/seglog/append.go"
	openFile      = "internal/log/seglog/open.go"
	stateFile     = "internal/log/seglog/state.go"
	judgeFile     = "internal/mysql/replay/judge.go"
	readerFile    = "internal/mysql/feed/reader.go"
	prefixFile    = "internal/mysql/replay/prefix.go"
	purgeFile     = "internal/mysql/replay/purge.go"
	cursorFile    = "internal/mysql/replay/cursor.go"
	paceFile      = "internal/mysql/tap/pace.go"
	repairFile    = "internal/cluster/repair.go"
	failoverFile  = "internal/cluster/status/failover.go"
	nameFile      = "internal/mysql/binlog/incarnation.go"
)

// mutations returns all of them.
func mutations() []mutation {
	var all []mutation
	for _, some := range [][]mutation{acknowledging(), acknowledgingByPolicy(), proposing(), electing(), serving(), losingDisks(), copying(), telling(), storing(), replaying(), promoting(), holding(), settling(), changingMembers(), meeting(), recovering(), preparing(), slowing(), feedingLearners(), reading()} {
		all = append(all, some...)
	}
	return all
}

// acknowledging breaks when a client gets its OK.
func acknowledging() []mutation {
	return []mutation{
		{
			name: "ack-before-commit", what: "a batch is acknowledged when it is proposed", seeds: 20, nodes: 3,
			edits: one(ackQueueFile, "\tq.handedOut = number\n", "\tq.handedOut = number\n\tq.commit(number)\n"),
		},
		{
			name: "ack-on-own-fsync", what: "a leader takes its own fsync for everybody's", seeds: 20, nodes: 3,
			edits: one(groupFile, "\t_ = g.rn.Step(m)\n", `	_ = g.rn.Step(m)
	if m.GetFrom() == raft.LocalAppendThread && g.role.Leading {
		for _, peer := range g.cfg.Members {
			from, to, term, index := uint64(peer.ID), uint64(g.cfg.Self), g.role.Term, m.GetIndex()
			if from != to {
				_ = g.rn.Step(&pb.Message{Type: pb.MsgAppResp.Enum(), From: &from, To: &to, Term: &term, Index: &index})
			}
		}
	}
`),
		},
		{
			name: "answer-before-fsync", what: "a follower answers before its log is on disk", seeds: 20, nodes: 3,
			edits: one(groupFile, "\t\t\t\tg.out.Append = append(g.out.Append, m)\n", `				for _, r := range m.GetResponses() {
					if r.GetTo() != uint64(g.cfg.Self) {
						g.out.Send = append(g.out.Send, r)
					}
				}
				g.out.Append = append(g.out.Append, m)
`),
		},
		{
			name: "ack-after-close", what: "an ACK that is on its way is sent although its tap was closed", seeds: 150, nodes: 3,
			setup: slowACKs(),
			edits: one(tapFile, "\t_ = t.conn.Close() // the outcome changes nothing: the tap is gone\n", ""),
		},
		{
			name: "ack-idle-heartbeat", what: "the position of mysqld's heartbeat is acknowledged", seeds: 20, nodes: 3,
			// Heartbeats come often, and many transactions are on their way, for long.
			setup: append(slowCommits(), edit{simDumpFile, "c.beatAt = n.now() + n.timing.election\n", "c.beatAt = n.now() + n.timing.election/500\n"}),
			edits: one(machineFile, "\tcase StepHeartbeat, StepNothing:\n", `	case StepHeartbeat:
		m.acks.releasable, m.acks.hasNext = m.stream.position, true
	case StepNothing:
`),
		},
		{
			name: "ack-overtakes-staged", what: "the commit before a staged transaction acknowledges it", seeds: 20, nodes: 3,
			edits: one(batchFile, "\tg.complete = len(g.data)\n\tb.acks.received(b.taken+1, end)\n\tb.release()\n", `	g.complete = len(g.data)
	if n := len(b.acks.pending); n > 0 {
		b.acks.pending[n-1].position = end
	}
	b.acks.received(b.taken+1, end)
	b.release()
`),
		},
		{
			name: "staged-overtakes-commit", what: "a staged transaction does not wait for the batch before it", seeds: 20, nodes: 3,
			setup: stagedOften(),
			edits: one(batchFile, "\t\tb.release()\n\t\treturn false\n\t}\n\tg.gtids, g.receivedAt", "\t}\n\tg.gtids, g.receivedAt"),
		},
		{
			name: "reuse-binlog-name", what: "the binlogs of all incarnations have one name", seeds: 20, nodes: 3,
			edits: one(nameFile, `fmt.Sprintf("q%010d", n)`, `fmt.Sprintf("q%010d", min(n, 1))`),
		},
	}
}

// acknowledgingByPolicy breaks what an ACK waits for beside the commit.
func acknowledgingByPolicy() []mutation {
	return []mutation{
		{
			name: "ack-by-majority", what: "a commit is acknowledged whatever the durability policy is", seeds: 40, nodes: 3,
			edits: one(progressFile, "\tif g.acks.waits {\n", "\tif false {\n"),
		},
		{
			name: "ack-beyond-policy", what: "a commit is acknowledged before its policy allows that", seeds: 40, nodes: 3,
			edits: one(epochFile, "\treturn e.held.Allow(index)\n", "\treturn e.held.Allow(1 << 62)\n"),
		},
		{
			name: "ack-what-was-sent", what: "entries that were sent to a member count as being on its disk", seeds: 40, nodes: 3,
			edits: one(progressFile, "= p.Match }", "= p.Next - 1 }"),
		},
		{
			name: "ack-by-one-site", what: "under site-majority one site is enough", seeds: 60, nodes: 3,
			edits: one(policyFile, "\treturn second\n", "\treturn first\n"),
		},
		{
			name: "drop-who-is-waited-for", what: "a member for which ACKs have to wait is dropped", seeds: 60, nodes: 3,
			edits: one(policyFile, "m.RequireAck && m.DropAfter > 0 && late", "m.RequireAck && late"),
		},
	}
}

// proposing breaks the gate between the tap and Raft.
func proposing() []mutation {
	return []mutation{
		{
			name: "no-term-check", what: "a proposal of an earlier term is taken", seeds: 60, nodes: 3,
			edits: one(groupFile, "case !g.role.Leading || h.Term != g.role.Term:", "case !g.role.Leading:"),
		},
		{
			name: "pass-dropped", what: "a proposal passes one that raft dropped", seeds: 20, nodes: 3,
			setup: one(groupFile, "uncommittedBytesMax = 64 << 20", "uncommittedBytesMax = 2 << 10"),
			edits: one(groupFile, "\t\tg.blocked, g.blockedHeader = data, h\n\t\treturn\n", "\t\tg.next = h.Number + 1\n\t\treturn\n"),
		},
		{
			name: "no-stage", what: "a follower takes a naming entry without its stage", seeds: 20, nodes: 3,
			edits: one(groupFile, "|| g.cfg.HasStage(staged.ID) {", "|| true {"),
		},
		{
			name: "no-room", what: "the tap's reader is not told that the batch for which it waits was taken", seeds: 20, nodes: 3,
			// Clients hurry: a transaction that is staged is behind others more often.
			setup: append(stagedOften(), edit{workloadFile, "thinkMean   = 250 * time.Millisecond", "thinkMean   = 80 * time.Millisecond"}),
			edits: one(tapFile, "\tsignal(t.room)\n", ""),
		},
		{
			name: "name-before-majority", what: "an entry that names a stage does not wait for a majority to hold it", seeds: 20, nodes: 3,
			edits: one(uploadsFile, "if err := up.WaitMajority(); err != nil {", "if err := error(nil); err != nil {"),
		},
		{
			name: "majority-of-one", what: "any node that holds a stage counts as a majority", seeds: 20, nodes: 3,
			edits: one(tallyFile, "t.reached = t.reached || t.votes", "t.reached = true || t.votes"),
		},
		{
			name: "done-without-finish", what: "a peer says that it holds a stage which is not whole on its disk", seeds: 20, nodes: 3,
			edits: one(serveFile, "if err := w.Finish(in.sum.bytes, in.sum.crc); err != nil {",
				"if err := s.send(frameDone, nil); err != nil {"),
		},
	}
}

// electing breaks who may serve.
func electing() []mutation {
	return []mutation{
		{
			name: "skip-vote-fsync", what: "a vote is not on disk when it is given", seeds: 20, nodes: 3,
			// Power is lost more often.
			setup: []edit{{faultsFile, "{losePower, 8}", "{losePower, 60}"}, {faultsFile, "{loseAll, 6}", "{loseAll, 60}"}},
			edits: one(stateFile, "\tif mustSync {\n\t\tif err := s.file", "\tif false {\n\t\tif err := s.file"),
		},
		{
			name: "full-disk-forgets-votes", what: "a node whose disk is full votes without storing it", seeds: 40, nodes: 3,
			edits: one(fullDiskFile, "\tif hs == nil || hs.Term == stored.Term &&", "\tif hs == nil || hs.Term >= stored.Term || hs.Term == stored.Term &&"),
		},
		{
			name: "full-disk-votes-at-once", what: "a vote leaves a full disk with the next write, whatever that is", seeds: 40, nodes: 3,
			edits: one(writesFile, "return &Write{vote: vote, votes: votes}", "return &Write{votes: votes}"),
		},
		{
			name: "full-disk-forgets-entries", what: "entries that came while the disk was full are forgotten", seeds: 40, nodes: 3,
			edits: one(writesFile, "append(f.held, d.writes.waiting...)", "d.writes.waiting"),
		},
		{
			name: "vote-after-restart", what: "a restarted node votes at once", seeds: 60, nodes: 3,
			// Agents restart while a primary that was cut off still has its lease.
			setup: one(faultsFile, "{squeeze, 6}", "{squeeze, 60}"),
			edits: one(groupFile, "\tif !cfg.Fresh {\n", "\tif false {\n"),
		},
		{
			name: "long-lease", what: "the lease is longer than an election timeout", seeds: 40, nodes: 3,
			edits: one(leaseFile, "time.Duration(electionTicks-3)", "time.Duration(3*electionTicks)"),
		},
		{
			name: "lease-by-own-timeout", what: "the leader's lease goes by its own election timeout, although other nodes have shorter ones", seeds: 120, nodes: 3,
			setup: timingsDiffer(),
			edits: one(leaseFile, "\t\t\tlasts = min(lasts, p.lasts)\n", "\t\t\t_ = p\n"),
		},
		{
			name: "forget-promise", what: "a node that starts with a shorter election timeout forgets the promise that it made with the longer one", seeds: 300, nodes: 3,
			setup: timingsDiffer(),
			edits: one(groupFile, "max(cfg.Promised, time.Duration(cfg.ElectionTicks)*cfg.Tick)", "time.Duration(cfg.ElectionTicks)*cfg.Tick"),
		},
		{
			name: "lease-after-transfer", what: "a leader that was asked to go keeps its lease", seeds: 40, nodes: 3, blips: true,
			edits: []edit{
				{groupFile, "\tg.transferredTerm, g.lease.until = g.role.Term, clocks{}\n", ""},
			},
		},
	}
}

// telling breaks who learns of a commit.
func telling() []mutation {
	return []mutation{
		{
			name: "notice-beyond-match", what: "a follower is told of a commit that it may not have", seeds: 20, nodes: 3,
			edits: one(noticesFile, "usable := min(p.Match, commit)", "usable := commit"),
		},
	}
}

// timingsDiffer has the nodes' settings differ much, in all worlds, and change often.
func timingsDiffer() []edit {
	return []edit{
		{timingsFile, "streamTimings), 33)", "streamTimings), 100)"},
		{timingsFile, "timingRNG, 30)", "timingRNG, 60)"},
		{timingsFile, "\t{raftTick, electionTimeout},\n", ""},
		{timingsFile, "\t{2 * raftTick, electionTimeout},\n", ""},
		{faultsFile, "{squeeze, 6}", "{squeeze, 60}"},
	}
}

// storing breaks the log.
func storing() []mutation {
	return []mutation{
		{
			name: "skip-log-fsync", what: "a group is answered for before it is on disk", seeds: 20, nodes: 3,
			edits: one(appendFile, "\tif err := l.sync(w.file.SyncData); err != nil {\n\t\treturn err\n\t}\n\tw.uncache", "\tw.uncache"),
		},
		{
			name: "torn-tail-is-damage", what: "a torn tail is called corruption", seeds: 30, nodes: 3,
			edits: one(openFile, "\t\tif durable > s.end {\n", "\t\tif durable > s.end || nonZeroEnd > s.end {\n"),
		},
		{
			name: "damage-is-a-tail", what: "a log that lacks what it promised takes part in Raft", seeds: 20, nodes: 3,
			edits: []edit{
				{openFile, "errors.AsType[*CorruptError](err); ok && l.options.Heal {", "errors.AsType[*CorruptError](err); ok {"},
				{openFile, "\tif r.damage == nil || heal {\n", "\tif r.damage == nil || heal || len(r.segments) > 0 {\n"},
			},
		},
		{
			name: "heal-to-commit", what: "a log counts as healed without the tail that its leader relies on", from: 130, seeds: 5, nodes: 3,
			edits: one(healFile, "\tif term <= t.promised.Term {\n", "\tif false {\n"),
		},
		{
			name: "purge-too-far", what: "entries that a member needs are purged", seeds: 20, nodes: 3,
			edits: one(purgeFile, "\tif first.From <= last {\n", "\tif first.From <= last && first.From == 0 {\n"),
		},
	}
}

// replaying breaks how a mysqld and the log go together.
func replaying() []mutation {
	return []mutation{
		{
			name: "serve-uncommitted", what: "the feed reads on behind the commit index", seeds: 20, nodes: 3,
			edits: one(committedFile, "\tlast := c.Mark().Index\n", "\tlast := log.(interface{ LastIndex() uint64 }).LastIndex()\n"),
		},
		{
			name: "feed-position", what: "the feed does not count what it sends", seeds: 20, nodes: 3,
			edits: one(dumpFile, "\t\tw.offset += uint64(len(event))\n\t\tif event.Type()", "\t\tif event.Type()"),
		},
		{
			name: "keep-binlog", what: "mysqld starts with the binlog that it left", seeds: 20, nodes: 3,
			edits: one(nameFile, `return fmt.Sprintf("%010d", n)`, `return fmt.Sprintf("%010d", min(n, 1))`),
		},
		{
			name: "resend-holes", what: "the holes of gtid_executed are sent again", seeds: 20, nodes: 3,
			edits: one(prefixFile, "\tif err := p.findHoles(log, segments, executed, durable); err != nil {\n\t\treturn Prefix{}, err\n\t}\n",
				"\tp.First, p.Index, p.Skip, p.Done = segments[0].FirstIndex, 0, 0, &gtid.Set{}\n"),
		},
		{
			name: "resend-half", what: "an entry of which mysqld has a part is not sent to its end", seeds: 20, nodes: 3,
			setup: killedInLongEntries(),
			edits: one(cursorFile, "\t\tbody, err = cutTransactions(body, skip)\n", "\t\tif skip > 0 {\n\t\t\treturn Piece{}, nil\n\t\t}\n"),
		},
		{
			name: "fill-holes-above-mark", what: "holes that nobody can look at are declared done", seeds: 60, nodes: 3,
			edits: one(prefixFile, "\tif durable.covers(p.First-1) && executed.Contains(durable.Witness) {\n", "\tif true {\n"),
		},
		{
			name: "no-ops-not-done", what: "no-ops that mysqld lacks are not declared done", seeds: 20, nodes: 3,
			edits: one(prefixFile, "\t} else {\n\t\tl.holes.Done.Add(tx.gtid)\n\t}\n", "\t}\n"),
		},
		{
			name: "judge-without-leader", what: "a mysqld is judged by what its own node knows to be committed", seeds: 20, nodes: 3,
			edits: answerBarriersAlone(),
		},
		{
			name: "judge-by-uncommitted", what: "a mysqld is judged by entries that are not committed", seeds: 60, nodes: 3,
			edits: append(answerBarriersAlone(), []edit{
				{judgeFile, "\t\"github.com/quorate/quorate/internal/mysql/gtid\"\n",
					"\t\"github.com/quorate/quorate/internal/mysql/gtid\"\n\t\"github.com/quorate/quorate/internal/log/seglog\"\n"},
				{readerFile, "// Close implements Log.", `// All returns all entries.
func (r Reader) All() ([]seglog.Entry, error) { return r.Log.Entries(r.FirstIndex(), r.LastIndex()+1, 1<<30) }

// Close implements Log.`},
				{dutiesFile, "\t\treplay.CommittedLog\n\t}{committed{d.cfg.Raft()}, log}\n",
					"\t\treplay.CommittedLog\n\t\treplay.Whole\n\t}{committed{d.cfg.Raft()}, log, log.(replay.Whole)}\n"},
				{judgeFile, "// Judge checks I3", `// Whole is the log with what is not committed.
type Whole interface{ All() ([]seglog.Entry, error) }

// Judge checks I3`},
				{judgeFile, "\tv := JudgeSets(committed, executed, durable)\n", `	found, err := log.(Whole).All()
	if err != nil {
		return Verdict{}, err
	}
	committed = committed.Clone()
	for _, e := range found {
		_ = entryTransactions(e, func(tx transaction) error { committed.Add(tx.gtid); return nil })
	}
	v := JudgeSets(committed, executed, durable)
`},
				{judgeFile, "\tvar err error\n", ""},
			}...),
		},
	}
}

// stagedOften has more transactions that are staged, and fewer batches that are proposed at once: so a transaction that is
// staged finds a batch before it.
func stagedOften() []edit {
	return []edit{
		{workloadFile, "case chance(l.rng, 5):\n", "case chance(l.rng, 30):\n"},
		{simEpochFile, "!chance(a.n.rng, 10) && now(b)", "!chance(a.n.rng, 90) && now(b)"},
	}
}

// slowCommits has more transactions on their way, and for longer.
func slowCommits() []edit {
	return []edit{
		{faultsFile, "if chance(rng, 50) { // makes many", "if chance(rng, 100) { // makes many"},
		{faultsFile, "{slowDisk, 3}", "{slowDisk, 40}"},
	}
}

// killedInLongEntries has mysqlds crash more often, and while entries have many transactions: many are on
// their way, and the tap reads late.
func killedInLongEntries() []edit {
	return append(slowCommits(),
		edit{faultsFile, "{killMysqld, 10}", "{killMysqld, 60}"},
		edit{serverFile, "socketMean  = 20 * time.Microsecond", "socketMean  = 5 * time.Millisecond"},
	)
}

// answerBarriersAlone has a node ask nobody what is committed.
func answerBarriersAlone() []edit {
	return []edit{
		{groupFile, "\tg.rn.ReadIndex(readContext(contextBarrier, g.cfg.Self, id))\n",
			"\tg.out.Barriers = append(g.out.Barriers, Barrier{ID: id, Index: g.committed.Mark().Index})\n"},
		{groupFile, "|| len(out.Wanted) > 0\n", "|| len(out.Wanted) > 0 || len(out.Barriers) > 0\n"},
	}
}

// promoting breaks the life of a primary.
func promoting() []mutation {
	return []mutation{
		{
			name: "promote-before-apply", what: "a mysqld is opened before it has applied what is committed", seeds: 40, nodes: 3,
			edits: one(promotionFile, "\tp.begin(n, PhaseCatchingUp, Effect{Kind: CatchUp})\n",
				"\tp.begin(n, PhaseJudging, Effect{Kind: Judge, Promote: true})\n"),
		},
		{
			name: "catch-up-blind", what: "a catch-up does not wait until what is committed is applied", seeds: 40, nodes: 3,
			edits: one(catchUpFile, "\t\tif err != nil || done {\n", "\t\tif err != nil || !done || done {\n"),
		},
		{
			name: "judge-without-barrier", what: "mysqld is compared with what this node knows to be committed, without asking a majority", seeds: 40, nodes: 3,
			edits: one(judgingFile, "\tif err := j.Log.Barrier(ctx); err != nil {\n\t\treturn err\n\t}\n", ""),
		},
		{
			name: "apply-anew", what: "a promotion that is given up sets replication up again in the middle of a transaction", seeds: 60, nodes: 3, members: true,
			edits: one(promotionFile, "\tif p.Phase == PhaseCatchingUp {\n\t\treturn PhaseReplica\n", "\tif false {\n\t\treturn PhaseReplica\n"),
		},
		{
			name: "no-fencing", what: "a primary that lost leadership goes on", seeds: 60, nodes: 3,
			edits: []edit{
				{primaryFile, "case !n.leads(p.term):", "case !n.leads(p.term) && n.stopping:"},
				{promotionFile, "case !n.leads(p.term):\n\t\tn.fence(", "case !n.leads(p.term) && n.stopping:\n\t\tn.fence("},
				{closingFile, "if !n.leads(term) {", "if !n.leads(term) && n.stopping {"},
			},
		},
		{
			name: "stop-with-waiters", what: "a primary is stopped before its writes are closed", seeds: 20, nodes: 3,
			setup: append(slowCommits(), edit{faultsFile, "{stopAgent, 6}", "{stopAgent, 200}"}),
			edits: one(primaryFile, "\tn.begin(closing{term: p.term}, Effect{Kind: CloseWrites, Term: p.term})\n",
				"\tn.begin(ending{Phase: PhaseStopping}, Effect{Kind: StopMysqld})\n"),
		},
	}
}
