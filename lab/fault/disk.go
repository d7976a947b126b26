package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrNoDisk: disks that break cannot be made here.
var ErrNoDisk = errors.New("no disks that break")

// Disk is a mounted directory that breaks on command (OpenDisk).
type Disk interface {
	// Hold makes every call that changes the disk wait: writes, syncs, new names. A process that
	// waits cannot be interrupted, not even by SIGKILL.
	Hold() error
	// Refuse makes all such calls fail, also those that wait.
	Refuse() error
	// Heal makes the disk well again.
	Heal() error
	// CutPower loses what was not synced, and fails everything from then on.
	CutPower() error
	// Close unmounts.
	Close() error
}

// OpenDisk mounts source at another directory.
type OpenDisk func(ctx context.Context, source, at string) (Disk, error)

// Disks are the nodes' disks.
type Disks struct {
	dir  string
	open OpenDisk
	all  map[string]Disk
}

// NewDisks makes a disk for each node, below dir.
func NewDisks(ctx context.Context, open OpenDisk, dir string, nodes []string) (*Disks, error) {
	if open == nil {
		return nil, ErrNoDisk
	}
	d := &Disks{dir: dir, open: open, all: map[string]Disk{}}
	for _, node := range nodes {
		for _, path := range []string{d.source(node), d.At(node)} {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return nil, errors.Join(fmt.Errorf("make disk of node %s: %w", node, err), d.Close())
			}
		}
		if err := d.Mount(ctx, node); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

func (d *Disks) source(node string) string { return filepath.Join(d.dir, node, "source") }

// At is where a node's disk is mounted.
func (d *Disks) At(node string) string { return filepath.Join(d.dir, node, "at") }

// Disk returns a node's disk.
func (d *Disks) Disk(node string) (Disk, error) {
	disk := d.all[node]
	if disk == nil {
		return nil, fmt.Errorf("fault: node %q has no disk", node)
	}
	return disk, nil
}

// Mount mounts a node's disk, first unmounting it if it is there: after a loss of power.
func (d *Disks) Mount(ctx context.Context, node string) error {
	if old := d.all[node]; old != nil {
		delete(d.all, node)
		if err := old.Close(); err != nil {
			return fmt.Errorf("unmount disk of node %s: %w", node, err)
		}
	}
	disk, err := d.open(ctx, d.source(node), d.At(node))
	if err != nil {
		return fmt.Errorf("mount disk of node %s: %w", node, err)
	}
	d.all[node] = disk
	return nil
}

// SyncAll syncs every file of a node's disk, as a machine that has run for a while has done. Otherwise a loss of power
// would lose the files that were copied there when the node was made.
func (d *Disks) SyncAll(node string) error {
	err := filepath.WalkDir(d.At(node), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // a server has removed it
		case err != nil || !entry.Type().IsRegular():
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
	if err != nil {
		return fmt.Errorf("sync disk of node %s: %w", node, err)
	}
	return nil
}

// Refuse makes everything that changes a disk fail, on all of them.
func (d *Disks) Refuse() error {
	var errs []error
	for node, disk := range d.all {
		if err := disk.Refuse(); err != nil {
			errs = append(errs, fmt.Errorf("make disk of node %s refuse: %w", node, err))
		}
	}
	return errors.Join(errs...)
}

// Close unmounts all.
func (d *Disks) Close() error {
	var errs []error
	for node, disk := range d.all {
		if err := disk.Close(); err != nil {
			errs = append(errs, fmt.Errorf("unmount disk of node %s: %w", node, err))
		}
	}
	clear(d.all)
	return errors.Join(errs...)
}
