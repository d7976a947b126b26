package fakemysqld

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

const (
	// serverVersion is the version whose format the events have.
	serverVersion = "9.7.4"
	// serverVersionID is serverVersion in the form of a GTID event.
	serverVersionID = 90704
	// binlogMagicBytes is where the first event of a binlog file starts.
	binlogMagicBytes = 4
	// epochSeconds is the date of an event at virtual time 0, in seconds since 1970.
	epochSeconds = 1_700_000_000
	// eventTypes is how many event types the FORMAT_DESCRIPTION of 9.7 lists.
	eventTypes = 42
	// eventOverheadBytes is the length of an event without its body.
	eventOverheadBytes = binlog.HeaderBytes + binlog.ChecksumBytes
	// gtidBodyBytes is the length of a GTID event's body: flags u8, UUID, N u64,
	// clock type u8, last committed u64, sequence number u64, commit time u56,
	// transaction length (0xfe and u64), server version u32.
	gtidBodyBytes = 1 + 16 + 8 + 1 + 8 + 8 + 7 + 9 + 4
)

// operation is what a transaction does to the table of one key.
type operation struct {
	kind       Kind
	key, value string
	// xid is the gtrid of an XA transaction.
	xid string
	// padBytes is the additional length of its row events.
	padBytes int
}

// Statements. The key, or the key and the value, follow as quoted text.
const (
	statementDrop  = "DROP TABLE IF EXISTS t "
	statementAlter = "ALTER TABLE t COMMENT "
)

// Marks behind a row event's post-header, which has rowPostBytes bytes.
const (
	rowPostBytes = 10
	rowOperation = 1
	rowPadding   = 2
)

// eventBody is an event that has no place in a file yet.
type eventBody struct {
	kind binlog.Type
	body []byte
}

// bodies returns the operation's events after the GTID event. No row event is much longer than rowBytesMax.
func (o operation) bodies(xid uint64, rowBytesMax int) []eventBody {
	switch o.kind {
	case NoOp:
		return []eventBody{query(statementDrop + strconv.Quote(o.key))}
	case DDL:
		return []eventBody{query(statementAlter + strconv.Quote(o.key) + strconv.Quote(o.value))}
	}
	switch o.kind {
	case XACommit:
		return []eventBody{query(statementXACommit + xidText(o.xid))}
	case XARollback:
		return []eventBody{query(statementXARollback + xidText(o.xid))}
	}
	begin, end := query("BEGIN"), []eventBody{{binlog.TypeXID, binary.LittleEndian.AppendUint64(nil, xid)}}
	if o.kind != Write {
		begin, end = query(statementXAStart+xidText(o.xid)), o.xaEnd()
	}
	row := append(make([]byte, rowPostBytes), rowOperation)
	row = binary.AppendUvarint(row, uint64(o.padBytes))
	row = append(binary.AppendUvarint(row, uint64(len(o.key))), o.key...)
	row = append(binary.AppendUvarint(row, uint64(len(o.value))), o.value...)
	out := []eventBody{
		begin,
		{binlog.TypeTableMap, append(make([]byte, 8), o.key...)},
		{binlog.TypeWriteRows, row},
	}
	for left := o.padBytes; left > 0; {
		n := min(left, rowBytesMax)
		row := make([]byte, rowPostBytes+1+n)
		row[rowPostBytes] = rowPadding
		for i := range n {
			row[rowPostBytes+1+i] = byte(xid) + byte(left-i)
		}
		out = append(out, eventBody{binlog.TypeWriteRows, row})
		left -= n
	}
	return append(out, end...)
}

// xaEnd returns XA END and the XA_PREPARE event: one phase u8, format id u32, length of gtrid u32, length of
// bqual u32, gtrid.
func (o operation) xaEnd() []eventBody {
	body := []byte{0}
	if o.kind == XAOnePhase {
		body[0] = 1
	}
	body = binary.LittleEndian.AppendUint32(body, 1)
	body = binary.LittleEndian.AppendUint32(body, uint32(len(o.xid)))
	body = binary.LittleEndian.AppendUint32(body, 0)
	return []eventBody{query(statementXAEnd + xidText(o.xid)), {binlog.TypeXAPrepare, append(body, o.xid...)}}
}

// query makes a QUERY event without status variables and default schema.
func query(text string) eventBody {
	return eventBody{binlog.TypeQuery, append(make([]byte, 14), text...)}
}

// transactionClock is what a GTID event has beside the GTID.
type transactionClock struct {
	lastCommitted, sequence uint64
	commit                  time.Duration
}

