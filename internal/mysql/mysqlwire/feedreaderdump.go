package mysqlwire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/clock"
)

// flagNonBlock asks for an end of the dump where the log ends
// (BINLOG_DUMP_NON_BLOCK in sql/rpl_constants.h). A server id of 0 does, too.
const flagNonBlock = 1 << 0

// fileDumpBytesMin is the length of COM_BINLOG_DUMP without a file name: command u8, position
// u32, flags u16, server id u32.
const fileDumpBytesMin = 11

// parseFileDump decodes COM_BINLOG_DUMP, whose file name goes to the end.
func parseFileDump(payload []byte) (dumpRequest, error) {
	if len(payload) < fileDumpBytesMin || payload[0] != comBinlogDump {
		return dumpRequest{}, fmt.Errorf("%w: dump request of %d bytes", ErrMalformed, len(payload))
	}
	return dumpRequest{
		offset:   uint64(binary.LittleEndian.Uint32(payload[1:])),
		flags:    binary.LittleEndian.Uint16(payload[5:]),
		serverID: binary.LittleEndian.Uint32(payload[7:]),
		file:     string(payload[fileDumpBytesMin:]),
	}, nil
}

// replicaName names the client of a dump, so that a replica which connects again replaces its
// own old dump. Two readers that were given the same UUID count as two.
func (s *feedSession) replicaName() string {
	if s.reader == nil || s.replicaUUID == "" {
		return s.replicaUUID
	}
	return s.reader.User + " " + s.replicaUUID
}

// startReader opens a reader's cursor. As in a real source, a file name has precedence over the
// GTID set, which then only says what to leave out (Binlog_sender::check_start_file).
func (s *feedSession) startReader(ctx context.Context, request dumpRequest) (Cursor, pieceWriter, error) {
	// Some tools send the empty name as zeros.
	request.file, _, _ = strings.Cut(request.file, "\x00")
	ask := ReaderRequest{Exclude: request.exclude, Once: request.flags&flagNonBlock != 0 || request.serverID == 0}
	out := s.newReaderWriter(request.exclude)
	out.v2 = request.flags&flagHeartbeatV2 != 0
	source := s.feed.cfg.Readers.Source
	var err error
	switch {
	case request.file != "":
		if ask.From, err = parseFileName(s.plain, request.file); err != nil {
			return nil, nil, err
		}
	case request.exclude == nil:
		files, err := source.Files()
		if err != nil {
			return nil, nil, err
		}
		ask.From = files[0].Index
	}
	if ask.From != 0 {
		if request.offset < binlogMagicBytes {
			return nil, nil, fatal("Client requested source to start replication from position < 4")
		}
		out.seek = request.offset
	}
	s.reader.stats.dumps.Add(1)
	cursor, err := source.StartReader(ctx, ask)
	if err != nil {
		return nil, nil, err
	}
	s.reader.dumping.Add(1)
	cursor = &countedCursor{cursor, s.reader}
	if s.reader.SQL {
		cursor = &appliedCursor{Cursor: cursor, applied: func(set *gtid.Set) bool { return s.applied(ctx, set) }, waits: s.saysWaits}
	}
	return cursor, out, nil
}

// countedCursor keeps the count of a reader's open dumps.
type countedCursor struct {
	Cursor
	reader *readerAccount
}

func (c *countedCursor) Close() {
	c.Cursor.Close()
	c.reader.dumping.Add(-1)
}

// position is the position behind everything that is committed.
func (s *feedSession) position(ctx context.Context) (file string, offset uint64, err error) {
	source := s.feed.cfg.Readers.Source
	files, err := source.Files()
	if err != nil {
		return "", 0, err
	}
	last := files[len(files)-1].Index
	w := s.newReaderWriter(nil)
	w.counting = true
	w.file, w.offset = fileName(s.plain, last), binlogMagicBytes
	err = s.count(ctx, w, ReaderRequest{From: last, Once: true})
	return w.file, w.offset, err
}

// count reads the log to the end of a request, without sending anything.
func (s *feedSession) count(ctx context.Context, w *readerWriter, request ReaderRequest) error {
	cursor, err := s.feed.cfg.Readers.Source.StartReader(ctx, request)
	if err != nil {
		return err
	}
	defer cursor.Close()
	for {
		if w.rest != nil && w.rest.IsEmpty() {
			return nil
		}
		p, more, err := cursor.Next()
		if errors.Is(err, ErrEndOfLog) {
			return nil
		}
		switch {
		case err != nil:
		case p != nil:
			_, err = w.Piece(*p)
		default:
			err = clock.Machine{}.Wait(ctx, 0, more)
		}
		if err != nil {
			return err
		}
	}
}

