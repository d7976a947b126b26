package mysqlwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/binlog"
	"github.com/quorate/quorate/internal/gtid"
)

// acceptAll feeds events to s and returns what is worth a step; the first error
// ends it.
func acceptAll(s *tapStream, events ...[]byte) ([]streamStep, error) {
	var steps []streamStep
	for _, event := range events {
		step, err := s.accept(event)
		if err != nil {
			return steps, err
		}
		if step.kind != stepNothing {
			step.event = nil
			steps = append(steps, step)
		}
	}
	return steps, nil
}

func startedStream(t *testing.T, exclude *gtid.Set) (*tapStream, *binlogWriter) {
	t.Helper()
	w := newBinlogWriter("q.000001")
	s := newTapStream(exclude)
	if steps, err := acceptAll(s, w.start()...); err != nil || len(steps) != 0 {
		t.Fatal(steps, err)
	}
	return s, w
}

func TestTapStreamSteps(t *testing.T) {
	w := newBinlogWriter("q.000001")
	s := newTapStream(nil)
	var events [][]byte
	events = append(events, w.start()...)
	format := events[1]
	events = append(events, w.heartbeat())
	events = append(events, w.statement("CREATE TABLE t (a INT)")...)
	ddlEnd := w.offset
	events = append(events, w.statement("/* x */ grant all on *.* to u")...)
	grantEnd := w.offset
	events = append(events, w.rows(100)...)
	rowsEnd := w.offset
	rowsBytes := rowsEnd - grantEnd
	events = append(events, w.heartbeat(), w.rotate("q.000002"))
	events = append(events, w.start()...)
	rotated := Position{"q.000002", binlogMagicBytes + uint64(len(format))}

	got, err := acceptAll(s, events...)
	if err != nil {
		t.Fatal(err)
	}
	want := []streamStep{
		{kind: stepHeartbeat},
		{kind: stepBegin, gtid: testGTID(1), transactionBytes: ddlEnd - events0End(t)},
		{kind: stepEnd, position: Position{"q.000001", ddlEnd}},
		{kind: stepBegin, gtid: testGTID(2), transactionBytes: grantEnd - ddlEnd},
		{kind: stepEnd, acl: true, position: Position{"q.000001", grantEnd}},
		{kind: stepBegin, gtid: testGTID(3), transactionBytes: rowsBytes},
		{kind: stepInner}, {kind: stepInner}, {kind: stepInner},
		{kind: stepEnd, position: Position{"q.000001", rowsEnd}},
		{kind: stepHeartbeat},
		{kind: stepRotate, position: rotated},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(streamStep{})); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if s.firstFile != "q.000001" || !bytes.Equal(s.formatDescription, format) {
		t.Errorf("stream began with %s, %d bytes", s.firstFile, len(s.formatDescription))
	}
}

// events0End is where a file's first transaction begins.
func events0End(t *testing.T) uint64 {
	t.Helper()
	w := newBinlogWriter("q.000001")
	w.start()
	return w.offset
}

func TestTapStreamSkippedRange(t *testing.T) {
	s, w := startedStream(t, nil)
	w.rows(100) // excluded: not sent
	step, err := s.accept(w.heartbeat())
	want := streamStep{kind: stepSkipped, position: Position{w.file, w.offset}}
	if diff := cmp.Diff(want, step, cmp.AllowUnexported(streamStep{})); err != nil || diff != "" {
		t.Fatalf("%v, %s", err, diff)
	}
	if _, err := acceptAll(s, w.rows(100)...); err != nil || s.position.Offset != w.offset {
		t.Fatalf("at %v, %v; want %d", s.position, err, w.offset)
	}
	// Without the heartbeat, within the same 4 GiB, the header will do.
	w.rows(100)
	if _, err := acceptAll(s, w.rows(100)...); err != nil || s.position.Offset != w.offset {
		t.Fatalf("at %v, %v; want %d", s.position, err, w.offset)
	}
}

// Positions do not wrap with the header's 32 bits, neither in the middle of a
// transaction nor between two, nor in a skipped range.
func TestTapStreamBeyond4GiB(t *testing.T) {
	s, w := startedStream(t, nil)
	step := func(offset uint64) {
		t.Helper()
		w.offset = offset
		if _, err := s.accept(w.heartbeat()); err != nil {
			t.Fatal(err)
		}
		if _, err := acceptAll(s, w.rows(1000)...); err != nil || s.position.Offset != w.offset {
			t.Fatalf("from %d: at %v, %v; want %d", offset, s.position, err, w.offset)
		}
	}
	step(1<<32 - 500) // wraps within the row event
	step(3<<32 - 1)   // wraps in the first event, after a skipped range
	step(5 << 32)

	// The high bits stay where a range was skipped, also for a heartbeat that
	// has only the low ones.
	w.rows(100)
	if _, err := acceptAll(s, w.rows(100)...); err != nil || s.position.Offset != w.offset {
		t.Fatalf("at %v, %v; want %d", s.position, err, w.offset)
	}
	w.rows(100)
	if _, err := s.accept(binlog.AppendHeartbeat(nil, 1, w.file, uint32(w.offset))); err != nil || s.position.Offset != w.offset {
		t.Fatalf("at %v, %v; want %d", s.position, err, w.offset)
	}

	// A wrap that no event and no heartbeat explains is not guessed.
	w.offset = 6<<32 + 10
	if _, err := acceptAll(s, w.rows(10)...); !errors.Is(err, ErrStream) {
		t.Fatalf("jump over 4 GiB: %v at %v", err, s.position)
	}
}

