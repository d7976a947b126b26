package mysqlwire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/raft/entry"
)

// memoryStages is where a test's tap stages transactions.
type memoryStages struct {
	mu       sync.Mutex
	opened   []entry.StageID
	finished map[entry.StageID][]byte
	aborted  []entry.StageID
	// openErr, writeErr and finishErr are what the calls return.
	openErr, writeErr, finishErr error
	// room, if set, gives one token for each Write.
	room chan struct{}
	// discard drops the bytes, for stages larger than memory should be.
	discard bool
}

func newMemoryStages() *memoryStages { return &memoryStages{finished: map[entry.StageID][]byte{}} }

type memoryStage struct {
	stages *memoryStages
	ctx    context.Context
	id     entry.StageID
	bytes  uint64
	crc    uint32
	body   []byte
}

func (m *memoryStages) open(ctx context.Context, id entry.StageID) (StageWriter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened = append(m.opened, id)
	return &memoryStage{stages: m, ctx: ctx, id: id}, m.openErr
}

func (m *memoryStages) stage(id entry.StageID) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, ok := m.finished[id]
	return body, ok
}

func (s *memoryStage) Write(p []byte) (int, error) {
	if s.stages.room != nil {
		select {
		case <-s.stages.room:
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
	}
	s.bytes += uint64(len(p))
	s.crc = crc32.Update(s.crc, crc32.MakeTable(crc32.Castagnoli), p)
	if !s.stages.discard {
		s.body = append(s.body, p...)
	}
	return len(p), s.stages.writeErr
}

func (s *memoryStage) Finish(bytes uint64, crc uint32) error {
	if bytes != s.bytes || crc != s.crc {
		return fmt.Errorf("stage of %d bytes with CRC %x, told %d and %x", s.bytes, s.crc, bytes, crc)
	}
	s.stages.mu.Lock()
	defer s.stages.mu.Unlock()
	if s.stages.finishErr == nil {
		s.stages.finished[s.id] = s.body
	}
	return s.stages.finishErr
}

func (s *memoryStage) Abort() error {
	s.stages.mu.Lock()
	defer s.stages.mu.Unlock()
	s.stages.aborted = append(s.stages.aborted, s.id)
	return nil
}

// Transactions before a large one are handed out, those behind it wait. The stage has all of
// the large one when its batch is handed out.
func TestTapStages(t *testing.T) {
	stages := newMemoryStages()
	tap, s := connectTap(t, func(c *TapConfig) { c.StageBytesMin, c.OpenStage = 1<<20, stages.open })
	p := newStepper()
	p.run(t, tap)
	small, large, behind := s.binlog.Rows(10), s.binlog.Rows(20<<20), s.binlog.Rows(10)
	end := Position{File: s.binlog.File, Offset: s.binlog.Offset}
	s.send(append(append(small, large...), behind...)...)
	var got []Batch
	for range 3 {
		b := <-p.batches
		if b.Staged != nil {
			body, finished := stages.stage(*b.Staged)
			if want := binlogtest.Join(large...); !finished || !bytes.Equal(body, want) || b.Bytes != len(want) {
				t.Errorf("batch of stage %v, %d bytes; finished: %v, %d bytes of %d", b.Staged, b.Bytes, finished, len(body), len(want))
			}
			if b.ReceivedAt.IsZero() {
				t.Error("received at no time")
			}
		}
		got = append(got, b)
		p.results <- nil
	}
	want := entry.StageID{Term: 5, Number: 2}
	if got[0].Staged != nil || got[1].Staged == nil || *got[1].Staged != want || got[2].Staged != nil || len(stages.opened) != 1 {
		t.Errorf("stages %v, %v, %v", got[0].Staged, got[1].Staged, got[2].Staged)
	}
	tap.Ack(3)
	s.expectAck(end)
}

// A stage that has no room stops the tap, and the source with it.
func TestTapStageBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stages := newMemoryStages()
		stages.room = make(chan struct{}, 1)
		a, b := net.Pipe()
		s := newFakeSource(t)
		served := make(chan error, 1)
		go func() { served <- s.serve(b) }()
		cfg := fakeTapConfig()
		cfg.StageBytesMin, cfg.OpenStage = 1<<20, stages.open
		tap, err := attachTap(t.Context(), a, cfg)
		if err != nil {
			t.Fatal(err)
		}
		p := newStepper()
		stop := p.run(t, tap)
		events := s.binlog.Rows(20 << 20)
		go func() { served <- errors.Join(<-served, s.write(events...)) }()
		for range 5 { // GTID, BEGIN, TABLE_MAP, two parts of the rows
			synctest.Wait()
			before := tap.Stats().Bytes
			stages.room <- struct{}{}
			synctest.Wait()
			if n := tap.Stats().Bytes - before; n > partBytesMax {
				t.Fatalf("%d bytes read for one write", n)
			}
		}
		if tap.Stats().Outstanding > 0 {
			t.Error("a batch without a whole stage")
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		_ = b.Close()
		<-served
		if len(stages.aborted) != 1 || stages.aborted[0] != stages.opened[0] || len(stages.finished) != 0 {
			t.Errorf("opened %v, aborted %v", stages.opened, stages.aborted)
		}
	})
}