// readerWriter writes a reader's dump. Unlike the DumpWriter of our own mysqld, it gives every
// event the position that the event has in the reader's file, leaves out the transactions that
// the reader has, and unpacks payload events that the reader does not know.
type readerWriter struct {
	*DumpWriter
	reader  *readerAccount
	exclude *gtid.Set
	plain   bool
	// seek is the position in the first file from which on events are sent.
	seek uint64
	// bareRotate is feedSession.bareRotate, until the first event.
	bareRotate bool
	// counting sends nothing: it only finds a position. If rest is set, the count ends behind the last of these
	// transactions, or in front of the first other transaction.
	counting bool
	rest     *gtid.Set
	format   binlog.Event // in force
	// mute is set during a transaction that the reader has.
	mute bool
	// lastTime is the latest time of the events so far.
	lastTime uint32
	// wrote is set once something was framed.
	wrote bool

	// The state of the event under way: whether it is sent, how many bytes of its payload and
	// of its current packet are still to come, the length of that packet, and the checksum up
	// to now.
	framing              bool
	eventLeft, frameLeft int
	lastPacket           int
	crc                  uint32
	part                 []byte
}

func (s *feedSession) newReaderWriter(exclude *gtid.Set) *readerWriter {
	w := &readerWriter{DumpWriter: s.newDumpWriter(false), reader: s.reader, exclude: exclude, plain: s.plain, seek: binlogMagicBytes, bareRotate: s.bareRotate}
	w.stats = &s.reader.stats
	return w
}

func (w *readerWriter) Piece(p Piece) (wrote bool, err error) {
	defer p.drop()
	w.wrote = false
	if p.FormatDescription != nil {
		if err := w.open(p.FormatDescription, p.Index); err != nil {
			return w.wrote, err
		}
	}
	if (len(p.Events) > 0 || p.Stage != nil) && w.format == nil {
		return false, errors.New("log begins without a format description")
	}
	if p.Stage != nil {
		err = w.stage(p)
	} else {
		err = w.transactions(p.Events)
	}
	// A position has 32 bits in the protocol. The file ends behind a whole entry, and so at the
	// same place on every node.
	if err == nil && (p.Stage != nil || w.offset > math.MaxUint32) {
		err = w.open(w.format, p.Index+1)
	}
	if w.wrote {
		w.reader.index.Store(p.Index)
	}
	return w.wrote, err
}

// Heartbeat implements pieceWriter. A reader that is ahead of this node is told its own
// position.
func (w *readerWriter) Heartbeat() error {
	at := w.offset
	w.offset = max(at, w.seek)
	err := w.DumpWriter.Heartbeat()
	w.offset = at
	return err
}

// open begins the file of an index. The reader may begin in the middle of its first file: then,
// as with a real source, the reader does not count the length of the FORMAT_DESCRIPTION.
func (w *readerWriter) open(format []byte, index uint64) error {
	w.mute = false
	if w.format != nil {
		if err := w.close(fileName(w.plain, index)); err != nil {
			return err
		}
		if w.seek > w.offset {
			return fatal("Client requested source to start replication from position > file size")
		}
		w.seek = binlogMagicBytes
	}
	event, err := binlog.ParseEvent(format)
	if err == nil {
		event, err = binlog.CleanFormatDescription(event, false)
	}
	if err != nil {
		return fmt.Errorf("prepare format description: %w", err)
	}
	w.format = event
	w.file, w.offset = fileName(w.plain, index), binlogMagicBytes
	if w.counting {
		return w.one(event)
	}
	w.wrote = true
	w.stats.boundaries.Add(1)
	rotate := binlog.AppendFakeRotate(nil, w.serverID, w.file, w.seek)
	if w.bareRotate {
		rotate, w.bareRotate = binlog.WithoutChecksum(rotate), false
	}
	if err := w.event(rotate); err != nil {
		return err
	}
	if w.seek == binlogMagicBytes {
		return w.one(event)
	}
	if w.offset += uint64(len(event)); w.seek < w.offset {
		return fatal("Client requested source to start replication from impossible position")
	}
	mid, err := binlog.CleanFormatDescription(event, true)
	if err != nil {
		return fmt.Errorf("prepare format description: %w", err)
	}
	return w.event(mid)
}

// close ends a file with the ROTATE event that a server writes there. Some tools forget their
// tables only at a ROTATE that has a timestamp.
func (w *readerWriter) close(next string) error {
	event := binlog.AppendFakeRotate(nil, w.serverID, next, binlogMagicBytes)
	binary.LittleEndian.PutUint32(event, max(w.lastTime, 1))
	const flagsAt = binlog.HeaderBytes - 2
	event[flagsAt], event[flagsAt+1] = 0, 0
	return w.one(event)
}

func (w *readerWriter) transactions(raw []byte) error {
	for transaction, err := range binlog.Transactions(raw) {
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if err := w.transaction(transaction); err != nil {
			return err
		}
	}
	return nil
}

