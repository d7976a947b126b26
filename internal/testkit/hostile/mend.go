package hostile

import (
	"bytes"

	"github.com/quorate/quorate/internal/raft/frame"
)

// Mend returns bytes as frames: the length that a header names is cut to what there is behind it, and the
// rest of the header fits. So it is with each further frame. Only the types stay as they are.
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
