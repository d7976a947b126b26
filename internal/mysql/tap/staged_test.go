package tap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// stagingShell drives a machine as a shell does, and keeps what came out.
type stagingShell struct {
	t interface {
		Helper()
		Fatal(...any)
		Fatalf(string, ...any)
	}
	m       *Machine
	intake  Intake
	batches []Batch
	stages  map[entry.StageID][]byte
	open    entry.StageID
	// finished is set while the stage of the transaction that has begun is
	// complete.
	finished bool
}

func (s *stagingShell) take() {
	b, ok := s.m.TakeBatch()
	if !ok {
		return
	}
	s.m.Proposed()
	if b.Staged != nil && (*b.Staged != s.open || !s.finished) {
		s.t.Fatalf("batch names stage %v, open is %v, finished: %v", b.Staged, s.open, s.finished)
	}
	s.batches = append(s.batches, b)
}

// event gives the machine an event, in parts of the given length where it takes
// them.
func (s *stagingShell) event(event []byte, part int) error {
	s.t.Helper()
	rest := []byte(nil)
	if s.m.InParts(event[:binlog.HeaderBytes]) && part < len(event) {
		event, rest = event[:part], event[part:]
	}
	step, err := s.m.Read(event)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		s.apply(step)
		return nil
	}
	if err := s.intake.Write(event); err != nil {
		return err
	}
	for len(rest) > 0 {
		n := min(part, len(rest))
		if err := s.m.ReadMore(rest[:n]); err != nil {
			return err
		}
		if err := s.intake.Write(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return s.intake.Written(step, time.Time{})
}

func (s *stagingShell) apply(step Step) {
	s.t.Helper()
	if s.intake.Machine == nil {
		s.intake = Intake{Machine: s.m, Lock: &sync.Mutex{}, Open: func(_ Step, id entry.StageID) (StageWriter, error) {
			s.open, s.finished = id, false
			return stageOf{s}, nil
		}}
	}
	ok, err := s.intake.Take(step, time.Time{})
	if !ok && err == nil {
		s.take()
		ok, err = s.intake.Take(step, time.Time{})
	}
	if !ok || err != nil {
		s.t.Fatal(ok, err)
	}
}

// stageOf is the open stage of a shell.
type stageOf struct{ *stagingShell }

func (s stageOf) Write(p []byte) (int, error) {
	s.stages[s.open] = append(s.stages[s.open], p...)
	return len(p), nil
}

func (s stageOf) Finish(bytes uint64, crc uint32) error {
	body := s.stages[s.open]
	if bytes != uint64(len(body)) || crc != crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) {
		s.t.Fatalf("stage of %d bytes, the machine counts %d", len(body), bytes)
	}
	s.finished = true
	return nil
}

func (stageOf) Abort() error { return nil }

// In any order of small and large transactions, rotations and takes: exactly the long
// transactions are staged, batches and stages together are the stream, and no position is
// acknowledged before the commit of all that it covers.
func TestMachineStages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := binlogtest.New("q.000001")
		m := New(Config{Term: 7, StageBytesMin: 1, BatchBytesMax: 20000})
		s := &stagingShell{t: t, m: m, stages: map[entry.StageID][]byte{}}
		var want []byte
		var ends []Position // of each transaction
		feed := func(events ...[]byte) {
			for _, event := range events {
				if err := s.event(event, 1000); err != nil {
					t.Fatal(err)
				}
				if rapid.IntRange(0, 9).Draw(t, "take") == 0 {
					m.Release()
					s.take()
				}
			}
		}
		feed(w.Start()...)
		for range rapid.IntRange(1, 12).Draw(t, "transactions") {
			switch n := rapid.IntRange(0, 9000).Draw(t, "bytes"); {
			case n < 300:
				feed(w.Rotate(w.File + "1"))
				feed(w.Start()...)
			default:
				events := w.Rows(n)
				feed(events...)
				want = append(want, binlogtest.Join(events...)...)
				ends = append(ends, Position{w.File, w.Offset})
			}
		}
		m.Release()
		s.take()
		if got := s.joined(); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes in batches and stages, %d in the stream", len(got), len(want))
		}
		s.checkAcks(ends)
	})
}

