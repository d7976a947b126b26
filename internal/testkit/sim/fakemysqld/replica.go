package fakemysqld

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Errors with which the I/O thread stops (facts Q6).
var (
	ErrNotReplicating = errors.New("fakemysqld: the I/O thread does not run")
	// ErrHeartbeat is ER_REPLICA_HEARTBEAT_FAILURE.
	ErrHeartbeat = errors.New("fakemysqld: heartbeat for another position")
	// ErrRelay is ER_REPLICA_RELAY_LOG_WRITE_FAILURE and its like.
	ErrRelay = errors.New("fakemysqld: event does not fit into the relay log")
)

// replica is the replication channel. It does not survive the process.
type replica struct {
	ioRunning, sqlRunning bool
	ioError               string
	// sqlError says why the applier stopped, sqlFails why it will stop at its next transaction.
	sqlError, sqlFails string
	blocked            bool
	// applierWaits: the applier's transaction was binlogged and waits for an ACK.
	applierWaits bool
	relay        []relayed
	connection   feedConnection
}

// relayed is a whole transaction of the relay log.
type relayed struct {
	gtid gtid.GTID
	op   operation
}

// feedConnection is what the I/O thread knows about one connection.
type feedConnection struct {
	// file and offset are where it believes the source to be.
	file   string
	offset uint64
	// typesMax is the highest event type of the file's FORMAT_DESCRIPTION; 0:
	// there was none yet.
	typesMax  int
	assembler binlog.Assembler
	incoming  operationReader
}

// StartReplica is START REPLICA.
func (s *Server) StartReplica() {
	if s.alive {
		s.ioRunning, s.sqlRunning, s.ioError, s.sqlError = true, true, "", ""
		s.connection = feedConnection{}
	}
}

// StopReplica is STOP REPLICA. The relay log stays.
func (s *Server) StopReplica() {
	s.ioRunning, s.sqlRunning = false, false
	s.connection = feedConnection{}
}

// ResetReplica is RESET REPLICA ALL: the relay log is gone.
func (s *Server) ResetReplica() {
	s.StopReplica()
	s.relay, s.ioError = nil, ""
}

// ReplicaRunning returns which threads run, and why the I/O thread stopped.
func (s *Server) ReplicaRunning() (io, sql bool, err string) {
	return s.ioRunning, s.sqlRunning, s.ioError
}

// ApplierError returns why the applier stopped; "" = without an error.
func (s *Server) ApplierError() string { return s.sqlError }

// Relayed counts the transactions that were received and not applied.
func (s *Server) Relayed() int { return len(s.relay) }

// RequestSet is the set that the I/O thread sends to its source: the executed transactions, and those
// in the relay log.
func (s *Server) RequestSet() *gtid.Set {
	set := s.executed.Clone()
	for _, r := range s.relay {
		set.Add(r.gtid)
	}
	return set
}

// Disconnect ends the feed's connection. An incomplete transaction is dropped; the I/O thread connects
// again.
func (s *Server) Disconnect() { s.connection = feedConnection{} }

// Receive takes an event from the feed, as the I/O thread's queue_event does. After an error the I/O
// thread has stopped. The caller may reuse the event afterwards.
func (s *Server) Receive(event []byte) error {
	if !s.alive || !s.ioRunning {
		return ErrNotReplicating
	}
	err := s.receive(event)
	if err != nil {
		s.ioRunning, s.ioError = false, err.Error()
		s.connection = feedConnection{}
	}
	return err
}

func (s *Server) receive(raw []byte) error {
	e, err := binlog.ParseEvent(raw)
	if err == nil {
		err = binlog.VerifyChecksum(e)
	}
	if err != nil {
		return fmt.Errorf("read event: %w", err)
	}
	c := &s.connection
	step, err := c.assembler.Feed(e)
	if err != nil {
		return fmt.Errorf("queue event: %w", err)
	}
	switch e.Type() {
	case binlog.TypeRotate:
		c.file, c.offset, err = binlog.ParseRotate(e)
		c.typesMax = 0
		return err
	case binlog.TypeFormatDescription:
		return c.describe(e)
	case binlog.TypeHeartbeat, binlog.TypeHeartbeatV2:
		return c.heartbeat(e)
	}
	if c.typesMax == 0 || int(e.Type()) > c.typesMax {
		return fmt.Errorf("%w: type %d, the format has %d types", ErrRelay, e.Type(), c.typesMax)
	}
	c.offset += uint64(len(e))
	if step == binlog.StepControl {
		return nil
	}
	if err := c.incoming.take(e); err != nil {
		return fmt.Errorf("queue event: %w", err)
	}
	if step != binlog.StepEnd {
		return nil
	}
	if c.incoming.kind == 0 {
		return fmt.Errorf("queue event: %w: transaction without an operation", errForeign)
	}
	s.relay = append(s.relay, relayed{c.assembler.Info().GTID, c.incoming.operation})
	return nil
}

