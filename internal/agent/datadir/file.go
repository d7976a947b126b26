package datadir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
)

// Dir is a data directory.
type Dir struct {
	fs   vfs.FS
	path string
}

// New names a data directory. It reads nothing.
func New(fs vfs.FS, path string) Dir { return Dir{fs, path} }

// FS is the file system of the directory.
func (d Dir) FS() vfs.FS { return d.fs }

// Path is where the directory is.
func (d Dir) Path() string { return d.path }

// Join names a path inside the directory.
func (d Dir) Join(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

// Has tells whether a file is known to be there: an error counts as no. A caller that could lose data by that
// asks Find.
func (d Dir) Has(name string) bool {
	there, err := d.Find(name)
	return there && err == nil
}

// Find tells whether a file is there. After an error that is not known.
func (d Dir) Find(name string) (bool, error) {
	_, err := d.fs.Stat(d.Join(name))
	if errors.Is(err, iofs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", d.Join(name), err)
	}
	return true, nil
}

// DamageError says why a file cannot be used.
type DamageError struct {
	Path    string
	Problem string
	// Remedy says what to do.
	Remedy string
}

// Error names the file, what to do, and what is wrong.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged: %s (%s)", e.Path, e.Remedy, e.Problem)
}

// VersionError says that a newer quorate has written a file.
type VersionError struct {
	Path        string
	Has, Newest int
}

// Error names the file and what to do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format %d, this quorate reads up to %d: install the newer quorate again", e.Path, e.Has, e.Newest)
}

// File describes how one file is read.
type File struct {
	Name string
	// Format is the newest version of its layout; 0 = it has none.
	Format int
	// Remedy says what a person does if it is damaged.
	Remedy string
	// Again says what to run if a command has left the file that was killed, perhaps as root: an agent of another
	// account may not read it then. "" = no command writes it.
	Again string
}

// Load reads a file into v, a pointer.
func (d Dir) Load(f File, v any) (found bool, err error) {
	b, err := vfs.ReadFile(d.fs, d.Join(f.Name))
	if errors.Is(err, iofs.ErrNotExist) {
		return false, nil
	}
	if errors.Is(err, iofs.ErrPermission) && f.Again != "" {
		if _, noStat := d.fs.Stat(d.Join(f.Name)); noStat == nil { // it is there
			err = fmt.Errorf("%s belongs to another account, perhaps because a command that ran as root was killed. As root, %s: %w", d.Join(f.Name), f.Again, err)
		}
	}
	if err != nil {
		return false, err // it names the file
	}
	var head struct {
		Format int `json:"format"`
	}
	if f.Format > 0 && json.Unmarshal(b, &head) == nil && head.Format > f.Format {
		return true, &VersionError{d.Join(f.Name), head.Format, f.Format}
	}
	if err := json.Unmarshal(b, v); err != nil {
		if newer, ok := errors.AsType[*cluster.NewerError](err); ok {
			return true, &VersionError{d.Join(f.Name), newer.Has, newer.Newest}
		}
		return true, d.damaged(f, problem(b, err))
	}
	return true, nil
}

func (d Dir) damaged(f File, problem string) error {
	return &DamageError{Path: d.Join(f.Name), Problem: problem, Remedy: f.Remedy}
}

// problem says what is wrong with a file that is no JSON, or not the expected one.
func problem(b []byte, err error) string {
	switch syntax, ok := errors.AsType[*json.SyntaxError](err); {
	case len(b) == 0:
		return "it is empty"
	case len(bytes.Trim(b, "\x00")) == 0:
		return fmt.Sprintf("all of its %d bytes are zero", len(b))
	case ok && syntax.Offset == int64(len(b)):
		return fmt.Sprintf("it ends in the middle, after %d bytes", len(b))
	}
	return err.Error()
}

func (d Dir) replace(name string, v any) error { return Replace(d.fs, d.path, name, v) }

func (d Dir) remove(name string) error {
	return errors.Join(d.fs.Remove(d.Join(name)), d.fs.SyncDir(d.path))
}

// Replace writes a small file as JSON, atomically and durably.
func Replace(fs vfs.FS, dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := vfs.Replace(fs, filepath.Join(dir, name), append(b, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// MakeDir makes a directory, and its missing parents. Other accounts may pass through it, to mysqld's files
// and the control socket, but not list it. Its name is on disk when MakeDir returns: a loss of power that
// took the name away would take everything below it along.
func MakeDir(path string) error {
	_, missing := os.Stat(path)
	above := []string{filepath.Dir(path)}
	for dir := above[0]; missing != nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		above = append(above, filepath.Dir(dir))
	}
	if err := os.MkdirAll(path, 0o751); err != nil {
		return err
	}
	for _, dir := range above {
		// A directory that was there before may have been made by a process that died before
		// the sync. If this user may not read its parent, it was not this user's process.
		if err := (vfs.OS{}).SyncDir(dir); err != nil && (missing != nil || !errors.Is(err, iofs.ErrPermission)) {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
	}
	return nil
}

// exists tells whether there is something at a path.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
