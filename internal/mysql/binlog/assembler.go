package binlog

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrStream is returned for an event that cannot stand where it does, or that
// this package does not know.
var ErrStream = errors.New("binlog: event does not fit into the stream")

// ErrIncident is returned for an INCIDENT event: the primary says that its
// binlog may lack transactions that it has committed.
var ErrIncident = errors.New("binlog: the server reports lost events")

// Step says which part of a transaction an event is.
type Step uint8

// The steps.
const (
	// StepControl: not part of a transaction.
	StepControl Step = iota + 1
	// StepBegin: a transaction's first event, its GTID.
	StepBegin
	// StepInner: neither a transaction's first nor its last event.
	StepInner
	// StepEnd: a transaction's last event. It is never its first.
	StepEnd
)

// Assembler groups the events of one binlog stream into transactions. It looks at events and
// keeps none. The zero value expects the start of a transaction or a control event. It follows
// Transaction_boundary_parser in libs/mysql/binlog/event/trx_boundary_parser.cpp, but is
// stricter: it refuses events that MySQL still accepts because of old relay logs.
type Assembler struct {
	place  place
	info   GTIDInfo
	length uint64
	err    error
}

// place says where in a transaction the stream is.
type place uint8

const (
	outside   place = iota // between transactions
	afterGTID              // the GTID has been seen
	afterPre               // INTVAR, RAND or USER_VAR of a statement without BEGIN
	inside                 // BEGIN or XA START has been seen
)

// kind says what an event means for the borders of a transaction.
type kind uint8

const (
	kindGTID      kind = iota + 1
	kindBegin          // BEGIN, XA START
	kindEnd            // COMMIT, ROLLBACK, XID, XA_PREPARE
	kindEndXA          // XA ROLLBACK: an end, or a transaction of its own
	kindStatement      // any other QUERY
	kindPre            // INTVAR, RAND, USER_VAR
	kindInner          // only between BEGIN and the end
	kindPayload        // TRANSACTION_PAYLOAD
	kindFile           // event about the file: never within a transaction
	kindAnywhere       // heartbeat
	kindIgnorable      // unknown, may be skipped
)

// Info returns the content of the newest transaction's GTID event.
func (a *Assembler) Info() GTIDInfo { return a.info }

// InTransaction reports whether a transaction has begun and not ended.
func (a *Assembler) InTransaction() bool { return a.place != outside }

// Feed takes the next event of the stream and says what it is. It does not verify the checksum.
// After an error each further call returns the same error. The errors are ErrMalformed,
// ErrStream and ErrIncident. It returns ErrStream also if the events of a transaction have
// another total length than its GTID event says: this shows a border in the wrong place.
func (a *Assembler) Feed(e Event) (Step, error) { return a.feed(e, kindOf) }

// FeedHead is Feed for an event of which only a beginning, at least the header, is at hand. It
// accepts only events within a transaction whose type alone gives their place: row events and
// TRANSACTION_PAYLOAD, but no GTID and no QUERY.
func (a *Assembler) FeedHead(head Event) (Step, error) { return a.feed(head, kindOfHead) }

func (a *Assembler) feed(e Event, kindOf func(Event) (kind, error)) (Step, error) {
	if a.err != nil {
		return 0, a.err
	}
	k, err := kindOf(e)
	step := Step(0)
	if err == nil {
		step, err = a.put(e, k)
	}
	if err != nil {
		a.err = fmt.Errorf("assemble transaction: %w", err)
		return 0, a.err
	}
	return step, nil
}

// put places an event of kind k. It uses the header of the event, and all of a GTID event.
func (a *Assembler) put(e Event, k kind) (Step, error) {
	var err error
	switch {
	case k == kindAnywhere, a.place == outside && (k == kindFile || k == kindIgnorable):
		return StepControl, nil
	case a.place == outside && k == kindGTID:
		if a.info, err = ParseGTID(e); err != nil {
			return 0, err
		}
		a.place, a.length = afterGTID, uint64(e.Length())
		return StepBegin, nil
	case a.place == outside:
		return 0, fmt.Errorf("%w: type %d outside of a transaction", ErrStream, e.Type())
	}
	next, fits := a.place.after(k)
	if !fits {
		return 0, fmt.Errorf("%w: type %d within transaction %v", ErrStream, e.Type(), a.info.GTID)
	}
	a.place = next
	a.length += uint64(e.Length())
	if want := a.info.TransactionLength; want != 0 && (a.length > want || next == outside && a.length != want) {
		return 0, fmt.Errorf("%w: transaction %v has %d bytes, its GTID event says %d", ErrStream, a.info.GTID, a.length, want)
	}
	if next == outside {
		return StepEnd, nil
	}
	return StepInner, nil
}

