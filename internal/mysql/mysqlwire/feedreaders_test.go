package mysqlwire

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// readerLog is a committed log in memory, as a ReaderSource. Pieces are sorted by index; of the
// same index, a format comes first.
type readerLog struct {
	mu     sync.Mutex
	pieces []Piece
	files  []ReaderFile
	first  uint64
	purged *gtid.Set
	all    *gtid.Set
	grown  chan struct{}
	open   int
}

func (l *readerLog) add(pieces ...Piece) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range pieces {
		l.pieces = append(l.pieces, p)
		if p.FormatDescription != nil {
			l.files = append(l.files, ReaderFile{Index: p.Index, Bytes: 1, Before: l.all.Clone()})
		}
		for t := range binlog.Transactions(p.Events) {
			l.all.Add(t.GTID)
		}
	}
	close(l.grown)
	l.grown = make(chan struct{})
}

func newReaderLog(pieces ...Piece) *readerLog {
	l := &readerLog{first: 1, purged: &gtid.Set{}, all: &gtid.Set{}, grown: make(chan struct{})}
	l.add(pieces...)
	return l
}

func (l *readerLog) Files() ([]ReaderFile, error) { return slices.Clone(l.files), nil }

func (l *readerLog) GTIDs() (executed, purged *gtid.Set) { return l.all, l.purged }

func (l *readerLog) StartReader(_ context.Context, r ReaderRequest) (Cursor, error) {
	missing := l.purged.Clone()
	missing.Subtract(r.Exclude)
	if r.From == 0 && !missing.IsEmpty() {
		return nil, ErrPurgedGTIDs(r.Exclude, missing)
	}
	if r.From != 0 && r.From < l.first {
		return nil, ErrPurged(r.From)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	return &readerLogCursor{log: l, from: max(r.From, l.first), once: r.Once}, nil
}

type readerLogCursor struct {
	log   *readerLog
	from  uint64
	once  bool
	begun bool
	at    int
}

func (c *readerLogCursor) Next() (*Piece, <-chan struct{}, error) {
	for {
		c.log.mu.Lock()
		pieces, grown := c.log.pieces, c.log.grown
		c.log.mu.Unlock()
		if !c.begun {
			var format []byte
			for c.at = 0; c.at < len(pieces); c.at++ {
				if p := pieces[c.at]; p.Index > c.from || p.Index == c.from && p.FormatDescription == nil {
					break
				} else if p.FormatDescription != nil {
					format = p.FormatDescription
				}
			}
			if reached := c.at < len(pieces) || c.at > 0 && pieces[c.at-1].Index+1 >= c.from; reached {
				c.begun = true
				if format != nil {
					return &Piece{Index: c.from, FormatDescription: format}, nil, nil
				}
				continue
			}
		} else if c.at < len(pieces) {
			c.at++
			return &pieces[c.at-1], nil, nil
		}
		if c.once {
			return nil, nil, ErrEndOfLog
		}
		return nil, grown, nil
	}
}

func (c *readerLogCursor) Close() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.log.open--
}

func readersConfig(log ReaderSource, accounts ...Reader) FeedConfig {
	return FeedConfig{
		Listen: "127.0.0.1:0", ServerID: 1600000001, Logger: testLogger(),
		ServerUUID: func() string { return feedUUID }, ServerVersion: func() string { return "9.7.4" },
		Readers: &ReadersConfig{Accounts: accounts, ConnectionsMax: 100, Source: log, Certificate: func() *tls.Certificate { return nil }},
	}
}

func cdcAccounts() []Reader {
	hash := HashPassword("cdc's secret")
	return []Reader{
		{User: "cdc", PasswordHash: hash},
		{User: "old", PasswordHash: hash, Decompress: true},
		{User: "elsewhere", PasswordHash: hash, Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		{User: "here", PasswordHash: hash, Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")}},
	}
}

func startReaders(t *testing.T, log ReaderSource) *Feed {
	t.Helper()
	feed, err := NewFeed(readersConfig(log, cdcAccounts()...))
	if err != nil {
		t.Fatal(err)
	}
	if err := feed.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- feed.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("feed ended with %v", err)
		}
	})
	return feed
}

