package fakemysqld

import (
	"cmp"
	"errors"
	"slices"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Kind is what a client's transaction does.
type Kind uint8

// The kinds.
const (
	// Write adds Value to Key's table, which the first write makes. With Bytes it is a large
	// transaction.
	Write Kind = iota + 1
	// NoOp is DROP TABLE IF EXISTS of Key's table. If there is no such table, it changes nothing, and InnoDB
	// keeps no trace of it. Else the rows are gone.
	NoOp
	// DDL leaves Value at Key like a Write, but is a statement in the binlog, and
	// its engine commit is synced.
	DDL
	// XAPrepare is a Write as the XA transaction XID, up to its XA PREPARE. XACommit and
	// XARollback end it, in any session.
	XAPrepare
	XACommit
	XARollback
	// XAOnePhase is a Write as an XA transaction with XA COMMIT … ONE PHASE.
	XAOnePhase
)

// Tx is a client's transaction.
type Tx struct {
	ID         uint64
	Kind       Kind
	Key, Value string
	// XID is the gtrid of an XA transaction.
	XID string
	// Bytes is the additional length of a Write's row events.
	Bytes int
	// Passes makes a NoOp like ANALYZE TABLE: super_read_only neither refuses it nor waits for it, and it waits
	// for its ACK (seen by running 9.7.4).
	Passes bool
}

// Outcome is how a client's session ended.
type Outcome uint8

// The outcomes.
const (
	// OK: the client has the answer OK.
	OK Outcome = iota + 1
	// ReadOnly: refused, nothing was done.
	ReadOnly
	// NotPrepared: XAER_NOTA, or another session is executing its end.
	NotPrepared
	// Gone: the connection broke; the client does not know the outcome.
	Gone
)

// Result is a session that has ended.
type Result struct {
	TxID    uint64
	Outcome Outcome
	// GTID is set once the transaction has one. A client whose connection is gone never learns it.
	GTID gtid.GTID
}

// ErrGone is returned by a server whose process has ended.
var ErrGone = errors.New("fakemysqld: the server is gone")

// session is one transaction on its way, of a client or of the applier.
type session struct {
	id      uint64
	applier bool
	passes  bool // super_read_only
	op      operation
	gtid    gtid.GTID
	// changes is false for a transaction that leaves no trace in InnoDB.
	changes bool
	// file and sequence are its place in the logical clock.
	file     *binlogFile
	sequence uint64
}

// group has the sessions that wait for one ACK: one flush group, or several that came while another group
// waited.
type group struct {
	sessions []*session
	// end is the position that the ACK has to reach.
	end position
	// rotates is set if a flush passed MaxBinlogBytes: a rotation follows the
	// engine commit.
	rotates bool
}

// pipeline is the path of a transaction through the server:
//
//	held ─► queue ─Flush─► waiting, behind ─Ack─► engine commit, result
type pipeline struct {
	readOnly bool
	// closing: SET super_read_only=ON waits, and new writers wait for it in held.
	closing bool
	held    []*session
	// shut: clients are kept out.
	shut  bool
	queue []*session
	// waiting is the group that waits for its ACK: one at a time (binlog_order_commits=ON).
	// behind has all later groups: they will wait for the highest of their positions.
	waiting, behind *group
	// draining: a rotation waits until nothing is in flight; no group flushes.
	draining bool
	locks    tableLocks
	lastXID  uint64
	results  []Result
}

// semiSync is the state of the semi-sync source plugin. It dies with the process.
type semiSync struct {
	on bool
	// acked is the highest position that was ever acknowledged.
	acked position
	dump  *Dump
}

// position is a place in the binlog.
type position struct {
	file   string
	offset uint64
}

// compare is the plugin's order: the length of the names first, then their bytes
// (facts Q2: ActiveTranx::compare).
func (p position) compare(o position) int {
	return cmp.Or(cmp.Compare(len(p.file), len(o.file)), cmp.Compare(p.file, o.file), cmp.Compare(p.offset, o.offset))
}

// Begin takes a client's transaction up to its commit. Flush continues it.
func (s *Server) Begin(tx Tx) {
	t := &session{id: tx.ID, passes: tx.Passes, op: operation{kind: tx.Kind, key: tx.Key, value: tx.Value, xid: tx.XID, padBytes: tx.Bytes}}
	if t.op.endsXA() {
		t.passes = true // read-only refuses neither commit nor rollback
	}
	s.xaBegun = s.xaBegun || t.op.kind == XAPrepare || t.op.kind == XAOnePhase
	switch {
	case !s.alive || s.shut:
		s.finish(t, Gone)
	case s.closing && !t.passes:
		s.held = append(s.held, t)
	default:
		s.admit(t)
	}
}

func (s *Server) admit(t *session) {
	if s.readOnly && !t.passes {
		s.finish(t, ReadOnly)
		return
	}
	s.queue = append(s.queue, t)
}

func (s *Server) finish(t *session, o Outcome) {
	if !t.applier {
		s.results = append(s.results, Result{t.id, o, t.gtid})
	}
}

// Read returns the values of key in the order of their engine commits. Transactions that wait for an
// ACK are not visible (AFTER_SYNC). The caller must not change the values.
func (s *Server) Read(key string) []string {
	if !s.alive {
		return nil
	}
	return s.disk.Values(key)
}

// Results returns the sessions that have ended since the last call.
func (s *Server) Results() []Result {
	out := s.results
	s.results = nil
	return out
}

// Queued counts the client sessions that wait for Flush.
func (s *Server) Queued() int { return len(s.queue) }

// Waiting counts the sessions that are in the binlog and wait for an ACK.
func (s *Server) Waiting() int {
	n := 0
	for _, g := range []*group{s.waiting, s.behind} {
		if g != nil {
			n += len(g.sessions)
		}
	}
	return n
}

// SetSuperReadOnly is SET GLOBAL super_read_only (OFF: and read_only). ON succeeds at once if no session is in
// its commit. Otherwise it does not succeed yet, and new writers wait until a later call succeeds, or until
// SetSuperReadOnly(false) gives it up, as lock_wait_timeout does.
func (s *Server) SetSuperReadOnly(on bool) (done bool) {
	if !s.alive {
		return false
	}
	s.closing = on && s.Writing()
	if s.closing {
		return false
	}
	s.readOnly = on
	held := s.held
	s.held = nil
	for _, t := range held {
		s.admit(t)
	}
	return true
}

// Writing tells whether a session for which super_read_only waits is in its commit.
func (s *Server) Writing() bool {
	holds := func(t *session) bool { return !t.passes }
	for _, g := range []*group{s.waiting, s.behind} {
		if g != nil && slices.ContainsFunc(g.sessions, holds) {
			return true
		}
	}
	return slices.ContainsFunc(s.queue, holds)
}

// SuperReadOnly is @@super_read_only.
func (s *Server) SuperReadOnly() bool { return s.readOnly }

// Flush is the flush stage for one group: a random number of the queued sessions get their GTIDs and are
// written to the binlog, where the dump sees them at once (sync_binlog=0, facts Q1). It returns how many
// sessions that were.
func (s *Server) Flush() int {
	if !s.alive || s.draining || len(s.queue) == 0 {
		return 0
	}
	sessions := s.takeQueued(1 + s.opt.Rand.IntN(s.opt.FlushGroupMax))
	if len(sessions) > 0 {
		s.flushGroup(sessions)
	}
	return len(sessions)
}

// takeQueued takes up to n sessions from the queue, in order. It leaves sessions that wait for the lock
// of a table.
func (s *Server) takeQueued(n int) []*session {
	var taken, left []*session
	passed := tableLocks{}
	for _, t := range s.queue {
		if len(taken) < n && passed.free(t.op) && s.locks.free(t.op) {
			if t.op.endsXA() && !s.beginEnd(t) {
				continue
			}
			s.locks.take(t.op)
			taken = append(taken, t)
			continue
		}
		passed.take(t.op) // no session overtakes one that waits for its lock
		left = append(left, t)
	}
	s.queue = left
	return taken
}

// tableLocks are the metadata locks. Writers of a table share its lock; a DROP or ALTER has it alone. An
// XA transaction has it alone, too, until its end: that stands for the row locks.
type tableLocks struct {
	shared    map[string]int
	exclusive map[string]bool
}

func (l *tableLocks) free(o operation) bool {
	return o.endsXA() || !l.exclusive[o.key] && (o.sharesTable() || l.shared[o.key] == 0)
}

func (l *tableLocks) take(o operation) {
	if l.shared == nil {
		l.shared, l.exclusive = map[string]int{}, map[string]bool{}
	}
	switch {
	case o.endsXA():
	case o.sharesTable():
		l.shared[o.key]++
	default:
		l.exclusive[o.key] = true
	}
}

func (l *tableLocks) release(o operation) {
	switch {
	case o.endsXA():
	case o.sharesTable():
		l.shared[o.key]--
	default:
		l.exclusive[o.key] = false
	}
}

// flushGroup writes sessions to the redo log, as prepared, and to the binlog.
func (s *Server) flushGroup(sessions []*session) {
	e, f := &s.disk.engine, s.file()
	lastCommitted := f.committed
	for _, t := range sessions {
		if t.gtid == (gtid.GTID{}) {
			t.gtid = gtid.GTID{UUID: s.disk.uuid, N: s.freeNumber()}
		}
		s.taken.Add(t.gtid)
		t.changes = t.op.kind != NoOp || e.hasTable(t.op.key)
		if t.changes {
			e.append(record{kind: prepared, gtid: t.gtid, op: t.op})
		}
		s.lastXID++
		f.sequence++
		t.file, t.sequence = f, f.sequence
		if !t.op.writesRows() {
			lastCommitted = f.sequence - 1 // a statement depends on everything before it
		}
		clock := transactionClock{lastCommitted, f.sequence, s.opt.Now()}
		f.transaction(t.gtid, clock, t.op.bodies(s.lastXID, s.opt.RowEventBytesMax))
	}
	e.write() // ha_flush_logs, once a group (facts Q1)
	g := &group{sessions: sessions, end: position{f.name, f.end}}
	g.rotates = s.opt.MaxBinlogBytes > 0 && f.end > s.opt.MaxBinlogBytes
	switch {
	case s.waiting == nil:
		s.waiting = g
	case s.behind == nil:
		s.behind = g
	default:
		s.behind.sessions = append(s.behind.sessions, g.sessions...)
		s.behind.end = g.end
		s.behind.rotates = s.behind.rotates || g.rotates
	}
	s.release()
}

// freeNumber returns the lowest number of this server's UUID that is neither executed nor owned. So a number
// comes again after its transaction was rolled back, and a hole is filled unless it was declared done.
func (s *Server) freeNumber() uint64 {
	n := uint64(1)
	for src, iv := range s.taken.Intervals() {
		if src != (gtid.Source{UUID: s.disk.uuid}) {
			continue
		}
		if n < iv.Start {
			break
		}
		n = iv.End + 1
	}
	return n
}

// Ack is a semi-sync ACK: everything up to the position is safe. The server believes it blindly,
// whatever file it names, and for ever: a later transaction in front of that position does not wait at
// all (facts Q2).
func (s *Server) Ack(file string, pos uint64) {
	p := position{file, pos}
	if !s.alive || !s.on || p.compare(s.acked) <= 0 {
		return
	}
	s.acked = p
	s.release()
}

// SemiSync is Rpl_semi_sync_source_status and Rpl_semi_sync_source_clients.
func (s *Server) SemiSync() (on bool, clients int) {
	if s.dump != nil {
		clients = 1
	}
	return s.on, clients
}

// EnableSemiSync sets rpl_semi_sync_source_enabled. Former ACKs are forgotten.
func (s *Server) EnableSemiSync() {
	if s.alive && !s.on {
		s.on, s.acked = true, position{}
	}
}

// DisableSemiSync releases the sessions that wait. Until EnableSemiSync later sessions do not wait.
func (s *Server) DisableSemiSync() {
	if s.alive {
		s.on = false
		s.release()
	}
}

// ShutOut ends every client's session that is not in the binlog yet, and keeps clients out
// until LetIn.
func (s *Server) ShutOut() {
	s.shut = true
	s.cutOffEach(s.queue)
	s.cutOffEach(s.held)
	s.queue, s.held = nil, nil
}

// LetIn ends ShutOut.
func (s *Server) LetIn() { s.shut = false }

// release commits the sessions that have their ACK, group by group in the order of the binlog. Then it
// rotates if a rotation has waited for that.
func (s *Server) release() {
	for g := s.waiting; g != nil && (!s.on || s.acked.compare(g.end) >= 0); g = s.waiting {
		s.waiting, s.behind = s.behind, nil
		for _, t := range g.sessions {
			s.engineCommit(t)
		}
		s.draining = s.draining || g.rotates
	}
	if s.draining && s.waiting == nil {
		s.draining = false
		s.rotateNow()
	}
}

// engineCommit makes a session's transaction visible and answers its client.
func (s *Server) engineCommit(t *session) {
	e := &s.disk.engine
	if t.changes {
		e.append(record{kind: committed, gtid: t.gtid, op: t.op})
		if t.op.isStatement() {
			e.flush() // DDL is synced, always (facts Q1)
		}
	}
	s.executed.Add(t.gtid)
	t.file.committed = max(t.file.committed, t.sequence)
	if t.applier {
		s.applierWaits = false
	} else if t.op.kind != XAPrepare {
		s.locks.release(t.op)
	}
	s.committedXA(t)
	s.finish(t, OK)
}

// Rotate is FLUSH BINARY LOGS: the binlog goes on in the next file once no session is in flight. Until
// then no group flushes (facts Q1).
func (s *Server) Rotate() {
	if s.alive {
		s.draining = true
		s.release()
	}
}

func (s *Server) rotateNow() {
	s.saveGTIDs()
	timestamp := uint32(epochSeconds + s.opt.Now().Seconds())
	s.file().close(s.fileName(len(s.dir.files)+1), timestamp)
	s.openBinlog(0)
}

// cutOff ends every session without an answer.
func (s *Server) cutOff() {
	for _, g := range []*group{s.waiting, s.behind} {
		if g != nil {
			s.cutOffEach(g.sessions)
		}
	}
	s.cutOffEach(s.queue)
	s.cutOffEach(s.held)
	s.waiting, s.behind, s.queue, s.held = nil, nil, nil, nil
}

func (s *Server) cutOffEach(sessions []*session) {
	for _, t := range sessions {
		s.finish(t, Gone)
	}
}
