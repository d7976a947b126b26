package binlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
)

// Lengths that all events share.
const (
	// HeaderBytes is the length of an event's header.
	HeaderBytes = 19
	// ChecksumBytes is the length of the CRC32 behind an event's body.
	ChecksumBytes = 4
)

// Magic is what a binlog file starts with; the first event follows.
const Magic = "\xfebin"

// Type is an event's type code (enum Log_event_type in binlog_event.h).
type Type uint8

// The event types that this package tells apart.
const (
	TypeQuery              Type = 2
	TypeStop               Type = 3
	TypeRotate             Type = 4
	TypeIntvar             Type = 5
	TypeAppendBlock        Type = 9
	TypeDeleteFile         Type = 11
	TypeRand               Type = 13
	TypeUserVar            Type = 14
	TypeFormatDescription  Type = 15
	TypeXID                Type = 16
	TypeBeginLoadQuery     Type = 17
	TypeExecuteLoadQuery   Type = 18
	TypeTableMap           Type = 19
	TypeWriteRowsV1        Type = 23
	TypeUpdateRowsV1       Type = 24
	TypeDeleteRowsV1       Type = 25
	TypeIncident           Type = 26
	TypeHeartbeat          Type = 27
	TypeIgnorable          Type = 28
	TypeRowsQuery          Type = 29
	TypeWriteRows          Type = 30
	TypeUpdateRows         Type = 31
	TypeDeleteRows         Type = 32
	TypeGTID               Type = 33
	TypeAnonymousGTID      Type = 34
	TypePreviousGTIDs      Type = 35
	TypeViewChange         Type = 37
	TypeXAPrepare          Type = 38
	TypePartialUpdateRows  Type = 39
	TypeTransactionPayload Type = 40
	TypeHeartbeatV2        Type = 41
	TypeGTIDTagged         Type = 42
)

// Header flags.
const (
	// FlagInUse marks a file's FORMAT_DESCRIPTION until the file is closed
	// (LOG_EVENT_BINLOG_IN_USE_F). mysqld sets and clears it in the file without a new
	// checksum: the checksum is always computed as if it were not set.
	FlagInUse uint16 = 0x1
	// FlagArtificial marks an event that is in no file (LOG_EVENT_ARTIFICIAL_F).
	FlagArtificial uint16 = 0x20
	// FlagIgnorable marks an event that a reader may skip if it does not know
	// the type (LOG_EVENT_IGNORABLE_F).
	FlagIgnorable uint16 = 0x80
)

// Offsets into the header.
const (
	offsetType     = 4
	offsetServerID = 5
	offsetLength   = 9
	offsetLogPos   = 13
	offsetFlags    = 17
)

// Errors that callers tell apart.
var (
	// ErrMalformed is returned for bytes that are not a valid event.
	ErrMalformed = errors.New("binlog: malformed event")
	// ErrChecksum is returned for an event whose CRC32 is wrong.
	ErrChecksum = errors.New("binlog: wrong checksum")
)

// Event is one event: header, body and checksum. A value that ParseEvent or
// CutEvent returned is at least HeaderBytes long and as long as its header
// says; the accessors need that.
type Event []byte

// ParseEvent returns b as an event. It returns ErrMalformed unless b is exactly
// as long as its header says.
func ParseEvent(b []byte) (Event, error) {
	e, rest, err := CutEvent(b)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes behind an event of %d", ErrMalformed, len(rest), len(e))
	}
	return e, nil
}

// CutEvent returns the event at the start of b and what follows it. It returns
// ErrMalformed if b does not hold all of it.
func CutEvent(b []byte) (Event, []byte, error) {
	if len(b) < HeaderBytes {
		return nil, nil, fmt.Errorf("%w: %d bytes, a header has %d", ErrMalformed, len(b), HeaderBytes)
	}
	n := binary.LittleEndian.Uint32(b[offsetLength:])
	if n < HeaderBytes || uint64(n) > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: length %d in the header, %d bytes at hand", ErrMalformed, n, len(b))
	}
	return Event(b[:n:n]), b[n:], nil
}

// Events yields the events in b, which is their concatenation. At the first malformed event it
// yields the error and ends.
func Events(b []byte) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for len(b) > 0 {
			e, rest, err := CutEvent(b)
			if !yield(e, err) || err != nil {
				return
			}
			b = rest
		}
	}
}

// Timestamp is when the statement began, in seconds since 1970; 0 in an
// artificial event.
func (e Event) Timestamp() uint32 { return binary.LittleEndian.Uint32(e) }

// Type is the event's type.
func (e Event) Type() Type { return Type(e[offsetType]) }

// ServerID is the server_id of the mysqld that wrote the event first.
func (e Event) ServerID() uint32 { return binary.LittleEndian.Uint32(e[offsetServerID:]) }

// Length is the event's length in bytes as its header gives it.
func (e Event) Length() uint32 { return binary.LittleEndian.Uint32(e[offsetLength:]) }

// LogPos is the low 32 bits of the event's end in its file; 0 in an artificial
// event.
func (e Event) LogPos() uint32 { return binary.LittleEndian.Uint32(e[offsetLogPos:]) }

// Flags are the header's flags.
func (e Event) Flags() uint16 { return binary.LittleEndian.Uint16(e[offsetFlags:]) }

// Body returns the bytes between the header and the checksum. They may be empty, but never nil.
func (e Event) Body() []byte {
	end := max(HeaderBytes, len(e)-ChecksumBytes)
	return e[HeaderBytes:end:end]
}

