package mysqlwire

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/binlog"
	"github.com/quorate/quorate/internal/gtid"
)

// tapStream checks the events of one dump connection and follows the binlog
// position. It does no I/O. It refuses whatever it is in doubt about: the tap
// then ends, and nothing more is acknowledged.
type tapStream struct {
	exclude *gtid.Set
	// seen holds the GTIDs received on this connection (I9).
	seen      gtid.Set
	assembler binlog.Assembler
	// position is the end of the last event, or of the last skipped range.
	position Position
	// described is the file whose FORMAT_DESCRIPTION arrived last.
	described string
	// formatDescription and firstFile are what the stream began with.
	formatDescription binlog.Event
	firstFile         string
}

type stepKind uint8

const (
	stepNothing   stepKind = iota
	stepBegin              // first event of a transaction
	stepInner              // further event of a transaction
	stepEnd                // last event of a transaction
	stepRotate             // FORMAT_DESCRIPTION of the next binlog file
	stepSkipped            // excluded transactions were passed over
	stepHeartbeat          // sign of life
)

// streamStep is what an event means to the tap.
type streamStep struct {
	kind stepKind
	// event aliases the packet that was read.
	event binlog.Event
	// gtid and transactionBytes (0: unknown) are set for stepBegin.
	gtid             gtid.GTID
	transactionBytes uint64
	// acl is set for a statement that changes privileges.
	acl bool
	// position is set for stepEnd, stepRotate and stepSkipped.
	position Position
}

func newTapStream(exclude *gtid.Set) *tapStream { return &tapStream{exclude: exclude} }

// accept takes the next event. Errors: ErrStream, ErrDuplicateGTID, and those
// of package binlog for damaged or foreign events.
func (s *tapStream) accept(raw []byte) (streamStep, error) {
	event, err := binlog.ParseEvent(raw)
	if err != nil {
		return streamStep{}, fmt.Errorf("read event: %w", err)
	}
	if err := binlog.VerifyChecksum(event); err != nil {
		return streamStep{}, fmt.Errorf("verify event after %v: %w", s.position, err)
	}
	step, err := s.assembler.Feed(event)
	if err != nil {
		return streamStep{}, fmt.Errorf("place event after %v: %w", s.position, err)
	}
	switch event.Type() {
	case binlog.TypeRotate:
		return streamStep{}, s.rotate(event)
	case binlog.TypeHeartbeat, binlog.TypeHeartbeatV2:
		return s.heartbeat(event)
	}
	if s.position.File == "" || s.described != s.position.File && event.Type() != binlog.TypeFormatDescription {
		return streamStep{}, fmt.Errorf("%w: event of type %d before the file is known", ErrStream, event.Type())
	}
	gap := step == binlog.StepBegin || step == binlog.StepControl
	if err := s.advance(event, gap); err != nil {
		return streamStep{}, err
	}
	if event.Type() == binlog.TypeFormatDescription {
		return s.describe(event)
	}
	switch step {
	case binlog.StepBegin:
		return s.begin(event)
	case binlog.StepInner, binlog.StepEnd:
		return s.within(event, step)
	}
	return streamStep{}, nil
}

// rotate takes the name of the file that follows, from the artificial ROTATE
// before each file or the real one at the end of the file before.
func (s *tapStream) rotate(event binlog.Event) error {
	name, offset, err := binlog.ParseRotate(event)
	if err != nil {
		return fmt.Errorf("read rotation: %w", err)
	}
	// The name goes into acknowledgements, where a path would make it a later
	// file than any: mysqld compares lengths first (facts Q2).
	if name == "" || strings.ContainsAny(name, "/\\") {
		return fmt.Errorf("%w: binlog file named %q", ErrStream, name)
	}
	s.position = Position{File: name, Offset: offset}
	return nil
}

