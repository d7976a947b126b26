package mutation

const markFile = "internal/mysql/replay/mark.go"

// preparing breaks what becomes of XA transactions.
func preparing() []mutation {
	return []mutation{
		{
			name: "xa-not-again", what: "transactions that a replica rolled back at its start are not sent again", seeds: 20, nodes: 3, xa: true,
			edits: one(prefixFile, "\t\tp.Again.Add(tx.gtid)\n\t\tp.again = append(p.again, place{tx.index, tx.ordinal})\n", "\t\tp.Done.Add(tx.gtid)\n"),
		},
		{
			name: "xa-again-after-end", what: "an XA PREPARE that was ended is sent again, too", seeds: 20, nodes: 3, xa: true,
			edits: one(prefixFile, "\tif p, found := l.prepared[xid]; ends && found {\n", "\tif p, found := l.prepared[xid]; ends && found && p.index == 0 {\n"),
		},
		{
			name: "mark-over-xa", what: "a durable mark covers transactions that are only prepared", seeds: 60, nodes: 3, xa: true,
			edits: one(markFile, "\t\tm.Index = min(m.Index, xa.before(k.index))\n", "\t\t_ = xa.before(k.index)\n"),
		},
		{
			name: "promote-without-binlog", what: "a mysqld is promoted although its applier has prepared without a binlog", seeds: 20, nodes: 3, xa: true,
			edits: one(promotionFile, "\tcase in.Verdict == XAPending && !n.mysqld.replicaBinlog:\n",
				"\tcase in.Verdict == XAPending:\n\t\tp.begin(n, PhaseTapping, Effect{Kind: OpenTap})\n\tcase in.Verdict == XAPending && !n.mysqld.replicaBinlog:\n"),
		},
	}
}
