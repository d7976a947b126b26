package mysqlwire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/entry"
)

// fakeSource is mysqld's side of a tap connection.
type fakeSource struct {
	t      *testing.T
	conn   net.Conn
	wire   *wire
	binlog *binlogtest.Writer
	// commands are what the tap sent before the stream.
	commands [][]byte
	// acks are the positions that the tap acknowledged.
	acks chan Position
}

// connectTap attaches a tap, through a Unix socket, to a fake source that has
// sent the start of a file.
func connectTap(t *testing.T, change func(*TapConfig)) (*Tap, *fakeSource) {
	t.Helper()
	dir, err := os.MkdirTemp("", "qw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	s := newFakeSource(t)
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = s.serve(conn)
		}
		served <- err
	}()
	cfg := fakeTapConfig()
	cfg.Socket = listener.Addr().String()
	if change != nil {
		change(&cfg)
	}
	tap, err := ConnectTap(t.Context(), cfg)
	if err := errors.Join(err, <-served); err != nil {
		t.Fatal(err)
	}
	acked := make(chan struct{})
	go func() {
		defer close(acked)
		s.readAcks()
	}()
	t.Cleanup(func() {
		_ = s.conn.Close()
		<-acked
		tap.Close()
	})
	return tap, s
}

func newFakeSource(t *testing.T) *fakeSource {
	return &fakeSource{t: t, binlog: binlogtest.New("q.000001"), acks: make(chan Position, 100)}
}

func fakeTapConfig() TapConfig {
	return TapConfig{
		User: "tap", Password: "secret", ServerID: 77, ReplicaUUID: strings.ToUpper(tapUUID),
		HeartbeatPeriod: time.Second, Term: 5, Logger: testLogger(),
	}
}

// serve runs the source's side up to the start of the stream.
func (s *fakeSource) serve(conn net.Conn) error {
	s.conn = conn
	s.wire = &wire{conn: s.conn, in: newPacketReader(s.conn, 4096, loginBytesMax)}
	if err := greet(s.wire, "9.7.4", 1, "tap", "secret"); err != nil {
		return err
	}
	for {
		command, err := s.wire.read()
		if err != nil {
			return err
		}
		s.commands = append(s.commands, bytes.Clone(command))
		if command[0] == comBinlogDumpGTID {
			break
		}
		if err := s.wire.write(okPayload()); err != nil {
			return err
		}
	}
	return s.write(s.binlog.Start()...)
}

func (s *fakeSource) readAcks() {
	for {
		payload, err := s.wire.in.next()
		if err != nil {
			return
		}
		if s.wire.in.sequence != 0 || payload[0] != ackMagic {
			s.t.Errorf("acknowledgement %x with sequence number %d", payload, s.wire.in.sequence)
		}
		s.acks <- Position{File: string(payload[9:]), Offset: binary.LittleEndian.Uint64(payload[1:])}
	}
}

// write sends events as a semi-synchronous source does.
func (s *fakeSource) write(events ...[]byte) error {
	var out []byte
	for _, event := range events {
		payload := append([]byte{headerOK, ackMagic, 0}, event...)
		out = append(out, frame(payload, 1)...)
	}
	_, err := s.conn.Write(out)
	return err
}

