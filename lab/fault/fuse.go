package fault

import (
	"context"
	"errors"
	"syscall"

	"github.com/quorate/quorate/internal/testkit/faultmount"
)

// ServeFUSE is called first by the main function of a program that calls OpenFUSE: in the
// process that serves a disk it never returns.
func ServeFUSE() { faultmount.ServeChild() }

// OpenFUSE is the OpenDisk of package faultmount.
func OpenFUSE(ctx context.Context, source, at string) (Disk, error) {
	if err := faultmount.Available(); err != nil {
		return nil, errors.Join(ErrNoDisk, err)
	}
	m, err := faultmount.Start(ctx, source, at)
	if err != nil {
		return nil, err
	}
	return fuse{m}, nil
}

type fuse struct{ *faultmount.Mount }

func (f fuse) Hold() error {
	return f.SetFaults(faultmount.Fault{Ops: faultmount.Writes, Hold: true})
}

func (f fuse) Refuse() error {
	return f.SetFaults(faultmount.Fault{Ops: faultmount.Writes, Errno: syscall.EIO})
}

func (f fuse) Heal() error { return f.SetFaults() }
