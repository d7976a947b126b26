package mutation

const (
	settleFile = "internal/tap/settle.go"
	// settleShellFile is the simulator's: the shell's steps are not in pure packages.
	settleShellFile = "internal/sim/node_settle.go"
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
			edits: one(settleShellFile, "if p.SetSuperReadOnly(true) {", "if true {"),
		},
		{
			name: "settle-unproven", what: "what super_read_only passes is not looked for", seeds: 120, nodes: 3, blips: true,
			edits: one(settleShellFile, "\t\tcase !ends:\n", "\t\tcase true:\n\t\t\treturn nil\n\t\tcase !ends:\n"),
		},
	}
}
