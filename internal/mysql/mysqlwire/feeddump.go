package mysqlwire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/sys/clock"
)

// writeBytesMin is how much of a busy stream is collected for one write.
const writeBytesMin = 64 << 10

// heartbeatPeriodMin bounds how often a replica may ask for heartbeats.
const heartbeatPeriodMin = 10 * time.Millisecond

// errReplicaLeft ends a dump whose client closed the connection.
var errReplicaLeft = errors.New("replica closed the connection")

// errReplaced ends a dump whose replica connected again.
var errReplaced = errors.New("replica connected again")

// dump streams the log until the client leaves or connects again, or ctx is done.
func (s *feedSession) dump(ctx context.Context, request dumpRequest) error {
	if err := s.conn.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("clear deadline: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	handle := &dumpHandle{end: func() { cancel(errReplaced) }}
	s.feed.beginDump(s.replicaName(), handle)
	defer s.feed.endDump(handle)
	// A write that waits for the client must not outlive the dump.
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()

	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer func() {
		cancel(nil)
		_ = s.conn.Close() // ends the watcher, also if ctx was not done
	}()
	watcher.Go(func() {
		// During a dump a client sends nothing of interest (at most acknowledgements, if it is
		// semi-synchronous). The read is there to see the connection end.
		_, _ = io.Copy(io.Discard, s.wire.conn)
		cancel(errReplicaLeft)
	})

	s.record(&s.feed.dumped, slog.LevelInfo, "feed started", "replica", s.replicaUUID, "excluded", request.exclude.Count())
	err := s.stream(ctx, request)
	if errors.Is(err, ErrEndOfLog) && ctx.Err() == nil {
		_ = s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		return s.wire.write(eofPayload())
	}
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, errReplicaLeft) {
			return nil
		}
		return cause
	}
	if e, ok := errors.AsType[*ServerError](err); ok {
		packet := appendPacketHeader(nil, len(e.payload()), s.wire.sequence)
		_ = s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, writeErr := s.wire.conn.Write(append(packet, e.payload()...))
		return errors.Join(err, writeErr)
	}
	return err
}

// stream asks the source where to begin, and sends pieces and heartbeats.
func (s *feedSession) stream(ctx context.Context, request dumpRequest) error {
	cursor, out, err := s.start(ctx, request)
	if err != nil {
		return fmt.Errorf("start feed: %w", err)
	}
	defer cursor.Close()
	defer func() { s.wire.sequence = out.next() }()
	return stream(ctx, &clock.OneTimer{}, out, cursor, s.heartbeatPeriod)
}

// start opens the cursor of a dump, and makes the writer of its pieces.
func (s *feedSession) start(ctx context.Context, request dumpRequest) (Cursor, pieceWriter, error) {
	if s.reader != nil {
		return s.startReader(ctx, request)
	}
	out := s.newDumpWriter(request.flags&flagHeartbeatV2 != 0)
	if s.feed.cfg.Workers != nil {
		out.workers = s.feed.cfg.Workers(ctx)
	}
	cursor, err := s.feed.cfg.Source.Start(ctx, request.exclude)
	return cursor, out, err
}

// pieceWriter writes a dump.
type pieceWriter interface {
	// Piece takes a piece; wrote says that some of it goes to the client.
	Piece(p Piece) (wrote bool, err error)
	Heartbeat() error
	Flush() error
	// next is the sequence number of the next packet.
	next() uint8
}

// stream sends what the cursor has, and a heartbeat after each period in which there was
// nothing to send; 0 = the client wants none. It ends with ctx.
func stream(ctx context.Context, c clock.Clock, out pieceWriter, cursor Cursor, period time.Duration) error {
	if period > 0 {
		period = max(period, heartbeatPeriodMin)
	}
	for idle := c.Now() + period; ctx.Err() == nil; {
		piece, more, err := cursor.Next()
		if err != nil {
			return errors.Join(out.Flush(), fmt.Errorf("read log: %w", err))
		}
		wrote := false
		if piece != nil {
			wrote, err = out.Piece(*piece)
		}
		if err == nil && !wrote {
			err = out.Flush()
		}
		if err == nil && !wrote && period > 0 && c.Now() >= idle { // a reader that skips much needs heartbeats, too
			wrote, err = true, out.Heartbeat()
		}
		if err == nil && !wrote && piece == nil {
			err = await(ctx, c, more, idle, period)
		}
		if err != nil {
			return err
		}
		if wrote {
			idle = c.Now() + period
		}
	}
	return ctx.Err()
}

// await waits until there may be more, or a heartbeat is due.
func await(ctx context.Context, c clock.Clock, more <-chan struct{}, idle, period time.Duration) error {
	if period == 0 {
		return c.Wait(ctx, 0, more)
	}
	return c.Wait(ctx, max(1, idle-c.Now()), more)
}

