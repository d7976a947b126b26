package follow

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// chunkBytesMin is the length of row events from which on a piece is handed on. An event may be longer and is
// never cut.
const chunkBytesMin = 512 << 10

// Kind says what a session must do for a step.
type Kind uint8

// The kinds.
const (
	// Begin: a transaction begins; it has Info.
	Begin Kind = iota + 1
	// Open: rows follow, with the session variables of Query.
	Open
	// Rows: row events with their table maps, complete in themselves.
	Rows
	// Statement: execute the text of Query. Where there was no Open, it ends the transaction.
	Statement
	// Commit: the transaction ends.
	Commit
	// LeftOut: do not execute the text of Query; the transaction is empty, and ends.
	LeftOut
	// Format: a new file of the source begins. All earlier steps must be done first.
	Format
)

// Step is one step of a transaction.
type Step struct {
	Kind Kind
	Info binlog.GTIDInfo
	// Events are the events of a Rows or Format step.
	Events []byte
	Query  binlog.SessionQuery
	// Routine says that the statement makes a stored routine. At the source its Invoker got the privileges to
	// execute and alter it (automatic_sp_privileges), which the statement does not give here.
	Routine bool
	// Own says that a LeftOut concerns only the schema of which each cluster has its own.
	Own bool
	// Ends says that it is the transaction's last step.
	Ends bool
}

// UnsupportedError is a transaction that cannot be carried over.
type UnsupportedError struct {
	// GTID is the transaction's GTID; the zero value = it has none.
	GTID gtid.GTID
	// What says what is in the way, Do what to do about it.
	What, Do string
}

// Error says what, where, and what to do.
func (e *UnsupportedError) Error() string {
	where := "a transaction of the source"
	if e.GTID.N != 0 {
		where = fmt.Sprintf("transaction %v of the source", e.GTID)
	}
	return fmt.Sprintf("%s %s: %s", where, e.What, e.Do)
}

// again says what to do about a transaction of the source that can never be carried over.
const again = "the source must not do that; then start again from a copy of it that has this transaction (quorate adopt)"

// Translator turns the events of one connection into steps, in order.
type Translator struct {
	// Withheld tells whether a statement grants what is not granted here, so it is left out, or whether it revokes that;
	// nil = none.
	Withheld func(q binlog.Query) bool
	// Own is a schema of which each cluster has its own. Changes to it are left out, so transactions may become
	// empty; "" = no such schema.
	Own string

	borders binlog.Assembler
	info    binlog.GTIDInfo
	open    bool
	// ended says that the transaction's last step was handed on.
	ended bool
	// maps are the table maps of the statement under way. rows are its row events that were not handed on;
	// the last of them begins at last.
	maps, rows []byte
	last       int
	// left has the tables of the statement under way whose rows are left out.
	left map[uint64]bool
}

// Feed takes the next event, and calls emit with the steps that follow from it. They share no memory with e. It
// returns an *UnsupportedError for a transaction that cannot be carried over. After an error the caller must end
// the connection.
func (t *Translator) Feed(e binlog.Event, emit func(Step) error) error {
	if e.Type() == binlog.TypeFormatDescription {
		return t.format(e, emit)
	}
	switch e.Type() {
	case binlog.TypeAnonymousGTID:
		return &UnsupportedError{What: "has no GTID", Do: "set gtid_mode = ON on it, and start again from a copy of it"}
	case binlog.TypeGTIDTagged:
		info, err := binlog.ParseGTID(e)
		if err != nil {
			return err
		}
		return &UnsupportedError{GTID: info.GTID, What: "has a GTID with a tag", Do: again}
	}
	if e.Type() == binlog.TypeRotate && e.Flags()&binlog.FlagArtificial != 0 {
		return nil // it names a file, and may come without a checksum
	}
	if err := binlog.VerifyChecksum(e); err != nil {
		return err
	}
	step, err := t.borders.Feed(e)
	if err != nil || step == binlog.StepControl {
		return err
	}
	if step == binlog.StepBegin {
		t.info, t.open, t.ended, t.maps, t.rows, t.left = t.borders.Info(), false, false, t.maps[:0], nil, nil
		return emit(Step{Kind: Begin, Info: t.info})
	}
	if e.Type() == binlog.TypeTransactionPayload {
		return t.unpack(e, emit)
	}
	return t.inner(e, emit)
}

func (t *Translator) format(e binlog.Event, emit func(Step) error) error {
	if t.borders.InTransaction() {
		return fmt.Errorf("transaction %v: %w: a file begins within it", t.info.GTID, binlog.ErrStream)
	}
	fd, err := binlog.ParseFormatDescription(e)
	if err != nil {
		return err
	}
	if fd.Checksum != binlog.ChecksumCRC32 {
		return errors.New("the source writes its binlog without checksums: SET GLOBAL binlog_checksum = CRC32 there")
	}
	if err := binlog.VerifyChecksum(e); err != nil {
		return err
	}
	clean, err := binlog.CleanFormatDescription(e, true)
	if err != nil {
		return err
	}
	return emit(Step{Kind: Format, Events: clean})
}

