package hostile

import (
	"bytes"

	"github.com/quorate/quorate/internal/raft/frame"
)

// Mend returns the bytes of b as valid frames. In each header it cuts the length to the number of bytes that follow, and
// makes the other fields fit. Only the types stay as they are.
func Mend(b []byte, f frame.Format) []byte {
	b = bytes.Clone(b)
	for rest := b; len(rest) >= frame.HeaderBytes; {
		kind, length := frame.KindAndLength(rest)
		whole := rest[:frame.HeaderBytes+min(uint64(length), uint64(len(rest)-frame.HeaderBytes))]
		f.Fill(whole, kind)
		rest = rest[len(whole):]
	}
	return b
}
