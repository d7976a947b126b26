package mutation

const slotFile = "internal/agent/primary/slot.go"

// holding breaks how a node holds its one epoch.
func holding() []mutation {
	return []mutation{
		{
			name: "slot-stays-open", what: "an epoch that is closed keeps its tap", seeds: 40, nodes: 3, blips: true, setup: slowACKs(),
			edits: one(slotFile, "\tif s.cur == nil {\n\t\treturn\n\t}\n", "\tif true {\n\t\treturn\n\t}\n"),
		},
	}
}

// slowACKs has each ACK take 20 ms, so that epochs end while ACKs are on their way.
func slowACKs() []edit {
	return one(simDumpFile, "e.a.life.sleep(n.hiccup())", "e.a.life.sleep(20 * time.Millisecond)")
}
