package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// The transactions that an errant mysqld has beyond the committed log are copied from its binlogs
// before a person rebuilds the node: into a directory that a rebuild leaves alone.

const (
	// errantDir holds the saves, each in a directory, and the save under way.
	errantDir  = "errant"
	errantTemp = ".tmp"
	// errantRecordFile says what a save holds.
	errantRecordFile = "saved.json"
	errantReadme     = "README"
	errantFormat     = 1

	// errantSavesMax and errantBytesMax bound the saves. Existing saves stay: the first save is
	// the one that a person has to look into.
	errantSavesMax = 16
	errantBytesMax = 1 << 30
	// errantEventBytesMax bounds the events that are read as a whole: GTID and
	// FORMAT_DESCRIPTION events have some hundred bytes.
	errantEventBytesMax = 64 << 10

	errantDirPermissions  = 0o750
	errantFilePermissions = 0o640 // as the log's: it holds the users' data
)

// errantSave is the content of saved.json.
type errantSave struct {
	Format int       `json:"format"`
	At     time.Time `json:"at"`
	// Errant is everything that mysqld had beyond the log, Saved the part of it in Files.
	Errant string   `json:"errant"`
	Saved  string   `json:"saved"`
	Files  []string `json:"files"`
	// Damaged says which binlogs could not be read to their ends, and why.
	Damaged string `json:"damaged,omitempty"`
}

// saveErrant saves the transactions that the judge has found beyond the log. Their mysqld has
// ended: nothing waits for this.
func (a *Agent) saveErrant(ctx context.Context) {
	text := a.board.Own().Errant
	if text == "" {
		return
	}
	line, all, err := a.saveErrantOf(ctx, text)
	if err != nil {
		line = "not saved: " + err.Error()
		a.logger.Error("what mysqld has beyond the log is not saved", "gtids", text, "error", err)
	} else {
		a.logger.Warn("what mysqld has beyond the log", "gtids", text, "saved", line)
	}
	a.board.Update(func(s *status.Node) { s.ErrantSaved, s.ErrantAllSaved = line, err == nil && all })
}

// saveErrantOf returns the status text about the save, and whether the save is complete.
func (a *Agent) saveErrantOf(ctx context.Context, text string) (line string, all bool, err error) {
	errant, err := gtid.ParseSet(text)
	if err != nil {
		return "", false, err
	}
	files, err := a.server.BinlogFiles()
	if err != nil {
		return "", false, err
	}
	store := errantStore{path: a.data.Join(errantDir), savesMax: errantSavesMax, bytesMax: errantBytesMax}
	save, dir, err := store.save(ctx, time.Now(), errant, files)
	if err != nil {
		return "", false, err
	}
	saved, err := gtid.ParseSet(save.Saved)
	if err != nil {
		return "", false, err
	}
	line = fmt.Sprintf("%d of %d transactions in %s", saved.Count(), errant.Count(), dir)
	switch saved.Count() {
	case 0:
		line = "no binlog of them here"
	case errant.Count():
	default:
		line += ", no binlog of the others here"
	}
	if save.Damaged != "" {
		line += "; not read to the end: " + save.Damaged
	}
	return line, saved.ContainsSet(errant), nil
}

// errantStore is the directory of the saves.
type errantStore struct {
	path     string
	savesMax int
	bytesMax int64
}

