package sim

import (
	"bytes"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
)

// durableLog is what a node's log has promised to keep: the term of each entry whose append
// has returned, and the hard state.
type durableLog struct {
	terms []uint64 // of the entries from 1 on
	hs    seglog.HardState
	// changes is the index of the last appended entry that changes the members.
	changes uint64
}

func (d *durableLog) appended(run consensus.AppendRun) {
	for _, e := range run.Entries {
		d.terms = append(d.terms[:e.Index-1], e.Term)
		if e.Type != 0 {
			d.changes = e.Index
		}
	}
	if run.HardState != nil {
		d.hs = *run.HardState
	}
}

// cut drops entries that an append may have removed, if that append has not returned.
func (d *durableLog) cut(runs []consensus.AppendRun) {
	for _, run := range runs {
		if len(run.Entries) > 0 {
			d.terms = d.terms[:min(len(d.terms), int(run.Entries[0].Index-1))]
		}
	}
}

func (d *durableLog) has(index, term uint64) bool {
	return index <= uint64(len(d.terms)) && d.terms[index-1] == term
}

// checker judges the run. It sees more than any node does.
type checker struct {
	w *World
	// entries and transactions are the committed log, as the first node committed it.
	// places finds a transaction there.
	entries      []committedEntry
	transactions []committedTransaction
	places       map[gtid.GTID]int
	// prepared holds the XA transactions that the committed log has prepared.
	prepared map[string]bool
	// numbers holds the indexes of each epoch's entries.
	numbers map[epochNumber]uint64
	// seen counts the entries that each node's commit check has passed since the node started.
	seen map[*agent]uint64
	// engines is how far each node's engine log was checked.
	engines map[*node]engineCheck
	// dumps holds the transactions that each tap has read and not acknowledged.
	dumps   map[*epoch]*dumpCheck
	ackedBy map[uint64]*node // by term
	ok      int              // transactions of which a client has OK
	// releasedBy is the index up to which each node has sent ACKs. dropped names the nodes
	// whose require-ack it has dropped.
	releasedBy map[*node]uint64
	dropped    map[*agent]map[*node]bool
	// policies holds the cluster states, by the index of the entry that brought them.
	policies []policy
	// votersBefore are the voters before their last change, which is entry changedAt. joint:
	// that change is not complete. Up to beforeUpTo they alone may have committed an entry.
	votersBefore          []cluster.NodeID
	joint                 bool
	changedAt, beforeUpTo uint64
	// before is the checker of the cluster before its recovery (losses); nil = there was none.
	before *fork
	// left holds the nodes that belong to another cluster now, with their promises.
	left map[cluster.NodeID]durableLog
}

// epochNumber is an entry's place in its epoch.
type epochNumber struct{ term, number uint64 }

type committedEntry struct {
	term uint64
	sum  uint32
}

type committedTransaction struct {
	gtid  gtid.GTID
	index uint64
	at    time.Duration // when the first node took it for committed
	// changes: InnoDB keeps a trace of the transaction.
	changes bool
}

func newChecker(w *World) *checker {
	return &checker{
		w: w, places: map[gtid.GTID]int{}, prepared: map[string]bool{}, numbers: map[epochNumber]uint64{}, seen: map[*agent]uint64{}, engines: map[*node]engineCheck{},
		policies: []policy{{0, w.initial}},
		dumps:    map[*epoch]*dumpCheck{}, ackedBy: map[uint64]*node{}, releasedBy: map[*node]uint64{}, dropped: map[*agent]map[*node]bool{},
	}
}

// committed takes the entries that a node's commit check has passed. At each index all nodes
// must have the same entry.
func (c *checker) committed(a *agent) {
	last := a.Raft.Committed().Mark().Index
	next, known := c.seen[a]
	if !known {
		next = 1
		for _, s := range a.log.Segments() {
			next = max(next, s.FirstIndex)
			break
		}
	}
	if a.n.rotten { // what its start has not read may be damaged: the agent itself has to find that
		next = max(next, min(last, uint64(len(c.entries)))+1)
	}
	for next <= last {
		found, ok, err := a.Raft.Committed().Read(a.log, next, 1<<20)
		if err != nil || !ok {
			c.w.fail("log", "n%d: read committed entry %d: %t, %v", a.n.id, next, ok, err)
		}
		for _, e := range found {
			c.entry(a.n, e)
			next = e.Index + 1
		}
	}
	c.seen[a] = next
}

