package sim

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"io"

	"github.com/quorate/quorate/internal/cluster"
)

// trace is the run as a list of lines: hashed always, written if somebody
// wants to read them.
type trace struct {
	sum  hash.Hash64
	out  io.Writer
	line []byte
}

func newTrace(out io.Writer) *trace { return &trace{sum: fnv.New64a(), out: out} }

// log adds one line about a node (0 = none).
func (w *World) log(id cluster.NodeID, what, format string, args ...any) {
	t := w.trace
	t.line = binary.BigEndian.AppendUint64(t.line[:0], uint64(w.sched.now))
	t.line = append(t.line, byte(id))
	t.line = append(t.line, what...)
	t.line = append(t.line, ' ')
	text := len(t.line)
	t.line = fmt.Appendf(t.line, format, args...)
	_, _ = t.sum.Write(t.line)
	if t.out != nil {
		name := "  "
		if id != 0 {
			name = fmt.Sprintf("n%d", id)
		}
		fmt.Fprintf(t.out, "%13.6f %s %-9s %s\n", w.sched.now.Seconds(), name, what, t.line[text:])
	}
}
