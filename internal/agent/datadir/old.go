package datadir

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

const (
	// OldDir holds the data that were given up, in a directory for each time: TIME-REASON.
	OldDir = "old"
	// OldTimeFormat begins the name of such a directory.
	OldTimeFormat = "20060102T150405Z"
)

// SetAside moves away the data that this node has given up, by renames. If it is interrupted
// anywhere, it can be done again from the beginning.
func (h *Home) SetAside() error {
	given := h.Own().GivenUp
	if given == nil {
		return nil
	}
	to := h.Join(OldDir, given.Dir)
	steps := []func() error{
		func() error { return h.fs.MkdirAll(to) },
		func() error { return Replace(h.fs, to, IdentityFile, given.Identity) },
	}
	for _, name := range given.Files() {
		steps = append(steps, func() error { return h.setAside(name, New(h.fs, to)) })
	}
	steps = append(steps,
		func() error { return h.fs.SyncDir(to) },
		func() error { return h.fs.SyncDir(h.path) },
		func() error { return h.become(never, func(id *Identity) { id.GivenUp = nil }) },
	)
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("move away what this node had before it is rebuilt: %w", err)
		}
	}
	return nil
}

// setAside moves one file, or directory.
func (h *Home) setAside(name string, to Dir) error {
	if name == Met {
		if moved, err := to.Find(name); err != nil || moved {
			return err // the old one was moved before; a start in between has made this one
		}
	}
	err := h.fs.Rename(h.Join(name), to.Join(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it was moved before, or there is none
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%w: the first of the two is a file system of its own: move its content elsewhere, and unmount it", err)
	}
	return err
}
