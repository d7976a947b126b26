package mysqlwire

import (
	"context"
	"fmt"
	"io"

	"github.com/quorate/quorate/internal/binlog"
	"github.com/quorate/quorate/internal/tap"
)

// StageWriter takes the bytes of one staged transaction: its events, as they
// arrive. One goroutine uses it. An error of it ends the tap.
type StageWriter interface {
	// Write takes at most 1 MiB, but for an event that is a longer statement,
	// and keeps no reference. While it blocks, mysqld's dump thread waits.
	io.Writer
	// Finish says that the transaction is whole, how many bytes it has, and
	// their CRC32C. The batch that names the stage is handed out after it.
	Finish(bytes uint64, crc uint32) error
	// Abort drops the stage. It is not called after Finish returned nil.
	Abort() error
}

// accept carries out the step of an event that is whole.
func (t *Tap) accept(ctx context.Context, step tap.Step) error {
	if step.Stage == nil {
		return t.apply(ctx, step)
	}
	if step.Kind == tap.StepBegin {
		if err := t.openStage(ctx, step); err != nil {
			return err
		}
	}
	if err := t.writeStage(step.Event); err != nil {
		return err
	}
	return t.accepted(ctx, step)
}

// openStage waits until all batches before the transaction have been taken.
func (t *Tap) openStage(ctx context.Context, step tap.Step) error {
	if err := t.apply(ctx, step); err != nil {
		return err
	}
	t.mu.Lock()
	id := t.machine.StageID()
	t.mu.Unlock()
	t.cfg.Logger.Debug("large transaction", "gtid", step.GTID, "bytes", step.TransactionBytes, "stage", id)
	stage, err := t.cfg.OpenStage(ctx, id)
	if err != nil {
		return fmt.Errorf("open stage of %v: %w", step.GTID, err)
	}
	t.stage = stage
	return nil
}

func (t *Tap) writeStage(b []byte) error {
	if _, err := t.stage.Write(b); err != nil {
		return fmt.Errorf("write stage: %w", err)
	}
	return nil
}

// accepted carries out the step of an event whose bytes are in the stage.
func (t *Tap) accepted(ctx context.Context, step tap.Step) error {
	switch step.Kind {
	case tap.StepBegin:
		return nil // openStage did
	case tap.StepEnd:
		if err := t.stage.Finish(step.Stage.Bytes, step.Stage.CRC); err != nil {
			return fmt.Errorf("finish stage: %w", err)
		}
		t.stage = nil
	}
	return t.apply(ctx, step)
}

// abortStage drops the stage of a transaction that did not come to its end.
func (t *Tap) abortStage() {
	if t.stage == nil {
		return
	}
	if err := t.stage.Abort(); err != nil {
		t.cfg.Logger.Warn("stage stays behind", "error", err)
	}
}

// inParts reports whether the next event of a staged transaction is so long that
// it is to be read in parts.
func (t *Tap) inParts() (bool, error) {
	head, err := t.in.peek(streamHeadBytes + binlog.HeaderBytes)
	if err != nil {
		return false, t.readError(err)
	}
	event, err := streamEvent(head)
	return err == nil && t.machine.InParts(event), nil // an error comes again with the packet
}

// receiveParts reads such an event.
func (t *Tap) receiveParts(ctx context.Context) error {
	part, last, err := t.in.part()
	if err != nil {
		return t.readError(err)
	}
	event, err := streamEvent(part)
	if err != nil {
		return err
	}
	if n := uint64(binlog.Event(event).Length()); n > eventBytesMax-streamHeadBytes {
		return fmt.Errorf("%w: event of %d bytes", ErrPacketTooLarge, n)
	}
	t.bytes.Add(uint64(len(event)))
	t.events.Add(1)
	step, err := t.machine.Read(event)
	if err != nil {
		return err
	}
	if err := t.writeStage(event); err != nil {
		return err
	}
	for !last {
		if part, last, err = t.in.part(); err != nil {
			return t.readError(err)
		}
		t.bytes.Add(uint64(len(part)))
		if err := t.machine.ReadMore(part); err != nil {
			return err
		}
		if err := t.writeStage(part); err != nil {
			return err
		}
	}
	if n := t.machine.Missing(); n > 0 {
		return fmt.Errorf("%w: packet ends %d bytes before its event", ErrMalformed, n)
	}
	return t.accepted(ctx, step)
}
