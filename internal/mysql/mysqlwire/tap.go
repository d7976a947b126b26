package mysqlwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/sys/nowait"
)

// netWriteTimeoutSeconds is how long mysqld's dump thread waits for a tap that does not read
// because propose blocks. It is the maximum of net_write_timeout (365 days): with the default
// of 60 s, back-pressure would cut the connection.
const netWriteTimeoutSeconds = 31536000

// streamHeadBytes is the length of the bytes in front of an event.
const streamHeadBytes = 3

// Errors that end a tap.
var (
	// ErrTapClosed: mysqld ended the stream, or Close was called.
	ErrTapClosed = errors.New("mysqlwire: tap closed")
	// ErrNotSemiSync: the stream is not semi-synchronous, so mysqld would not wait for the tap.
	// The plugin is not loaded or not enabled.
	ErrNotSemiSync = errors.New("mysqlwire: stream is not semi-synchronous")
)

// The types of package tap that a tap hands out.
type (
	// Batch is one entry, ready to be proposed.
	Batch = tap.Batch
	// Position is a place in the source's binlog.
	Position = tap.Position
	// StageWriter takes the bytes of one staged transaction.
	StageWriter = tap.StageWriter
)

// TapConfig says where and how to attach.
type TapConfig struct {
	// Socket is the path of mysqld's Unix socket.
	Socket string
	// User and Password log in; the account needs REPLICATION SLAVE.
	User, Password string
	// ServerID is the server id of the tap itself: not 0, and not that of any mysqld.
	ServerID uint32
	// ReplicaUUID is the UUID of the tap itself. When a newer tap with the same UUID connects,
	// mysqld ends the older one.
	ReplicaUUID string
	// HeartbeatPeriod is the longest silence of an idle stream.
	HeartbeatPeriod time.Duration
	// Exclude holds the GTIDs that are committed in Raft and nothing more: positions of these
	// transactions are acknowledged although the tap never sees the transactions.
	Exclude *gtid.Set
	// EntryBytesMax is the length in bytes of the longest entry; 0 means no
	// limit.
	EntryBytesMax int
	// StageBytesMin is the length in bytes above which a transaction is staged;
	// 0 means never. Less than 4 KiB means 4 KiB.
	StageBytesMin uint64
	// CheckAccounts is asked about each statement that changes accounts or privileges, before a batch
	// or a stage has it. Its error ends the tap. nil = no check.
	CheckAccounts func(binlog.Query) error
	// OpenStage opens the stage of a large transaction; it is needed unless
	// StageBytesMin is 0. ctx lasts as long as the tap: when it is done, the
	// stage's Write and Finish must return.
	OpenStage func(ctx context.Context, id entry.StageID) (StageWriter, error)
	// ProposeNow proposes a batch on the tap's reader goroutine, which saves waking the
	// proposer. It returns false where that would block, or the reader must not do it: then
	// Run's propose gets the batch. nil = propose gets every batch.
	ProposeNow func(Batch) (proposed bool)
	// Term is the Raft term of the epoch in which the tap is opened.
	Term uint64
	// Tasks starts Run's loops and makes them wait; nil = plain goroutines.
	Tasks  clock.Tasks
	Logger *slog.Logger
}

func (c *TapConfig) check() error {
	uuid, err := gtid.ParseUUID(c.ReplicaUUID)
	if err != nil {
		return fmt.Errorf("replica UUID of tap: %w", err)
	}
	c.ReplicaUUID = uuid.String()
	if c.ServerID == 0 {
		return errors.New("server id of tap is 0: mysqld would not wait for new events")
	}
	if c.EntryBytesMax != 0 && c.EntryBytesMax <= entry.HeaderBytes {
		return fmt.Errorf("entry limit of tap is %d bytes", c.EntryBytesMax)
	}
	if c.StageBytesMin > 0 && c.OpenStage == nil {
		return errors.New("tap stages transactions and has no stages")
	}
	c.Exclude = c.Exclude.Clone()
	return nil
}

// Tap is mysqld's semi-synchronous replica: it turns the binlog stream into
// batches and acknowledges what was committed. It belongs to one connection
// and one epoch; its state dies with them.
type Tap struct {
	cfg    TapConfig
	conn   net.Conn
	in     *packetReader
	closed atomic.Bool
	// intake belongs to the reader.
	intake tap.Intake
	// ready tells the proposer that a batch may be taken, room tells the reader that a batch
	// was taken, acks tells ackLoop that a position may be acknowledged. One token in each is
	// enough: the receiver looks at the state again.
	ready, room, acks chan struct{}

	// mu guards the half of the machine that does not belong to the reader. It is never held
	// during I/O.
	mu      sync.Mutex
	machine *tap.Machine

	// ackMu guards the writing of ACKs, by Ack where the socket takes them at once, else by
	// ackLoop. unsent is the rest of the last ACK, which the socket did not take.
	ackMu  sync.Mutex
	raw    syscall.RawConn
	packet []byte
	unsent []byte

	bytes, events, transactions, batches, acksSent, heartbeats atomic.Uint64
}