func (r *fakeReplica) loginAs(user string) *fakeReplica {
	r.t.Helper()
	if err := login(r.wire, user, "cdc's secret"); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// byFile asks for a dump by file and position.
func (r *fakeReplica) byFile(file string, offset uint32, flags uint16) *fakeReplica {
	r.t.Helper()
	command := binary.LittleEndian.AppendUint32([]byte{comBinlogDump}, offset)
	command = binary.LittleEndian.AppendUint16(command, flags)
	command = append(binary.LittleEndian.AppendUint32(command, 8), file...)
	return r.ask(command)
}

func (r *fakeReplica) byGTID(file string, exclude *gtid.Set, flags uint16) *fakeReplica {
	r.t.Helper()
	return r.ask(dumpRequest{flags: flags, serverID: 8, file: file, offset: 4, exclude: exclude}.payload())
}

func (r *fakeReplica) ask(command []byte) *fakeReplica {
	r.t.Helper()
	if err := r.wire.command(command); err != nil {
		r.t.Fatal(err)
	}
	r.sequence = 1
	return r
}

// sent is an event as a reader sees it: where it ends, and its bytes without place and
// checksum.
type sent struct {
	File  string
	End   uint64
	Type  binlog.Type
	Event string
}

var errEOF = errors.New("EOF packet")

// events reads a dump until it ends, or until n events have come.
func (r *fakeReplica) events(n int) (all []sent, err error) {
	r.t.Helper()
	file, counted := "", uint64(0)
	for len(all) < n {
		payload, err := r.wire.in.next()
		if err != nil {
			return all, err
		}
		switch {
		case isEOF(payload):
			return all, errEOF
		case payload[0] == headerErr:
			return all, parseServerError(payload)
		}
		event, err := binlog.ParseEvent(payload[1:])
		if err == nil {
			err = binlog.VerifyChecksum(event)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		switch {
		case event.Type() == binlog.TypeHeartbeat:
		case event.Type() == binlog.TypeRotate && event.Timestamp() == 0:
			if file, counted, err = binlog.ParseRotate(event); err != nil {
				r.t.Fatal(err)
			}
		case event.LogPos() != 0:
			// The position that a stock replica counts is never ahead of the one that it is
			// told.
			if counted += uint64(len(event)); counted > uint64(event.LogPos()) {
				r.t.Fatalf("an event ends at %d, the replica counts %d", event.LogPos(), counted)
			}
			head := event.Relocated(event.Length(), 0)
			body := event[binlog.HeaderBytes : len(event)-binlog.ChecksumBytes]
			all = append(all, sent{file, uint64(event.LogPos()), event.Type(), string(head[:]) + string(body)})
		}
	}
	return all, nil
}

// samples is a log with everything that a reader can meet: transactions of
// several entries, compressed ones, staged ones, a rotation.
func samples(t *testing.T) *readerLog {
	t.Helper()
	var closed atomic.Int32
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	staged := func(index uint64, events [][]byte) Piece {
		p := stagedPiece(&closed, events...)
		p.Index = index
		return p
	}
	tx := func(index uint64, transactions ...[][]byte) Piece {
		return Piece{Index: index, Events: binlogtest.Join(slices.Concat(transactions...)...)}
	}
	return newReaderLog(
		Piece{Index: 2, FormatDescription: format},
		tx(2, w.Rows(100)), tx(3, w.Rows(10), compressed(t, w, 40, 200_000, 7)),
		staged(5, w.Rows(partBytesMax+5)),
		tx(6, w.Statement("CREATE TABLE t (i INT)")),
		Piece{Index: 8, FormatDescription: format},
		tx(8, w.Rows(33), w.Rows(writeBytesMin+1)),
		staged(9, compressed(t, w, 60, 3<<20)), staged(10, w.Rows(1)), tx(12, w.Rows(2)))
}

// compressed is a transaction with a GTID event and a payload that has all other events.
func compressed(t *testing.T, w *binlogtest.Writer, rows ...int) [][]byte {
	t.Helper()
	inner := innerEvents(rows...)
	var plain []byte
	for _, e := range inner {
		plain = append(plain, e...)
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	data := encoder.EncodeAll(plain, nil)
	_ = encoder.Close()
	body := []byte{payloadCompressionField, 1, 0, payloadSizeField, 4, 0xfd, byte(len(data)), byte(len(data) >> 8), byte(len(data) >> 16), 0}
	return w.Transaction(func() [][]byte {
		return [][]byte{w.Event(binlog.TypeTransactionPayload, append(slices.Clone(body), data...))}
	})
}

// Fields of a TRANSACTION_PAYLOAD event.
const payloadSizeField, payloadCompressionField = 1, 2

// innerEvents are events as a payload holds them: without checksums.
func innerEvents(rows ...int) (events [][]byte) {
	w := binlogtest.New("q")
	list := [][]byte{w.Query("BEGIN"), w.Event(binlog.TypeTableMap, make([]byte, 20))}
	for _, n := range rows {
		list = append(list, w.Event(binlog.TypeWriteRows, bytes.Repeat([]byte{byte(n)}, n)))
	}
	for _, e := range append(list, w.Event(binlog.TypeXID, make([]byte, 8))) {
		head := binlog.Event(e).Relocated(uint32(len(e)-binlog.ChecksumBytes), 0)
		events = append(events, append(head[:], e[binlog.HeaderBytes:len(e)-binlog.ChecksumBytes]...))
	}
	return events
}

// A reader may ask for the position of any event that it was sent. It gets exactly the events
// from there on, at the same places, with payloads unpacked or not.
func TestReadersByPosition(t *testing.T) {
	log := samples(t)
	feed := startReaders(t, log)
	for user, prefix := range map[string]string{"cdc": filePrefix, "old": plainPrefix} {
		t.Run(user, func(t *testing.T) {
			dump := func(file string, offset uint64) []sent {
				t.Helper()
				all, err := dialFeed(t, feed).loginAs(user).byFile(file, uint32(offset), flagNonBlock).events(1000)
				if !errors.Is(err, errEOF) {
					t.Fatalf("%s:%d: %v after %d events", file, offset, err, len(all))
				}
				return all
			}
			all := dump(prefix+"00000000000000000002", 4)
			var files []string
			for i, e := range all {
				if !slices.Contains(files, e.File) {
					files = append(files, e.File)
				}
				if d := cmp.Diff(places(all[i+1:]), places(dump(e.File, e.End))); d != "" {
					t.Fatalf("from %s:%d (-want +got):\n%s", e.File, e.End, d)
				}
			}
			var want []string
			for _, n := range []int{2, 6, 8, 10, 11} {
				want = append(want, fmt.Sprintf("%s%020d", prefix, n))
			}
			if d := cmp.Diff(want, files); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
			got := types(all)
			if payloads := got[binlog.TypeTransactionPayload]; (payloads != 0) != (user == "cdc") {
				t.Errorf("%d payloads", payloads)
			}
			if n := got[binlog.TypeGTID]; n != 10 {
				t.Errorf("%d transactions, want 10", n)
			}
			if n := got[binlog.TypeXID]; n != 7 && user == "cdc" || n != 9 && user == "old" {
				t.Errorf("%d XID", n)
			}
		})
	}
	waitUntil(t, "the end of all dumps", func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		return log.open == 0
	})
	for _, s := range feed.ReaderStats()[:2] {
		if s.Dumps != 0 || s.DumpsTotal < 30 || s.Transactions < 100 || s.Bytes < 1<<20 || s.Index < 11 {
			t.Errorf("%+v", s)
		}
	}
}

// places is everything of the events except the time of a ROTATE, which does not belong to the
// file: it depends on where the dump began.
func places(all []sent) (out []string) {
	for _, e := range all {
		text := e.Event
		if e.Type == binlog.TypeRotate {
			text = e.Event[4:]
		}
		out = append(out, fmt.Sprintf("%s:%d %d %x", e.File, e.End, e.Type, HashPassword(text)))
	}
	return out
}

func types(all []sent) map[binlog.Type]int {
	n := map[binlog.Type]int{}
	for _, e := range all {
		n[e.Type]++
	}
	return n
}

// The events of the payload come out of it, each with a place and a checksum.
func TestReadersUnpack(t *testing.T) {
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	rows := []int{0, 5, writeBytesMin, 3*writeBytesMin + 1}
	log := newReaderLog(Piece{Index: 2, FormatDescription: format}, Piece{Index: 2, Events: binlogtest.Join(compressed(t, w, rows...)...)})
	feed := startReaders(t, log)
	for user, ask := range map[string]string{"old": "SET @x = 1", "cdc": "SET @quorate_decompress = 1"} {
		r := dialFeed(t, feed).loginAs(user)
		if got := r.query(ask); got != "OK" {
			t.Fatal(got)
		}
		all, err := r.byFile("", 4, flagNonBlock).events(100)
		if !errors.Is(err, errEOF) {
			t.Fatal(err)
		}
		var got, want []string
		for _, e := range all[2:] { // behind the format and the GTID
			got = append(got, e.Event)
		}
		for _, e := range innerEvents(rows...) {
			head := binlog.Event(e).Relocated(uint32(len(e))+binlog.ChecksumBytes, 0)
			want = append(want, string(head[:])+string(e[binlog.HeaderBytes:]))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d events, want %d", user, len(got), len(want))
		}
	}
}

// TestReadersFileOfManyGiB: with decompression, the 128 MiB of one of the primary's binlog files may be many GiB.
// Before, the file went on, and the 32-bit positions of the protocol began again at 0.
func TestReadersFileOfManyGiB(t *testing.T) {
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	out := &readerWriter{DumpWriter: &DumpWriter{}, plain: true, counting: true}
	for _, c := range []struct {
		at   uint64
		file string
	}{{1000, fileName(true, 2)}, {1 << 32, fileName(true, 8)}} {
		if _, err := out.Piece(Piece{Index: 2, FormatDescription: format}); err != nil {
			t.Fatal(err)
		}
		events := binlogtest.Join(compressed(t, w, 5)...)
		out.offset = c.at - 1
		if _, err := out.Piece(Piece{Index: 7, Events: events}); err != nil {
			t.Fatal(err)
		}
		if out.file != c.file || out.offset > 1<<31 {
			t.Errorf("behind an entry that ends beyond %d, the next event is at %d of %s, want file %s", c.at, out.offset, out.file, c.file)
		}
	}
}

// Damaged bytes never get a new checksum, not even in a payload.
func TestReadersSeeDamage(t *testing.T) {
	for name, of := range map[string]func(w *binlogtest.Writer) [][]byte{
		"rows":    func(w *binlogtest.Writer) [][]byte { return w.Rows(100) },
		"payload": func(w *binlogtest.Writer) [][]byte { return compressed(t, w, 100_000) },
	} {
		for _, staged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s staged=%v", name, staged), func(t *testing.T) {
				w := binlogtest.New("q.000001")
				format := w.FormatDescription(1)
				events := of(w)
				last := events[len(events)-1]
				last[len(last)-6] ^= 1
				p := Piece{Index: 2, Events: binlogtest.Join(events...)}
				if staged {
					p = stagedPiece(new(atomic.Int32), events...)
					p.Index = 2
				}
				feed := startReaders(t, newReaderLog(Piece{Index: 2, FormatDescription: format}, p))
				all, err := dialFeed(t, feed).loginAs("old").byFile("", 4, flagNonBlock).events(100)
				if err == nil || errors.Is(err, errEOF) || types(all)[binlog.TypeXID] != 0 {
					t.Errorf("%d events, %v", len(all), err)
				}
			})
		}
	}
}

