package vfstest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
)

// ErrBroken is how the operation fails at which a piece of work ends.
var ErrBroken = errors.New("broken")

// disks is how many of the disks that a loss of power may leave are looked at.
const disks = 16

// Interruptions has do work on a disk of before again and again, and each time another one of the
// operations fails that change something, until none does. check looks at what is there then: at
// what the next process finds, and at what a loss of power may leave. It returns the number of
// operations.
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

// look runs a check, and says where if it fails.
func look(t *testing.T, where string, check func(t *testing.T, disk *vfs.Mem), disk *vfs.Mem) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Fatal(where)
		}
	}()
	check(t, disk)
}

// Failing is a file system of which the nth call, counted from 1, fails that changes something.
func Failing(fs vfs.FS, n int) vfs.FS {
	return vfs.Wrap(fs, vfs.FailNth(int64(n), ErrBroken, func(op vfs.Op, _ string) bool { return op.Changes() }))
}