// joined returns all transactions, in order, and checks batches on the way.
func (s *stagingShell) joined() []byte {
	var all []byte
	for i, b := range s.batches {
		h, body, err := entry.Parse(b.Data)
		if err != nil || h.Number != uint64(i+1) || h.Term != 7 || b.Number != h.Number {
			s.t.Fatalf("batch %d: %+v, %v", i+1, h, err)
		}
		if h.Kind == entry.KindRotate {
			continue
		}
		if (h.Kind == entry.KindStaged) != (b.Staged != nil) || int(h.Count) != len(b.GTIDs) {
			s.t.Fatalf("batch %d of kind %v, stage %v, %d GTIDs", i+1, h.Kind, b.Staged, len(b.GTIDs))
		}
		if b.Staged != nil {
			named, err := entry.ParseStaged(h, body)
			if err != nil || named.ID != *b.Staged || b.Bytes != len(s.stages[named.ID]) || b.Bytes <= stageBytesMinMin || !named.Rows {
				s.t.Fatalf("batch %d names %+v, %v", i+1, named, err)
			}
			body = s.stages[named.ID]
			if !bytes.HasPrefix(body, named.GTIDEvent) || !bytes.HasSuffix(body, named.EndEvent) || len(named.EndEvent) == 0 {
				s.t.Fatalf("batch %d has other first and last events than its stage", i+1)
			}
		}
		var ids []gtid.GTID
		for tx, err := range binlog.Transactions(body) {
			if err != nil || b.Staged == nil && len(tx.Raw) > stageBytesMinMin {
				s.t.Fatalf("batch %d: transaction of %d bytes, %v", i+1, len(tx.Raw), err)
			}
			ids = append(ids, tx.GTID)
		}
		if diff := cmp.Diff(b.GTIDs, ids); diff != "" {
			s.t.Fatalf("batch %d (-batch +body):\n%s", i+1, diff)
		}
		all = append(all, body...)
	}
	return all
}

// checkAcks commits one batch after the other.
func (s *stagingShell) checkAcks(ends []Position) {
	count := 0
	for _, b := range s.batches {
		count += len(b.GTIDs)
		s.m.Committed(b.Number)
		position, ok := s.m.NextAck()
		if ok != (len(b.GTIDs) > 0) || ok && position != ends[count-1] {
			s.t.Fatalf("batch %d acknowledges %v, %v", b.Number, position, ok)
		}
	}
	if count != len(ends) || s.m.Outstanding() != 0 {
		s.t.Fatalf("%d transactions of %d, %d outstanding", count, len(ends), s.m.Outstanding())
	}
}

// startedShell has read the start of a file.
func startedShell(t *testing.T, cfg Config) (*stagingShell, *binlogtest.Writer) {
	t.Helper()
	cfg.Term = 7
	w := binlogtest.New("q.000001")
	s := &stagingShell{t: t, m: New(cfg), stages: map[entry.StageID][]byte{}}
	for _, event := range w.Start() {
		if err := s.event(event, 0); err != nil {
			t.Fatal(err)
		}
	}
	return s, w
}

// payload makes a transaction that is one event of the given length.
func payload(w *binlogtest.Writer, bytes int) [][]byte {
	return w.Transaction(func() [][]byte { return [][]byte{w.Event(binlog.TypeTransactionPayload, make([]byte, bytes))} })
}

// Long events come in parts, also the one that is the transaction's last.
func TestMachineReadsInParts(t *testing.T) {
	for name, tc := range map[string]struct {
		events  func(w *binlogtest.Writer) [][]byte
		lastEnd bool // the last event is in the naming entry
	}{
		"rows":    {func(w *binlogtest.Writer) [][]byte { return w.Rows(3 << 20) }, true},
		"payload": {func(w *binlogtest.Writer) [][]byte { return payload(w, 3<<20) }, false},
		"statement": {func(w *binlogtest.Writer) [][]byte {
			return w.Statement("CREATE VIEW v AS SELECT '" + string(bytes.Repeat([]byte{'x'}, 3<<20)))
		}, false},
	} {
		for _, part := range []int{binlog.HeaderBytes, 100_000, 3 << 20, 4 << 20} {
			s, w := startedShell(t, Config{StageBytesMin: 1 << 20})
			events := tc.events(w)
			for _, event := range events {
				if err := s.event(event, part); err != nil {
					t.Fatalf("%s in parts of %d: %v", name, part, err)
				}
			}
			s.take()
			id := entry.StageID{Term: 7, Number: 1}
			if len(s.batches) != 1 || !bytes.Equal(s.stages[id], binlogtest.Join(events...)) {
				t.Fatalf("%s in parts of %d: %d batches, stage of %d bytes", name, part, len(s.batches), len(s.stages[id]))
			}
			h, body, err := entry.Parse(s.batches[0].Data)
			if err != nil {
				t.Fatal(err)
			}
			named, err := entry.ParseStaged(h, body)
			var wantEnd []byte
			if tc.lastEnd {
				wantEnd = events[len(events)-1]
			}
			if err != nil || !bytes.Equal(named.EndEvent, wantEnd) || named.Rows != (name != "statement") {
				t.Fatalf("%s: %+v, %v", name, named, err)
			}
			s.checkAcks([]Position{{w.File, w.Offset}})
		}
	}
}

