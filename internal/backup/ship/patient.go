package ship

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// StorePatience is how long after its first failure a step of a full backup is repeated: hours of work would be lost with it.
	StorePatience = 10 * time.Minute
	// patientEvery is the pause before a step is repeated.
	patientEvery = 5 * time.Second
)

// patient does a step of a full backup, and repeats it while the store fails. It calls Again at the first failure.
func (c Config) patient(ctx context.Context, step func() error) error {
	var until time.Time
	for {
		err := step()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if Damaged(err) || errors.Is(err, ErrHistory) || errors.Is(err, ErrGap) || errors.Is(err, ErrBehind) {
			return err // another try ends the same way
		}
		if now := time.Now(); until.IsZero() {
			until = now.Add(StorePatience)
			if c.Again != nil {
				c.Again(err)
			}
		} else if now.After(until) {
			return err
		}
		if clock.Sleep(ctx, clock.Machine{}, patientEvery) != nil {
			return err
		}
	}
}
