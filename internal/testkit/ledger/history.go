package ledger

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// ID is a row's primary key: the writer in the upper, its sequence number in
// the lower 32 bits.
type ID int64

// MakeID returns the id of the writer's row seq. writer must be below 2^31.
func MakeID(writer, seq uint32) ID { return ID(int64(writer)<<32 | int64(seq)) }

// Writer returns the number of the writer to which the id belongs.
func (id ID) Writer() uint32 { return uint32(id >> 32) }

// Seq returns the writer's sequence number of the row.
func (id ID) Seq() uint32 { return uint32(id) }

// String prints the id as writer/seq.
func (id ID) String() string { return fmt.Sprintf("%d/%d", id.Writer(), id.Seq()) }

// payloadBytesMin and payloadBytesMax bound a row's payload.
const (
	payloadBytesMin = 16
	payloadBytesMax = 255
)

// Payload returns the content that the row must have: bytes that follow from
// its id alone.
func (id ID) Payload() []byte {
	rng := rand.New(rand.NewPCG(uint64(id), 0x71756f72617465))
	out := make([]byte, payloadBytesMin+rng.IntN(payloadBytesMax-payloadBytesMin+1))
	for n := 0; n < len(out); n += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		copy(out[n:], word[:])
	}
	return out
}

// Outcome is what a writer knows about one transaction.
type Outcome uint8

// The outcomes. The zero value claims nothing.
const (
	// Unknown: the deciding statement may have been received.
	Unknown Outcome = iota
	// Acknowledged: the client holds the server's OK.
	Acknowledged
	// Failed: it cannot have been committed.
	Failed
)

// String names the outcome as it is printed.
func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Acknowledged:
		return "acknowledged"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("outcome-%d", uint8(o))
}

// Attempt is one transaction: Rows rows of one writer, from First on.
type Attempt struct {
	Writer  uint32
	First   uint32
	Rows    uint8
	Outcome Outcome
}

// id returns the id of the attempt's row n, counted from 0.
func (a Attempt) id(n int) ID { return MakeID(a.Writer, a.First+uint32(n)) }
