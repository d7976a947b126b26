package entry

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/cluster"
)

// Kind says what an entry's body is. Part of the format.
type Kind uint8

// The kinds of entry. Part of the format.
const (
	// KindEmpty is Raft's own no-op: an entry without data.
	KindEmpty Kind = 0
	// KindEpoch opens one tenure of a primary.
	KindEpoch Kind = 1
	// KindTransactions carries whole transactions.
	KindTransactions Kind = 2
	// KindRotate marks where the primary's binlog continued in its next file.
	KindRotate Kind = 3
	// KindStaged names one large transaction whose bytes are kept beside the log's entries, in a stage.
	KindStaged Kind = 4
	// KindState carries a change of the cluster state. It belongs to no epoch: Term is the term of its
	// proposal, Number is 0, and it may stand anywhere.
	KindState Kind = 5
)

// String names the kind as it is printed.
func (k Kind) String() string {
	switch k {
	case KindEmpty:
		return "empty"
	case KindEpoch:
		return "epoch"
	case KindTransactions:
		return "transactions"
	case KindRotate:
		return "rotate"
	case KindStaged:
		return "staged"
	case KindState:
		return "state"
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// Version is the version of the header and bodies. Part of the format.
const Version = 1

// HeaderBytes is the length of the header. Part of the format.
const HeaderBytes = 24

// ErrMalformed is returned for data that is no entry of this version.
var ErrMalformed = errors.New("entry: malformed data")

// Header is an entry's fixed part.
type Header struct {
	Kind Kind
	// Count is the number of transactions in the body (KindTransactions), or 1
	// (KindStaged).
	Count uint32
	// Term is the Raft term of the epoch to which the entry belongs, or of its
	// proposal (KindState).
	Term uint64
	// Number counts the epoch's entries: 0 is the epoch entry, then 1, 2, …
	Number uint64
}

// AppendHeader appends h's encoding to dst.
func AppendHeader(dst []byte, h Header) []byte {
	dst = append(dst, byte(h.Kind), Version, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, h.Count)
	dst = binary.LittleEndian.AppendUint64(dst, h.Term)
	return binary.LittleEndian.AppendUint64(dst, h.Number)
}

// SetHeader writes h over the first HeaderBytes of data, for callers that
// reserved the room and filled the body first.
func SetHeader(data []byte, h Header) {
	AppendHeader(data[:0], h)
}

// Parse splits data into its header and body. The body aliases data. Empty
// data is KindEmpty. It returns ErrMalformed for anything else that is not an
// entry of this version.
func Parse(data []byte) (Header, []byte, error) {
	if len(data) == 0 {
		return Header{}, nil, nil
	}
	if len(data) < HeaderBytes {
		return Header{}, nil, fmt.Errorf("%w: %d bytes, a header has %d", ErrMalformed, len(data), HeaderBytes)
	}
	if data[1] != Version {
		return Header{}, nil, fmt.Errorf("%w: version %d, this quorate reads %d", ErrMalformed, data[1], Version)
	}
	h := Header{
		Kind:   Kind(data[0]),
		Count:  binary.LittleEndian.Uint32(data[4:]),
		Term:   binary.LittleEndian.Uint64(data[8:]),
		Number: binary.LittleEndian.Uint64(data[16:]),
	}
	if h.Kind < KindEpoch || h.Kind > KindState {
		return Header{}, nil, fmt.Errorf("%w: %w", ErrMalformed, &cluster.NewerError{What: "an entry of kind", Has: int(data[0]), Newest: int(KindState)})
	}
	return h, data[HeaderBytes:], nil
}

// Epoch is the body of a KindEpoch entry.
type Epoch struct {
	// Term is the Raft term in which the epoch opened; it names the epoch.
	Term uint64
	// Primary is the name of the node whose mysqld writes in this epoch.
	Primary string
	// ServerUUID is that mysqld's server_uuid.
	ServerUUID [16]byte
	// ServerVersion is that mysqld's version, in mysqld's own words.
	ServerVersion string
	// FormatDescription is the FORMAT_DESCRIPTION event of its binlog.
	FormatDescription []byte
}

// EncodeEpoch returns the data of the entry that opens e.
func EncodeEpoch(e Epoch) []byte {
	dst := AppendHeader(nil, Header{Kind: KindEpoch, Term: e.Term})
	dst = appendString(dst, e.Primary)
	dst = append(dst, e.ServerUUID[:]...)
	dst = appendString(dst, e.ServerVersion)
	return append(dst, e.FormatDescription...)
}

// ParseEpoch decodes the body of a KindEpoch entry. FormatDescription aliases
// body.
func ParseEpoch(h Header, body []byte) (Epoch, error) {
	e := Epoch{Term: h.Term}
	var err error
	if e.Primary, body, err = cutString(body); err != nil {
		return Epoch{}, fmt.Errorf("read primary of epoch: %w", err)
	}
	if len(body) < len(e.ServerUUID) {
		return Epoch{}, fmt.Errorf("read server UUID of epoch: %w", ErrMalformed)
	}
	body = body[copy(e.ServerUUID[:], body):]
	if e.ServerVersion, body, err = cutString(body); err != nil {
		return Epoch{}, fmt.Errorf("read server version of epoch: %w", err)
	}
	e.FormatDescription = body
	return e, nil
}

func appendString(dst []byte, s string) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

func cutString(b []byte) (string, []byte, error) {
	if len(b) < 2 {
		return "", nil, ErrMalformed
	}
	n := int(binary.LittleEndian.Uint16(b))
	if len(b) < 2+n {
		return "", nil, ErrMalformed
	}
	return string(b[2 : 2+n]), b[2+n:], nil
}