// gtidBody makes the GTID event of a transaction. restBytes is the length of the transaction's other events.
func gtidBody(g gtid.GTID, c transactionClock, rowBased bool, restBytes int) eventBody {
	b := make([]byte, 1, gtidBodyBytes)
	if !rowBased {
		b[0] = 1 // may have statements (Gtid_event::FLAG_MAY_HAVE_SBR)
	}
	b = append(b, g.UUID[:]...)
	b = append(binary.LittleEndian.AppendUint64(b, g.N), 2) // logical clock
	b = binary.LittleEndian.AppendUint64(b, c.lastCommitted)
	b = binary.LittleEndian.AppendUint64(b, c.sequence)
	microseconds := uint64(epochSeconds*1e6) + uint64(c.commit.Microseconds())
	b = append(b, binary.LittleEndian.AppendUint64(nil, microseconds)[:7]...)
	b = append(b, 0xfe)
	b = binary.LittleEndian.AppendUint64(b, uint64(eventOverheadBytes+gtidBodyBytes+restBytes))
	return eventBody{binlog.TypeGTID, binary.LittleEndian.AppendUint32(b, serverVersionID)}
}

// formatDescription makes the first event of a file.
func formatDescription(created uint32) eventBody {
	body := make([]byte, 57, 57+eventTypes+1)
	body[0] = 4
	copy(body[2:], serverVersion)
	binary.LittleEndian.PutUint32(body[52:], created)
	body[56] = binlog.HeaderBytes
	body = append(body, make([]byte, eventTypes)...)
	body[57+int(binlog.TypeQuery)-1] = 13
	body[57+int(binlog.TypeWriteRows)-1] = rowPostBytes
	body[57+int(binlog.TypeGTID)-1] = 42
	return eventBody{binlog.TypeFormatDescription, append(body, byte(binlog.ChecksumCRC32))}
}

// errForeign is returned for events that no fake mysqld wrote.
var errForeign = errors.New("event is not of this model")

// operationReader puts an operation together from its events.
type operationReader struct{ operation }

// take reads the next event of a transaction.
func (r *operationReader) take(e binlog.Event) error {
	switch e.Type() {
	case binlog.TypeGTID:
		*r = operationReader{}
	case binlog.TypeQuery:
		q, err := binlog.ParseQuery(e)
		if err != nil {
			return err
		}
		return r.statement(q.Text)
	case binlog.TypeWriteRows:
		return r.row(e.Body())
	case binlog.TypeXAPrepare:
		_, prepares, err := binlog.ParseXAPrepareEvent(e)
		if r.kind = XAOnePhase; prepares {
			r.kind = XAPrepare
		}
		return err
	case binlog.TypeTableMap, binlog.TypeXID:
	default:
		return fmt.Errorf("%w: type %d", errForeign, e.Type())
	}
	return nil
}

func (r *operationReader) statement(text string) error {
	if text == "BEGIN" {
		return nil
	}
	if strings.HasPrefix(text, "XA ") {
		return r.xaStatement(text)
	}
	rest, drop := strings.CutPrefix(text, statementDrop)
	r.kind = NoOp
	if !drop {
		var alter bool
		if rest, alter = strings.CutPrefix(text, statementAlter); !alter {
			return fmt.Errorf("%w: statement %.64q", errForeign, text)
		}
		r.kind = DDL
	}
	var err error
	if r.key, rest, err = cutQuoted(rest); err == nil && !drop {
		r.value, rest, err = cutQuoted(rest)
	}
	if err != nil || rest != "" {
		return fmt.Errorf("%w: statement %.64q", errForeign, text)
	}
	return nil
}

// xaStatement reads one of the statements of an XA transaction.
func (r *operationReader) xaStatement(text string) error {
	for _, s := range []struct {
		text string
		kind Kind
	}{{statementXAStart, 0}, {statementXAEnd, r.kind}, {statementXACommit, XACommit}, {statementXARollback, XARollback}} {
		if rest, found := strings.CutPrefix(text, s.text); found {
			r.kind = s.kind
			if xid, ok := cutXID(rest); ok {
				r.xid = xid
				return nil
			}
		}
	}
	return fmt.Errorf("%w: statement %.64q", errForeign, text)
}

func cutQuoted(s string) (text, rest string, err error) {
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", err
	}
	text, err = strconv.Unquote(quoted)
	return text, s[len(quoted):], err
}

func (r *operationReader) row(body []byte) error {
	if len(body) <= rowPostBytes {
		return fmt.Errorf("%w: row event of %d bytes", errForeign, len(body))
	}
	mark, b := body[rowPostBytes], body[rowPostBytes+1:]
	if mark == rowPadding && r.kind == Write {
		return nil // the GTID event has the length of the whole transaction
	}
	pad, n := binary.Uvarint(b)
	if mark != rowOperation || r.kind != 0 || n <= 0 {
		return fmt.Errorf("%w: row event", errForeign)
	}
	var ok bool
	r.kind, r.padBytes = Write, int(pad)
	if r.key, b, ok = cutText(b[n:]); ok {
		r.value, b, ok = cutText(b)
	}
	if !ok || len(b) > 0 {
		return fmt.Errorf("%w: row event", errForeign)
	}
	return nil
}

func cutText(b []byte) (string, []byte, bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, false
	}
	end := n + int(size)
	return string(b[n:end]), b[end:], true
}