// Events that end about where a packet is full are cut as the protocol wants.
func TestReadersLongEvents(t *testing.T) {
	const rowsOfPacket = packetBytesMax - 1 - binlog.HeaderBytes - binlog.ChecksumBytes
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	log := newReaderLog(Piece{Index: 2, FormatDescription: format})
	var want [][]byte
	for i, n := range []int{rowsOfPacket - 1, rowsOfPacket, rowsOfPacket + 1, rowsOfPacket + packetBytesMax} {
		events := w.Rows(n)
		p := Piece{Index: uint64(2 + i), Events: binlogtest.Join(events...)}
		if i%2 == 1 {
			p = stagedPiece(new(atomic.Int32), events...)
			p.Index = uint64(2 + i)
		}
		log.add(p)
		want = append(want, events...)
	}
	r := dialFeed(t, startReaders(t, log)).loginAs("cdc").byGTID("", &gtid.Set{}, 0)
	for at := 0; at < len(want); {
		event, err := r.next() // verifies the sequence numbers, too
		if err != nil {
			t.Fatal(err)
		}
		if event.Type() == binlog.TypeRotate || event.Type() == binlog.TypeFormatDescription {
			continue
		}
		if len(event) != len(want[at]) || !bytes.Equal(event.Body(), binlog.Event(want[at]).Body()) {
			t.Fatalf("event %d: type %d of %d bytes, want %d", at, event.Type(), len(event), len(want[at]))
		}
		at++
	}
}