// TapStats counts since the tap was connected.
type TapStats struct {
	// Bytes and Events count what was read from the stream, control events included.
	Bytes, Events uint64
	// Transactions and Batches count what was handed to propose or ProposeNow.
	Transactions, Batches uint64
	// AcksSent counts acknowledgement packets.
	AcksSent uint64
	// Heartbeats counts the source's heartbeats.
	Heartbeats uint64
	// Outstanding counts the batches that were received or begun and are not committed.
	Outstanding uint64
}

// ConnectTap logs in and starts the dump. It returns once the stream's first
// ROTATE and FORMAT_DESCRIPTION have arrived; it starts no goroutine. Errors
// of mysqld are *ServerError (1236 if the excluded set does not fit, 1045).
func ConnectTap(ctx context.Context, cfg TapConfig) (*Tap, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", cfg.Socket)
	if err != nil {
		return nil, fmt.Errorf("connect tap: %w", err)
	}
	t, err := attachTap(ctx, conn, cfg)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return t, nil
}

// attachTap is ConnectTap on a given connection, which it does not close.
func attachTap(ctx context.Context, conn net.Conn, cfg TapConfig) (*Tap, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	t := newTap(conn, cfg)
	err := t.open(ctx)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("connect tap: %w", err)
	}
	return t, nil
}

// StartTap is ConnectTap on a connection on which the dump was already requested. Run closes
// conn; after an error the caller does. StartTap does not look at ctx while it reads.
func StartTap(ctx context.Context, conn net.Conn, cfg TapConfig) (*Tap, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	t := newTap(conn, cfg)
	return t, t.begin(ctx)
}

func newTap(conn net.Conn, cfg TapConfig) *Tap {
	if cfg.Tasks == nil {
		cfg.Tasks = clock.Machine{}
	}
	t := &Tap{
		cfg: cfg, conn: conn, raw: nowait.Raw(conn),
		in:    newPacketReader(conn, streamBufferBytes, eventBytesMax),
		ready: make(chan struct{}, 1), room: make(chan struct{}, 1), acks: make(chan struct{}, 1),
		machine: tap.New(tap.Config{
			Term: cfg.Term, Exclude: cfg.Exclude,
			EntryBytesMax: cfg.EntryBytesMax, StageBytesMin: cfg.StageBytesMin, CheckAccounts: cfg.CheckAccounts,
		}),
	}
	t.intake = tap.Intake{Machine: t.machine, Lock: &t.mu}
	return t
}

func (t *Tap) open(ctx context.Context) error {
	w := &wire{conn: t.conn, in: t.in}
	if err := login(w, t.cfg.User, t.cfg.Password); err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	settings := fmt.Sprintf("SET @source_binlog_checksum='CRC32', @source_heartbeat_period=%d, "+
		"@rpl_semi_sync_replica=1, @replica_uuid='%s', SESSION net_write_timeout=%d",
		t.cfg.HeartbeatPeriod.Nanoseconds(), t.cfg.ReplicaUUID, netWriteTimeoutSeconds)
	if err := w.startDump(settings, dumpRequest{flags: flagHeartbeatV2, serverID: t.cfg.ServerID, offset: binlogMagicBytes, exclude: t.cfg.Exclude}); err != nil {
		return err
	}
	return t.begin(ctx)
}

// startDump sets the settings of the session, registers as a replica and requests the dump. The login
// is done before.
func (w *wire) startDump(settings string, dump dumpRequest) error {
	for _, command := range [][]byte{append([]byte{comQuery}, settings...), registerRequest(dump.serverID)} {
		if err := w.command(command); err != nil {
			return fmt.Errorf("send settings: %w", err)
		}
		if err := w.expectOK(); err != nil {
			return fmt.Errorf("apply settings: %w", err)
		}
	}
	if err := w.command(dump.payload()); err != nil {
		return fmt.Errorf("request dump: %w", err)
	}
	return nil
}

// begin reads the stream up to its first FORMAT_DESCRIPTION.
func (t *Tap) begin(ctx context.Context) error {
	for t.machine.FormatDescription() == nil {
		if err := t.receive(ctx); err != nil {
			return fmt.Errorf("start dump: %w", err)
		}
	}
	return nil
}

// FormatDescription returns the FORMAT_DESCRIPTION event with which the stream
// began. The caller must not change it.
func (t *Tap) FormatDescription() []byte { return t.machine.FormatDescription() }