// revokesIfExists makes a REVOKE, given as what is up to its first word and what is behind that, accept that the
// account does not have what it revokes: the GRANT was left out.
func revokesIfExists(first, behind string) string {
	word, _ := binlog.CutKeyword(behind)
	if strings.EqualFold(word, "IF") {
		return first + behind
	}
	return first + " IF EXISTS" + behind
}

// unpack takes the events of a compressed transaction.
func (t *Translator) unpack(e binlog.Event, emit func(Step) error) error {
	in := bufio.NewReader(bytes.NewReader(e[binlog.HeaderBytes:]))
	events, err := binlog.OpenPayload(in, int64(len(e)))
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	for {
		var head [binlog.HeaderBytes]byte
		if _, err := io.ReadFull(events, head[:]); errors.Is(err, io.EOF) {
			if !t.ended {
				return fmt.Errorf("unpack transaction %v: %w: it has no end", t.info.GTID, binlog.ErrMalformed)
			}
			return nil
		} else if err != nil {
			return fmt.Errorf("unpack transaction %v: %w", t.info.GTID, err)
		}
		n := int64(binlog.Event(head[:]).Length())
		if n < binlog.HeaderBytes || n > eventBytesMax {
			return fmt.Errorf("unpack transaction %v: %w: an event of %d bytes", t.info.GTID, binlog.ErrMalformed, n)
		}
		inner := bytes.NewBuffer(head[:]) // it grows with the bytes that arrive, whatever the header says
		if _, err := io.CopyN(inner, events, n-binlog.HeaderBytes); err != nil {
			return fmt.Errorf("unpack transaction %v: %w", t.info.GTID, err)
		}
		if err := t.inner(binlog.WithChecksum(nil, inner.Bytes()), emit); err != nil {
			return err
		}
	}
}

// eventBytesMax is the server's max_log_event_size.
const eventBytesMax = 1 << 30

// inner takes an event behind a transaction's GTID.
func (t *Translator) inner(e binlog.Event, emit func(Step) error) error {
	if t.ended { // only within a payload: elsewhere t.borders finds it
		return fmt.Errorf("transaction %v: %w: an event of type %d behind its end", t.info.GTID, binlog.ErrMalformed, e.Type())
	}
	switch e.Type() {
	case binlog.TypeQuery:
		return t.query(e, emit)
	case binlog.TypeXID:
		return t.commit(emit)
	case binlog.TypeTableMap:
		return t.table(e)
	case binlog.TypeXAPrepare:
		return t.unsupported("is an XA transaction")
	case binlog.TypeRowsQuery, binlog.TypeViewChange:
		return nil // these do not change data
	case binlog.TypeIntvar, binlog.TypeRand, binlog.TypeUserVar, binlog.TypeBeginLoadQuery, binlog.TypeExecuteLoadQuery,
		binlog.TypeAppendBlock, binlog.TypeDeleteFile:
		return t.statementFormat()
	}
	switch {
	case binlog.IsRowEvent(e.Type()):
		return t.row(e, emit)
	case e.Flags()&binlog.FlagIgnorable != 0:
		return nil
	}
	return t.unsupported(fmt.Sprintf("has an event of type %d, which this quorate does not know", e.Type()))
}

// end hands on a transaction's last step.
func (t *Translator) end(step Step, emit func(Step) error) error {
	step.Ends, t.ended = true, true
	return emit(step)
}

func (t *Translator) commit(emit func(Step) error) error {
	if !t.open || len(t.rows) > 0 {
		return fmt.Errorf("transaction %v: %w: it ends without a BEGIN, or within a statement", t.info.GTID, binlog.ErrMalformed)
	}
	return t.end(Step{Kind: Commit}, emit)
}

func (t *Translator) unsupported(what string) error {
	return &UnsupportedError{GTID: t.info.GTID, What: what, Do: again}
}

func (t *Translator) statementFormat() error {
	return &UnsupportedError{GTID: t.info.GTID, What: "was binlogged as a statement, not as rows",
		Do: "set binlog_format = ROW on it, in sessions, too; then start again from a copy of it that has this transaction (quorate adopt)"}
}

// table takes the TABLE_MAP of a table.
func (t *Translator) table(e binlog.Event) error {
	if t.Own != "" {
		m, err := binlog.ParseTableMap(e)
		if err != nil {
			return fmt.Errorf("transaction %v: %w", t.info.GTID, err)
		}
		if strings.EqualFold(m.Schema, t.Own) {
			if t.left == nil {
				t.left = map[uint64]bool{}
			}
			t.left[m.Table] = true
			return nil
		}
	}
	t.maps = append(t.maps, e...)
	return nil
}

