package tap

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// PartBytesMin is the length in bytes above which an event of a staged
// transaction may be read in parts.
const PartBytesMin = 1 << 20

// endEventBytesMax is the longest last event that goes into a naming entry. XID and XA_PREPARE
// have at most 164 bytes, a COMMIT has a few hundred; a longer event is a statement.
const endEventBytesMax = 4 << 10

// stream checks the events of one dump connection and follows the binlog position. It does no
// I/O. In any doubt it returns an error: the tap then ends, and nothing more is acknowledged.
type stream struct {
	exclude *gtid.Set
	// stageBytesMin and checkAccounts are Config's.
	stageBytesMin uint64
	checkAccounts func(binlog.Query) error
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
	// stage is set while the open transaction is a staged one.
	stage *Stage
	// checksum is the running checksum of an event that comes in parts.
	checksum binlog.Checksum
}

// Stage is what is known of a staged transaction while it arrives.
type Stage struct {
	// Bytes is how many bytes of it were read, CRC is their CRC32C.
	Bytes uint64
	CRC   uint32

	gtidEvent, endEvent []byte
	rows                bool
}

func (g *Stage) add(part []byte) {
	g.Bytes += uint64(len(part))
	g.CRC = crc32.Update(g.CRC, crc32.MakeTable(crc32.Castagnoli), part)
}

// StepKind says what an event means to the tap.
type StepKind uint8

// The kinds of step.
const (
	StepNothing   StepKind = iota
	StepBegin              // first event of a transaction
	StepInner              // further event of a transaction
	StepEnd                // last event of a transaction
	StepRotate             // FORMAT_DESCRIPTION of the next binlog file
	StepSkipped            // excluded transactions were passed over
	StepHeartbeat          // sign of life
)

// Step is what an event means to the tap.
type Step struct {
	Kind StepKind
	// Event aliases what was read. If it is shorter than its header says, the
	// rest has to go through ReadMore before the step is applied.
	Event binlog.Event
	// GTID and TransactionBytes (0: unknown) are set for StepBegin.
	GTID             gtid.GTID
	TransactionBytes uint64
	// Position is set for StepEnd, StepRotate and StepSkipped.
	Position Position
	// At is where the event, or the range that was skipped, ends.
	At Position
	// Stage is set if the event is of a staged transaction: its bytes go to the
	// stage.
	Stage *Stage
}