func flip(e []byte, at int) []byte {
	out := bytes.Clone(e)
	out[at] ^= 1
	return out
}

func reposition(e []byte, pos uint32) []byte {
	out := bytes.Clone(e)
	binary.LittleEndian.PutUint32(out[13:], pos)
	binlog.PutChecksum(out)
	return out
}

func TestTapStreamRefuses(t *testing.T) {
	excluded := &gtid.Set{}
	excluded.Add(testGTID(1))
	for _, tc := range []struct {
		name    string
		exclude *gtid.Set
		events  func(w *binlogWriter) [][]byte
		want    error
	}{
		{"excluded GTID", excluded, func(w *binlogWriter) [][]byte { return w.rows(1) }, ErrDuplicateGTID},
		{"GTID twice", nil, func(w *binlogWriter) [][]byte {
			first := w.rows(1)
			w.next--
			return append(first, w.rows(1)...)
		}, ErrDuplicateGTID},
		{"damaged event", nil, func(w *binlogWriter) [][]byte {
			return [][]byte{flip(w.rows(1)[0], 30)}
		}, binlog.ErrChecksum},
		{"cut event", nil, func(w *binlogWriter) [][]byte {
			e := w.rows(1)[0]
			return [][]byte{e[:len(e)-1]}
		}, binlog.ErrMalformed},
		{"event lost within a transaction", nil, func(w *binlogWriter) [][]byte {
			events := w.rows(100)
			return append(events[:2:2], events[3:]...)
		}, ErrStream},
		{"transaction cut by another", nil, func(w *binlogWriter) [][]byte {
			return append(w.rows(1)[:2], w.rows(1)...)
		}, binlog.ErrStream},
		{"position goes back", nil, func(w *binlogWriter) [][]byte {
			return [][]byte{reposition(w.rows(1)[0], 130)}
		}, ErrStream},
		{"heartbeat for another file", nil, func(w *binlogWriter) [][]byte {
			w.file = "q.000009"
			return [][]byte{w.heartbeat()}
		}, ErrStream},
		{"heartbeat beyond an open transaction", nil, func(w *binlogWriter) [][]byte {
			events := w.rows(1)
			return append(events[:2:2], w.heartbeat())
		}, ErrStream},
		{"second format description", nil, func(w *binlogWriter) [][]byte {
			return [][]byte{w.formatDescription(1)}
		}, ErrStream},
		{"events of a file without format description", nil, func(w *binlogWriter) [][]byte {
			return append([][]byte{w.rotate("q.000002")}, w.rows(1)...)
		}, ErrStream},
		{"file name with a path", nil, func(w *binlogWriter) [][]byte {
			return [][]byte{binlog.AppendFakeRotate(nil, 1, "./q.000002", 4)}
		}, ErrStream},
		{"file without checksums", nil, func(w *binlogWriter) [][]byte {
			return [][]byte{w.rotate("q.000002"), w.formatDescription(0)}
		}, ErrStream},
		{"incident", nil, func(w *binlogWriter) [][]byte {
			return [][]byte{w.event(binlog.TypeIncident, make([]byte, 3))}
		}, binlog.ErrIncident},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, w := startedStream(t, tc.exclude)
			if steps, err := acceptAll(s, tc.events(w)...); !errors.Is(err, tc.want) {
				t.Errorf("%v after %v, want %v", err, steps, tc.want)
			}
		})
	}
}

func TestTapStreamNeedsTheFileFirst(t *testing.T) {
	w := newBinlogWriter("q.000001")
	if _, err := newTapStream(nil).accept(w.formatDescription(1)); !errors.Is(err, ErrStream) {
		t.Error(err)
	}
}

// Idle heartbeats of either version, in the middle of a transaction too, move
// nothing.
func TestTapStreamIdleHeartbeats(t *testing.T) {
	s, w := startedStream(t, nil)
	events := w.rows(10)
	end := w.offset
	for i, event := range events {
		if _, err := s.accept(event); err != nil {
			t.Fatal(err)
		}
		at := s.position
		for _, heartbeat := range [][]byte{
			binlog.AppendHeartbeatV2(nil, 1, w.file, at.Offset),
			binlog.AppendHeartbeat(nil, 1, w.file, uint32(at.Offset)),
			binlog.AppendHeartbeatV2(nil, 1, w.file, binlogMagicBytes),
		} {
			if step, err := s.accept(heartbeat); err != nil || step.kind != stepHeartbeat || s.position != at {
				t.Fatalf("after event %d: step %v at %v, %v", i, step.kind, s.position, err)
			}
		}
	}
	if s.position.Offset != end {
		t.Errorf("at %v, want %d", s.position, end)
	}
}

func BenchmarkTapStream(b *testing.B) {
	w := newBinlogWriter("q.000001")
	s := newTapStream(nil)
	if _, err := acceptAll(s, w.start()...); err != nil {
		b.Fatal(err)
	}
	acks := newAckTracker()
	out := newBatcher(TapConfig{BatchBytesMax: batchBytesMaxDefault}, acks)
	tap := &Tap{cfg: TapConfig{Logger: testLogger()}, stream: s, batch: out, acks: acks}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		events := w.rows(230)
		b.StartTimer()
		for _, event := range events {
			step, err := s.accept(event)
			if err != nil {
				b.Fatal(err)
			}
			if out.growing.complete > batchBytesMaxDefault/2 {
				out.release()
				out.take()
			}
			if err := tap.apply(b.Context(), step); err != nil {
				b.Fatal(err)
			}
		}
	}
}
