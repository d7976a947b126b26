package tap

import (
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/internal/raft/entry"
)

// StageWriter takes the bytes of one staged transaction: its events, as they arrive. One
// goroutine uses it. Any error that it returns ends the tap.
type StageWriter interface {
	// Write gets at most 1 MiB at once, except for a statement that is longer, and keeps no
	// reference. While it blocks, mysqld's dump thread waits.
	io.Writer
	// Finish is called when the transaction is whole, with its length in bytes and their
	// CRC32C. The batch that names the stage is handed out after Finish.
	Finish(bytes uint64, crc uint32) error
	// Abort drops the stage. It is not called after Finish returned nil.
	Abort() error
}

// Intake carries out the steps of a machine's reader in their order: events go into the
// growing batch, those of a staged transaction into its stage.
type Intake struct {
	Machine *Machine
	// Lock guards the half of the machine that does not belong to the reader. It is not held
	// while a stage is written.
	Lock interface {
		Lock()
		Unlock()
	}
	// Open opens the stage of a large transaction. It may be nil where no transaction is
	// staged.
	Open func(step Step, id entry.StageID) (StageWriter, error)

	stage StageWriter // the open one
}

// Staging reports whether a stage is open: events may be given to the machine in parts.
func (in *Intake) Staging() bool { return in.stage != nil }

// Take carries out the step of an event that is whole. It returns false, and has done
// nothing, while the growing batch is in the way: see Machine.Apply.
func (in *Intake) Take(step Step, now time.Time) (done bool, err error) {
	if step.Stage == nil {
		return in.apply(step, now)
	}
	if step.Kind == StepBegin { // the machine names the stage by the number of its batch
		if done, err := in.apply(step, now); !done || err != nil {
			return done, err
		}
		if in.stage, err = in.Open(step, in.stageID()); err != nil {
			in.stage = nil
			return false, fmt.Errorf("open stage of %v: %w", step.GTID, err)
		}
		return true, in.Write(step.Event)
	}
	if err := in.Write(step.Event); err != nil {
		return false, err
	}
	return true, in.Written(step, now)
}

// Write writes to the open stage: a whole event, or one part of it.
func (in *Intake) Write(b []byte) error {
	if _, err := in.stage.Write(b); err != nil {
		return fmt.Errorf("write stage: %w", err)
	}
	return nil
}

// Written carries out the step of an event whose bytes are in the stage. The stage is complete
// before the batch that names it exists.
func (in *Intake) Written(step Step, now time.Time) error {
	if step.Kind == StepEnd {
		if err := in.stage.Finish(step.Stage.Bytes, step.Stage.CRC); err != nil {
			return fmt.Errorf("finish stage: %w", err)
		}
		in.stage = nil
	}
	_, err := in.apply(step, now)
	return err
}

// Abort drops the open stage, if any: its transaction did not arrive whole.
func (in *Intake) Abort() error {
	if in.stage == nil {
		return nil
	}
	return in.stage.Abort()
}

// Release lets the whole transactions of the growing batch go: the reader has nothing more at
// hand. propose (nil = none) gets them as a batch, unless the batch before is still being
// proposed. It returns false where the reader must not propose the batch; then the next caller
// of TakeBatch gets it.
func (in *Intake) Release(propose func(Batch) bool) {
	in.Lock.Lock()
	in.Machine.Release()
	batch, ok := Batch{}, false
	if propose != nil {
		batch, ok = in.Machine.TakeBatch()
	}
	in.Lock.Unlock()
	if !ok {
		return
	}
	proposed := propose(batch)
	in.Lock.Lock()
	defer in.Lock.Unlock()
	if proposed {
		in.Machine.Proposed()
	} else {
		in.Machine.Refused(batch)
	}
}

func (in *Intake) apply(step Step, now time.Time) (bool, error) {
	in.Lock.Lock()
	defer in.Lock.Unlock()
	return in.Machine.Apply(step, now)
}

func (in *Intake) stageID() entry.StageID {
	in.Lock.Lock()
	defer in.Lock.Unlock()
	return in.Machine.StageID()
}