// damaged is called where a part of an agent has ended. If it found the log damaged, the agent ends, as in the product.
func (c *checker) damaged(a *agent, err error) {
	if !errors.Is(err, seglog.ErrCorrupt) {
		return
	}
	if !a.n.rotten {
		c.w.fail("log", "n%d: %v", a.n.id, err)
	}
	c.w.sched.after(0, func() { a.exit(err.Error()) })
}

func (c *checker) entry(n *node, e seglog.Entry) {
	mine := committedEntry{e.Term, crc32.ChecksumIEEE(e.Data)}
	if e.Index <= uint64(len(c.entries)) {
		if theirs := c.entries[e.Index-1]; theirs != mine {
			c.w.fail("agreement", "n%d committed entry %d as %v, another node as %v", n.id, e.Index, mine, theirs)
		}
		return
	}
	if e.Index != uint64(len(c.entries))+1 {
		c.w.fail("agreement", "n%d committed entry %d, nobody has committed %d", n.id, e.Index, len(c.entries)+1)
	}
	c.majority("commit", e.Index, e.Term)
	c.entries = append(c.entries, mine)
	if e.Type != 0 {
		c.configuration(e)
		return
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil {
		c.w.fail("I2", "committed entry %d: %v", e.Index, err)
	}
	if h.Kind != entry.KindState {
		c.numbers[epochNumber{h.Term, h.Number}] = e.Index
	}
	switch h.Kind {
	case entry.KindStaged:
		c.staged(e.Index, h, body)
		return
	case entry.KindState:
		c.changed(e.Index, h, body)
		return
	case entry.KindTransactions:
	default:
		return
	}
	for tx, err := range binlog.Transactions(body) {
		if err != nil {
			c.w.fail("I4", "committed entry %d: %v", e.Index, err)
		}
		prepares, _, err1 := binlog.ParseXAPrepare(tx.Raw)
		ends, _, err2 := binlog.ParseXAEnd(tx.Raw)
		if err := errors.Join(err1, err2); err != nil {
			c.w.fail("xa", "committed entry %d: %v", e.Index, err)
		}
		committed := committedTransaction{gtid: tx.GTID, index: e.Index, changes: changes(tx.Raw) && prepares.GTRID == ""}
		c.xa(committed, prepares.GTRID, ends.GTRID)
		c.transaction(committed)
	}
}

// all returns all transactions that were committed.
func (c *checker) all() *gtid.Set {
	all := &gtid.Set{}
	for _, tx := range c.transactions {
		all.Add(tx.gtid)
	}
	return all
}

func (c *checker) transaction(tx committedTransaction) {
	if _, found := c.places[tx.gtid]; found {
		c.w.fail("I9", "%s committed again by entry %d", tx.gtid, tx.index)
	}
	tx.at = c.w.sched.now
	c.places[tx.gtid] = len(c.transactions)
	c.transactions = append(c.transactions, tx)
}

// staged takes a naming entry.
func (c *checker) staged(index uint64, h entry.Header, body []byte) {
	s, err := entry.ParseStaged(h, body)
	var info binlog.GTIDInfo
	if err == nil {
		info, err = binlog.ParseGTID(s.GTIDEvent)
	}
	if err != nil {
		c.w.fail("I4", "committed entry %d: %v", index, err)
	}
	prepares, _, err := binlog.ParseXAPrepareEvent(s.EndEvent)
	if err != nil {
		c.w.fail("xa", "committed entry %d: %v", index, err)
	}
	committed := committedTransaction{gtid: info.GTID, index: index, changes: s.Rows && prepares.GTRID == ""}
	c.xa(committed, prepares.GTRID, "")
	c.transaction(committed)
}

// changes tells whether a transaction leaves a trace in InnoDB: all but the
// workload's DROP TABLE IF EXISTS of a table that is not there.
func changes(raw []byte) bool { return !bytes.Contains(raw, []byte("DROP TABLE IF EXISTS")) }

// names checks a stage whose entry is about to be proposed. The stage was begun at the time begun. A majority
// must have the stage on disk, so that the entry can be committed without this node. A node that has started
// since may have had it: opening a log drops the stages that no entry names.
func (c *checker) names(a *agent, id entry.StageID, begun time.Duration) {
	if a.w.membersChange || a.w.losses != nil {
		return // the voters may be others by now
	}
	lack := 0
	for _, n := range a.w.nodes {
		if b := n.agent; b != nil && n.upAt < begun && b.Raft.Committed().Mark().Epoch <= id.Term && !b.log.HasStage(id) {
			lack++
		}
	}
	if have := len(a.w.nodes) - lack; 2*have <= len(a.w.nodes) {
		c.w.fail("stage", "n%d names stage %v, which at most %d nodes hold", a.n.id, id, have)
	}
}

// majority fails unless a majority of the voters has promised to keep an entry.
func (c *checker) majority(what string, index, term uint64) {
	if ok, who := c.held(index, term); !ok {
		c.w.fail("I1", "%s of entry %d of term %d, which is on the disks of %s", what, index, term, who)
	}
}

// answered checks an OK at the moment when mysqld gives it (I1).
func (c *checker) answered(m *mysqld, g gtid.GTID) {
	i, found := c.places[g]
	if !found {
		c.w.fail("I1", "n%d: OK for %s, which is not committed", m.n.id, g)
	}
	index := c.transactions[i].index
	c.majority("OK", index, c.entries[index-1].term)
	if index > c.releasedBy[m.n] {
		c.w.fail("policy", "n%d: OK for entry %d, ACKs were let go up to %d", m.n.id, index, c.releasedBy[m.n])
	}
	c.ok++
}

// reopened compares a log with what the node had promised to keep when the log was closed.
func (c *checker) reopened(n *node) {
	log, d := n.agent.log, &n.durable
	hs := log.HardState()
	if hs.Term < d.hs.Term || hs.Term == d.hs.Term && d.hs.Vote != 0 && hs.Vote != d.hs.Vote {
		c.w.fail("hard-state", "n%d came back with %+v after %+v", n.id, hs, d.hs)
	}
	before := len(d.terms)
	for i := log.FirstIndex(); i <= uint64(before) || i <= log.LastIndex(); i++ {
		term, err := log.Term(i)
		if err != nil || i <= uint64(before) && term != d.terms[i-1] {
			c.w.fail("durability", "n%d came back without entry %d of term %d: term %d, %v", n.id, i, d.terms[i-1], term, err)
		}
		if i > uint64(len(d.terms)) {
			d.terms = append(d.terms, term)
		}
	}
	d.hs = hs
}

// healed takes a healed log as the node's promise from now on. Every committed entry must
// still have its majority.
func (c *checker) healed(n *node, log *seglog.Log) {
	d := &n.durable
	d.terms = d.terms[:min(uint64(len(d.terms)), log.LastIndex())]
	for i := log.FirstIndex(); i <= log.LastIndex(); i++ {
		term, err := log.Term(i)
		if err != nil {
			c.w.fail("log", "n%d: term of entry %d: %v", n.id, i, err)
		}
		d.terms = append(d.terms[:i-1], term)
	}
	d.hs, n.rotten = log.HardState(), false
	c.w.countHealed(n)
	for i, e := range c.entries {
		c.majority("healing", uint64(i)+1, e.term)
	}
}

// kept fails if a transaction for which a client has OK is not in the logs any more (I7).
func (c *checker) kept() {
	for _, tx := range c.transactions {
		c.majority("end", tx.index, c.entries[tx.index-1].term)
	}
	for _, n := range c.w.inState() {
		if slices.ContainsFunc(c.entries, func(committedEntry) bool { return n.agent == nil }) {
			c.w.fail("liveness", "n%d does not run", n.id)
		}
		c.samePolicy(n)
	}
}