// after returns where the stream is after an event of kind k within a transaction, and whether
// such an event fits there. If it returns outside, the event is the last of the transaction.
func (p place) after(k kind) (place, bool) {
	switch k {
	case kindIgnorable:
		return p, true
	case kindBegin:
		return inside, p == afterGTID
	case kindEnd:
		return outside, p == inside
	case kindEndXA:
		return outside, p == inside || p == afterGTID
	case kindPayload:
		return outside, p == afterGTID
	case kindInner:
		return inside, p == inside
	case kindPre:
		if p == inside {
			return inside, true
		}
		return afterPre, true
	case kindStatement:
		if p == inside {
			return inside, true
		}
		return outside, true
	}
	return p, false
}

func kindOf(e Event) (kind, error) {
	switch e.Type() {
	case TypeGTID, TypeGTIDTagged:
		return kindGTID, nil
	case TypeQuery:
		return kindOfQuery(e)
	case TypeXID, TypeXAPrepare:
		return kindEnd, nil
	case TypeIntvar, TypeRand, TypeUserVar:
		return kindPre, nil
	case TypeTableMap, TypeRowsQuery, TypeWriteRows, TypeUpdateRows, TypeDeleteRows, TypePartialUpdateRows,
		TypeWriteRowsV1, TypeUpdateRowsV1, TypeDeleteRowsV1,
		TypeBeginLoadQuery, TypeExecuteLoadQuery, TypeAppendBlock, TypeDeleteFile, TypeViewChange:
		return kindInner, nil
	case TypeTransactionPayload:
		return kindPayload, nil
	case TypeRotate, TypeFormatDescription, TypePreviousGTIDs, TypeStop:
		return kindFile, nil
	case TypeHeartbeat, TypeHeartbeatV2:
		return kindAnywhere, nil
	case TypeIncident:
		return 0, ErrIncident
	case TypeAnonymousGTID:
		return 0, fmt.Errorf("%w: transaction without a GTID", ErrStream)
	}
	if e.Flags()&FlagIgnorable != 0 {
		return kindIgnorable, nil
	}
	return 0, fmt.Errorf("%w: unknown type %d", ErrStream, e.Type())
}

// kindOfHead is kindOf for the beginning of an event.
func kindOfHead(head Event) (kind, error) {
	if head.Type() != TypeQuery {
		if k, err := kindOf(head); err != nil || k == kindInner || k == kindPayload || k == kindIgnorable {
			return k, err
		}
	}
	return 0, fmt.Errorf("%w: only a part of an event of type %d", ErrStream, head.Type())
}

// kindOfQuery compares as MySQL does. The server writes BEGIN, COMMIT and XA START, so their
// case is known. A client may have written ROLLBACK and XA ROLLBACK, in any case.
func kindOfQuery(e Event) (kind, error) {
	q, err := parseQuery(e)
	if err != nil {
		return 0, err
	}
	// No keyword is longer.
	text := q.text[:min(len(q.text), len("ROLLBACK TO "))]
	switch {
	case len(text) == 0:
		return 0, fmt.Errorf("%w: empty statement", ErrMalformed)
	case string(text) == "BEGIN", bytes.HasPrefix(text, []byte("XA START")):
		return kindBegin, nil
	case string(text) == "COMMIT":
		return kindEnd, nil
	case beginsWithFold(text, "ROLLBACK") && !bytes.EqualFold(text, []byte("ROLLBACK TO ")):
		return kindEnd, nil
	case beginsWithFold(text, "XA ROLLBACK"):
		return kindEndXA, nil
	}
	return kindStatement, nil
}

func beginsWithFold(text []byte, keyword string) bool {
	return len(text) >= len(keyword) && bytes.EqualFold(text[:len(keyword)], []byte(keyword))
}