func TestTapStageErrors(t *testing.T) {
	refused := errors.New("refused")
	full := errors.New("no space")
	good := func(w *binlogtest.Writer) [][]byte { return w.Rows(3 << 20) }
	for _, tc := range []struct {
		name   string
		stages *memoryStages
		stream func(w *binlogtest.Writer) []byte
		want   error
		aborts int
	}{
		{"open", &memoryStages{openErr: full}, nil, full, 0},
		{"write", &memoryStages{writeErr: full}, nil, full, 1},
		{"finish", &memoryStages{finishErr: full}, nil, full, 1},
		{"damaged in a later part", &memoryStages{}, func(w *binlogtest.Writer) []byte {
			events := good(w)
			events[3][len(events[3])-5] ^= 1
			return packets(events...)
		}, binlog.ErrChecksum, 1},
		{"packet ends before the event", &memoryStages{}, func(w *binlogtest.Writer) []byte {
			events := good(w)
			events[3] = events[3][:2<<20]
			return packets(events...)
		}, ErrMalformed, 1},
		{"packet longer than the event", &memoryStages{}, func(w *binlogtest.Writer) []byte {
			events := good(w)
			events[3] = append(events[3], 0)
			return packets(events...)
		}, binlog.ErrMalformed, 1},
		{"event above all limits", &memoryStages{}, func(w *binlogtest.Writer) []byte {
			events := good(w)
			binary.LittleEndian.PutUint32(events[3][9:], 1<<30+1)
			return packets(events...)
		}, ErrPacketTooLarge, 1},
		{"source gone in an event", &memoryStages{}, func(w *binlogtest.Writer) []byte {
			stream := packets(good(w)...)
			return stream[:2<<20]
		}, ErrTapClosed, 1},
		{"accounts", &memoryStages{}, func(w *binlogtest.Writer) []byte {
			return packets(w.Statement("GRANT ALL ON *.* TO u -- " + string(make([]byte, 2<<20)))...)
		}, refused, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stages := tc.stages
			stages.finished = map[entry.StageID][]byte{}
			tap, s := connectTap(t, func(c *TapConfig) {
				c.StageBytesMin, c.OpenStage = 1<<20, stages.open
				c.CheckAccounts = func(binlog.Query) error { return refused }
			})
			if tc.stream == nil {
				tc.stream = func(w *binlogtest.Writer) []byte { return packets(good(w)...) }
			}
			stream := tc.stream(s.binlog)
			go func() { // until the tap ends
				_, _ = s.conn.Write(stream)
				_ = s.conn.Close()
			}()
			err := tap.Run(t.Context(), func(context.Context, Batch) error {
				t.Error("a batch was handed out")
				return nil
			})
			if !errors.Is(err, tc.want) || len(stages.aborted) != tc.aborts || len(stages.finished) > 0 {
				t.Errorf("%v, %d aborted, %d finished; want %v, %d aborted", err, len(stages.aborted), len(stages.finished), tc.want, tc.aborts)
			}
		})
	}
}

// packets frames events as a semi-synchronous source does.
func packets(events ...[]byte) []byte {
	var out []byte
	for _, event := range events {
		out = append(out, frame(append([]byte{headerOK, ackMagic, 0}, event...), 1)...)
	}
	return out
}

// longTransaction is a stream of one transaction with one event of the given
// length, made while it is read, and the transaction's length.
func longTransaction(w *binlogtest.Writer, length int) (io.Reader, uint64) {
	gtidEvent := w.LongGTID(uint64(length))
	w.Offset += uint64(length)
	head := append(make([]byte, 4, binlog.HeaderBytes), byte(binlog.TypeTransactionPayload), 1, 0, 0, 0)
	head = binary.LittleEndian.AppendUint32(head, uint32(length))
	head = binary.LittleEndian.AppendUint32(head, uint32(w.Offset))
	head = append(head, 0, 0)
	crc, zeros := crc32.ChecksumIEEE(head), make([]byte, 64<<10)
	body := length - len(head) - binlog.ChecksumBytes
	for left := body; left > 0; left -= min(left, len(zeros)) {
		crc = crc32.Update(crc, crc32.IEEETable, zeros[:min(left, len(zeros))])
	}
	payload := io.MultiReader(bytes.NewReader([]byte{headerOK, ackMagic, 0}), bytes.NewReader(head),
		io.LimitReader(zeroReader{}, int64(body)), bytes.NewReader(binary.LittleEndian.AppendUint32(nil, crc)))
	stream := []io.Reader{bytes.NewReader(packets(gtidEvent))}
	for left := streamHeadBytes + length; ; left -= packetBytesMax {
		n := min(left, packetBytesMax)
		stream = append(stream, bytes.NewReader(appendPacketHeader(nil, n, 1)), io.LimitReader(payload, int64(n)))
		if n < packetBytesMax {
			return io.MultiReader(stream...), uint64(len(gtidEvent) + length)
		}
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A tap holds a few MiB of an event, however long it is.
func TestTapMemoryOfALongEvent(t *testing.T) {
	const length = 256 << 20
	stages := newMemoryStages()
	stages.discard = true
	a, b := net.Pipe()
	s := newFakeSource(t)
	served := make(chan error, 1)
	go func() { served <- s.serve(b) }()
	cfg := fakeTapConfig()
	cfg.StageBytesMin, cfg.OpenStage = 8<<20, stages.open
	tap, err := attachTap(t.Context(), a, cfg)
	if err != nil {
		t.Fatal(err)
	}
	stream, total := longTransaction(s.binlog, length)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{b}, stream, make([]byte, 64<<10))
		served <- errors.Join(<-served, err)
	}()
	done := errors.New("done")
	err = tap.Run(t.Context(), func(_ context.Context, b Batch) error {
		if b.Staged == nil || uint64(b.Bytes) != total {
			t.Errorf("batch of %d bytes, stage %v; want %d", b.Bytes, b.Staged, total)
		}
		return done
	})
	runtime.ReadMemStats(&after)
	if sent := <-served; !errors.Is(err, done) || sent != nil {
		t.Fatal(err, sent)
	}
	_ = b.Close()
	// All that was allocated, freed or not: no peak can be above it.
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d bytes allocated for an event of %d", grown, length)
	}
}