func (s *fakeSource) send(events ...[]byte) {
	s.t.Helper()
	if err := s.write(events...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *fakeSource) expectAck(want Position) {
	s.t.Helper()
	select {
	case got := <-s.acks:
		if got != want {
			s.t.Fatalf("acknowledged %v, want %v", got, want)
		}
	case <-time.After(waitMax):
		s.t.Fatalf("no acknowledgement of %v", want)
	}
}

// stepper is a propose function that the test lets go on.
type stepper struct {
	batches chan Batch
	results chan error
}

func newStepper() *stepper { return &stepper{make(chan Batch), make(chan error)} }

func (p *stepper) propose(ctx context.Context, b Batch) error {
	select {
	case p.batches <- b:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-p.results:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run starts the tap; the returned function ends it and gives Run's result.
func (p *stepper) run(t *testing.T, tap *Tap) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tap.Run(ctx, p.propose) }()
	t.Cleanup(cancel)
	return func() error {
		cancel()
		return <-done
	}
}

func TestTapConnects(t *testing.T) {
	exclude := &gtid.Set{}
	exclude.Add(binlogtest.GTID(1))
	tap, s := connectTap(t, func(c *TapConfig) { c.Exclude = exclude })
	if exclude.Add(binlogtest.GTID(2)); tap.cfg.Exclude.Contains(binlogtest.GTID(2)) {
		t.Error("the caller's set and the tap's are one")
	}
	if len(s.commands) != 3 {
		t.Fatalf("%d commands", len(s.commands))
	}
	const settings = "\x03SET @source_binlog_checksum='CRC32', @source_heartbeat_period=1000000000, @rpl_semi_sync_replica=1, " +
		"@replica_uuid='" + tapUUID + "', SESSION net_write_timeout=31536000"
	if diff := cmp.Diff(settings, string(s.commands[0])); diff != "" {
		t.Error(diff)
	}
	if want := append([]byte{comRegisterSlave, 77, 0, 0, 0}, make([]byte, 13)...); !bytes.Equal(s.commands[1], want) {
		t.Errorf("registered by %x", s.commands[1])
	}
	request, err := parseDumpRequest(s.commands[2])
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%d %d %q %d %v", request.flags, request.serverID, request.file, request.offset, request.exclude); got !=
		`2 77 "" 4 11000000-0000-0000-0000-000000000001:1` {
		t.Errorf("dump requested by %s", got)
	}
	if tap.File() != "q.000001" || !bytes.Equal(tap.FormatDescription(), binlogtest.New("").FormatDescription(1)) {
		t.Errorf("stream of %s with %x", tap.File(), tap.FormatDescription())
	}
}

func TestTapConfigErrors(t *testing.T) {
	for name, cfg := range map[string]TapConfig{
		"UUID":      {ServerID: 1, ReplicaUUID: "x' OR 1"},
		"server id": {ReplicaUUID: tapUUID},
		"entry":     {ServerID: 1, ReplicaUUID: tapUUID, EntryBytesMax: entry.HeaderBytes},
		"socket":    {ServerID: 1, ReplicaUUID: tapUUID, Socket: filepath.Join(t.TempDir(), "none")},
	} {
		if tap, err := ConnectTap(t.Context(), cfg); err == nil {
			tap.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

// While propose blocks, one more batch grows. Whole transactions are handed out, an unfinished
// one stays. Acknowledgements go by number, one for several batches.
func TestTapBatchesAndAcks(t *testing.T) {
	tap, s := connectTap(t, nil)
	p := newStepper()
	stop := p.run(t, tap)
	take := func(want ...uint64) Batch {
		t.Helper()
		b := <-p.batches
		var got []uint64
		for _, id := range b.GTIDs {
			got = append(got, id.N)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("batch %d (-want +got):\n%s", b.Number, diff)
		}
		return b
	}

	s.send(s.binlog.Rows(10)...)
	end1 := Position{File: s.binlog.File, Offset: s.binlog.Offset}
	first := take(1)
	if first.End != end1 || first.Number != 1 || first.ReceivedAt.IsZero() {
		t.Errorf("batch ends at %v, want %v", first.End, end1)
	}
	events := append(s.binlog.Rows(10), s.binlog.Statement("DROP USER u")...)
	end3 := Position{File: s.binlog.File, Offset: s.binlog.Offset}
	half := s.binlog.Rows(10)
	events = append(events, half[:2]...)
	seen := tap.Stats().Events
	s.send(events...)
	waitUntil(t, "everything read", func() bool { return tap.Stats().Events == seen+uint64(len(events)) })
	p.results <- nil
	second := take(2, 3)
	if second.End != end3 {
		t.Errorf("second batch ends at %v, want %v", second.End, end3)
	}
	p.results <- nil
	s.send(half[2:]...)
	third := take(4)
	p.results <- nil
	checkBatches(t, []Batch{first, second, third}, 5)

	tap.Ack(1)
	s.expectAck(end1)
	tap.Ack(3)
	s.expectAck(third.End)
	tap.Ack(2)
	if n := tap.Stats().Outstanding; n != 0 {
		t.Errorf("%d outstanding", n)
	}
	waitUntil(t, "the count of acknowledgements", func() bool { return tap.Stats().AcksSent == 2 })
	want := TapStats{Events: 20, Transactions: 4, Batches: 3, AcksSent: 2, Bytes: tap.Stats().Bytes}
	if diff := cmp.Diff(want, tap.Stats()); diff != "" {
		t.Error(diff)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// A commit after the end is not acknowledged.
func TestTapAcksNothingAfterClose(t *testing.T) {
	tap, s := connectTap(t, nil)
	p := newStepper()
	stop := p.run(t, tap)
	s.send(s.binlog.Rows(10)...)
	<-p.batches
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	tap.Ack(1)
	if position, ok := tap.nextAck(); ok {
		t.Errorf("acknowledges %v", position)
	}
}

// The reader proposes a batch itself. The proposer gets a batch that the reader may not
// propose, before all later ones.
func TestTapReaderProposes(t *testing.T) {
	const count = 400
	var mu sync.Mutex // of the order of calls, and against two at a time
	var order []uint64
	now := 0
	done := make(chan struct{})
	take := func(b Batch) {
		order = append(order, b.Number)
		if len(b.GTIDs) > 0 && b.GTIDs[len(b.GTIDs)-1].N == count {
			close(done)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	tap, s := connectTap(t, func(c *TapConfig) {
		c.ProposeNow = func(b Batch) bool {
			if !mu.TryLock() {
				t.Error("two are proposed at a time")
				return false
			}
			defer mu.Unlock()
			if rng.IntN(3) == 0 {
				return false
			}
			now++
			take(b)
			return true
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- tap.Run(ctx, func(_ context.Context, b Batch) error {
			if !mu.TryLock() {
				t.Error("two are proposed at a time")
				return nil
			}
			defer mu.Unlock()
			runtime.Gosched()
			take(b)
			return nil
		})
	}()
	for i := range count {
		s.send(s.binlog.Rows(10)...)
		if i%3 == 0 { // else a batch holds all
			waitUntil(t, "a batch", func() bool { return tap.Stats().Transactions == uint64(i+1) })
		}
	}
	select {
	case <-done:
	case <-time.After(waitMax):
		t.Fatal("not all transactions were proposed")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	for i, n := range order {
		if n != uint64(i+1) {
			t.Fatalf("call %d proposes batch %d", i+1, n)
		}
	}
	if now == 0 || now == len(order) {
		t.Errorf("the reader proposed %d of %d batches", now, len(order))
	}
	if got := tap.Stats(); got.Batches != uint64(len(order)) || got.Transactions != count {
		t.Errorf("%+v, want %d batches", got, len(order))
	}
}

// A failed proposal ends the tap: the reader proposes nothing behind it.
func TestTapProposesNothingBehindAnError(t *testing.T) {
	tap, s := connectTap(t, func(c *TapConfig) {
		c.ProposeNow = func(b Batch) bool {
			t.Errorf("batch %d is proposed behind one that was not", b.Number)
			return true
		}
	})
	read := func(batches uint64) {
		s.send(s.binlog.Rows(10)...)
		for tap.machine.Outstanding() < batches {
			if err := tap.receive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	read(1)
	tap.machine.Release()
	want := errors.New("refused")
	if _, err := tap.proposeOne(t.Context(), func(context.Context, Batch) error { return want }); !errors.Is(err, want) {
		t.Fatal(err)
	}
	read(2)
	tap.release()
}

// Ack does not wait for a source that does not read: the goroutine sends the rest, in
// order, the newest position last.
func TestTapAcksASlowSource(t *testing.T) {
	tap, s := connectTap(t, nil) // it reads as many as s.acks holds
	ctx, cancel := context.WithCancel(t.Context())
	batches, ended := make(chan Batch), make(chan error, 1)
	go func() {
		ended <- tap.Run(ctx, func(_ context.Context, b Batch) error {
			batches <- b
			return nil
		})
	}()
	const count = 2000
	ends := map[Position]int{}
	for i := range count {
		s.send(s.binlog.Rows(10)...)
		b := <-batches
		ends[b.End] = i
		tap.Ack(b.Number)
	}
	if sent := tap.Stats().AcksSent; sent < 100 || sent >= count {
		t.Errorf("%d of %d acknowledgements were sent while nobody read", sent, count)
	}
	for last := -1; last < count-1; {
		select {
		case got := <-s.acks:
			i, ok := ends[got]
			if !ok || i <= last {
				t.Fatalf("acknowledged %v, the end of batch %d (known: %t), after batch %d", got, i, ok, last)
			}
			last = i
		case <-time.After(waitMax):
			t.Fatalf("the last acknowledgement is that of batch %d of %d", last, count)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// The part of a packet that has arrived does not hold up the transactions
// before it.
func TestTapDoesNotWaitForTheRestOfAPacket(t *testing.T) {
	tap, s := connectTap(t, nil)
	p := newStepper()
	p.run(t, tap)
	var stream []byte
	for _, event := range append(s.binlog.Rows(10), s.binlog.Rows(10)...) {
		stream = append(stream, frame(append([]byte{headerOK, ackMagic, 0}, event...), 1)...)
	}
	cut := len(stream) - 5
	if _, err := s.conn.Write(stream[:cut]); err != nil {
		t.Fatal(err)
	}
	if b := <-p.batches; len(b.GTIDs) != 1 {
		t.Fatalf("batch of %v", b.GTIDs)
	}
	p.results <- nil
	if _, err := s.conn.Write(stream[cut:]); err != nil {
		t.Fatal(err)
	}
	if b := <-p.batches; len(b.GTIDs) != 1 {
		t.Fatalf("batch of %v", b.GTIDs)
	}
}

// Trace A1 on the wire: neither the idle heartbeat nor the end of a skipped
// range gets past a transaction that is not committed.
func TestTapHeartbeatsAreNoEvidence(t *testing.T) {
	tap, s := connectTap(t, nil)
	p := newStepper()
	p.run(t, tap)
	s.binlog.Rows(10) // excluded
	s.send(s.binlog.Heartbeat())
	s.expectAck(Position{File: s.binlog.File, Offset: s.binlog.Offset})

	s.send(s.binlog.Rows(10)...)
	<-p.batches
	s.send(s.binlog.Heartbeat())
	s.binlog.Rows(10) // excluded
	s.send(s.binlog.Heartbeat())
	skipped := Position{File: s.binlog.File, Offset: s.binlog.Offset}
	waitUntil(t, "heartbeats", func() bool { return tap.Stats().Heartbeats == 3 })
	p.results <- nil
	if n := tap.Stats().AcksSent; n != 1 {
		t.Fatalf("%d acknowledgements", n)
	}
	tap.Ack(1)
	s.expectAck(skipped)
}

func TestTapRotates(t *testing.T) {
	tap, s := connectTap(t, nil)
	p := newStepper()
	p.run(t, tap)
	s.send(append(append(s.binlog.Rows(1), s.binlog.Rotate("q.000002")), append(s.binlog.Start(), s.binlog.Rows(1)...)...)...)
	var got []Batch
	for range 3 {
		got = append(got, <-p.batches)
		p.results <- nil
	}
	checkBatches(t, got, 5)
	if k := entry.Kind(got[1].Data[0]); k != entry.KindRotate || got[1].End.File != "q.000002" || got[0].End.File != "q.000001" {
		t.Errorf("second batch is %v, ends at %v", k, got[1].End)
	}
	tap.Ack(3)
	s.expectAck(got[2].End)
}

// While nobody takes its batches, a tap holds two of them and stops reading: the rest stays
// with the source. Nothing is lost.
func TestTapBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bytesMax, transactions, rowBytes = 1 << 20, 200, 50_000
		a, b := net.Pipe()
		s := newFakeSource(t)
		served := make(chan error, 1)
		go func() { served <- s.serve(b) }()
		tap, err := attachTap(t.Context(), a, fakeTapConfig())
		if err != nil {
			t.Fatal(err)
		}
		p := newStepper()
		stop := p.run(t, tap)
		go func() {
			err := <-served // the start of the file, with the pipe's reader gone
			for i := 0; i < transactions && err == nil; i++ {
				err = s.write(s.binlog.Rows(rowBytes)...)
			}
			served <- err
		}()
		count, each := 0, len(binlogtest.Join(binlogtest.New("").Rows(rowBytes)...))
		for count < transactions {
			synctest.Wait() // everything that can go on has gone on
			if held := tap.Stats().Bytes; held > uint64((count+1)*each+2*bytesMax) {
				t.Fatalf("%d bytes read, %d transactions taken", held, count)
			}
			batch := <-p.batches
			if len(batch.Data) > bytesMax {
				t.Fatalf("batch of %d bytes", len(batch.Data))
			}
			count += len(batch.GTIDs)
			p.results <- nil
		}
		if err := <-served; err != nil || count != transactions {
			t.Fatalf("%d of %d transactions, %v", count, transactions, err)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestTapEnds(t *testing.T) {
	refused := errors.New("not the leader")
	for _, tc := range []struct {
		name string
		do   func(tap *Tap, s *fakeSource, p *stepper)
		want error
	}{
		{"source gone", func(_ *Tap, s *fakeSource, _ *stepper) { _ = s.conn.Close() }, ErrTapClosed},
		{"Close", func(tap *Tap, _ *fakeSource, _ *stepper) { tap.Close() }, ErrTapClosed},
		{"EOF packet", func(_ *Tap, s *fakeSource, _ *stepper) { _, _ = s.conn.Write(frame(eofPayload(), 1)) }, ErrTapClosed},
		{"propose fails", func(_ *Tap, s *fakeSource, p *stepper) {
			s.send(s.binlog.Rows(1)...)
			<-p.batches
			p.results <- refused
		}, refused},
		{"not semi-synchronous", func(_ *Tap, s *fakeSource, _ *stepper) {
			_, _ = s.conn.Write(frame(append([]byte{headerOK}, s.binlog.Heartbeat()...), 1))
		}, ErrNotSemiSync},
		{"damage", func(_ *Tap, s *fakeSource, _ *stepper) { s.send(make([]byte, 30)) }, nil},
		{"too large", func(_ *Tap, s *fakeSource, _ *stepper) { s.send(s.binlog.Rows(200000)...) }, tap.ErrTransactionTooLarge},
		{"empty packet", func(_ *Tap, s *fakeSource, _ *stepper) { _, _ = s.conn.Write(frame(nil, 1)) }, ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tap, s := connectTap(t, func(c *TapConfig) { c.EntryBytesMax = 100000 })
			p := newStepper()
			done := make(chan error, 1)
			go func() { done <- tap.Run(t.Context(), p.propose) }()
			tc.do(tap, s, p)
			if err := <-done; err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
	t.Run("error packet", func(t *testing.T) {
		tap, s := connectTap(t, nil)
		done := make(chan error, 1)
		go func() { done <- tap.Run(t.Context(), newStepper().propose) }()
		const text = "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source"
		_, _ = s.conn.Write(frame((&ServerError{1236, "HY000", text}).payload(), 1))
		err := <-done
		if e, ok := errors.AsType[*ServerError](err); !ok || e.Code != 1236 || !strings.Contains(err.Error(), "an event has more than 1 GiB") {
			t.Errorf("%v", err)
		}
	})
}

func TestTapConnectCancelled(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cfg := fakeTapConfig()
	done := make(chan error, 1)
	go func() {
		_, err := attachTap(ctx, a, cfg)
		done <- err
	}()
	cancel() // mysqld says nothing
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