func TestReadersWrongPositions(t *testing.T) {
	log := samples(t)
	log.first = 2
	feed := startReaders(t, log)
	all, _ := dialFeed(t, feed).loginAs("cdc").byFile("", 4, flagNonBlock).events(1000)
	end := all[slices.IndexFunc(all, func(e sent) bool { return e.Type == binlog.TypeRotate })]
	const unknown = "Could not find first log file name in binary log index file"
	for _, tc := range []struct {
		file   string
		offset uint64
		want   string
	}{
		{all[0].File, 3, "position < 4"},
		{all[0].File, 5, "impossible position"},
		{all[0].File, all[2].End + 1, "impossible position"},
		{all[0].File, end.End + 1, "position > file size"},
		{"quorate.00000000000000000001", 4, unknown},
		{"quorate-plain.00000000000000000002", 4, unknown},
		{"quorate.2", 4, unknown},
		{"binlog.000001", 4, unknown},
	} {
		_, err := dialFeed(t, feed).loginAs("cdc").byFile(tc.file, uint32(tc.offset), flagNonBlock).events(1000)
		e, ok := errors.AsType[*ServerError](err)
		if !ok || e.Code != 1236 || !strings.Contains(e.Message, tc.want) {
			t.Errorf("%s:%d: %v, want error 1236 with %q", tc.file, tc.offset, err, tc.want)
		}
	}
}

