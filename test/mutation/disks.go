package mutation

const (
	smallFile  = "internal/log/vfs/write.go"
	storedFile = "internal/raft/consensus/stored.go"
)

// losingDisks breaks what a crash, or a loss of power, may take.
func losingDisks() []mutation {
	return []mutation{
		{
			name: "vote-not-stored", what: "a message to the log that has only a new term, or a vote, is left out", seeds: 60, nodes: 3,
			edits: one(storedFile, "|| m.Term != nil && (m.GetTerm() != s.Term || m.GetVote() != s.Vote)", ""),
		},
		{
			name: "keep-conflicts", what: "entries that a later leader replaces are not cut off", seeds: 20, nodes: 3,
			edits: one(appendFile, "\tif len(entries) > 0 && entries[0].Index <= l.tail().last() {\n", "\tif len(entries) > 0 && entries[0].Index+1 <= l.FirstIndex() {\n"),
		},
		{
			name: "seal-unsynced", what: "the next segment begins before the one before it has its length on disk", seeds: 20, nodes: 3,
			edits: one(appendFile, "\t\tif err := l.sync(f.Sync); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tl.writer.prepared = end\n", "\t\tl.writer.prepared = end\n"),
		},
		{
			name: "small-file-unsynced", what: "a small file gets its name before it is on disk", seeds: 20, nodes: 3,
			edits: one(smallFile, "\tif err == nil {\n\t\terr = f.Sync()\n\t}\n", ""),
		},
		{
			name: "small-file-in-place", what: "a small file is overwritten in place", seeds: 100, nodes: 3,
			edits: append(one(smallFile, "writeContent(fs, path+\".tmp\", content)", "writeContent(fs, path, content)"),
				one(smallFile, "return Move(fs, path+\".tmp\", path)", "return fs.SyncDir(filepath.Dir(path))")...),
		},
		{
			name: "purge-past-mark", what: "entries that a mysqld does not have on its disk yet are purged", seeds: 60, nodes: 3,
			edits: one(purgeFile, "!errant && m.DurableMark+1 < n.From {", "!errant && m.DurableMark > n.From {"),
		},
		{
			name: "unreadable-tail", what: "a sector of the last segment that cannot be read ends the start", seeds: 40, nodes: 3,
			edits: append(one(openFile, "\tif errors.Is(s.problem, syscall.EIO) {", "\tif errors.Is(s.problem, syscall.EIO) && s.end < 0 {"),
				one(openFile, "\t\tif errors.Is(err, errDamage) {", "\t\tif errors.Is(err, errDamage) && s.end < 0 {")...),
		},
		{
			name: "errant-passes", what: "a mysqld passes with transactions that were never committed", seeds: 60, nodes: 3,
			edits: one(judgeFile, "\tcase !v.Errant.IsEmpty():\n", "\tcase false:\n"),
		},
	}
}
