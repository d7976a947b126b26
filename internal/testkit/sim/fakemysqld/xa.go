package fakemysqld

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Statements of XA transactions; the XID follows.
const (
	statementXAStart    = "XA START "
	statementXAEnd      = "XA END "
	statementXACommit   = "XA COMMIT "
	statementXARollback = "XA ROLLBACK "
)

// branch is a prepared XA transaction, as the server's memory has it.
type branch struct {
	op operation
	// binlogged: its XA PREPARE is in the binlog, so its end will be, too. An applier without a
	// binlog prepares without that.
	binlogged bool
	// ending: a session is executing its end.
	ending bool
}

// writesRows tells that the operation is row events in the binlog, and no statement.
func (o operation) writesRows() bool {
	return o.kind == Write || o.kind == XAPrepare || o.kind == XAOnePhase
}

// isStatement tells that the operation is a statement on a table.
func (o operation) isStatement() bool { return o.kind == NoOp || o.kind == DDL }

// endsXA tells that the operation ends a prepared XA transaction.
func (o operation) endsXA() bool { return o.kind == XACommit || o.kind == XARollback }

// xidText returns an XID as the server writes it: X'gtrid',X'bqual',format.
func xidText(xid string) string { return "X'" + hex.EncodeToString([]byte(xid)) + "',X'',1" }

func cutXID(text string) (xid string, ok bool) {
	text, ok1 := strings.CutPrefix(text, "X'")
	text, ok2 := strings.CutSuffix(text, "',X'',1")
	raw, err := hex.DecodeString(text)
	return string(raw), ok1 && ok2 && err == nil
}

// Prepared is XA RECOVER: the prepared XA transactions without an end, in the order of their XA PREPAREs.
func (s *Server) Prepared() (xids []string) {
	for _, b := range s.branches {
		xids = append(xids, b.op.xid)
	}
	return xids
}

// Unbinlogged returns the prepared XA transactions whose end would be in no binlog.
func (s *Server) Unbinlogged() (xids []string) {
	for _, b := range s.branches {
		if !b.binlogged {
			xids = append(xids, b.op.xid)
		}
	}
	return xids
}

// XAUsed tells whether an XA transaction was begun since the start, or is prepared.
func (s *Server) XAUsed() bool { return s.alive && (s.xaBegun || len(s.branches) > 0) }

func (s *Server) branch(xid string) *branch {
	for _, b := range s.branches {
		if b.op.xid == xid {
			return b
		}
	}
	return nil
}

// restoreBranches brings back the XA transactions that InnoDB has prepared, with their locks.
func (s *Server) restoreBranches() {
	for _, r := range s.disk.engine.xa {
		s.branches = append(s.branches, &branch{op: r.op, binlogged: true})
		s.locks.take(r.op)
	}
}

// beginEnd makes a session end a prepared XA transaction. If that was prepared without a binlog, it ends at
// once, and only this server knows of it.
func (s *Server) beginEnd(t *session) (goesOn bool) {
	b := s.branch(t.op.xid)
	if b == nil || b.ending {
		s.finish(t, NotPrepared)
		return false
	}
	if b.binlogged {
		b.ending = true
		return true
	}
	s.disk.engine.append(record{kind: endedHere, op: t.op})
	s.endBranch(t.op.xid)
	s.finish(t, OK)
	return false
}

// endBranch forgets a prepared XA transaction, and its locks.
func (s *Server) endBranch(xid string) {
	if b := s.branch(xid); b != nil {
		s.locks.release(b.op)
		s.branches = slices.DeleteFunc(s.branches, func(o *branch) bool { return o == b })
	}
}

// committedXA updates the server's memory after an engine commit.
func (s *Server) committedXA(t *session) {
	switch {
	case t.op.kind == XAPrepare:
		if t.applier {
			s.locks.take(t.op)
		}
		s.branches = append(s.branches, &branch{op: t.op, binlogged: true})
	case t.op.endsXA():
		s.endBranch(t.op.xid)
	}
}

// applyXA applies an XA PREPARE, or an end, without a binlog. The GTID of such an XA PREPARE is not kept, and
// the prepared transaction does not survive the process: only a server that binlogs it marks it as to be kept.
func (s *Server) applyXA(r relayed) {
	e := &s.disk.engine
	if r.op.kind == XAPrepare {
		e.append(record{kind: prepared, gtid: r.gtid, op: r.op})
		s.notKept.Add(r.gtid)
		s.locks.take(r.op)
		s.branches = append(s.branches, &branch{op: r.op})
		return
	}
	e.append(record{kind: committed, gtid: r.gtid, op: r.op})
	s.endBranch(r.op.xid)
}

// applierError says why the applier cannot apply an operation.
func (s *Server) applierError(o operation) string {
	switch b := s.branch(o.xid); {
	case o.endsXA() && b == nil:
		return "1397 XAER_NOTA: " + o.xid + " is not prepared"
	case o.kind == XAPrepare && b != nil:
		return "1440 XAER_DUPID: " + o.xid + " is prepared"
	}
	return ""
}

// applierLocked tells whether the applier has to wait for a prepared XA transaction.
func (s *Server) applierLocked(o operation) bool {
	return !o.endsXA() && slices.ContainsFunc(s.branches, func(b *branch) bool { return b.op.key == o.key })
}

// takeXA takes a prepared XA transaction out of InnoDB.
func (e *engine) takeXA(xid string) (found record) {
	is := func(r record) bool { return r.op.kind == XAPrepare && r.op.xid == xid }
	for _, from := range []*[]record{&e.xa, &e.prepared} {
		if i := slices.IndexFunc(*from, is); i >= 0 {
			found = (*from)[i]
			*from = slices.DeleteFunc(*from, is)
			return found
		}
	}
	return record{}
}

// endXA ends a prepared XA transaction.
func (e *engine) endXA(o operation) {
	if found := e.takeXA(o.xid); o.kind == XACommit && found.op.kind != 0 {
		e.tables[found.op.key] = append(e.tables[found.op.key], found.op.value)
	}
}

// keptGTIDs is the part of gtid_executed that the server keeps when it saves it.
func (s *Server) keptGTIDs() *gtid.Set {
	kept := s.executed.Clone()
	kept.Subtract(&s.notKept)
	return kept
}

// sharesTable tells that the operation leaves other rows of its table to other sessions.
func (o operation) sharesTable() bool { return o.kind == Write || o.kind == XAOnePhase }