// A reader that is ahead of this node waits, and then gets what follows: by GTID and by
// position, also in a file that this node has not begun yet.
func TestReadersAheadWait(t *testing.T) {
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	has, lacks := w.Rows(10), w.Rows(20)
	log := newReaderLog(Piece{Index: 2, FormatDescription: format})
	feed := startReaders(t, log)
	ahead := &gtid.Set{}
	ahead.Add(binlogtest.GTID(1))
	offset := uint32(4 + len(format) + len(binlogtest.Join(has...)))
	waiting := map[string]*fakeReplica{
		"position": dialFeed(t, feed).loginAs("cdc").byFile("quorate.00000000000000000002", offset, 0),
		"file":     dialFeed(t, feed).loginAs("cdc").byFile("quorate.00000000000000000004", 4, 0),
		"GTID":     dialFeed(t, feed).loginAs("cdc").byGTID("", ahead, 0),
		"zeros":    dialFeed(t, feed).loginAs("cdc").byGTID("\x00\x00\x00", ahead, 0),
	}
	waitUntil(t, "four dumps", func() bool { return feed.ReaderStats()[0].Dumps == 4 })
	log.add(Piece{Index: 3, Events: binlogtest.Join(has...)})
	log.add(Piece{Index: 4, Events: binlogtest.Join(lacks...)})
	for name, r := range waiting {
		all, err := r.events(len(lacks) + map[string]int{"position": 0, "file": 1, "GTID": 1, "zeros": 1}[name])
		if err != nil {
			t.Fatal(err)
		}
		got := all[len(all)-len(lacks):]
		for i, e := range lacks {
			head := binlog.Event(e).Relocated(uint32(len(e)), 0)
			if got[i].Event != string(head[:])+string(e[binlog.HeaderBytes:len(e)-binlog.ChecksumBytes]) {
				t.Errorf("%s: event %d is another", name, i)
			}
		}
	}
}

