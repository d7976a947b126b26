package errant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

const (
	// Dir holds the saves, each in a directory, and the save under way.
	Dir     = "errant"
	tempDir = ".tmp"
	// recordFile says what a save holds.
	recordFile   = "saved.json"
	readmeFile   = "README"
	recordFormat = 1

	// savesMax and bytesMax bound the saves. Existing saves stay: the first save is
	// the one that a person has to look into.
	savesMax = 16
	bytesMax = 1 << 30
	// eventBytesMax bounds the events that are read as a whole: GTID and
	// FORMAT_DESCRIPTION events have some hundred bytes.
	eventBytesMax = 64 << 10
)

// Record is the content of saved.json.
type Record struct {
	Format int       `json:"format"`
	At     time.Time `json:"at"`
	// Errant is everything that mysqld had beyond the log, Saved the part of it in Files.
	Errant string   `json:"errant"`
	Saved  string   `json:"saved"`
	Files  []string `json:"files"`
	// Damaged says which binlogs could not be read to their ends, and why.
	Damaged string `json:"damaged,omitempty"`
}

// Line is for people: how many of the transactions are saved, and where. all: every one is saved.
func (r Record) Line(dir string) (line string, all bool, err error) {
	errant, err := gtid.ParseSet(r.Errant)
	if err != nil {
		return "", false, err
	}
	saved, err := gtid.ParseSet(r.Saved)
	if err != nil {
		return "", false, err
	}
	line = fmt.Sprintf("%d of %d transactions in %s", saved.Count(), errant.Count(), dir)
	switch saved.Count() {
	case 0:
		line = "none, because no binlog here has them"
	case errant.Count():
	default:
		line += ", no binlog here has the others"
	}
	if r.Damaged != "" {
		line += "; these binlogs could not be read to the end: " + r.Damaged
	}
	return line, saved.ContainsSet(errant), nil
}

// Store is the directory of the saves.
type Store struct {
	fs       vfs.FS
	path     string
	savesMax int
	bytesMax int64
}

// New returns the store in a directory of the data directory.
func New(path string) *Store {
	return &Store{fs: vfs.OS{}, path: path, savesMax: savesMax, bytesMax: bytesMax}
}

// Save copies the errant transactions from binlog files into a save. It returns what it has found,
// and where the save is. If it finds nothing there is no save. An existing save is not made again.
func (s *Store) Save(ctx context.Context, now time.Time, errant *gtid.Set, files []string) (Record, string, error) {
	if save, dir := s.find(errant); dir != "" {
		return save, dir, nil
	}
	c := copying{fs: s.fs, dir: filepath.Join(s.path, tempDir), errant: errant, saved: &gtid.Set{}}
	if err := s.prepare(&c); err != nil {
		return Record{}, "", err
	}
	return s.save(ctx, c, now, files)
}

// save copies from the files, and publishes what was found.
func (s *Store) save(ctx context.Context, c copying, now time.Time, files []string) (Record, string, error) {
	defer func() { _ = s.fs.RemoveAll(c.dir) }() // it was renamed, or is of no use
	var damaged []string
	for _, file := range files {
		err := c.file(ctx, file)
		switch {
		case errors.Is(err, binlog.ErrMalformed), errors.Is(err, binlog.ErrStream), errors.Is(err, mysqld.ErrNotFile):
			damaged = append(damaged, fmt.Sprintf("%s: %v", file, err)) // the others may be sound
		case err != nil:
			return Record{}, "", fmt.Errorf("copy from %s: %w", file, err)
		}
	}
	save := Record{
		Format: recordFormat, At: now.UTC(), Errant: c.errant.String(), Saved: c.saved.String(), Files: c.files,
		Damaged: strings.Join(damaged, "; "),
	}
	if c.saved.IsEmpty() {
		return save, "", nil
	}
	dir := filepath.Join(s.path, save.At.Format("20060102T150405Z")+"-"+shortGTIDs(c.saved))
	return save, dir, s.publish(c.dir, save, dir)
}

