package binlog

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// GTIDInfo is the content of a transaction's GTID event.
type GTIDInfo struct {
	GTID gtid.GTID
	// LastCommitted and SequenceNumber are the transaction's logical clock: it may be applied
	// in parallel with the transactions from LastCommitted+1 on that are before it. Both count
	// from the start of the primary's binlog file.
	LastCommitted, SequenceNumber int64
	// ImmediateCommit is when the server that sends the event committed, OriginalCommit when
	// the first server did, in microseconds since 1970; 0 if unknown (before 8.0).
	ImmediateCommit, OriginalCommit uint64
	// TransactionLength is the length of the whole transaction in bytes, with
	// this event and all checksums; 0 if unknown (before 8.0.2).
	TransactionLength uint64
}

// Layout of a GTID event's body (Gtid_event::Gtid_event in control_events.cpp):
//
//	0       1      17     25        26               34                42
//	+-------+------+------+---------+----------------+-----------------+-
//	| flags | UUID | N    | type: 2 | last committed | sequence number |
//	+-------+------+------+---------+----------------+-----------------+-
//	  u8             i64    u8        i64              i64
//
//	-+------------------+---------------------+--------------------+-------------------+--------+
//	 | immediate commit | original commit     | transaction length | server versions   | ticket |
//	-+------------------+---------------------+--------------------+-------------------+--------+
//	   u56, µs            u56, µs, if bit 55    length-encoded       u32, or 2 if bit    u64,
//	                      of the first is set                        31 is set           optional
//
// Each field from immediate commit on is missing in older versions.
const (
	gtidUUID          = 1
	gtidN             = 17
	gtidClockType     = 25
	gtidLastCommitted = 26
	gtidSequence      = 34
	gtidTimestamps    = 42
)

const (
	// logicalClockType marks that last committed and sequence number follow.
	logicalClockType = 2
	// timestampBytes is the length of a commit timestamp.
	timestampBytes = 7
	// originalFollows is a bit of the immediate timestamp: the original timestamp differs and
	// follows.
	originalFollows = 1 << 55
)

// ParseGTID parses a GTID or a tagged GTID event of any version since 5.7. It returns
// ErrMalformed for any other event, also an anonymous GTID.
func ParseGTID(e Event) (GTIDInfo, error) {
	var info GTIDInfo
	var err error
	switch e.Type() {
	case TypeGTID:
		info, _, err = parseUntagged(e.Body())
	case TypeGTIDTagged:
		info, err = parseTagged(e.Body())
	default:
		err = fmt.Errorf("%w: type %d", ErrMalformed, e.Type())
	}
	if err != nil {
		return GTIDInfo{}, fmt.Errorf("parse GTID event: %w", err)
	}
	return info, nil
}

// parseUntagged also returns the offset of the transaction length in body, or 0
// if it is not there.
func parseUntagged(body []byte) (GTIDInfo, int, error) {
	if len(body) < gtidTimestamps || body[gtidClockType] != logicalClockType {
		return GTIDInfo{}, 0, fmt.Errorf("%w: %d bytes without a logical clock", ErrMalformed, len(body))
	}
	info := GTIDInfo{
		LastCommitted:  int64(binary.LittleEndian.Uint64(body[gtidLastCommitted:])),
		SequenceNumber: int64(binary.LittleEndian.Uint64(body[gtidSequence:])),
	}
	copy(info.GTID.UUID[:], body[gtidUUID:])
	info.GTID.N = binary.LittleEndian.Uint64(body[gtidN:])
	if err := info.checkN(); err != nil {
		return GTIDInfo{}, 0, err
	}
	rest := body[gtidTimestamps:]
	if len(rest) < timestampBytes {
		return info, 0, nil
	}
	info.ImmediateCommit, rest = uint56(rest), rest[timestampBytes:]
	info.OriginalCommit = info.ImmediateCommit
	if info.ImmediateCommit&originalFollows != 0 {
		if len(rest) < timestampBytes {
			return GTIDInfo{}, 0, fmt.Errorf("%w: cut in a timestamp", ErrMalformed)
		}
		info.ImmediateCommit &^= originalFollows
		info.OriginalCommit, rest = uint56(rest), rest[timestampBytes:]
	}
	if len(rest) == 0 {
		return info, 0, nil
	}
	offset := len(body) - len(rest)
	var err error
	if info.TransactionLength, _, err = CutNetInt(rest); err != nil {
		return GTIDInfo{}, 0, err
	}
	return info, offset, nil
}

func (i *GTIDInfo) checkN() error {
	if i.GTID.N == 0 || i.GTID.N > gtid.MaxN {
		return fmt.Errorf("%w: %v: %w", ErrMalformed, i.GTID, gtid.ErrRange)
	}
	return nil
}

func uint56(b []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(b)) | uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48
}

