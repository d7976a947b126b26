package consensus

import (
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/sys/clock"
)

// Machine is what a Runner runs on. Its Tasks wait and run beside one another.
type Machine interface {
	clock.Tasks
	// Boot and Wall are the clocks of a lease: see clocks.go.
	Boot() time.Duration
	Wall() time.Duration
	// AfterFunc is time.AfterFunc.
	AfterFunc(d time.Duration, f func()) Timer
	// Random returns a number that no former life of the process has used.
	Random() uint64
}

// Timer is what Runner uses of a time.Timer.
type Timer interface {
	Reset(d time.Duration) bool
	Stop() bool
}

// RealMachine is the Machine that this process runs on.
type RealMachine struct{ clock.Machine }

// Boot and the methods below implement Machine.
func (RealMachine) Boot() time.Duration                       { return BootTime() }
func (RealMachine) Wall() time.Duration                       { return time.Duration(time.Now().UnixNano()) }
func (RealMachine) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
func (RealMachine) Random() uint64                            { return rand.Uint64() }

// BootTime is the clock of all leases. It goes on while the machine sleeps, and nobody can set it.
func BootTime() time.Duration {
	var ts unix.Timespec
	// It cannot fail for this clock with a valid pointer.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}
