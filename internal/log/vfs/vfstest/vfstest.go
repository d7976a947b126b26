package vfstest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
)

// ErrBroken is the error of the operation at which a piece of work ends.
var ErrBroken = errors.New("broken")

// disks is how many of the disks that a power loss may leave are checked.
const disks = 16

// Interruptions runs do again and again, each time on a new disk from before, and each time another one of the
// operations fails that change something, until none fails. After each run check looks at what the next process
// would find, and at what a power loss may leave. Interruptions returns the number of operations.
func Interruptions(t *testing.T, before func() *vfs.Mem, do func(fs vfs.FS) error, check func(t *testing.T, disk *vfs.Mem)) (operations int) {
	t.Helper()
	for {
		mem := before()
		err := do(Failing(mem, operations+1))
		if err == nil {
			return operations
		}
		operations++
		if !errors.Is(err, ErrBroken) {
			t.Fatal(err)
		}
		for seed := range uint64(disks) {
			look(t, fmt.Sprintf("operation %d failed, and the power went: disk %d", operations, seed), check, mem.CrashClone(seed))
		}
		look(t, fmt.Sprintf("operation %d failed, and the process ended", operations), check, mem)
	}
}

// look runs a check. If the check fails, it names the place.
func look(t *testing.T, where string, check func(t *testing.T, disk *vfs.Mem), disk *vfs.Mem) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Fatal(where)
		}
	}()
	check(t, disk)
}

// Failing returns a file system in which the nth call that changes something fails, counted from 1.
func Failing(fs vfs.FS, n int) vfs.FS {
	return vfs.Wrap(fs, vfs.FailNth(int64(n), ErrBroken, func(op vfs.Op, _ string) bool { return op.Changes() }))
}
