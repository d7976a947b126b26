package mysqlwire

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
)

// abortStage drops the open stage, if any: its transaction did not arrive whole.
func (t *Tap) abortStage() {
	if err := t.intake.Abort(); err != nil {
		t.cfg.Logger.Warn("stage stays behind", "error", err)
	}
}

// inParts reports whether the next event of a staged transaction is read in parts, because it
// is long.
func (t *Tap) inParts() (bool, error) {
	head, err := t.in.peek(streamHeadBytes + binlog.HeaderBytes)
	if err != nil {
		return false, t.readError(err)
	}
	event, err := streamEvent(head)
	return err == nil && t.machine.InParts(event), nil // an error shows again when the packet is read
}

// receiveParts reads such an event, in parts.
func (t *Tap) receiveParts() error {
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
	if err := t.intake.Write(event); err != nil {
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
		if err := t.intake.Write(part); err != nil {
			return err
		}
	}
	if n := t.machine.Missing(); n > 0 {
		return fmt.Errorf("%w: packet ends %d bytes before its event", ErrMalformed, n)
	}
	if err := t.intake.Written(step, time.Now()); err != nil {
		return err
	}
	t.wakeProposer()
	return nil
}