// save copies the errant transactions from binlog files into a save. It returns what it has found,
// and where the save is. If it finds nothing there is no save. An existing save is not made again.
func (s *errantStore) save(ctx context.Context, now time.Time, errant *gtid.Set, files []string) (errantSave, string, error) {
	if save, dir := s.find(errant); dir != "" {
		return save, dir, nil
	}
	c := errantCopy{dir: filepath.Join(s.path, errantTemp), errant: errant, saved: &gtid.Set{}}
	if err := s.prepare(&c); err != nil {
		return errantSave{}, "", err
	}
	defer func() { _ = os.RemoveAll(c.dir) }() // it was renamed, or is of no use
	var damaged []string
	for _, file := range files {
		err := c.file(ctx, file)
		switch {
		case errors.Is(err, binlog.ErrMalformed), errors.Is(err, binlog.ErrStream), errors.Is(err, mysqld.ErrNotFile):
			damaged = append(damaged, fmt.Sprintf("%s: %v", file, err)) // the others may be sound
		case err != nil:
			return errantSave{}, "", fmt.Errorf("copy from %s: %w", file, err)
		}
	}
	save := errantSave{
		Format: errantFormat, At: now.UTC(), Errant: errant.String(), Saved: c.saved.String(), Files: c.files,
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
func (s *errantStore) prepare(c *errantCopy) error {
	count, used, err := s.usage()
	if err != nil {
		return err
	}
	// A killed agent's directory goes, too.
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove an unfinished save: %w", err)
	}
	if err := os.MkdirAll(c.dir, errantDirPermissions); err != nil {
		return fmt.Errorf("make save: %w", err)
	}
	if count >= s.savesMax {
		c.full = fmt.Errorf("%s holds %d saves, at most %d: move some elsewhere", s.path, count, s.savesMax)
		return nil
	}
	c.full = fmt.Errorf("%s has no room for them: at most %d bytes, and half of what is free on the disk", s.path, s.bytesMax)
	c.room, err = s.room(used)
	return err
}

// usage returns how many saves there are, and how large they are.
func (s *errantStore) usage() (count int, bytes int64, err error) {
	err = filepath.WalkDir(s.path, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == s.path && errors.Is(err, fs.ErrNotExist):
			return fs.SkipAll
		case err != nil:
			return err
		case d.Name() == errantTemp:
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
// A save that cannot be read is none.
func (s *errantStore) find(errant *gtid.Set) (errantSave, string) {
	records, _ := fs.Glob(os.DirFS(s.path), "*/"+errantRecordFile) // the pattern is well-formed
	for _, name := range records {
		path := filepath.Join(s.path, name)
		dir, save := filepath.Dir(path), errantSave{}
		b, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(b, &save) == nil && save.Errant == errant.String() && filepath.Base(dir) != errantTemp {
			return save, dir
		}
	}
	return errantSave{}, ""
}

// room is how many bytes a save may have. The log is on the same disk, and needs the space more.
func (s *errantStore) room(used int64) (int64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(s.path, &disk); err != nil {
		return 0, fmt.Errorf("ask for the free space: %w", err)
	}
	free := int64(disk.Bavail) * disk.Bsize
	return max(0, min(s.bytesMax-used, free/2)), nil
}

// publish gives the copy in temp its name, durably.
func (s *errantStore) publish(temp string, save errantSave, dir string) error {
	readme := fmt.Sprintf(`mysqlbinlog -v --base64-output=DECODE-ROWS %s  # shows what this node's mysqld had and the cluster never committed: %s

To bring changes back, write them as SQL (@1 is a table's first column), and run that
with your own account on the primary. The primary refuses these files themselves
(mysqlbinlog FILE | mysql: ERROR 1227): that needs a privilege that no account has.
If there are many changes, a mysqld of your own makes SQL of them: docs/operations.md,
"Bring errant transactions back".
`, strings.Join(save.Files, " "), save.Saved)
	if err := os.WriteFile(filepath.Join(temp, errantReadme), []byte(readme), errantFilePermissions); err != nil {
		return fmt.Errorf("write save: %w", err)
	}
	if err := writeJSON(filepath.Join(temp, errantRecordFile), save); err != nil { // it syncs the directory, too
		return err
	}
	if err := os.Rename(temp, dir); err != nil {
		return fmt.Errorf("publish save: %w", err)
	}
	for _, d := range []string{s.path, filepath.Dir(s.path)} {
		if err := syncDir(d); err != nil {
			return fmt.Errorf("publish save: %w", err)
		}
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

// errantCopy is a save under way.
type errantCopy struct {
	dir    string
	errant *gtid.Set
	saved  *gtid.Set
	files  []string
	// room is how many bytes are left. full is the message when these are too few.
	room int64
	full error
}

// file copies the wanted transactions of one binlog file. It passes over an incomplete transaction
// at the end, which a killed mysqld may leave.
func (c *errantCopy) file(ctx context.Context, path string) error {
	f, err := mysqld.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := &errantInput{r: bufio.NewReaderSize(f, 1<<20)}
	out := &errantOutput{path: filepath.Join(c.dir, filepath.Base(path))}
	magic := make([]byte, len(binlog.Magic))
	if err = in.read(magic); err == nil && string(magic) != binlog.Magic {
		err = fmt.Errorf("%w: it begins with %x", binlog.ErrMalformed, magic)
	}
	for err == nil {
		if err = ctx.Err(); err == nil {
			err = c.next(in, out)
		}
	}
	if out.f != nil {
		if err := out.finish(); err != nil {
			return err
		}
	}
	if out.transactions > 0 {
		c.files = append(c.files, filepath.Base(path))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// next reads a transaction, or an event outside of a transaction.
func (c *errantCopy) next(in *errantInput, out *errantOutput) error {
	head := make(binlog.Event, binlog.HeaderBytes)
	if err := in.read(head); err != nil {
		return err
	}
	length := int64(head.Length())
	switch head.Type() {
	case binlog.TypeGTID, binlog.TypeGTIDTagged, binlog.TypeFormatDescription:
	case binlog.TypePreviousGTIDs, binlog.TypeRotate, binlog.TypeStop:
		return in.skip(length - int64(len(head)))
	default:
		return fmt.Errorf("%w: type %d at byte %d is no transaction's beginning", binlog.ErrStream, head.Type(), in.at)
	}
	if length < int64(len(head))+binlog.ChecksumBytes || length > errantEventBytesMax {
		return fmt.Errorf("%w: type %d with %d bytes", binlog.ErrMalformed, head.Type(), length)
	}
	event := append(head, make([]byte, length-int64(len(head)))...)
	if err := in.read(event[binlog.HeaderBytes:]); err != nil {
		return err
	}
	if head.Type() == binlog.TypeFormatDescription {
		clean, err := binlog.CleanFormatDescription(event, false)
		out.format = clean
		return err
	}
	return c.transaction(in, out, event)
}

// transaction copies a transaction or passes over it. Since MySQL 8.0.2 the GTID event says how
// long the transaction is.
func (c *errantCopy) transaction(in *errantInput, out *errantOutput, event binlog.Event) error {
	info, err := binlog.ParseGTID(event)
	if err != nil {
		return err
	}
	rest := int64(info.TransactionLength) - int64(len(event))
	if rest <= 0 || event.LogPos() != uint32(in.at) {
		return fmt.Errorf("%w: transaction %v with %d bytes, at byte %d", binlog.ErrMalformed, info.GTID, info.TransactionLength, in.at)
	}
	if !c.errant.Contains(info.GTID) || c.saved.Contains(info.GTID) {
		return in.skip(rest)
	}
	if c.room -= int64(info.TransactionLength); c.room < 0 {
		return c.full
	}
	if err := out.transaction(event, in, rest); err != nil {
		return err
	}
	c.saved.Add(info.GTID)
	return nil
}

// errantInput is a binlog file.
type errantInput struct {
	r  *bufio.Reader
	at int64
}

func (in *errantInput) read(b []byte) error {
	n, err := io.ReadFull(in.r, b)
	in.at += int64(n)
	return err
}

func (in *errantInput) skip(n int64) error {
	if n < 0 {
		return fmt.Errorf("%w: an event before byte %d is too short", binlog.ErrMalformed, in.at)
	}
	done, err := io.CopyN(io.Discard, in.r, n)
	in.at += done
	return err
}

// errantOutput is the file of a save with the wanted transactions of one binlog file. It is made
// with the first transaction.
type errantOutput struct {
	path         string
	format       binlog.Event
	f            *os.File
	transactions int   // complete ones
	size         int64 // up to the last complete one
}

// transaction writes a transaction: its GTID event, and the rest. Nothing of an incomplete
// transaction stays.
func (o *errantOutput) transaction(event binlog.Event, in *errantInput, rest int64) error {
	if o.f == nil {
		if err := o.create(); err != nil {
			return err
		}
	}
	if _, err := o.f.Write(event); err != nil {
		return fmt.Errorf("write save: %w", err)
	}
	n, err := io.CopyN(o.f, in.r, rest)
	in.at += n
	if err == nil {
		o.transactions++
		o.size += int64(len(event)) + rest
	}
	return err
}

func (o *errantOutput) create() error {
	if o.format == nil {
		return fmt.Errorf("%w: a transaction before the FORMAT_DESCRIPTION", binlog.ErrStream)
	}
	f, err := os.OpenFile(o.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, errantFilePermissions)
	if err != nil {
		return fmt.Errorf("create save: %w", err)
	}
	o.f = f
	head := slices.Concat([]byte(binlog.Magic), o.format)
	if _, err := f.Write(head); err != nil {
		return fmt.Errorf("write save: %w", err)
	}
	o.size = int64(len(head))
	return nil
}

// finish cuts an incomplete transaction and makes the file durable.
func (o *errantOutput) finish() error {
	err := errors.Join(o.f.Truncate(o.size), o.f.Sync(), o.f.Close())
	o.f = nil
	if err != nil {
		return fmt.Errorf("write save: %w", err)
	}
	return nil
}