func (w *readerWriter) transaction(transaction binlog.Transaction) error {
	if err := w.begin(transaction.GTID); err != nil {
		return err
	}
	for event, err := range binlog.Events(transaction.Raw) {
		if err == nil {
			err = binlog.VerifyChecksum(event) // its new checksum would hide damage
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if w.plain && event.Type() == binlog.TypeTransactionPayload {
			err = w.unpack(bytes.NewReader(event[binlog.HeaderBytes:]), int64(len(event)))
		} else {
			err = w.one(event)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errPlace ends a count: the position was found.
var errPlace = errors.New("mysqlwire: the place is found")

// begin begins a transaction: it is muted if the reader has it.
func (w *readerWriter) begin(id gtid.GTID) error {
	if w.rest != nil {
		if !w.rest.Contains(id) {
			return errPlace
		}
		one := &gtid.Set{}
		one.Add(id)
		w.rest.Subtract(one)
	}
	w.mute = w.exclude != nil && w.exclude.Contains(id)
	if !w.mute && !w.counting && w.offset >= w.seek {
		w.reader.transactions.Add(1)
	}
	return nil
}

// unpack sends the events inside a TRANSACTION_PAYLOAD event of that length; r reads the
// event's body.
func (w *readerWriter) unpack(r io.Reader, length int64) error {
	events, err := binlog.OpenPayload(bufio.NewReaderSize(r, writeBytesMin), length)
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }() // it was only read
	for {
		var head [binlog.HeaderBytes]byte
		if _, err := io.ReadFull(events, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("unpack transaction: %w", err)
		}
		n := int64(binlog.Event(head[:]).Length())
		if n < binlog.HeaderBytes || n > eventBytesMax {
			return fmt.Errorf("unpack transaction: %w: event of %d bytes", binlog.ErrMalformed, n)
		}
		if err := w.beginEvent(head[:], uint32(n)+binlog.ChecksumBytes); err != nil {
			return err
		}
		if err := w.copyEvent(events, n-binlog.HeaderBytes); err != nil {
			return err
		}
	}
}

// copyEvent copies the rest of an event from r. The event has no checksum there.
func (w *readerWriter) copyEvent(r io.Reader, left int64) error {
	if w.part == nil {
		w.part = make([]byte, writeBytesMin)
	}
	for left > 0 {
		n := min(left, int64(len(w.part)))
		if _, err := io.ReadFull(r, w.part[:n]); err != nil {
			return fmt.Errorf("unpack transaction: %w", err)
		}
		if err := w.body(w.part[:n]); err != nil {
			return err
		}
		left -= n
	}
	return w.endEvent()
}

// stage sends a staged transaction.
func (w *readerWriter) stage(p Piece) error {
	err := w.staged(p.Stage)
	if errors.Is(err, errStageDamaged) {
		p.Stage.Damaged(err)
	}
	return err
}

func (w *readerWriter) staged(stage StageEvents) error {
	size := stage.Size()
	in := bufio.NewReaderSize(io.NewSectionReader(stage, 0, size), partBytesMax)
	id, err := stagedGTID(in, size)
	if err != nil {
		return err
	}
	if err := w.begin(id); err != nil {
		return err
	}
	if !w.plain && (w.mute || w.counting || w.offset+uint64(size) <= w.seek) {
		w.offset += uint64(size) // it need not be read
		return nil
	}
	for at := int64(0); at < size; {
		head, n, err := stagedHead(in, size-at)
		if err != nil {
			return err
		}
		if w.plain && head.Type() == binlog.TypeTransactionPayload {
			if err = w.unpackStaged(stage, at, n); err == nil {
				in.Reset(io.NewSectionReader(stage, at+n, size-at-n))
			}
		} else {
			err = w.stagedOne(in, head)
		}
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

func stagedHead(in *bufio.Reader, left int64) (binlog.Event, int64, error) {
	head, err := in.Peek(binlog.HeaderBytes)
	if err != nil {
		return nil, 0, readFailed(err)
	}
	n := int64(binlog.Event(head).Length())
	if n < binlog.HeaderBytes+binlog.ChecksumBytes || n > left {
		return nil, 0, fmt.Errorf("read stage: %w: %w: event of %d bytes, %d are left", errStageDamaged, binlog.ErrMalformed, n, left)
	}
	return head, n, nil
}

// stagedGTID reads the GTID from the first event of a staged transaction.
func stagedGTID(in *bufio.Reader, left int64) (gtid.GTID, error) {
	_, n, err := stagedHead(in, left)
	if err != nil {
		return gtid.GTID{}, err
	}
	event, err := in.Peek(int(min(n, partBytesMax)))
	if err != nil {
		return gtid.GTID{}, readFailed(err)
	}
	info, err := binlog.ParseGTID(event)
	if err != nil {
		return gtid.GTID{}, fmt.Errorf("read stage: %w: %w", errStageDamaged, err)
	}
	return info.GTID, nil
}

// stagedOne sends the next event of in, and holds at most partBytesMax of it. Its checksum is
// verified before the new checksum is sent.
func (w *readerWriter) stagedOne(in *bufio.Reader, head binlog.Event) error {
	checksum := binlog.NewChecksum(head)
	length := head.Length() // head is gone with the next Peek
	left := int(length)
	for first := true; left > 0; first = false {
		b, err := in.Peek(min(left, in.Size()))
		if err != nil {
			return readFailed(err)
		}
		if err := checksum.Add(b); err != nil {
			return fmt.Errorf("verify stage: %w: %w", errStageDamaged, err)
		}
		body := b[:min(len(b), max(left-binlog.ChecksumBytes, 0))]
		left -= len(b)
		if first {
			if err := w.beginEvent(binlog.Event(b), length); err != nil {
				return err
			}
			body = body[binlog.HeaderBytes:]
		}
		if err := w.body(body); err != nil {
			return err
		}
		_, _ = in.Discard(len(b)) // cannot fail: these bytes were peeked
	}
	return w.endEvent()
}

// unpackStaged is unpack for the event at offset at of a stage. It reads the event twice, the
// first time only for the checksum: after the events inside are sent, a wrong checksum would be
// found too late.
func (w *readerWriter) unpackStaged(stage StageEvents, at, n int64) error {
	in := bufio.NewReaderSize(io.NewSectionReader(stage, at, n), partBytesMax)
	head, _, err := stagedHead(in, n)
	if err != nil {
		return err
	}
	checksum := binlog.NewChecksum(head)
	for checksum.Left() > 0 {
		b, err := in.Peek(int(min(checksum.Left(), uint64(in.Size()))))
		if err != nil {
			return readFailed(err)
		}
		if err := checksum.Add(b); err != nil {
			return fmt.Errorf("verify stage: %w: %w", errStageDamaged, err)
		}
		_, _ = in.Discard(len(b)) // cannot fail: these bytes were peeked
	}
	return w.unpack(io.NewSectionReader(stage, at+binlog.HeaderBytes, n-binlog.HeaderBytes), n)
}

// one sends a whole event.
func (w *readerWriter) one(event binlog.Event) error {
	if err := w.beginEvent(event, uint32(len(event))); err != nil {
		return err
	}
	if err := w.body(event[binlog.HeaderBytes : len(event)-binlog.ChecksumBytes]); err != nil {
		return err
	}
	return w.endEvent()
}

// beginEvent gives the event its place in the file, and begins to frame it, unless the reader
// does not get it. length includes header and checksum.
func (w *readerWriter) beginEvent(head binlog.Event, length uint32) error {
	start := w.offset
	w.offset += uint64(length)
	w.lastTime = max(w.lastTime, head.Timestamp())
	w.framing = !w.counting && !w.mute && start >= w.seek
	if start < w.seek && w.offset > w.seek && !w.counting {
		return fatal("Client requested source to start replication from impossible position")
	}
	if !w.framing {
		return nil
	}
	w.wrote = true
	w.stats.events.Add(1)
	w.stats.bytes.Add(uint64(length))
	w.eventLeft, w.frameLeft, w.crc = 1+int(length), 0, 0
	if err := w.frame([]byte{headerOK}); err != nil {
		return err
	}
	header := head.Relocated(length, uint32(w.offset))
	return w.body(header[:])
}

func (w *readerWriter) body(b []byte) error {
	if !w.framing {
		return nil
	}
	w.crc = crc32.Update(w.crc, crc32.IEEETable, b)
	return w.frame(b)
}

func (w *readerWriter) endEvent() error {
	if !w.framing {
		return nil
	}
	return w.frame(binary.LittleEndian.AppendUint32(nil, w.crc))
}

// frame adds bytes of the event under way, and begins a new packet where one is full. A payload
// that ends with a full packet is followed by an empty packet.
func (w *readerWriter) frame(b []byte) error {
	for len(b) > 0 {
		if w.frameLeft == 0 {
			w.frameLeft = min(w.eventLeft, packetBytesMax)
			w.packet(w.frameLeft)
		}
		n := min(len(b), w.frameLeft)
		if err := w.append(b[:n]); err != nil {
			return err
		}
		full := w.frameLeft == n && w.eventLeft == n && w.lastPacket == packetBytesMax
		b = b[n:]
		w.frameLeft -= n
		w.eventLeft -= n
		if full {
			w.packet(0)
		}
	}
	return nil
}

func (w *readerWriter) packet(n int) {
	w.buf = appendPacketHeader(w.buf, n, w.sequence)
	w.sequence++
	w.lastPacket = n
}
