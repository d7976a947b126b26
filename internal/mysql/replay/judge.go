package replay

import (
	"fmt"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Verdict is the result of comparing a mysqld's gtid_executed with the committed log.
type Verdict struct {
	// Refused says in a sentence why this mysqld may not replicate or serve; "" = it may. The
	// data of a refused mysqld must not be changed.
	Refused string
	// Errant has the transactions of mysqld that were never committed.
	Errant *gtid.Set
	// Prefix is its place in the log. The caller must declare Done before mysqld is fed. Prefix
	// is the zero value if mysqld is refused because of Errant or the durable mark.
	Prefix
}

// Judge checks I3 and the prefix rule: whether a mysqld may go on, and from where. committed is
// the set of all transactions that were ever committed. It must be read after executed: it only
// grows, so a transaction that it lacks was not committed when executed was read.
func Judge(log CommittedLog, committed, executed *gtid.Set, durable Mark) (Verdict, error) {
	v := JudgeSets(committed, executed, durable)
	if v.Refused != "" {
		return v, nil
	}
	var err error
	if v.Prefix, err = FindPrefix(log, executed, durable); err != nil {
		return Verdict{}, fmt.Errorf("find mysqld's place in the log: %w", err)
	}
	switch {
	case !v.Gone.IsEmpty():
		v.Refused = fmt.Sprintf("the log starts at entry %d, after what mysqld holds: it lacks %s, and its durable mark (entry %d) does not say that it ever had them; it stays down and has to be rebuilt",
			log.FirstIndex(), v.Gone, durable.Index)
	case !v.Broken.IsEmpty():
		v.Refused = fmt.Sprintf("mysqld lacks transactions with rows (%s) although it has later ones; it stays down and has to be rebuilt", v.Broken)
	}
	return v, nil
}

// JudgeSets is the part of Judge that does not read the log.
func JudgeSets(committed, executed *gtid.Set, durable Mark) Verdict {
	v := Verdict{Errant: executed.Clone()}
	v.Errant.Subtract(committed)
	switch {
	case !v.Errant.IsEmpty():
		v.Refused = fmt.Sprintf("mysqld holds transactions that the cluster never committed: %s; it stays down, its data and binlogs are kept", v.Errant)
	case durable.LaggedBy(executed):
		v.Refused = fmt.Sprintf("mysqld is behind its durable mark: it held everything up to entry %d on disk, and now lacks %s: its data directory is an older copy, or its disk has lost writes; it stays down and has to be rebuilt",
			durable.Index, durable.Witness)
	}
	return v
}