// leaveOut leaves out a row event of a table of the schema Own. The event may be the last of its statement.
func (t *Translator) leaveOut(e binlog.Event, emit func(Step) error) error {
	if !t.open {
		return fmt.Errorf("transaction %v: %w: rows without a BEGIN", t.info.GTID, binlog.ErrStream)
	}
	if !binlog.EndsStatement(e) {
		return nil
	}
	events := slices.Concat(t.maps, t.rows)
	some := len(t.rows) > 0
	if some {
		binlog.EndStatement(binlog.Event(events[len(t.maps)+t.last:]))
	}
	t.maps, t.rows, t.left = t.maps[:0], t.rows[:0], nil
	if !some {
		return nil
	}
	return emit(Step{Kind: Rows, Events: events})
}

// ownAlone tells whether a statement changes only the schema Own, or gives or takes privileges on it: where the schema
// does not exist, the server would refuse the grant.
func (t *Translator) ownAlone(q binlog.SessionQuery) bool {
	if t.Own == "" {
		return false
	}
	if binlog.IsACLStatement(q.Text) {
		return strings.EqualFold(binlog.GrantedOn(q.Text, q.Schema), t.Own)
	}
	schemas := q.Updated
	if len(schemas) == 0 && q.Flags&binlog.FlagSuppressUse != 0 { // the statement is about the schema itself
		schemas = []string{q.Schema}
	}
	return len(schemas) > 0 && !slices.ContainsFunc(schemas, func(s string) bool { return !strings.EqualFold(s, t.Own) })
}

// row takes a row event. A piece that is long enough is handed on as a statement of its own.
func (t *Translator) row(e binlog.Event, emit func(Step) error) error {
	if t.left[binlog.RowsTable(e)] {
		return t.leaveOut(e, emit)
	}
	if !t.open || len(t.maps) == 0 {
		return fmt.Errorf("transaction %v: %w: rows without a BEGIN or a table", t.info.GTID, binlog.ErrStream)
	}
	t.last = len(t.rows)
	t.rows = append(t.rows, e...)
	ends := binlog.EndsStatement(e)
	if !ends && len(t.rows) < chunkBytesMin {
		return nil
	}
	if !ends {
		binlog.EndStatement(binlog.Event(t.rows[t.last:]))
	}
	events := slices.Concat(t.maps, t.rows)
	t.rows = t.rows[:0]
	if cap(t.rows) > 2*chunkBytesMin {
		t.rows = nil // after a long event
	}
	if ends {
		t.maps, t.left = t.maps[:0], nil
	}
	return emit(Step{Kind: Rows, Events: events})
}

// query takes a QUERY event.
func (t *Translator) query(e binlog.Event, emit func(Step) error) error {
	q, err := binlog.ParseSessionQuery(e)
	if err != nil {
		return fmt.Errorf("transaction %v: %w", t.info.GTID, err)
	}
	begins := func(words string) bool {
		return len(q.Text) >= len(words) && strings.EqualFold(q.Text[:len(words)], words)
	}
	createsFromSelect := t.open && begins("CREATE TABLE ") && strings.HasSuffix(q.Text, "START TRANSACTION")
	switch {
	case q.Text == "COMMIT" && t.open:
		return t.commit(emit)
	case begins("XA "):
		return t.unsupported("is an XA transaction")
	case q.ErrorCode != 0:
		return t.unsupported(fmt.Sprintf("is a statement that ended there with error %d, half done", q.ErrorCode))
	case t.open && begins("ROLLBACK") && !begins("ROLLBACK TO "):
		return t.unsupported("changed tables that are not InnoDB's, and was rolled back")
	case t.open && (begins("SAVEPOINT ") || begins("ROLLBACK TO ") || begins("RELEASE ")):
		return emit(Step{Kind: Statement, Query: q})
	case t.open && !createsFromSelect || begins("INSERT ") || begins("UPDATE ") || begins("DELETE ") || begins("REPLACE ") || begins("LOAD "):
		return t.statementFormat()
	case q.Unknown != 0:
		return &UnsupportedError{GTID: t.info.GTID, What: fmt.Sprintf("has a session variable (%d) that this quorate does not know", q.Unknown),
			Do: "follow with a quorate that knows it; if there is none, start again from a copy of the source that has this transaction (quorate adopt)"}
	case createsFromSelect && t.ownAlone(q):
		return nil // its row events will be left out
	case createsFromSelect:
		return emit(Step{Kind: Statement, Query: q})
	case q.Text == "BEGIN":
		t.open = true
		return emit(Step{Kind: Open, Query: q})
	case t.ownAlone(q):
		return t.end(Step{Kind: LeftOut, Query: q, Own: true}, emit)
	case t.Withheld != nil && t.Withheld(q.Query):
		if first, behind := binlog.CutKeyword(q.Text); strings.EqualFold(first, "REVOKE") {
			q.Text = revokesIfExists(q.Text[:len(q.Text)-len(behind)], behind)
			break
		}
		return t.end(Step{Kind: LeftOut, Query: q}, emit)
	}
	step, err := t.asInvoker(q)
	if err != nil {
		return err
	}
	return t.end(step, emit)
}