// DumpWriter writes the log to one replica, in packets, and counts the replica's position. A
// Feed uses it for its dumps; the simulator, on its own connections. One goroutine uses it.
type DumpWriter struct {
	conn     net.Conn
	stats    *FeedCounters
	serverID uint32
	// v2 asks for heartbeats of version 2.
	v2, wrap bool
	// workers is how many transactions the replica applies at the same time; 0 = as many as
	// the events allow.
	workers  int
	sequence uint8
	buf      []byte
	// scratch is the buffer of a wrapped transaction, gtid the buffer of a GTID event.
	scratch, gtid []byte
	// file and offset are where the replica believes it is: the name of the
	// last ROTATE, and 4 plus the lengths of the events since.
	file   string
	offset uint64
}

// NewDumpWriter returns a writer to a replica that wants heartbeats of version 2 and applies
// workers transactions at the same time (0 = as many as the events allow). serverID is the
// server id of the artificial events. Its packets begin with sequence number 0. All dumps of a
// process share counters, so that no two of them give a file the same name.
func NewDumpWriter(conn net.Conn, counters *FeedCounters, serverID uint32, workers int) *DumpWriter {
	return &DumpWriter{conn: conn, stats: counters, serverID: serverID, workers: workers, v2: true}
}

func (s *feedSession) newDumpWriter(v2 bool) *DumpWriter {
	w := NewDumpWriter(s.wire.conn, &s.feed.stats, s.feed.cfg.ServerID, 0)
	w.v2, w.wrap, w.sequence = v2, s.feed.cfg.WrapPayloads, s.wire.sequence
	return w
}

func (w *DumpWriter) next() uint8 { return w.sequence }

// Stream sends what the cursor has, and a heartbeat after each period in which there was
// nothing to send. It returns when ctx ends, or with the first error.
func (w *DumpWriter) Stream(ctx context.Context, c clock.Clock, cursor Cursor, period time.Duration) error {
	return stream(ctx, c, w, cursor, period)
}

// Piece frames one piece of the log. Less than writeBytesMin may stay unsent.
func (w *DumpWriter) Piece(p Piece) (bool, error) { return true, w.log(p) }

func (w *DumpWriter) log(p Piece) error {
	defer p.drop()
	if p.FormatDescription != nil {
		if err := w.boundary(p.FormatDescription); err != nil {
			return err
		}
	}
	if (len(p.Events) > 0 || p.Stage != nil) && w.file == "" {
		return errors.New("log begins without a format description")
	}
	if p.Stage != nil {
		return w.staged(p.Stage)
	}
	if w.wrap {
		return w.wrapped(p.Events)
	}
	return w.events(p.Events)
}

// boundary begins a file that the replica takes for the source's next binlog file. The
// replica's applier then finishes the transactions that run in parallel and starts a new
// logical clock.
func (w *DumpWriter) boundary(formatDescription []byte) error {
	event, err := binlog.ParseEvent(formatDescription)
	if err == nil {
		event, err = binlog.CleanFormatDescription(event, false)
	}
	if err != nil {
		return fmt.Errorf("prepare format description: %w", err)
	}
	w.file = fmt.Sprintf("quorate.%012d", w.stats.boundaries.Add(1))
	rotate := binlog.AppendFakeRotate(nil, w.serverID, w.file, binlogMagicBytes)
	if err := w.event(rotate); err != nil {
		return err
	}
	w.offset = binlogMagicBytes
	if event.LogPos() != 0 { // else the replica does not count it (queue_event)
		w.offset += uint64(len(event))
	}
	return w.event(event)
}

func (w *DumpWriter) events(raw []byte) error {
	for event, err := range binlog.Events(raw) {
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		w.offset += uint64(len(event))
		if event.Type() == binlog.TypeGTID {
			event = w.limited(event)
		}
		if err := w.event(event); err != nil {
			return err
		}
	}
	return nil
}

// limited returns the GTID event that the replica gets: it allows no more parallel work than
// the replica has workers, and its length stays the same.
func (w *DumpWriter) limited(event binlog.Event) binlog.Event {
	limited := binlog.LimitParallel(w.gtid, event, w.workers)
	if &limited[0] != &event[0] {
		w.gtid = limited
	}
	return limited
}

// wrapped sends each transaction as two events where that is possible.
func (w *DumpWriter) wrapped(raw []byte) error {
	for transaction, err := range binlog.Transactions(raw) {
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		events := transaction.Raw
		if out, ok := binlog.WrapPayload(w.scratch[:0], events); ok {
			events, w.scratch = out, out
		}
		if err := w.events(events); err != nil {
			return err
		}
	}
	return nil
}

// staged sends the events of a staged transaction as they are. It holds at most partBytesMax of
// a long event.
func (w *DumpWriter) staged(stage StageEvents) error {
	err := w.stagedEvents(stage)
	if errors.Is(err, errStageDamaged) {
		stage.Damaged(err)
	}
	return err
}

// errStageDamaged marks errors that mean that the bytes of a stage are damaged.
var errStageDamaged = errors.New("stage is damaged")

