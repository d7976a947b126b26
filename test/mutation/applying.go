package mutation

// slowing breaks the bound on the apply lag.
func slowing() []mutation {
	return []mutation{
		{
			name: "no-lag-bound", what: "nothing is held back, however far the replicas are behind", seeds: 40, nodes: 3, appliers: true,
			edits: one(paceFile, "\treturn max(0, p.due-now)\n", "\treturn 0\n"),
		},
		{
			name: "wait-for-stopped", what: "a replica whose applier has stopped counts as one that could take over", seeds: 150, nodes: 3, appliers: true,
			edits: one(failoverFile, "\t\tn.ApplierStopped == \"\" && (n.LogState", "\t\t(n.LogState"),
		},
	}
}
