package mysqlwire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// fakeReplica is a replica's I/O thread.
type fakeReplica struct {
	t    testing.TB
	wire *wire
	// sequence is the number that the next packet of the stream must have.
	sequence uint8
}

func dialFeed(t *testing.T, f *Feed) *fakeReplica {
	t.Helper()
	conn, err := net.Dial("tcp", f.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return newFakeReplica(t, conn)
}

func newFakeReplica(t testing.TB, conn net.Conn) *fakeReplica {
	return &fakeReplica{t: t, wire: &wire{conn: conn, in: newPacketReader(conn, streamBufferBytes, eventBytesMax)}}
}

func (r *fakeReplica) login() *fakeReplica {
	r.t.Helper()
	if err := login(r.wire, "feed", "feed's secret"); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// query returns the value of a one-row result, "OK", or the error.
func (r *fakeReplica) query(text string) string {
	r.t.Helper()
	if err := r.wire.command(append([]byte{comQuery}, text...)); err != nil {
		r.t.Fatal(err)
	}
	var payloads [][]byte
	for eofs := 0; eofs < 2; {
		payload, err := r.wire.read()
		if err != nil {
			r.t.Fatal(err)
		}
		switch {
		case len(payloads) == 0 && payload[0] == headerOK:
			return "OK"
		case len(payloads) == 0 && payload[0] == headerErr:
			return parseServerError(payload).Error()
		case isEOF(payload):
			eofs++
		}
		payloads = append(payloads, bytes.Clone(payload))
	}
	row := payloads[len(payloads)-2] // count, column, EOF, row, EOF
	if len(payloads) != 5 || int(row[0]) != len(row)-1 {
		r.t.Fatalf("result of %q: %q", text, payloads)
	}
	return string(row[1:])
}

func (r *fakeReplica) dump(uuid string, period time.Duration, flags uint16) *fakeReplica {
	r.t.Helper()
	for _, text := range []string{
		fmt.Sprintf("SET @master_heartbeat_period = %d, @source_heartbeat_period = %d", period.Nanoseconds(), period.Nanoseconds()),
		fmt.Sprintf("SET @slave_uuid = '%s', @replica_uuid = '%s'", uuid, uuid),
	} {
		if got := r.query(text); got != "OK" {
			r.t.Fatalf("%s: %s", text, got)
		}
	}
	for _, command := range [][]byte{
		registerRequest(8),
		dumpRequest{flags: flags, serverID: 8, offset: 4, exclude: &gtid.Set{}}.payload(),
	} {
		if err := r.wire.command(command); err != nil {
			r.t.Fatal(err)
		}
		if command[0] == comRegisterSlave {
			if err := r.wire.expectOK(); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.sequence = 1
	return r
}

// next returns the next event of the stream, or how it ended.
func (r *fakeReplica) next() (binlog.Event, error) {
	r.t.Helper()
	payload, err := r.wire.in.next()
	if err != nil {
		return nil, err
	}
	// The sequence number is that of the payload's last packet.
	r.sequence += uint8(len(payload) / packetBytesMax)
	if r.wire.in.sequence != r.sequence {
		r.t.Fatalf("packet %d, want %d", r.wire.in.sequence, r.sequence)
	}
	r.sequence++
	if payload[0] == headerErr {
		return nil, parseServerError(payload)
	}
	event, err := binlog.ParseEvent(payload[1:])
	if err == nil {
		err = binlog.VerifyChecksum(event)
	}
	if err != nil || payload[0] != headerOK {
		r.t.Fatalf("packet %#x: %v", payload[0], err)
	}
	return bytes.Clone(event), nil
}

// expect reads events and compares them with want.
func (r *fakeReplica) expect(want ...[]byte) {
	r.t.Helper()
	for i, w := range want {
		got, err := r.next()
		if err != nil || !bytes.Equal(got, w) {
			r.t.Fatalf("event %d: type %v of %d bytes, %v; want %d bytes", i, got, len(got), err, len(w))
		}
	}
}

// expectBoundary reads a ROTATE and a FORMAT_DESCRIPTION, and returns the name
// and the position behind.
func (r *fakeReplica) expectBoundary(formatDescription []byte) (string, uint64) {
	r.t.Helper()
	event, err := r.next()
	if err != nil {
		r.t.Fatal(err)
	}
	name, offset, err := binlog.ParseRotate(event)
	if err != nil || offset != 4 || event.Flags() != binlog.FlagArtificial || event.LogPos() != 0 || event.Timestamp() != 0 {
		r.t.Fatalf("%v: %q %d", err, name, offset)
	}
	r.expect(formatDescription)
	return name, 4 + uint64(len(formatDescription))
}

func TestFeedAnswersTheIOThread(t *testing.T) {
	r := dialFeed(t, startFeed(t, newTestLog(), "9.7.4", false)).login()
	if got := r.query("SELECT UNIX_TIMESTAMP()"); !strings.HasPrefix(got, "1") && !strings.HasPrefix(got, "2") || len(got) < 10 {
		t.Errorf("time is %s", got)
	}
	for query, want := range map[string]string{
		"SELECT @@GLOBAL.SERVER_ID":                    "4000000002",
		"SELECT @@GLOBAL.SERVER_UUID":                  feedUUID,
		"SELECT @@GLOBAL.GTID_MODE":                    "ON",
		"SELECT @source_binlog_checksum":               "CRC32",
		"SELECT @master_binlog_checksum":               "CRC32",
		"select @@version_comment limit 1":             "quorate",
		"SELECT VERSION();":                            "9.7.4",
		"SELECT @@version":                             "9.7.4",
		"SET NAMES utf8mb4":                            "OK",
		"SET @master_heartbeat_period = 1000":          "OK",
		"SET @source_heartbeat_period = -1":            `server error 1231 (42000): heartbeat period of "-1" ns`,
		"SELECT @@GLOBAL.rpl_semi_sync_source_enabled": "server error 1193 (HY000): Unknown system variable in '@@GLOBAL.rpl_semi_sync_source_enabled'",
		"INSERT INTO t VALUES (1)":                     "server error 1235 (42000): quorate's feed answers only what a replica asks",
		"SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = @@global.binlog_checksum": "OK",
	} {
		if got := r.query(query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if err := errors.Join(r.wire.command([]byte{comPing}), r.wire.expectOK()); err != nil {
		t.Error(err)
	}
	err := errors.Join(r.wire.command([]byte{0x99}), r.wire.expectOK())
	if e, ok := errors.AsType[*ServerError](err); !ok || e.Code != 1047 {
		t.Errorf("unknown command: %v", err)
	}
	err = errors.Join(r.wire.command([]byte{comBinlogDump}), r.wire.expectOK())
	if e, ok := errors.AsType[*ServerError](err); !ok || e.Code != 1236 {
		t.Errorf("dump by position: %v", err)
	}
	if _, err := r.wire.read(); !errors.Is(err, io.EOF) {
		t.Errorf("after it: %v", err)
	}
}

// The stream has boundaries with new names, cleaned format descriptions, unchanged events of
// any length, and new pieces as soon as they come.
func TestFeedStreams(t *testing.T) {
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	inUse := bytes.Clone(format)
	binary.LittleEndian.PutUint16(inUse[17:], binlog.FlagInUse)
	small, exact, large, later := w.Rows(100), w.Rows(packetBytesMax-1-binlog.HeaderBytes-binlog.ChecksumBytes), w.Rows(2*packetBytesMax), w.Rows(1)
	log := newTestLog(
		Piece{FormatDescription: inUse},
		Piece{Events: binlogtest.Join(append(append(small, exact...), large...)...)},
	)
	feed := startFeed(t, log, "9.7.4", false)
	r := dialFeed(t, feed).login().dump("a", 0, 0)
	first, _ := r.expectBoundary(format)
	r.expect(small...)
	r.expect(exact...)
	r.expect(large...)
	log.append(Piece{FormatDescription: format, Events: binlogtest.Join(later...)})
	second, _ := r.expectBoundary(format)
	r.expect(later...)
	if first != "quorate.000000000001" || second != "quorate.000000000002" {
		t.Errorf("files %q, %q", first, second)
	}
	if got := feed.Stats(); got.Connections != 1 || got.Dumps != 1 || got.Boundaries != 2 || got.Events != 4+5*4 {
		t.Errorf("%+v", got)
	}
	_ = r.wire.conn.Close()
	waitUntil(t, "the end of the dump", func() bool {
		_, closed := log.counts()
		return closed == 1 && feed.Stats().Connections == 0
	})
}

// stagedPiece is a piece of a staged transaction that counts its Close calls.
func stagedPiece(closed *atomic.Int32, events ...[]byte) Piece {
	return Piece{Stage: &countedStage{bytes.NewReader(binlogtest.Join(events...)), closed}}
}

type countedStage struct {
	*bytes.Reader
	closed *atomic.Int32
}

func (s *countedStage) Damaged(error) {}

func (s *countedStage) Close() error {
	s.closed.Add(1)
	return nil
}

// Staged transactions are sent in their place like others, however long their events are, and
// positions go on behind them.
func TestFeedStreamsStages(t *testing.T) {
	var closed atomic.Int32
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	const rowsOfPacket = packetBytesMax - 1 - binlog.HeaderBytes - binlog.ChecksumBytes
	log := newTestLog(Piece{FormatDescription: format})
	var want [][]byte
	for _, n := range []int{10, partBytesMax, rowsOfPacket - 1, rowsOfPacket, rowsOfPacket + 1, rowsOfPacket + packetBytesMax, 40 << 20} {
		staged, behind := w.Rows(n), w.Rows(20)
		log.append(stagedPiece(&closed, staged...))
		log.append(Piece{Events: binlogtest.Join(behind...)})
		want = append(append(want, staged...), behind...)
	}
	for _, wrap := range []bool{false, true} {
		closed.Store(0)
		feed := startFeed(t, log, "9.7.4", wrap)
		r := dialFeed(t, feed).login().dump("a", 10*time.Millisecond, flagHeartbeatV2)
		_, offset := r.expectBoundary(format)
		for at := 0; at < len(want); {
			event, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			if event.Type() == binlog.TypeHeartbeatV2 {
				continue
			}
			if offset += uint64(len(event)); wrap && event.Type() == binlog.TypeGTID && at%10 == 5 {
				event, err = r.next()
				offset += uint64(len(event))
				if at += 5; err != nil || event.Type() != binlog.TypeTransactionPayload {
					t.Fatalf("event of type %d, %v; want a wrapped transaction", event.Type(), err)
				}
				continue
			}
			if !bytes.Equal(event, want[at]) {
				t.Fatalf("event %d: type %d of %d bytes, want %d", at, event.Type(), len(event), len(want[at]))
			}
			at++
		}
		for {
			event, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			if _, got, err := binlog.ParseHeartbeat(event); err != nil || got != offset {
				t.Fatalf("heartbeat at %d, %v; want %d", got, err, offset)
			}
			break
		}
		if n := closed.Load(); n != 7 {
			t.Errorf("%d of 7 stages closed", n)
		}
	}
}

// TestFeedLimitsParallel: a replica applies no more transactions at a time than it has workers,
// also staged and wrapped ones. Everything else stays as in the log.
func TestFeedLimitsParallel(t *testing.T) {
	var closed atomic.Int32
	w := binlogtest.New("q.000001")
	w.Next = 1000
	format := w.FormatDescription(1)
	log := newTestLog(Piece{FormatDescription: format})
	var plain [][]byte
	rows := func() [][]byte { // which depend on the first
		events := w.Rows(10)
		binary.LittleEndian.PutUint64(events[0][binlog.HeaderBytes+26:], 1)
		binlog.PutChecksum(events[0])
		return events
	}
	for range 3 {
		staged, events := rows(), rows()
		log.append(stagedPiece(&closed, staged...))
		log.append(Piece{Events: binlogtest.Join(events...)})
		plain = append(append(plain, staged...), events...)
	}
	for _, workers := range []int{0, 1, 7} {
		feed := startLimitedFeed(t, log, "9.7.4", false, func(context.Context) int { return workers })
		r := dialFeed(t, feed).login().dump("a", 0, 0)
		r.expectBoundary(format)
		for _, want := range plain {
			event, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			if binlog.Event(want).Type() != binlog.TypeGTID {
				if !bytes.Equal(event, want) {
					t.Fatalf("%d workers: got %x, want %x", workers, event, want)
				}
				continue
			}
			info, err := binlog.ParseGTID(event)
			atATime := info.SequenceNumber - info.LastCommitted
			if err != nil || workers == 0 && info.LastCommitted != 1 || workers > 0 && atATime != int64(workers) {
				t.Fatalf("%d workers: %+v, %v", workers, info, err)
			}
		}
	}
}

// A damaged stage ends the connection before the damaged event is whole.
func TestFeedRefusesADamagedStage(t *testing.T) {
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	for name, spoil := range map[string]func(events [][]byte){
		"short event":              func(e [][]byte) { e[2][25] ^= 1 },
		"long event, first packet": func(e [][]byte) { e[3][100] ^= 1 },
		"long event, last packet":  func(e [][]byte) { e[3][len(e[3])-1] ^= 1 },
		"short length":             func(e [][]byte) { binary.LittleEndian.PutUint32(e[3][9:], 22) },
		"long length":              func(e [][]byte) { binary.LittleEndian.PutUint32(e[3][9:], 1<<30) },
		"cut":                      func(e [][]byte) { e[4] = e[4][:10] },
	} {
		t.Run(name, func(t *testing.T) {
			var closed, opened atomic.Int32
			events := w.Rows(20 << 20)
			sound := binlogtest.Join(events...)
			spoil(events)
			log := newTestLog(Piece{FormatDescription: format})
			log.opened = &opened
			feed := startFeed(t, log, "9.7.4", false)
			r := dialFeed(t, feed).login().dump("a", 0, 0)
			r.expectBoundary(format)
			log.append(stagedPiece(&closed, events...))
			log.append(stagedPiece(&closed, events...))
			var got []byte
			for {
				event, err := r.next() // it checks what comes whole
				if err != nil {
					break
				}
				got = append(got, event...)
			}
			if !bytes.HasPrefix(sound, got) || len(got) == len(sound) {
				t.Errorf("%d bytes came", len(got))
			}
			waitUntil(t, "the end of the dump", func() bool { return feed.Stats().Connections == 0 })
			if opened.Load() == 0 || closed.Load() != opened.Load() {
				t.Errorf("%d stages opened, %d closed", opened.Load(), closed.Load())
			}
		})
	}
}

// A replica that leaves in the middle of a stage, and pieces that wait behind it,
// leave nothing open.
func TestFeedClosesStagesWhenTheReplicaLeaves(t *testing.T) {
	var closed, opened atomic.Int32
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	log := newTestLog(Piece{FormatDescription: format})
	log.opened = &opened
	for range 5 {
		log.append(stagedPiece(&closed, w.Rows(20<<20)...))
	}
	feed := startFeed(t, log, "9.7.4", false)
	r := dialFeed(t, feed).login().dump("a", 0, 0)
	r.expectBoundary(format)
	if _, err := r.next(); err != nil {
		t.Fatal(err)
	}
	_ = r.wire.conn.Close()
	waitUntil(t, "the end of the dump", func() bool { return feed.Stats().Connections == 0 })
	if opened.Load() == 0 || closed.Load() != opened.Load() {
		t.Errorf("%d stages opened, %d closed", opened.Load(), closed.Load())
	}
}

// A heartbeat is sent after each idle period, and only then, with the replica's own position,
// also after wrapped events.
func TestFeedHeartbeats(t *testing.T) {
	for _, tc := range []struct {
		name  string
		flags uint16
		wrap  bool
		kind  binlog.Type
	}{
		{"version 1", 0, false, binlog.TypeHeartbeat},
		{"version 2", flagHeartbeatV2, false, binlog.TypeHeartbeatV2},
		{"wrapped", flagHeartbeatV2, true, binlog.TypeHeartbeatV2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const period = 3 * time.Second
				log := newTestLog()
				feed, err := NewFeed(FeedConfig{
					User: "feed", Password: "feed's secret", ServerID: 9, Source: log, Logger: testLogger(),
					ServerUUID: func() string { return feedUUID }, ServerVersion: func() string { return "9.7.4" },
					WrapPayloads: tc.wrap,
				})
				if err != nil {
					t.Fatal(err)
				}
				a, b := net.Pipe()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- newFeedSession(feed, b, 1).run(ctx) }()
				r := newFakeReplica(t, a).login().dump("u", period, tc.flags)
				heartbeat := func(name string, offset uint64) {
					t.Helper()
					start := time.Now()
					event, err := r.next()
					if err != nil {
						t.Fatal(err)
					}
					gotName, gotOffset, err := binlog.ParseHeartbeat(event)
					if err != nil || event.Type() != tc.kind || gotName != name || gotOffset != offset || time.Since(start) != period {
						t.Fatalf("heartbeat of type %d at %s:%d after %v, %v; want %s:%d", event.Type(),
							gotName, gotOffset, time.Since(start), err, name, offset)
					}
				}
				time.Sleep(10 * period) // nothing to say before the first boundary
				w := binlogtest.New("q")
				format := w.FormatDescription(1)
				log.append(Piece{FormatDescription: format})
				name, offset := r.expectBoundary(format)
				heartbeat(name, offset)
				heartbeat(name, offset)
				time.Sleep(period / 2)
				log.append(Piece{Events: binlogtest.Join(w.Rows(300)...)})
				for got := 0; got < 5 && (!tc.wrap || got < 2); got++ {
					event, err := r.next()
					if err != nil {
						t.Fatal(err)
					}
					offset += uint64(len(event))
				}
				heartbeat(name, offset)
				cancel()
				<-ended
				if starts, closed := log.counts(); starts != 1 || closed != 1 {
					t.Errorf("%d cursors opened, %d closed", starts, closed)
				}
			})
		})
	}
}

func TestFeedReplacesTheDumpOfAReplica(t *testing.T) {
	w := binlogtest.New("q")
	format := w.FormatDescription(1)
	feed := startFeed(t, newTestLog(Piece{FormatDescription: format}), "9.7.4", false)
	first := dialFeed(t, feed).login().dump("u-1", 0, 0)
	first.expectBoundary(format)
	other := dialFeed(t, feed).login().dump("u-2", 0, 0)
	other.expectBoundary(format)
	again := dialFeed(t, feed).login().dump("U-1", 0, 0)
	again.expectBoundary(format)
	if _, err := first.next(); err == nil {
		t.Error("the first dump goes on")
	}
	waitUntil(t, "two dumps", func() bool { return feed.Stats().Dumps == 2 })
}

func TestFeedLimitsConnections(t *testing.T) {
	feed := startFeed(t, newTestLog(), "9.7.4", false)
	for range connectionsMax {
		dialFeed(t, feed).login()
	}
	r := dialFeed(t, feed)
	err := login(r.wire, "feed", "feed's secret")
	if e, ok := errors.AsType[*ServerError](err); !ok || e.Code != 1040 {
		t.Fatalf("one too many: %v", err)
	}
	if got := feed.Stats(); got.Refused != 1 || got.Connections != connectionsMax {
		t.Errorf("%+v", got)
	}
}

func TestFeedSourceErrors(t *testing.T) {
	w := binlogtest.New("q")
	format, events := w.FormatDescription(1), w.Rows(1)
	fatal := &ServerError{Code: 1236, State: "HY000", Message: "rebuild"}
	for _, tc := range []struct {
		name string
		log  *testLog
		want error // nil: the connection only ends
	}{
		{"fatal at the start", &testLog{startErr: fatal}, fatal},
		{"start", &testLog{startErr: errors.New("not verified")}, nil},
		{"fatal in the log", &testLog{fail: fatal}, fatal},
		{"log", &testLog{fail: io.ErrUnexpectedEOF}, nil},
		{"no format description", &testLog{pieces: []Piece{{Events: binlogtest.Join(events...)}}}, nil},
		{"damaged format description", &testLog{pieces: []Piece{{FormatDescription: format[:30]}}}, nil},
		{"damaged events", &testLog{pieces: []Piece{{FormatDescription: format, Events: make([]byte, 30)}}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.log.grown = make(chan struct{})
			r := dialFeed(t, startFeed(t, tc.log, "9.7.4", false)).login().dump("u", 0, 0)
			_, err := r.next()
			for err == nil {
				_, err = r.next()
			}
			if e, ok := errors.AsType[*ServerError](err); ok != (tc.want != nil) || ok && cmp.Diff(tc.want, error(e)) != "" {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
	// Events that were served before the failure arrive.
	log := newTestLog(Piece{FormatDescription: format}, Piece{Events: binlogtest.Join(events...)})
	log.fail = fatal
	r := dialFeed(t, startFeed(t, log, "9.7.4", false)).login().dump("u", 0, 0)
	r.expectBoundary(format)
	r.expect(events...)
	if _, err := r.next(); err == nil || err.Error() != fatal.Error() {
		t.Error(err)
	}
}

func TestFeedEndsWithItsContext(t *testing.T) {
	// startFeed's cleanup cancels Run and waits for it, with sessions in each
	// phase; goleak in TestMain sees what stays behind.
	w := binlogtest.New("q")
	feed := startFeed(t, newTestLog(Piece{FormatDescription: w.FormatDescription(1)}), "9.7.4", false)
	dialFeed(t, feed)
	dialFeed(t, feed).login()
	if _, err := dialFeed(t, feed).login().dump("u", time.Hour, 0).next(); err != nil {
		t.Fatal(err)
	}
}

func TestNewFeedNeedsAPassword(t *testing.T) {
	if _, err := NewFeed(FeedConfig{User: "feed", ServerID: 1, Source: newTestLog()}); err == nil {
		t.Error("a feed that anybody can read")
	}
}

func BenchmarkFeed(b *testing.B) {
	w := binlogtest.New("q")
	var events []byte
	const transactions = 1000
	for range transactions {
		events = append(events, binlogtest.Join(w.Rows(230)...)...)
	}
	a, c := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, a) }()
	defer func() { _, _ = a.Close(), c.Close() }()
	out := &DumpWriter{conn: c, stats: &FeedCounters{}, file: "f"}
	b.SetBytes(int64(len(events)))
	b.ReportAllocs()
	for b.Loop() {
		if err := out.log(Piece{Events: events}); err != nil {
			b.Fatal(err)
		}
	}
}