// A tagged GTID event's body is a message of mysql::serialization (8.3+):
//
//	+---------+------+--------------------+ { +-------+-------+ }
//	| version | size | last field that a  |   | field | value |
//	|         |      | reader must know   |   | id    |       |
//	+---------+------+--------------------+   +-------+-------+
//
// Every integer is of variable length: the trailing one bits of the first byte
// say how many bytes follow it. A signed integer has its sign in bit 0, and a
// negative one the bits of its complement. The UUID is 16 integers, the tag a
// length and bytes. Fields come in the order of their ids; some may be missing.
const (
	taggedVersion = 1

	fieldFlags           = 0
	fieldUUID            = 1
	fieldN               = 2
	fieldTag             = 3
	fieldLastCommitted   = 4
	fieldSequence        = 5
	fieldImmediateCommit = 6
	fieldOriginalCommit  = 7
	fieldLength          = 8
	fieldImmediateServer = 9
	fieldOriginalServer  = 10
	fieldTicket          = 11
)

// serialized reads a mysql::serialization message. Its first error sticks.
type serialized struct {
	b   []byte
	err error
}

func parseTagged(body []byte) (GTIDInfo, error) {
	m := serialized{b: body}
	version, size, known := m.uint(), m.uint(), m.uint()
	if m.err == nil && (version != taggedVersion || size > uint64(len(body))) {
		m.err = fmt.Errorf("%w: message of version %d, %d bytes of %d", ErrMalformed, version, size, len(body))
	}
	if m.err == nil && known > fieldTicket {
		m.err = fmt.Errorf("%w: unknown field %d may not be ignored", ErrMalformed, known)
	}
	var info GTIDInfo
	var seen uint64
	for last := -1; m.err == nil && len(m.b) > 0; {
		id := m.uint()
		if m.err == nil && id > fieldTicket {
			break // Newer fields: ids only grow, and known says that we may.
		}
		if m.err == nil && int(id) <= last {
			m.err = fmt.Errorf("%w: field %d after field %d", ErrMalformed, id, last)
		}
		last = int(id)
		seen |= 1 << (id & 63)
		m.gtidField(id, &info)
	}
	const needed = 1<<fieldUUID | 1<<fieldN | 1<<fieldLastCommitted | 1<<fieldSequence
	if m.err == nil && seen&needed != needed {
		m.err = fmt.Errorf("%w: fields missing, has %#x", ErrMalformed, seen)
	}
	if seen&(1<<fieldOriginalCommit) == 0 {
		info.OriginalCommit = info.ImmediateCommit
	}
	if m.err == nil {
		m.err = info.checkN()
	}
	return info, m.err
}

// gtidField reads the value of one field into info.
func (m *serialized) gtidField(id uint64, info *GTIDInfo) {
	switch id {
	case fieldUUID:
		for i := range info.GTID.UUID {
			info.GTID.UUID[i] = byte(m.uint())
		}
	case fieldN:
		info.GTID.N = uint64(m.int())
	case fieldTag:
		info.GTID.Tag = m.tag()
	case fieldLastCommitted:
		info.LastCommitted = m.int()
	case fieldSequence:
		info.SequenceNumber = m.int()
	case fieldImmediateCommit:
		info.ImmediateCommit = m.uint()
	case fieldOriginalCommit:
		info.OriginalCommit = m.uint()
	case fieldLength:
		info.TransactionLength = m.uint()
	case fieldFlags, fieldImmediateServer, fieldOriginalServer, fieldTicket:
		m.uint()
	}
}

func (m *serialized) uint() uint64 {
	if m.err != nil {
		return 0
	}
	n := 0
	if len(m.b) > 0 {
		n = 1 + bits.TrailingZeros8(^m.b[0])
	}
	if n == 0 || len(m.b) < n {
		m.err = fmt.Errorf("%w: cut in an integer", ErrMalformed)
		return 0
	}
	var full [8]byte
	if n == 9 {
		copy(full[:], m.b[1:])
	} else {
		copy(full[:], m.b[:n])
	}
	m.b = m.b[n:]
	v := binary.LittleEndian.Uint64(full[:])
	if n < 9 {
		v >>= n
	}
	return v
}

func (m *serialized) int() int64 {
	v := m.uint()
	return int64(v>>1) ^ -int64(v&1)
}

func (m *serialized) tag() gtid.Tag {
	n := m.uint()
	if m.err == nil && n > uint64(len(m.b)) {
		m.err = fmt.Errorf("%w: cut in a tag", ErrMalformed)
	}
	if m.err != nil {
		return ""
	}
	tag, err := gtid.ParseTag(string(m.b[:n]))
	if err != nil {
		m.err = fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	m.b = m.b[n:]
	return tag
}

// CommitTime is when a transaction was committed, by the clock of the server that sends it: the time in
// its GTID event e, or (before 8.0) the time when its statement began.
func CommitTime(e Event, info *GTIDInfo) time.Time {
	if info.ImmediateCommit != 0 {
		return time.UnixMicro(int64(info.ImmediateCommit)).UTC()
	}
	return time.Unix(int64(e.Timestamp()), 0).UTC()
}
