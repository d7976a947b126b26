package mutation

const slotFile = "internal/agent/primary/slot.go"

// holding breaks how a node holds its one epoch.
func holding() []mutation {
	return []mutation{
		{
			name: "slot-stays-open", what: "an epoch that is closed keeps its tap", seeds: 80, nodes: 5,
			edits: one(slotFile, "\tif s.cur == nil {\n\t\treturn\n\t}\n", "\tif true {\n\t\treturn\n\t}\n"),
		},
	}
}