// accept takes the next event. Errors: ErrStream, ErrDuplicateGTID, and those
// of package binlog for damaged or foreign events.
func (s *stream) accept(raw []byte) (Step, error) {
	if left := s.checksum.Left(); left > 0 {
		return Step{}, fmt.Errorf("%w: the event at %v lacks %d bytes", ErrStream, s.position, left)
	}
	if !s.assembler.InTransaction() {
		s.stage = nil
	}
	if s.inParts(raw) {
		return s.acceptHead(raw)
	}
	event, err := binlog.ParseEvent(raw)
	if err != nil {
		return Step{}, fmt.Errorf("read event: %w", err)
	}
	if err := binlog.VerifyChecksum(event); err != nil {
		return Step{}, fmt.Errorf("verify event after %v: %w", s.position, err)
	}
	step, err := s.assembler.Feed(event)
	if err != nil {
		return Step{}, fmt.Errorf("place event after %v: %w", s.position, err)
	}
	switch event.Type() {
	case binlog.TypeRotate:
		return Step{}, s.rotate(event)
	case binlog.TypeHeartbeat, binlog.TypeHeartbeatV2:
		return s.heartbeat(event)
	}
	if s.position.File == "" || s.described != s.position.File && event.Type() != binlog.TypeFormatDescription {
		return Step{}, fmt.Errorf("%w: event of type %d before the file is known", ErrStream, event.Type())
	}
	gap := step == binlog.StepBegin || step == binlog.StepControl
	if err := s.advance(event, gap); err != nil {
		return Step{}, err
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
	return Step{}, nil
}

// inParts reports whether the event that starts with head may be read in parts:
// nothing but its header matters here, and its bytes go to a stage.
func (s *stream) inParts(head []byte) bool {
	if s.stage == nil || len(head) < binlog.HeaderBytes {
		return false
	}
	e := binlog.Event(head)
	return e.Length() > PartBytesMin && e.Type() != binlog.TypeQuery
}

func (s *stream) acceptHead(head binlog.Event) (Step, error) {
	s.checksum = binlog.NewChecksum(head)
	step, err := s.assembler.FeedHead(head)
	if err != nil {
		return Step{}, fmt.Errorf("place event after %v: %w", s.position, err)
	}
	if err := s.advance(head, false); err != nil {
		return Step{}, err
	}
	if err := s.checksum.Add(head); err != nil {
		return Step{}, fmt.Errorf("verify event at %v: %w", s.position, err)
	}
	return s.within(head, step)
}

// more takes the next part of an event that comes in parts.
func (s *stream) more(part []byte) error {
	if err := s.checksum.Add(part); err != nil {
		return fmt.Errorf("verify event at %v: %w", s.position, err)
	}
	s.stage.add(part)
	return nil
}

// rotate takes the name of the file that follows, from the artificial ROTATE
// before each file or the real one at the end of the file before.
func (s *stream) rotate(event binlog.Event) error {
	name, offset, err := binlog.ParseRotate(event)
	if err != nil {
		return fmt.Errorf("read rotation: %w", err)
	}
	// The name goes into acknowledgements. With a path, mysqld would take it for a later file
	// than any other: it compares lengths first (facts Q2).
	if name == "" || strings.ContainsAny(name, "/\\") {
		return fmt.Errorf("%w: binlog file named %q", ErrStream, name)
	}
	s.position = Position{File: name, Offset: offset}
	return nil
}

// describe takes a file's FORMAT_DESCRIPTION. The first file's opens the stream. Each further
// one is a rotation, which restarts the logical clock.
func (s *stream) describe(event binlog.Event) (Step, error) {
	format, err := binlog.ParseFormatDescription(event)
	if err != nil {
		return Step{}, fmt.Errorf("read format description: %w", err)
	}
	if format.Checksum != binlog.ChecksumCRC32 {
		return Step{}, fmt.Errorf("%w: binlog %s without checksums", ErrStream, s.position.File)
	}
	if s.described == s.position.File {
		return Step{}, fmt.Errorf("%w: second format description in %s", ErrStream, s.described)
	}
	s.described = s.position.File
	if s.formatDescription == nil {
		s.formatDescription, s.firstFile = bytes.Clone(event), s.described
		return Step{}, nil
	}
	return Step{Kind: StepRotate, Event: event, Position: s.position}, nil
}

// heartbeat takes the source's position. At the end of the last event it says nothing. Beyond
// it, the source passed over transactions that the tap had excluded, because the source sends
// all others.
func (s *stream) heartbeat(event binlog.Event) (Step, error) {
	name, offset, err := binlog.ParseHeartbeat(event)
	if err != nil {
		return Step{}, fmt.Errorf("read heartbeat: %w", err)
	}
	if name != s.position.File {
		return Step{}, fmt.Errorf("%w: heartbeat for %s in %s", ErrStream, name, s.position.File)
	}
	if event.Type() == binlog.TypeHeartbeat {
		offset |= s.position.Offset &^ (1<<32 - 1)
	}
	if offset <= s.position.Offset {
		return Step{Kind: StepHeartbeat}, nil
	}
	if s.assembler.InTransaction() {
		return Step{}, fmt.Errorf("%w: heartbeat at %d passes over the transaction at %v", ErrStream, offset, s.position)
	}
	s.position.Offset = offset
	return Step{Kind: StepSkipped, Position: s.position}, nil
}

// advance moves the position to the end of event. The header has only the low 32 bits. If the
// event follows directly on the last one, its length gives the high bits. Where a range was
// skipped, the high bits are taken as unchanged, not guessed (the heartbeat that reports the
// range has all 64 bits). gap says that a range may have been skipped before event.
func (s *stream) advance(event binlog.Event, gap bool) error {
	low := uint64(event.LogPos())
	if low == 0 && event.Flags()&binlog.FlagArtificial != 0 {
		return nil
	}
	const mask = 1<<32 - 1
	end := s.position.Offset + uint64(event.Length())
	if end&mask != low {
		jump := s.position.Offset&^mask | low
		if !gap || jump < end {
			return fmt.Errorf("%w: event of type %d and %d bytes ends at %d, the one before at %v",
				ErrStream, event.Type(), event.Length(), low, s.position)
		}
		end = jump
	}
	s.position.Offset = end
	return nil
}

func (s *stream) begin(event binlog.Event) (Step, error) {
	info := s.assembler.Info()
	if s.exclude.Contains(info.GTID) {
		return Step{}, fmt.Errorf("%w: %v at %v is committed already", ErrDuplicateGTID, info.GTID, s.position)
	}
	if !s.seen.Add(info.GTID) {
		return Step{}, fmt.Errorf("%w: %v at %v came twice", ErrDuplicateGTID, info.GTID, s.position)
	}
	out := Step{Kind: StepBegin, Event: event, GTID: info.GTID, TransactionBytes: info.TransactionLength}
	if s.stageBytesMin > 0 && info.TransactionLength > s.stageBytesMin {
		s.stage = &Stage{gtidEvent: bytes.Clone(event)}
		s.stage.add(event)
		out.Stage = s.stage
	}
	return out, nil
}

// within takes an event that is not the first of its transaction, whole or its first part.
func (s *stream) within(event binlog.Event, step binlog.Step) (Step, error) {
	out := Step{Kind: StepInner, Event: event}
	if step == binlog.StepEnd {
		out.Kind, out.Position = StepEnd, s.position
	}
	if event.Type() == binlog.TypeQuery {
		query, err := binlog.ParseQuery(event)
		if err != nil {
			return Step{}, fmt.Errorf("read statement: %w", err)
		}
		if s.checkAccounts != nil && binlog.IsACLStatement(query.Text) {
			if err := s.checkAccounts(query); err != nil {
				return Step{}, fmt.Errorf("transaction %v: %w", s.assembler.Info().GTID, err)
			}
		}
	}
	if s.stage != nil {
		s.staged(&out)
	}
	return out, nil
}

// staged makes step, which is not the transaction's first, part of the staged transaction.
func (s *stream) staged(step *Step) {
	step.Stage = s.stage
	s.stage.add(step.Event)
	t := step.Event.Type()
	s.stage.rows = s.stage.rows || binlog.IsRowEvent(t) || t == binlog.TypeTransactionPayload
	if step.Kind == StepEnd && t != binlog.TypeTransactionPayload && len(step.Event) <= endEventBytesMax {
		s.stage.endEvent = bytes.Clone(step.Event)
	}
}