// File returns the base name of the binlog file with which the stream began.
func (t *Tap) File() string { return t.machine.File() }

// Run reads the stream and hands batches to propose (or ProposeNow), one call at a
// time, in order. While propose blocks, one more batch grows, then reading stops, which
// stops mysqld's dump thread. Batch n is handed over only after propose
// returned nil for batch n-1; an error from it ends the tap.
//
// Run returns after its goroutines have ended and the connection is closed:
// with ctx's error if that is done, else with the reason, which is never nil.
func (t *Tap) Run(ctx context.Context, propose func(context.Context, Batch) error) error {
	loops := []func(context.Context) error{
		t.readLoop, func(ctx context.Context) error { return t.proposeLoop(ctx, propose) }, t.ackLoop,
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	var left atomic.Int32
	left.Store(int32(len(loops)))
	ended := make(chan struct{})
	for _, loop := range loops {
		t.cfg.Tasks.Go(func() {
			end(loop(running)) // the first to end says why
			t.Close()
			if left.Add(-1) == 0 {
				close(ended)
			}
		})
	}
	for left.Load() > 0 {
		_ = t.cfg.Tasks.Wait(context.Background(), 0, ended)
	}
	t.abortStage()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return context.Cause(running)
}

// Ack tells the tap that the batches up to number are committed. It never blocks. The position
// is sent at once or soon after; several calls may become one packet. After Close it does
// nothing. It panics (I2) for a number that was never handed out.
func (t *Tap) Ack(number uint64) {
	t.committed(number)
	if !t.ackNow() {
		signal(t.acks)
	}
}

func (t *Tap) committed(number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machine.Committed(number)
}

// Close ends the connection; nothing is acknowledged after it. It may be
// called at any time and more than once.
func (t *Tap) Close() {
	t.stop() // in any case before the return: another caller may be in Close just now
	if t.closed.Swap(true) {
		return
	}
	_ = t.conn.Close() // the outcome changes nothing: the tap is gone
}

// stop makes the tap hand out nothing more: no batch and no acknowledgement.
func (t *Tap) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machine.Close()
}

// Stats returns the tap's counters.
func (t *Tap) Stats() TapStats {
	t.mu.Lock()
	outstanding := t.machine.Outstanding()
	t.mu.Unlock()
	return TapStats{
		Bytes:        t.bytes.Load(),
		Events:       t.events.Load(),
		Transactions: t.transactions.Load(),
		Batches:      t.batches.Load(),
		AcksSent:     t.acksSent.Load(),
		Heartbeats:   t.heartbeats.Load(),
		Outstanding:  outstanding,
	}
}

func (t *Tap) readLoop(ctx context.Context) error {
	t.intake.Open = func(step tap.Step, id entry.StageID) (StageWriter, error) {
		t.cfg.Logger.Debug("large transaction", "gtid", step.GTID, "bytes", step.TransactionBytes, "stage", id)
		return t.cfg.OpenStage(ctx, id)
	}
	for {
		// Everything that has arrived was taken in. It must not wait for what may come.
		if !t.in.ready() {
			t.release()
		}
		if err := t.receive(ctx); err != nil {
			return err
		}
	}
}

// receive reads the next event of the stream and applies it.
func (t *Tap) receive(ctx context.Context) error {
	if t.intake.Staging() {
		inParts, err := t.inParts()
		if err != nil {
			return err
		}
		if inParts {
			return t.receiveParts()
		}
	}
	payload, err := t.in.next()
	if err != nil {
		return t.readError(err)
	}
	event, err := streamEvent(payload)
	if err != nil {
		return err
	}
	t.bytes.Add(uint64(len(event)))
	t.events.Add(1)
	step, err := t.machine.Read(event)
	if err != nil {
		return err
	}
	return t.apply(ctx, step)
}

func (t *Tap) readError(err error) error {
	if t.closed.Load() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrTapClosed, err)
	}
	return fmt.Errorf("read stream: %w", err)
}

// explained adds the cause to mysqld's error for an event that it cannot send. The error names max_allowed_packet, but the
// bound is mysqld's own max_log_event_size, 1 GiB.
func explained(err error) error {
	if e, ok := errors.AsType[*ServerError](err); ok && e.Code == 1236 && strings.Contains(e.Message, "max_allowed_packet") {
		return fmt.Errorf("an event has more than 1 GiB, mysqld cannot send it (an UPDATE writes a whole row twice into one event): %w", err)
	}
	return err
}

