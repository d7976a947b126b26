package tap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// acceptAll feeds events to s and returns the steps other than StepNothing; it ends at the
// first error.
func acceptAll(s *stream, events ...[]byte) ([]Step, error) {
	var steps []Step
	for _, event := range events {
		step, err := s.accept(event)
		if err != nil {
			return steps, err
		}
		if step.Kind != StepNothing {
			step.Event = nil
			steps = append(steps, step)
		}
	}
	return steps, nil
}

func startedStream(t *testing.T, exclude *gtid.Set) (*stream, *binlogtest.Writer) {
	t.Helper()
	w := binlogtest.New("q.000001")
	s := &stream{exclude: exclude}
	if steps, err := acceptAll(s, w.Start()...); err != nil || len(steps) != 0 {
		t.Fatal(steps, err)
	}
	return s, w
}

func TestStreamSteps(t *testing.T) {
	w := binlogtest.New("q.000001")
	s := &stream{}
	var events [][]byte
	events = append(events, w.Start()...)
	format := events[1]
	events = append(events, w.Heartbeat())
	events = append(events, w.Statement("CREATE TABLE t (a INT)")...)
	ddlEnd := w.Offset
	events = append(events, w.Statement("/* x */ grant all on *.* to u")...)
	grantEnd := w.Offset
	events = append(events, w.Rows(100)...)
	rowsEnd := w.Offset
	rowsBytes := rowsEnd - grantEnd
	events = append(events, w.Heartbeat(), w.Rotate("q.000002"))
	events = append(events, w.Start()...)
	rotated := Position{"q.000002", uint64(len(binlog.Magic)) + uint64(len(format))}

	got, err := acceptAll(s, events...)
	if err != nil {
		t.Fatal(err)
	}
	want := []Step{
		{Kind: StepHeartbeat},
		{Kind: StepBegin, GTID: binlogtest.GTID(1), TransactionBytes: ddlEnd - events0End(t)},
		{Kind: StepEnd, Position: Position{"q.000001", ddlEnd}},
		{Kind: StepBegin, GTID: binlogtest.GTID(2), TransactionBytes: grantEnd - ddlEnd},
		{Kind: StepEnd, Position: Position{"q.000001", grantEnd}},
		{Kind: StepBegin, GTID: binlogtest.GTID(3), TransactionBytes: rowsBytes},
		{Kind: StepInner}, {Kind: StepInner}, {Kind: StepInner},
		{Kind: StepEnd, Position: Position{"q.000001", rowsEnd}},
		{Kind: StepHeartbeat},
		{Kind: StepRotate, Position: rotated},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if s.firstFile != "q.000001" || !bytes.Equal(s.formatDescription, format) {
		t.Errorf("stream began with %s, %d bytes", s.firstFile, len(s.formatDescription))
	}
}

// events0End is where a file's first transaction begins.
func events0End(t *testing.T) uint64 {
	t.Helper()
	w := binlogtest.New("q.000001")
	w.Start()
	return w.Offset
}

func TestStreamSkippedRange(t *testing.T) {
	s, w := startedStream(t, nil)
	w.Rows(100) // excluded: not sent
	step, err := s.accept(w.Heartbeat())
	want := Step{Kind: StepSkipped, Position: Position{w.File, w.Offset}}
	if diff := cmp.Diff(want, step); err != nil || diff != "" {
		t.Fatalf("%v, %s", err, diff)
	}
	if _, err := acceptAll(s, w.Rows(100)...); err != nil || s.position.Offset != w.Offset {
		t.Fatalf("at %v, %v; want %d", s.position, err, w.Offset)
	}
	// Without the heartbeat, within the same 4 GiB, the header is enough.
	w.Rows(100)
	if _, err := acceptAll(s, w.Rows(100)...); err != nil || s.position.Offset != w.Offset {
		t.Fatalf("at %v, %v; want %d", s.position, err, w.Offset)
	}
}

// Positions do not wrap with the header's 32 bits, neither in the middle of a
// transaction nor between two, nor in a skipped range.
func TestStreamBeyond4GiB(t *testing.T) {
	s, w := startedStream(t, nil)
	step := func(offset uint64) {
		t.Helper()
		w.Offset = offset
		if _, err := s.accept(w.Heartbeat()); err != nil {
			t.Fatal(err)
		}
		if _, err := acceptAll(s, w.Rows(1000)...); err != nil || s.position.Offset != w.Offset {
			t.Fatalf("from %d: at %v, %v; want %d", offset, s.position, err, w.Offset)
		}
	}
	step(1<<32 - 500) // wraps within the row event
	step(3<<32 - 1)   // wraps in the first event, after a skipped range
	step(5 << 32)

	// The high bits stay where a range was skipped, also for a heartbeat that
	// has only the low ones.
	w.Rows(100)
	if _, err := acceptAll(s, w.Rows(100)...); err != nil || s.position.Offset != w.Offset {
		t.Fatalf("at %v, %v; want %d", s.position, err, w.Offset)
	}
	w.Rows(100)
	if _, err := s.accept(binlog.AppendHeartbeat(nil, 1, w.File, uint32(w.Offset))); err != nil || s.position.Offset != w.Offset {
		t.Fatalf("at %v, %v; want %d", s.position, err, w.Offset)
	}

	// A wrap that no event and no heartbeat explains is not guessed.
	w.Offset = 6<<32 + 10
	if _, err := acceptAll(s, w.Rows(10)...); !errors.Is(err, ErrStream) {
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

func TestStreamRefuses(t *testing.T) {
	excluded := &gtid.Set{}
	excluded.Add(binlogtest.GTID(1))
	for _, tc := range []struct {
		name    string
		exclude *gtid.Set
		events  func(w *binlogtest.Writer) [][]byte
		want    error
	}{
		{"excluded GTID", excluded, func(w *binlogtest.Writer) [][]byte { return w.Rows(1) }, ErrDuplicateGTID},
		{"GTID twice", nil, func(w *binlogtest.Writer) [][]byte {
			first := w.Rows(1)
			w.Next--
			return append(first, w.Rows(1)...)
		}, ErrDuplicateGTID},
		{"damaged event", nil, func(w *binlogtest.Writer) [][]byte {
			return [][]byte{flip(w.Rows(1)[0], 30)}
		}, binlog.ErrChecksum},
		{"cut event", nil, func(w *binlogtest.Writer) [][]byte {
			e := w.Rows(1)[0]
			return [][]byte{e[:len(e)-1]}
		}, binlog.ErrMalformed},
		{"event lost within a transaction", nil, func(w *binlogtest.Writer) [][]byte {
			events := w.Rows(100)
			return append(events[:2:2], events[3:]...)
		}, ErrStream},
		{"transaction cut by another", nil, func(w *binlogtest.Writer) [][]byte {
			return append(w.Rows(1)[:2], w.Rows(1)...)
		}, binlog.ErrStream},
		{"position goes back", nil, func(w *binlogtest.Writer) [][]byte {
			return [][]byte{reposition(w.Rows(1)[0], 130)}
		}, ErrStream},
		{"heartbeat for another file", nil, func(w *binlogtest.Writer) [][]byte {
			w.File = "q.000009"
			return [][]byte{w.Heartbeat()}
		}, ErrStream},
		{"heartbeat beyond an open transaction", nil, func(w *binlogtest.Writer) [][]byte {
			events := w.Rows(1)
			return append(events[:2:2], w.Heartbeat())
		}, ErrStream},
		{"second format description", nil, func(w *binlogtest.Writer) [][]byte {
			return [][]byte{w.FormatDescription(1)}
		}, ErrStream},
		{"events of a file without format description", nil, func(w *binlogtest.Writer) [][]byte {
			return append([][]byte{w.Rotate("q.000002")}, w.Rows(1)...)
		}, ErrStream},
		{"file name with a path", nil, func(w *binlogtest.Writer) [][]byte {
			return [][]byte{binlog.AppendFakeRotate(nil, 1, "./q.000002", 4)}
		}, ErrStream},
		{"file without checksums", nil, func(w *binlogtest.Writer) [][]byte {
			return [][]byte{w.Rotate("q.000002"), w.FormatDescription(0)}
		}, ErrStream},
		{"incident", nil, func(w *binlogtest.Writer) [][]byte {
			return [][]byte{w.Event(binlog.TypeIncident, make([]byte, 3))}
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

func TestStreamNeedsTheFileFirst(t *testing.T) {
	w := binlogtest.New("q.000001")
	if _, err := (&stream{}).accept(w.FormatDescription(1)); !errors.Is(err, ErrStream) {
		t.Error(err)
	}
}

// Idle heartbeats of either version, in the middle of a transaction too, move
// nothing.
func TestStreamIdleHeartbeats(t *testing.T) {
	s, w := startedStream(t, nil)
	events := w.Rows(10)
	end := w.Offset
	for i, event := range events {
		if _, err := s.accept(event); err != nil {
			t.Fatal(err)
		}
		at := s.position
		for _, heartbeat := range [][]byte{
			binlog.AppendHeartbeatV2(nil, 1, w.File, at.Offset),
			binlog.AppendHeartbeat(nil, 1, w.File, uint32(at.Offset)),
			binlog.AppendHeartbeatV2(nil, 1, w.File, uint64(len(binlog.Magic))),
		} {
			if step, err := s.accept(heartbeat); err != nil || step.Kind != StepHeartbeat || s.position != at {
				t.Fatalf("after event %d: step %v at %v, %v", i, step.Kind, s.position, err)
			}
		}
	}
	if s.position.Offset != end {
		t.Errorf("at %v, want %d", s.position, end)
	}
}

func BenchmarkMachine(b *testing.B) {
	w := binlogtest.New("q.000001")
	m := New(Config{})
	if _, err := acceptAll(&m.stream, w.Start()...); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		events := w.Rows(230)
		b.StartTimer()
		for _, event := range events {
			step, err := m.Read(event)
			if err != nil {
				b.Fatal(err)
			}
			if m.batch.growing.complete > batchBytesMaxDefault/2 {
				m.Release()
				m.TakeBatch()
				m.Proposed()
			}
			if ok, err := m.Apply(step, time.Time{}); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	}
}