// By GTID a reader gets each transaction that it lacks, whatever set it has.
func TestReadersByGTID(t *testing.T) {
	log := samples(t)
	feed := startReaders(t, log)
	whole, _ := dialFeed(t, feed).loginAs("cdc").byFile("", 4, flagNonBlock).events(1000)
	for mask := range 1 << 10 {
		if mask%7 != 0 {
			continue
		}
		has := &gtid.Set{}
		var want []string
		n := uint64(0)
		for _, e := range whole {
			if e.Type == binlog.TypeGTID {
				if n++; mask>>(n-1)&1 == 1 {
					has.Add(binlogtest.GTID(n))
				}
			}
			fileEvent := e.Type == binlog.TypeRotate || e.Type == binlog.TypeFormatDescription
			if fileEvent || !has.Contains(binlogtest.GTID(n)) {
				want = append(want, places([]sent{e})...)
			}
		}
		r := dialFeed(t, feed).loginAs("cdc").byGTID("quorate.00000000000000000002", has, flagNonBlock)
		got, err := r.events(1000)
		if d := cmp.Diff(want, places(got)); d != "" || !errors.Is(err, errEOF) {
			t.Fatalf("reader with %v: %v (-want +got):\n%s", has, err, d)
		}
		_ = r.wire.conn.Close()
	}
	log.purged.Add(binlogtest.GTID(1))
	_, err := dialFeed(t, feed).loginAs("cdc").byGTID("", &gtid.Set{}, 0).events(1)
	if e, ok := errors.AsType[*ServerError](err); !ok || e.Code != 1236 ||
		!strings.Contains(e.Message, "Cannot replicate because the source purged required binary logs") ||
		!strings.Contains(e.Message, "missing transactions are '"+log.purged.String()+"'") {
		t.Errorf("what is purged: %v", err)
	}
}

func TestReadersLogIn(t *testing.T) {
	feed := startReaders(t, newReaderLog())
	for _, tc := range []struct {
		user, password string
		ok             bool
	}{
		{"cdc", "cdc's secret", true}, {"here", "cdc's secret", true},
		{"cdc", "wrong", false}, {"cdc", "", false}, {"nobody", "cdc's secret", false}, {"", "", false},
		{"elsewhere", "cdc's secret", false},
	} {
		err := login(dialFeed(t, feed).wire, tc.user, tc.password)
		if e, denied := errors.AsType[*ServerError](err); (err == nil) != tc.ok || denied && e.Code != 1045 {
			t.Errorf("%s: %v", tc.user, err)
		}
	}
	if n := feed.ReaderStats(); n[0].Refused != 2 || n[2].Refused != 1 {
		t.Errorf("%+v", n)
	}
	for _, password := range []PasswordHash{{}, HashPassword("")} {
		if _, err := NewFeed(readersConfig(newReaderLog(), Reader{User: "a", PasswordHash: password})); err == nil {
			t.Error("a reader without a password is accepted")
		}
	}
}