// describe takes a file's FORMAT_DESCRIPTION. That of the first file opens the
// stream; each further one is a rotation, which restarts the logical clock.
func (s *tapStream) describe(event binlog.Event) (streamStep, error) {
	format, err := binlog.ParseFormatDescription(event)
	if err != nil {
		return streamStep{}, fmt.Errorf("read format description: %w", err)
	}
	if format.Checksum != binlog.ChecksumCRC32 {
		return streamStep{}, fmt.Errorf("%w: binlog %s without checksums", ErrStream, s.position.File)
	}
	if s.described == s.position.File {
		return streamStep{}, fmt.Errorf("%w: second format description in %s", ErrStream, s.described)
	}
	s.described = s.position.File
	if s.formatDescription == nil {
		s.formatDescription, s.firstFile = bytes.Clone(event), s.described
		return streamStep{}, nil
	}
	return streamStep{kind: stepRotate, event: event, position: s.position}, nil
}

// heartbeat takes the source's position. At the end of the last event it says
// nothing. Beyond it, the source passed over transactions that the tap had
// excluded: all that it does not exclude it sends.
func (s *tapStream) heartbeat(event binlog.Event) (streamStep, error) {
	name, offset, err := binlog.ParseHeartbeat(event)
	if err != nil {
		return streamStep{}, fmt.Errorf("read heartbeat: %w", err)
	}
	if name != s.position.File {
		return streamStep{}, fmt.Errorf("%w: heartbeat for %s in %s", ErrStream, name, s.position.File)
	}
	if event.Type() == binlog.TypeHeartbeat {
		offset |= s.position.Offset &^ (1<<32 - 1)
	}
	if offset <= s.position.Offset {
		return streamStep{kind: stepHeartbeat}, nil
	}
	if s.assembler.InTransaction() {
		return streamStep{}, fmt.Errorf("%w: heartbeat at %d passes over the transaction at %v", ErrStream, offset, s.position)
	}
	s.position.Offset = offset
	return streamStep{kind: stepSkipped, position: s.position}, nil
}

// advance moves the position to the end of event. The header has only the low
// 32 bits. The high ones follow from the event's length if it follows on the
// last one; where a range was skipped, they are taken for unchanged, and not
// guessed (the heartbeat that reports the range has all 64). gap says that a
// range may have been skipped before event.
func (s *tapStream) advance(event binlog.Event, gap bool) error {
	low := uint64(event.LogPos())
	if low == 0 && event.Flags()&binlog.FlagArtificial != 0 {
		return nil
	}
	const mask = 1<<32 - 1
	end := s.position.Offset + uint64(len(event))
	if end&mask != low {
		jump := s.position.Offset&^mask | low
		if !gap || jump < end {
			return fmt.Errorf("%w: event of type %d and %d bytes ends at %d, the one before at %v",
				ErrStream, event.Type(), len(event), low, s.position)
		}
		end = jump
	}
	s.position.Offset = end
	return nil
}

func (s *tapStream) begin(event binlog.Event) (streamStep, error) {
	info := s.assembler.Info()
	if s.exclude.Contains(info.GTID) {
		return streamStep{}, fmt.Errorf("%w: %v at %v is committed already", ErrDuplicateGTID, info.GTID, s.position)
	}
	if !s.seen.Add(info.GTID) {
		return streamStep{}, fmt.Errorf("%w: %v at %v came twice", ErrDuplicateGTID, info.GTID, s.position)
	}
	return streamStep{kind: stepBegin, event: event, gtid: info.GTID, transactionBytes: info.TransactionLength}, nil
}

func (s *tapStream) within(event binlog.Event, step binlog.Step) (streamStep, error) {
	out := streamStep{kind: stepInner, event: event}
	if step == binlog.StepEnd {
		out.kind, out.position = stepEnd, s.position
	}
	if event.Type() == binlog.TypeQuery {
		query, err := binlog.ParseQuery(event)
		if err != nil {
			return streamStep{}, fmt.Errorf("read statement: %w", err)
		}
		out.acl = binlog.IsACLStatement(query.Text)
	}
	return out, nil
}