func (c *feedConnection) describe(e binlog.Event) error {
	format, err := binlog.ParseFormatDescription(e)
	if err != nil {
		return fmt.Errorf("queue event: %w", err)
	}
	if c.file == "" || format.Checksum != binlog.ChecksumCRC32 {
		return fmt.Errorf("%w: format description before a file's name, or without checksums", ErrRelay)
	}
	c.typesMax = len(format.PostHeaderBytes)
	if e.LogPos() != 0 {
		c.offset += uint64(len(e))
	}
	return nil
}

// heartbeat wants the file name of the last ROTATE, and a position at or behind the sum of the
// received events.
func (c *feedConnection) heartbeat(e binlog.Event) error {
	name, offset, err := binlog.ParseHeartbeat(e)
	if err != nil {
		return err
	}
	if name != c.file || offset < c.offset {
		return fmt.Errorf("%w: %s:%d, the replica is at %s:%d", ErrHeartbeat, name, offset, c.file, c.offset)
	}
	return nil
}

// Applying returns the transaction that the applier takes next.
func (s *Server) Applying() (next gtid.GTID, ok bool) {
	if !s.alive || !s.sqlRunning || s.applierWaits {
		return gtid.GTID{}, false
	}
	for _, r := range s.relay {
		if !s.executed.Contains(r.gtid) {
			return r.gtid, true
		}
	}
	return gtid.GTID{}, false
}

// BlockApplier makes a lock block the applier, or releases that lock.
func (s *Server) BlockApplier(blocked bool) { s.blocked = blocked }

// FailApplier makes the applier stop with an error at its next transaction; "" = it does not stop any more.
func (s *Server) FailApplier(why string) { s.sqlFails = why }

// Apply engine-commits up to n received transactions, in order, and returns how many it has finished.
// It skips transactions in gtid_executed. Like a real applier it runs under super_read_only.
func (s *Server) Apply(n int) int {
	done := 0
	for done < n && s.alive && s.sqlRunning && !s.blocked && !s.applierWaits && len(s.relay) > 0 {
		r := s.relay[0]
		if !s.executed.Contains(r.gtid) && !s.apply(r) {
			break
		}
		s.relay = s.relay[1:]
		done++
	}
	return done
}

// apply reports whether the applier has finished a transaction.
func (s *Server) apply(r relayed) bool {
	if s.taken.Contains(r.gtid) {
		return false // a session here owns the GTID: the applier waits for it
	}
	if s.applierLocked(r.op) {
		return false
	}
	if s.sqlError = cmp.Or(s.sqlFails, s.applierError(r.op)); s.sqlError != "" {
		s.sqlRunning = false
		return false
	}
	s.xaBegun = s.xaBegun || r.op.kind == XAPrepare || r.op.kind == XAOnePhase
	if s.opt.ReplicaBinlog {
		if s.draining {
			return false
		}
		s.applierWaits = true // engineCommit ends that
		s.flushGroup([]*session{{applier: true, op: r.op, gtid: r.gtid}})
		return true
	}
	e := &s.disk.engine
	e.write() // ha_flush_logs, once a group (facts Q5)
	switch {
	case r.op.kind == XAPrepare, r.op.endsXA():
		s.applyXA(r)
	case r.op.kind != NoOp || e.hasTable(r.op.key):
		e.append(record{kind: committed, gtid: r.gtid, op: r.op})
		if r.op.isStatement() {
			e.flush()
		}
	default:
		// Without a binlog the server saves the GTID itself (facts Q5).
		set := &gtid.Set{}
		set.Add(r.gtid)
		e.append(record{kind: saved, set: set})
	}
	s.executed.Add(r.gtid)
	s.taken.Add(r.gtid)
	s.purged.Add(r.gtid)
	return true
}