func TestMachineRefusesParts(t *testing.T) {
	start := func(t *testing.T) (*Machine, []byte) {
		s, w := startedShell(t, Config{StageBytesMin: 1 << 20})
		events := w.Rows(2 << 20)
		for _, event := range events[:3] {
			if err := s.event(event, 0); err != nil {
				t.Fatal(err)
			}
		}
		return s.m, events[3]
	}
	t.Run("damaged", func(t *testing.T) {
		m, event := start(t)
		event[len(event)-10] ^= 1
		_, err := m.Read(event[:100])
		if err != nil {
			t.Fatal(err)
		}
		if err := m.ReadMore(event[100:]); !errors.Is(err, binlog.ErrChecksum) {
			t.Error(err)
		}
	})
	t.Run("the next comes early", func(t *testing.T) {
		m, event := start(t)
		if _, err := m.Read(event[:100]); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Read(binlogtest.New("q").Query("x")); !errors.Is(err, ErrStream) {
			t.Error(err)
		}
	})
	t.Run("too much", func(t *testing.T) {
		m, event := start(t)
		if _, err := m.Read(event[:100]); err != nil {
			t.Fatal(err)
		}
		if err := m.ReadMore(append(slices.Clone(event[100:]), 0)); !errors.Is(err, binlog.ErrMalformed) {
			t.Error(err)
		}
	})
	t.Run("wrong position", func(t *testing.T) {
		m, event := start(t)
		event[13] ^= 1
		if _, err := m.Read(event[:100]); !errors.Is(err, ErrStream) {
			t.Error(err)
		}
	})
	t.Run("not staged", func(t *testing.T) {
		s, w := startedShell(t, Config{})
		events := w.Rows(2 << 20)
		for _, event := range events[:3] {
			if err := s.event(event, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.m.Read(events[3][:100]); s.m.InParts(events[3]) || !errors.Is(err, binlog.ErrMalformed) {
			t.Error(err)
		}
	})
}

// TestMachineChecksAccountStatements: a statement on accounts is judged before a batch has it, also if it is staged.
// Any account could end a primary with a long statement, when none was allowed in a stage.
func TestMachineChecksAccountStatements(t *testing.T) {
	refused := errors.New("refused")
	for _, comment := range []int{10, 1 << 20} {
		for text, want := range map[string]error{"GRANT ALL ON *.* TO u": refused, "SET DEFAULT ROLE NONE TO u": nil, "DROP TABLE grants": nil} {
			s, w := startedShell(t, Config{StageBytesMin: 1 << 20, CheckAccounts: func(q binlog.Query) error {
				if strings.HasPrefix(q.Text, "DROP") {
					t.Errorf("%.40s is checked", q.Text)
				}
				if strings.HasPrefix(q.Text, "GRANT") {
					return refused
				}
				return nil
			}})
			events := w.Statement(text + " /*" + strings.Repeat("x", comment) + "*/")
			if err := s.event(events[0], 0); err != nil {
				t.Fatal(err)
			}
			if err := s.event(events[1], 0); !errors.Is(err, want) {
				t.Errorf("%s with %d bytes: %v", text, comment, err)
			}
			s.m.Release()
			s.take()
			if done := len(s.batches) == 1; done != (want == nil) || done && (s.batches[0].Staged != nil) != (comment > 1000) {
				t.Errorf("%s with %d bytes: %d batches", text, comment, len(s.batches))
			}
		}
	}
}

// The entry limit holds for transactions that are not staged, and not for staged ones.
func TestMachineStagesAboveTheEntryLimit(t *testing.T) {
	s, w := startedShell(t, Config{StageBytesMin: 8 << 10, EntryBytesMax: 10 << 10})
	for _, event := range append(w.Rows(50<<10), w.Rows(5<<10)...) {
		if err := s.event(event, 0); err != nil {
			t.Fatal(err)
		}
	}
	s.m.Release()
	s.take()
	if len(s.batches) != 2 || s.batches[0].Staged == nil || s.batches[1].Staged != nil {
		t.Errorf("batches %+v", s.batches)
	}
}

// Positions within one transaction do not wrap with the header's 32 bits.
func TestStreamAdvancesBeyond4GiB(t *testing.T) {
	head := func(length, logPos uint64) binlog.Event {
		e := make([]byte, binlog.HeaderBytes)
		binary.LittleEndian.PutUint32(e[9:], uint32(length))
		binary.LittleEndian.PutUint32(e[13:], uint32(logPos))
		return e
	}
	const gib = 1 << 30
	for _, tc := range []struct {
		name    string
		at      uint64
		lengths []uint64
	}{
		{"many times", 4, []uint64{gib, gib, gib, gib, gib, gib, gib, gib, gib, 31, gib}},
		{"ends on the border", 4*gib - 100, []uint64{100, 23, gib}},
		{"one byte short of it", 4*gib - 100, []uint64{99, 23}},
		{"one byte beyond it", 4*gib - 100, []uint64{101, 23}},
		{"ends on a later one", 12*gib - 100, []uint64{50, 50, 50}},
	} {
		s := &stream{position: Position{"q", tc.at}}
		at := tc.at
		for i, length := range tc.lengths {
			at += length
			if err := s.advance(head(length, at), false); err != nil || s.position.Offset != at {
				t.Errorf("%s: event %d: at %v, %v; want %d", tc.name, i, s.position, err, at)
			}
			if err := s.advance(head(length, at+length+1), false); !errors.Is(err, ErrStream) {
				t.Errorf("%s: event %d: a gap within a transaction: %v", tc.name, i, err)
			}
		}
	}
}