func TestReadersAnswer(t *testing.T) {
	log := samples(t)
	feed := startReaders(t, log)
	conn, err := clientConnect(t, feed, "cdc")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	executed, _ := log.GTIDs()
	all, _ := dialFeed(t, feed).loginAs("cdc").byFile("", 4, flagNonBlock).events(1000)
	last := all[len(all)-1]
	status := []string{last.File, fmt.Sprint(last.End), "", "", executed.String()}
	for query, want := range map[string][]string{
		"SHOW MASTER STATUS":                               status,
		"show  binary log status;":                         status,
		"SHOW BINARY LOGS":                                 {"quorate.00000000000000000002", "1", "No", "quorate.00000000000000000008", "1", "No"},
		"SHOW GLOBAL VARIABLES LIKE 'BINLOG_CHECKSUM'":     {"binlog_checksum", "CRC32"},
		"SHOW VARIABLES WHERE Variable_name = 'server_id'": {"server_id", "1600000001"},
		"SHOW VARIABLES LIKE 'gtid\\_m%'":                  {"gtid_mode", "ON"},
		"SHOW VARIABLES LIKE 'nothing'":                    nil,
		"SHOW WARNINGS":                                    nil,
		"SELECT @@gtid_mode, @@GLOBAL.log_bin, VERSION()":  {"ON", "1", "9.7.4"},
		"SELECT @@gtid_executed":                           {executed.String()},
		"SELECT 1":                                         {"1"},
	} {
		result, err := conn.Execute(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		var got []string
		for row := range result.RowNumber() {
			for column := range result.ColumnNumber() {
				text, _ := result.GetString(row, column)
				got = append(got, text)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", query, d)
		}
	}
	result, err := conn.Execute("SHOW MASTER STATUS")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.GetUintByName(0, "Position"); err != nil || n != last.End || result.Fields[1].Type != mysql.MYSQL_TYPE_LONGLONG {
		t.Errorf("position %d, %v, as type %d", n, err, result.Fields[1].Type)
	}
	if _, err := conn.Execute("SELECT * FROM t"); err == nil {
		t.Error("a reader reads a table")
	}
}

// TestReadersAskForFewColumns: a command has room for a million columns, each as long as a GTID
// set.
func TestReadersAskForFewColumns(t *testing.T) {
	r := dialFeed(t, startReaders(t, newReaderLog())).loginAs("cdc")
	if got := r.query("SELECT 1" + strings.Repeat(", @@gtid_executed", columnsMax)); !strings.Contains(got, "Too many columns") {
		t.Errorf("%d columns: %s", columnsMax+1, got)
	}
	if got := r.query("SELECT 1"); got != "1" {
		t.Errorf("one column: %s", got)
	}
}

// go-mysql's reader of binlogs gets all of them, by position and by GTID.
func TestReadersServeGoMySQL(t *testing.T) {
	log := samples(t)
	feed := startReaders(t, log)
	for _, by := range []string{"position", "GTID"} {
		syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
			ServerID: 77, Flavor: mysql.MySQLFlavor, Host: "127.0.0.1", Port: uint16(feed.Addr().(*net.TCPAddr).Port),
			User: "old", Password: "cdc's secret", HeartbeatPeriod: time.Second, VerifyChecksum: true, RawModeEnabled: true,
			Logger: testLogger(),
		})
		var stream *replication.BinlogStreamer
		var err error
		if by == "GTID" {
			set, _ := mysql.ParseMysqlGTIDSet("")
			stream, err = syncer.StartSyncGTID(set)
		} else {
			stream, err = syncer.StartSync(mysql.Position{Name: "quorate-plain.00000000000000000002", Pos: 4})
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), waitMax)
		for xids := 0; xids < 9; {
			event, err := stream.GetEvent(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if event.Header.EventType == replication.XID_EVENT {
				xids++
			}
		}
		cancel()
		syncer.Close()
	}
}

// A reader that has all new transactions already gets no events, but still gets heartbeats.
func TestReadersHeartbeatWhileSkipping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period = time.Second
		w := binlogtest.New("q.000001")
		format := w.FormatDescription(1)
		log := newReaderLog(Piece{Index: 2, FormatDescription: format})
		feed, err := NewFeed(readersConfig(log, cdcAccounts()...))
		if err != nil {
			t.Fatal(err)
		}
		a, b := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- newFeedSession(feed, b, 1).run(ctx) }()
		r := newFakeReplica(t, a).loginAs("cdc")
		if got := r.query(fmt.Sprintf("SET @source_heartbeat_period = %d", period.Nanoseconds())); got != "OK" {
			t.Fatal(got)
		}
		has := &gtid.Set{}
		if err := has.AddInterval(binlogtest.GTID(1).UUID, "", 1, 100); err != nil {
			t.Fatal(err)
		}
		r.byGTID("", has, 0)
		r.expectBoundary(relocated(format, 4))
		position := uint64(4 + len(format))
		for i := range 10 {
			raw := binlogtest.Join(w.Rows(10)...)
			log.add(Piece{Index: uint64(3 + i), Events: raw})
			position += uint64(len(raw))
			time.Sleep(period / 4)
		}
		event, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		if name, at, err := binlog.ParseHeartbeat(event); err != nil || name != "quorate.00000000000000000002" || at <= 4 || at >= position {
			t.Errorf("heartbeat at %s:%d, %v", name, at, err)
		}
		cancel()
		<-ended
	})
}

// relocated is an event as it stands at an offset.
func relocated(event []byte, offset uint32) []byte {
	head := binlog.Event(event).Relocated(uint32(len(event)), offset+uint32(len(event)))
	out := append(head[:], event[binlog.HeaderBytes:]...)
	binlog.PutChecksum(out)
	return out
}

func clientConnect(t *testing.T, feed *Feed, user string) (*client.Conn, error) {
	t.Helper()
	return client.Connect(feed.Addr().String(), user, "cdc's secret", "")
}
