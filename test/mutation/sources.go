package mutation

const (
	learnerFile     = "internal/raft/logcopy/learner.go"
	sourceFile      = "internal/raft/logcopy/source.go"
	groupSourceFile = "internal/raft/consensus/group_source.go"
	simSourcesFile  = "internal/testkit/sim/sources.go"
)

// feedingLearners breaks how learners are fed by their sources, in a world where they are.
func feedingLearners() []mutation {
	return []mutation{
		{
			name: "source-for-ever", what: "a learner never says that its source is silent", seeds: 40, nodes: 5, sourced: true,
			edits: one(learnerFile, "if l.fedBy != \"\" && l.cfg.Clock.Now() >= l.until {", "if l.fedBy != \"\" && l.until < 0 {"),
		},
		{
			name: "source-and-leader", what: "a leader sends entries to a learner that its source feeds", seeds: 20, nodes: 5, sourced: true,
			// Sources mostly work.
			setup: one(simSourcesFile, "s.w.sched.now > s.troubled && chance(s.rng, 50)", "chance(s.rng, 5)"),
			edits: one(groupSourceFile, "return m.GetType() == pb.MsgApp && g.role.Leading && g.isFed(m.GetTo())", "return m.GetType() == pb.MsgApp && !g.role.Leading"),
		},
		{
			name: "stages-to-fed", what: "a leader sends stages to a learner that its source feeds", seeds: 40, nodes: 5, sourced: true,
			edits: one(sourceFile, "!slices.Contains(*fed, m.ID):", "!slices.Contains(*fed, f.Self):"),
		},
		{
			name: "source-without-stage", what: "a learner takes an entry of its source without the stage that it names", seeds: 40, nodes: 5, sourced: true,
			edits: one(learnerFile, "if s, ok := e.Staged(); ok {", "if s, ok := e.Staged(); ok && s.Bytes == 0 {"),
		},
	}
}