// crc computes the right checksum of e. len(e) must be at least HeaderBytes+ChecksumBytes.
func (e Event) crc() uint32 {
	covered := e[:len(e)-ChecksumBytes]
	if e.Type() != TypeFormatDescription || e.Flags()&FlagInUse == 0 {
		return crc32.ChecksumIEEE(covered)
	}
	var header [HeaderBytes]byte
	copy(header[:], e)
	binary.LittleEndian.PutUint16(header[offsetFlags:], e.Flags()&^FlagInUse)
	return crc32.Update(crc32.ChecksumIEEE(header[:]), crc32.IEEETable, covered[HeaderBytes:])
}

// VerifyChecksum returns ErrChecksum unless e ends in its CRC32.
func VerifyChecksum(e Event) error {
	if len(e) < HeaderBytes+ChecksumBytes {
		return fmt.Errorf("%w: type %d has no room for it", ErrChecksum, e.Type())
	}
	got, want := binary.LittleEndian.Uint32(e[len(e)-ChecksumBytes:]), e.crc()
	if got != want {
		return fmt.Errorf("%w: type %d has %08x, its bytes make %08x", ErrChecksum, e.Type(), got, want)
	}
	return nil
}

// Checksum verifies an event's CRC32 while its bytes come in parts. It is not
// for FORMAT_DESCRIPTION events, whose FlagInUse is not covered.
type Checksum struct {
	left uint64
	crc  uint32
	// tail has the bytes of the checksum that have arrived.
	tail [ChecksumBytes]byte
}

// NewChecksum returns the Checksum of an event with the given header.
func NewChecksum(head Event) Checksum { return Checksum{left: uint64(head.Length())} }

// Left returns how many bytes of the event are still to come.
func (c *Checksum) Left() uint64 { return c.left }

// Add takes the event's next bytes, from the header on. With the last bytes it returns
// ErrChecksum unless the checksum is right. It returns ErrMalformed if there are more bytes
// than the event has.
func (c *Checksum) Add(part []byte) error {
	if uint64(len(part)) > c.left {
		return fmt.Errorf("%w: %d bytes of an event, %d were to come", ErrMalformed, len(part), c.left)
	}
	if c.left > ChecksumBytes {
		covered := part[:min(uint64(len(part)), c.left-ChecksumBytes)]
		c.crc = crc32.Update(c.crc, crc32.IEEETable, covered)
		c.left -= uint64(len(covered))
		part = part[len(covered):]
	}
	if len(part) == 0 {
		return nil
	}
	copy(c.tail[ChecksumBytes-c.left:], part)
	c.left -= uint64(len(part))
	if got := binary.LittleEndian.Uint32(c.tail[:]); c.left == 0 && got != c.crc {
		return fmt.Errorf("%w: the event has %08x, its bytes make %08x", ErrChecksum, got, c.crc)
	}
	return nil
}

// PutChecksum writes the CRC32 into the event's last four bytes. It panics if e
// has no room for it.
func PutChecksum(e Event) {
	binary.LittleEndian.PutUint32(e[len(e)-ChecksumBytes:], e.crc())
}

// beginEvent appends a header; endEvent completes it.
func beginEvent(dst []byte, t Type, serverID, timestamp, logPos uint32, flags uint16) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, timestamp)
	dst = append(dst, byte(t))
	dst = binary.LittleEndian.AppendUint32(dst, serverID)
	dst = binary.LittleEndian.AppendUint32(dst, 0) // length: endEvent
	dst = binary.LittleEndian.AppendUint32(dst, logPos)
	return binary.LittleEndian.AppendUint16(dst, flags)
}

// endEvent sets the length and appends the checksum of the event at dst[start:].
func endEvent(dst []byte, start int) []byte {
	dst = append(dst, 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(dst[start+offsetLength:], uint32(len(dst)-start))
	PutChecksum(Event(dst[start:]))
	return dst
}

// WithoutChecksum takes the checksum off an event, in place.
func WithoutChecksum(e Event) Event {
	e = e[:len(e)-ChecksumBytes]
	binary.LittleEndian.PutUint32(e[offsetLength:], uint32(len(e)))
	return e
}

// CutNetInt decodes a length-encoded integer of the client protocol
// (net_field_length_ll in mysys/pack.cc) and returns what follows it.
func CutNetInt(b []byte) (uint64, []byte, error) {
	if len(b) == 0 {
		return 0, nil, fmt.Errorf("%w: cut in an integer", ErrMalformed)
	}
	n := 0
	switch b[0] {
	default:
		return uint64(b[0]), b[1:], nil
	case 0xfb, 0xff:
		return 0, nil, fmt.Errorf("%w: no integer starts with %#x", ErrMalformed, b[0])
	case 0xfc:
		n = 2
	case 0xfd:
		n = 3
	case 0xfe:
		n = 8
	}
	if len(b) < 1+n {
		return 0, nil, fmt.Errorf("%w: cut in an integer", ErrMalformed)
	}
	var full [8]byte
	copy(full[:n], b[1:])
	return binary.LittleEndian.Uint64(full[:]), b[1+n:], nil
}

// AppendNetInt appends v as a length-encoded integer.
func AppendNetInt(dst []byte, v uint64) []byte {
	switch {
	case v < 0xfb:
		return append(dst, byte(v))
	case v < 1<<16:
		return append(dst, 0xfc, byte(v), byte(v>>8))
	case v < 1<<24:
		return append(dst, 0xfd, byte(v), byte(v>>8), byte(v>>16))
	}
	return binary.LittleEndian.AppendUint64(append(dst, 0xfe), v)
}

// netIntBytes is the length of v as a length-encoded integer.
func netIntBytes(v uint64) int {
	var room [9]byte
	return len(AppendNetInt(room[:0], v))
}