// prepare makes the directory of a save under way, and says how large the save may become. Too
// many saves are no error yet: there may be nothing to save.
func (s *Store) prepare(c *copying) error {
	count, used, err := s.usage()
	if err != nil {
		return err
	}
	// What a killed agent has left is removed, too.
	if err := s.fs.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove an unfinished save: %w", err)
	}
	if err := s.fs.MkdirAll(c.dir); err != nil {
		return fmt.Errorf("make save: %w", err)
	}
	if err := s.fs.SyncDir(filepath.Dir(s.path)); err != nil { // a killed agent may have made the directory, and not synced it
		return fmt.Errorf("make save: %w", err)
	}
	if count >= s.savesMax {
		c.full = fmt.Errorf("%s holds %d saves, and %d is the limit: move some elsewhere", s.path, count, s.savesMax)
		return nil
	}
	c.full = fmt.Errorf("%s has no room for the errant transactions: all saves together may have %d bytes, and a save half of the free disk space", s.path, s.bytesMax)
	c.room, err = s.room(used)
	return err
}

// usage returns how many saves there are, and how large they are.
func (s *Store) usage() (count int, bytes int64, err error) {
	err = filepath.WalkDir(s.path, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == s.path && errors.Is(err, fs.ErrNotExist):
			return fs.SkipAll
		case err != nil:
			return err
		case d.Name() == tempDir:
			return fs.SkipDir
		case d.IsDir():
			if filepath.Dir(path) == s.path {
				count++
			}
			return nil
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("look for earlier saves: %w", err)
	}
	return count, bytes, nil
}

// find returns the save of these transactions, and where it is; "" = there is none.
// A save that cannot be read does not count.
func (s *Store) find(errant *gtid.Set) (Record, string) {
	names, _ := s.fs.List(s.path)
	for _, name := range names {
		dir, save := filepath.Join(s.path, name), Record{}
		b, err := vfs.ReadFile(s.fs, filepath.Join(dir, recordFile))
		if err == nil && json.Unmarshal(b, &save) == nil && save.Errant == errant.String() && name != tempDir {
			return save, dir
		}
	}
	return Record{}, ""
}

// room is how many bytes a save may have. The log is on the same disk, and needs the space more.
func (s *Store) room(used int64) (int64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(s.path, &disk); err != nil {
		return 0, fmt.Errorf("ask for the free space: %w", err)
	}
	free := int64(disk.Bavail) * disk.Bsize
	return max(0, min(s.bytesMax-used, free/2)), nil
}

// publish gives the copy in temp its name, durably.
func (s *Store) publish(temp string, save Record, dir string) error {
	readme := fmt.Sprintf(`mysqlbinlog -v --base64-output=DECODE-ROWS %s  # shows what this node's mysqld had and the cluster never committed: %s

To bring changes back, write them as SQL (@1 is a table's first column), and run that
with your own account on the primary. The primary refuses these files themselves
(mysqlbinlog FILE | mysql: ERROR 1227): that needs a privilege that no account has.
If there are many changes, a mysqld of your own makes SQL of them: docs/operations.md,
"Bring errant transactions back".
`, strings.Join(save.Files, " "), save.Saved)
	if err := vfs.Replace(s.fs, filepath.Join(temp, readmeFile), []byte(readme)); err != nil {
		return fmt.Errorf("write save: %w", err)
	}
	if err := datadir.Replace(s.fs, temp, recordFile, save); err != nil { // it syncs the directory, too
		return err
	}
	if err := vfs.Move(s.fs, temp, dir); err != nil {
		return fmt.Errorf("publish save: %w", err)
	}
	return nil
}

// shortGTIDs names a set that is not empty by its first transaction.
func shortGTIDs(set *gtid.Set) string {
	for source, interval := range set.Intervals() {
		return fmt.Sprintf("%.8s_%d", source.UUID.String(), interval.Start)
	}
	return ""
}
