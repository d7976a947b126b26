package seglog

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
)

// TestInPlace: a log whose files were removed or replaced while it is open notices that, although each Append succeeds.
func TestInPlace(t *testing.T) {
	state, oldest, newest := stateName, segmentName(1), ""
	for name, c := range map[string]struct {
		act  func(fs vfs.FS, dir string) error
		want error
	}{
		"as it was": {func(vfs.FS, string) error { return nil }, nil},
		"removed":   {func(fs vfs.FS, dir string) error { return fs.RemoveAll(dir) }, ErrReplaced},
		"moved":     {func(fs vfs.FS, dir string) error { return fs.Rename(dir, dir+".old") }, ErrReplaced},
		"emptied":   {func(fs vfs.FS, dir string) error { return each(fs, dir, fs.Remove) }, ErrReplaced},
		"made again": {func(fs vfs.FS, dir string) error {
			return each(fs, dir, func(name string) error { return again(fs, name) })
		}, ErrReplaced},
		"state removed":  {func(fs vfs.FS, dir string) error { return fs.Remove(filepath.Join(dir, state)) }, ErrReplaced},
		"state replaced": {func(fs vfs.FS, dir string) error { return again(fs, filepath.Join(dir, state)) }, ErrReplaced},
		"oldest removed": {func(fs vfs.FS, dir string) error { return fs.Remove(filepath.Join(dir, oldest)) }, ErrReplaced},
		"newest removed": {func(fs vfs.FS, dir string) error { return fs.Remove(filepath.Join(dir, newest)) }, ErrReplaced},
	} {
		for kind, fs := range map[string]vfs.FS{"os": vfs.OS{}, "mem": vfs.NewMem()} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				o := smallOptions(fs)
				o.Dir = filepath.Join(t.TempDir(), "log")
				l := mustOpen(t, o)
				mustAppend(t, l, nil, plain(1, 1, 900), plain(2, 1, 900))
				infos := l.Segments()
				newest = infos[len(infos)-1].Name
				if err := c.act(fs, o.Dir); err != nil {
					t.Fatal(err)
				}
				mustAppend(t, l, &HardState{Term: 2, Vote: 1}, plain(3, 2, 3))
				if err := l.InPlace(); !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
			})
		}
	}
}

// each calls f with the path of each name in dir.
func each(fs vfs.FS, dir string, f func(path string) error) error {
	names, err := fs.List(dir)
	for _, name := range names {
		err = errors.Join(err, f(filepath.Join(dir, name)))
	}
	return err
}

// again puts a copy in a file's place.
func again(fs vfs.FS, path string) error {
	b, err := vfs.ReadFile(fs, path)
	if err != nil {
		return err
	}
	return vfs.Replace(fs, path, b)
}