// readFailed wraps an error of reading a stage. A sector that cannot be read counts as damage;
// other errors, such as a stage that is gone, do not.
func readFailed(err error) error {
	if errors.Is(err, syscall.EIO) {
		return fmt.Errorf("read stage: %w: %w", errStageDamaged, err)
	}
	return fmt.Errorf("read stage: %w", err)
}

func (w *DumpWriter) stagedEvents(stage StageEvents) error {
	left := stage.Size()
	in := bufio.NewReaderSize(io.NewSectionReader(stage, 0, left), partBytesMax)
	for left > 0 {
		head, err := in.Peek(binlog.HeaderBytes)
		if err != nil {
			return readFailed(err)
		}
		n := int64(binlog.Event(head).Length())
		if n < binlog.HeaderBytes+binlog.ChecksumBytes || n > left {
			return fmt.Errorf("read stage: %w: %w: event of %d bytes, %d are left", errStageDamaged, binlog.ErrMalformed, n, left)
		}
		if err := w.stagedEvent(in, head); err != nil {
			return err
		}
		left -= n
		w.offset += uint64(n)
	}
	return nil
}

// stagedEvent frames, as event does, the event that in has next; head is its header. The
// checksum is verified before the last bytes leave: a replica does not take an event whose
// packet is cut short.
func (w *DumpWriter) stagedEvent(in *bufio.Reader, head binlog.Event) error {
	if n := int(head.Length()); head.Type() == binlog.TypeGTID && n <= in.Size() {
		whole, err := in.Peek(n)
		if err != nil {
			return readFailed(err)
		}
		if limited := w.limited(whole); &limited[0] != &whole[0] {
			_, _ = in.Discard(n) // cannot fail: these bytes were peeked
			return w.event(limited)
		}
		head = whole[:binlog.HeaderBytes] // Peek may have moved what is buffered
	}
	w.stats.events.Add(1)
	w.stats.bytes.Add(uint64(head.Length()))
	checksum := binlog.NewChecksum(head)
	left := 1 + int(head.Length())
	for first := true; ; first = false {
		n := min(left, packetBytesMax)
		left -= n
		w.buf = appendPacketHeader(w.buf, n, w.sequence)
		w.sequence++
		part := n
		if first {
			w.buf = append(w.buf, headerOK)
			part--
		}
		for part > 0 {
			b, err := in.Peek(min(part, in.Size()))
			if err != nil {
				return readFailed(err)
			}
			if err := checksum.Add(b); err != nil {
				return fmt.Errorf("verify stage: %w: %w", errStageDamaged, err)
			}
			if err := w.append(b); err != nil {
				return err
			}
			_, _ = in.Discard(len(b)) // cannot fail: these bytes were peeked
			part -= len(b)
		}
		if n < packetBytesMax {
			return nil
		}
	}
}

// Heartbeat tells an idle replica that the source is alive. Before the first
// boundary there is no position to tell, and version 1 has no room for one
// beyond 4 GiB.
func (w *DumpWriter) Heartbeat() error {
	var event []byte
	switch {
	case w.file == "":
		return nil
	case w.v2:
		event = binlog.AppendHeartbeatV2(nil, w.serverID, w.file, w.offset)
	case w.offset < 1<<32:
		event = binlog.AppendHeartbeat(nil, w.serverID, w.file, uint32(w.offset))
	default:
		return nil
	}
	w.stats.heartbeats.Add(1)
	if err := w.event(event); err != nil {
		return err
	}
	return w.Flush()
}

// event frames one event: OK and the event, cut where a packet is full. A
// payload of just packetBytesMax is followed by an empty packet.
func (w *DumpWriter) event(event []byte) error {
	w.stats.events.Add(1)
	w.stats.bytes.Add(uint64(len(event)))
	n := min(1+len(event), packetBytesMax)
	w.buf = append(appendPacketHeader(w.buf, n, w.sequence), headerOK)
	w.sequence++
	if err := w.append(event[:n-1]); err != nil {
		return err
	}
	for event = event[n-1:]; n == packetBytesMax; event = event[n:] {
		n = min(len(event), packetBytesMax)
		w.buf = appendPacketHeader(w.buf, n, w.sequence)
		w.sequence++
		if err := w.append(event[:n]); err != nil {
			return err
		}
	}
	return nil
}

// append adds bytes to the buffer, or sends both if that is enough for a
// write; long events are not copied.
func (w *DumpWriter) append(b []byte) error {
	if len(b) < writeBytesMin {
		w.buf = append(w.buf, b...)
		b = nil
	}
	if len(w.buf)+len(b) < writeBytesMin {
		return nil
	}
	return w.send(b)
}

// Flush sends what is unsent.
func (w *DumpWriter) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	return w.send(nil)
}

// send writes the buffer, and b behind it, in one system call.
func (w *DumpWriter) send(b []byte) error {
	if err := w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	buffers := net.Buffers{w.buf}
	if len(b) > 0 {
		buffers = append(buffers, b)
	}
	if _, err := buffers.WriteTo(w.conn); err != nil {
		return fmt.Errorf("send to replica: %w", err)
	}
	w.buf = w.buf[:0]
	return nil
}
