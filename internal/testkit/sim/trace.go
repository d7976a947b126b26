package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"log/slog"

	"github.com/quorate/quorate/internal/cluster"
)

// trace is the run as a list of lines. The lines are always hashed. They are also written to out, if there is
// one.
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

// logger returns a logger that writes to the trace what the product's code logs on a node.
func (n *node) logger(what string) *slog.Logger { return slog.New(traceLog{n, what}) }

type traceLog struct {
	n    *node
	what string
}

// Enabled implements slog.Handler.
func (traceLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements slog.Handler.
func (t traceLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += ", " + a.String(); return true })
	t.n.log(t.what, "%s", text)
	return nil
}

// WithAttrs implements slog.Handler.
func (t traceLog) WithAttrs([]slog.Attr) slog.Handler { return t }

// WithGroup implements slog.Handler.
func (t traceLog) WithGroup(string) slog.Handler { return t }
