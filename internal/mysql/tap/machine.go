package tap

import (
	"errors"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// Errors that end a tap.
var (
	// ErrStream: the events contradict each other or the protocol.
	ErrStream = errors.New("tap: inconsistent binlog stream")
	// ErrDuplicateGTID: a transaction came twice, or it came though it is committed already
	// (I9). The node must be fenced.
	ErrDuplicateGTID = errors.New("tap: GTID seen before")
)

// Config says what a machine is for.
type Config struct {
	// Term is the Raft term of the epoch in which the tap is opened.
	Term uint64
	// Exclude holds the GTIDs that are committed in Raft and nothing more: positions of these
	// transactions are acknowledged although the tap never sees the transactions. It must not
	// change.
	Exclude *gtid.Set
	// BatchBytesMax is the length in bytes above which a batch is not grown;
	// 0 means 1 MiB.
	BatchBytesMax int
	// EntryBytesMax is the length in bytes of the longest entry; 0 means no
	// limit.
	EntryBytesMax int
	// StageBytesMin is the length in bytes above which a transaction is staged;
	// 0 means never. Less than 4 KiB means 4 KiB.
	StageBytesMin uint64
	// CheckAccounts is asked about each statement that changes accounts or privileges, before a batch
	// or a stage has it. Its error ends the stream. nil = no check.
	CheckAccounts func(binlog.Query) error
}

// stageBytesMinMin is the least Config.StageBytesMin: the statement that ends an
// XA transaction, of 700 bytes at most with its GTID event, is never staged.
const stageBytesMinMin = 4 << 10

// Machine turns the events of one dump connection into batches, and commits of these batches
// into positions to acknowledge. It must not be used after an error.
//
// Its state is in two halves: Read, InParts, ReadMore, Missing, FormatDescription and File
// touch one, every other method the other. A shell whose reader, proposer and acknowledger are
// goroutines locks around the second half, and needs no lock for the first, which only the
// reader uses.
type Machine struct {
	stream stream
	batch  batcher
	acks   ackQueue
	at     Position // the end of the last step that was applied
	// proposing is true from TakeBatch to Proposed or Refused. refused is the batch that was
	// given back.
	proposing bool
	refused   *Batch
}

// New returns a machine that expects the start of a stream.
func New(cfg Config) *Machine {
	if cfg.BatchBytesMax <= 0 {
		cfg.BatchBytesMax = batchBytesMaxDefault
	}
	if cfg.StageBytesMin > 0 {
		cfg.StageBytesMin = max(cfg.StageBytesMin, stageBytesMinMin)
	}
	m := &Machine{stream: stream{exclude: cfg.Exclude, stageBytesMin: cfg.StageBytesMin, checkAccounts: cfg.CheckAccounts}}
	m.batch = batcher{term: cfg.Term, bytesMax: cfg.BatchBytesMax, entryBytesMax: cfg.EntryBytesMax, acks: &m.acks}
	return m
}

// Read checks the next event of the stream and says what it means. Every step
// must be applied, in order. Errors: ErrStream, ErrDuplicateGTID,
// ErrTransactionTooLarge, and those of package binlog for damaged or foreign
// events.
func (m *Machine) Read(event []byte) (Step, error) {
	step, err := m.stream.accept(event)
	step.At = m.stream.position
	return step, err
}

// InParts reports whether the event that starts with head, its header at least,
// may be given to Read in parts: a beginning to Read, the rest to ReadMore.
func (m *Machine) InParts(head []byte) bool { return m.stream.inParts(head) }

// ReadMore takes the next part of the event whose beginning Read was given. With the last part
// it verifies the event's checksum.
func (m *Machine) ReadMore(part []byte) error { return m.stream.more(part) }

// Missing returns how many bytes of that event are still to come.
func (m *Machine) Missing() uint64 { return m.stream.checksum.Left() }

// FormatDescription returns the FORMAT_DESCRIPTION event with which the stream began, or nil
// before that event. The caller must not change it.
func (m *Machine) FormatDescription() []byte { return m.stream.formatDescription }

// File returns the base name of the binlog file with which the stream began.
func (m *Machine) File() string { return m.stream.firstFile }

// Apply carries out a step; now is when its event arrived. It returns false, and has done
// nothing, if the growing batch is in the way: take that batch, then apply the same step again.
//
// The events of a staged transaction (Step.Stage is set) do not go into a batch.
// Once its StepBegin is applied, StageID says which stage the bytes of all its
// events go to. That stage must be complete, with the length and CRC that
// Step.Stage says at StepEnd, before StepEnd is applied.
func (m *Machine) Apply(step Step, now time.Time) (done bool, err error) {
	if done, err = m.apply(step, now); done {
		m.at = step.At
	}
	return done, err
}

func (m *Machine) apply(step Step, now time.Time) (bool, error) {
	switch step.Kind {
	case StepBegin:
		if step.Stage != nil {
			return m.batch.beginStaged(step.GTID, now), nil
		}
		if ok, err := m.batch.begin(step.GTID, step.TransactionBytes, now); !ok || err != nil {
			return false, err
		}
		return true, m.batch.add(step.Event)
	case StepInner:
		if step.Stage != nil {
			return true, nil
		}
		return true, m.batch.add(step.Event)
	case StepEnd:
		if step.Stage != nil {
			m.batch.finishStaged(step.Stage, step.Position)
			return true, nil
		}
		if err := m.batch.add(step.Event); err != nil {
			return false, err
		}
		m.batch.finish(step.Position)
	case StepRotate:
		return m.batch.rotate(step.Event, step.Position, now), nil
	case StepSkipped:
		m.acks.skipped(step.Position)
	case StepHeartbeat, StepNothing:
	}
	return true, nil
}

// StageID names the stage of the staged transaction that has begun.
func (m *Machine) StageID() entry.StageID {
	return entry.StageID{Term: m.batch.term, Number: m.batch.taken + 1}
}

// Release lets the whole transactions of the growing batch be taken: the reader
// has nothing more at hand.
func (m *Machine) Release() { m.batch.release() }

// Ready reports whether TakeBatch would return a batch.
func (m *Machine) Ready() bool {
	return !m.proposing && !m.acks.closed && (m.batch.flush || m.refused != nil)
}

// TakeBatch returns the next batch, if one was released or is full. It returns none until the
// caller that took the batch before has called Proposed or Refused. After a proposal that
// failed no other may follow: the caller then calls Close instead.
func (m *Machine) TakeBatch() (Batch, bool) {
	if !m.Ready() {
		return Batch{}, false
	}
	m.proposing = true
	if b := m.refused; b != nil {
		m.refused = nil
		return *b, true
	}
	return m.batch.take()
}

// Proposed says that the batch that was taken last is proposed.
func (m *Machine) Proposed() { m.proposing = false }

// Refused gives back the batch that was taken last: the next caller of TakeBatch gets it.
func (m *Machine) Refused(b Batch) { m.proposing, m.refused = false, &b }

// Committed notes that the batches up to number are committed. It panics (I2)
// for a number that was never taken.
func (m *Machine) Committed(number uint64) { m.acks.commit(number) }

// NextAck returns the highest position that may be acknowledged, once.
func (m *Machine) NextAck() (Position, bool) { return m.acks.take() }

// Close ends the machine: no position and no batch comes out any more.
func (m *Machine) Close() { m.acks.close() }

// Outstanding counts the batches that were received or begun and are not committed.
func (m *Machine) Outstanding() uint64 { return m.acks.outstanding() }
