package entry

import (
	"encoding/binary"
	"fmt"
)

// StageID names a staged transaction by the term and the number of the entry that brings it into the log. A
// term has at most one epoch and an epoch uses a number once, so an id never comes again. A GTID may come
// again, after a rollback.
type StageID struct{ Term, Number uint64 }

// String formats the id as in file names and messages.
func (id StageID) String() string { return fmt.Sprintf("%020d-%020d", id.Term, id.Number) }

// Staged is the body of a KindStaged entry: it names one large transaction
// whose bytes travelled beside Raft. The header's Count is 1.
type Staged struct {
	// ID is the header's term and number.
	ID StageID
	// Bytes is the length of the transaction, all events with their checksums.
	Bytes uint64
	// CRC is the CRC32C of these bytes.
	CRC uint32
	// GTIDEvent is the transaction's first event.
	GTIDEvent []byte
	// EndEvent is the transaction's last event (XID, COMMIT, XA_PREPARE); empty
	// if that is a TRANSACTION_PAYLOAD, or a statement of over 4 KiB.
	EndEvent []byte
	// Rows says that the transaction has events that change rows. Its compressed parts are not looked into: a
	// TRANSACTION_PAYLOAD counts as rows.
	Rows bool
}

// stagedFixedBytes is the length of a KindStaged body without its events.
const stagedFixedBytes = 20

const stagedRows = 1 << 0

// EncodeStaged returns the data of the entry that names s.
func EncodeStaged(s Staged) []byte {
	dst := AppendHeader(nil, Header{Kind: KindStaged, Count: 1, Term: s.ID.Term, Number: s.ID.Number})
	dst = binary.LittleEndian.AppendUint64(dst, s.Bytes)
	dst = binary.LittleEndian.AppendUint32(dst, s.CRC)
	flags := byte(0)
	if s.Rows {
		flags |= stagedRows
	}
	dst = append(dst, flags, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.GTIDEvent)))
	dst = append(dst, s.GTIDEvent...)
	return append(dst, s.EndEvent...)
}

// StagedIn returns the stage that an entry with this data names; false if the data is no sound entry of
// KindStaged.
func StagedIn(data []byte) (Staged, bool) {
	h, body, err := Parse(data)
	if err != nil || h.Kind != KindStaged {
		return Staged{}, false
	}
	s, err := ParseStaged(h, body)
	return s, err == nil
}

// ParseStaged decodes the body of a KindStaged entry. The events alias body.
func ParseStaged(h Header, body []byte) (Staged, error) {
	if len(body) < stagedFixedBytes {
		return Staged{}, fmt.Errorf("%w: body of a staged transaction of %d bytes", ErrMalformed, len(body))
	}
	s := Staged{
		ID:    StageID{Term: h.Term, Number: h.Number},
		Bytes: binary.LittleEndian.Uint64(body),
		CRC:   binary.LittleEndian.Uint32(body[8:]),
		Rows:  body[12]&stagedRows != 0,
	}
	n := uint64(binary.LittleEndian.Uint32(body[16:]))
	rest := body[stagedFixedBytes:]
	if h.Count != 1 || n == 0 || n > uint64(len(rest)) || s.Bytes < uint64(len(rest)) {
		return Staged{}, fmt.Errorf("%w: body of a staged transaction: count %d, GTID event of %d bytes in %d of %d",
			ErrMalformed, h.Count, n, len(rest), s.Bytes)
	}
	s.GTIDEvent, s.EndEvent = rest[:n:n], rest[n:]
	return s, nil
}