// streamEvent removes what a semi-synchronous source puts before an event: OK, the magic byte,
// and whether it wants an acknowledgement, which the tap does not need: the events tell it.
func streamEvent(payload []byte) ([]byte, error) {
	switch {
	case len(payload) == 0:
		return nil, fmt.Errorf("%w: empty packet in stream", ErrMalformed)
	case payload[0] == headerErr:
		return nil, explained(parseServerError(payload))
	case isEOF(payload):
		return nil, fmt.Errorf("%w: source ended the dump", ErrTapClosed)
	case payload[0] != headerOK:
		return nil, fmt.Errorf("%w: packet %#x in stream", ErrMalformed, payload[0])
	case len(payload) < streamHeadBytes || payload[1] != ackMagic:
		return nil, ErrNotSemiSync
	}
	return payload[streamHeadBytes:], nil
}

// apply carries out the step of an event. It waits while the growing batch is in the way.
func (t *Tap) apply(ctx context.Context, step tap.Step) error {
	switch step.Kind {
	case tap.StepRotate:
		t.cfg.Logger.Debug("binlog rotated", "file", step.Position.File)
	case tap.StepSkipped:
		t.heartbeats.Add(1)
		defer signal(t.acks)
	case tap.StepHeartbeat:
		t.heartbeats.Add(1)
	}
	for now := time.Now(); ; {
		done, err := t.intake.Take(step, now)
		t.wakeProposer()
		if done || err != nil {
			return err
		}
		if err := t.cfg.Tasks.Wait(ctx, 0, t.room); err != nil {
			return err
		}
	}
}

// release proposes the whole transactions of the growing batch, or leaves them to the proposer.
func (t *Tap) release() {
	var propose func(Batch) bool
	if t.cfg.ProposeNow != nil {
		propose = t.proposeNow
	}
	t.intake.Release(propose)
	t.wakeProposer()
}

func (t *Tap) proposeNow(batch Batch) bool {
	t.count(batch)
	return t.cfg.ProposeNow(batch)
}

// wakeProposer wakes the proposer if there is a batch for it.
func (t *Tap) wakeProposer() {
	t.mu.Lock()
	ready := t.machine.Ready()
	t.mu.Unlock()
	if ready {
		signal(t.ready)
	}
}

// count counts a batch once, also if it is proposed a second time after ProposeNow refused it.
func (t *Tap) count(b Batch) {
	if t.batches.Swap(b.Number) != b.Number {
		t.transactions.Add(uint64(len(b.GTIDs)))
	}
}

func (t *Tap) nextAck() (Position, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machine.NextAck()
}

func (t *Tap) proposeLoop(ctx context.Context, propose func(context.Context, Batch) error) error {
	for {
		ok, err := t.proposeOne(ctx, propose)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		if err := t.cfg.Tasks.Wait(ctx, 0, t.ready); err != nil {
			return err
		}
	}
}

// proposeOne proposes the next batch, if there is one.
func (t *Tap) proposeOne(ctx context.Context, propose func(context.Context, Batch) error) (ok bool, err error) {
	t.mu.Lock()
	batch, ok := t.machine.TakeBatch()
	t.mu.Unlock()
	if !ok {
		return false, nil
	}
	signal(t.room)
	t.count(batch)
	if err := propose(ctx, batch); err != nil {
		t.stop()
		return false, fmt.Errorf("propose batch %d: %w", batch.Number, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machine.Proposed()
	return true, nil
}

// ackNow sends the position that may be acknowledged, unless another goroutine is sending or
// the socket does not take it. It returns false where ackLoop must send.
func (t *Tap) ackNow() (done bool) {
	if t.raw == nil || !t.ackMu.TryLock() {
		return false
	}
	defer t.ackMu.Unlock()
	if len(t.unsent) > 0 {
		return false
	}
	position, ok := t.nextAck()
	if !ok {
		return true
	}
	t.packet = appendAck(t.packet[:0], position)
	t.unsent = t.packet[nowait.Write(t.raw, t.packet):]
	if len(t.unsent) > 0 {
		return false
	}
	t.acksSent.Add(1)
	return true
}

// ackLoop sends the ACKs that Ack could not send at once.
func (t *Tap) ackLoop(ctx context.Context) error {
	for {
		_ = t.cfg.Tasks.Wait(ctx, 0, t.acks)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := t.ackAll(); err != nil {
			return fmt.Errorf("send acknowledgement: %w", err)
		}
	}
}

func (t *Tap) ackAll() error {
	t.ackMu.Lock()
	defer t.ackMu.Unlock()
	if len(t.unsent) == 0 {
		position, ok := t.nextAck()
		if !ok {
			return nil
		}
		t.packet = appendAck(t.packet[:0], position)
		t.unsent = t.packet
	} else {
		defer signal(t.acks) // a newer position may wait
	}
	if _, err := t.conn.Write(t.unsent); err != nil {
		return err
	}
	t.unsent = nil
	t.acksSent.Add(1)
	return nil
}

// signal leaves a token in a channel of capacity 1 without waiting.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
