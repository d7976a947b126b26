package result

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// FileName is the file's name in a run's directory.
const FileName = "results.jsonl"

// lineBytesMax bounds a line: four full series with some 30 digits per value are shorter.
const lineBytesMax = 8 << 20

// ErrLocked: another run writes to the file.
var ErrLocked = errors.New("another run is writing to it")

// File is a results file that is open for appending. Its methods may be called from several goroutines.
type File struct {
	mu   sync.Mutex
	file *os.File
}

// Open opens or creates a results file, and cuts off a last line that a crash tore.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	if err := prepare(f, path); err != nil {
		return nil, errors.Join(fmt.Errorf("open results %s: %w", path, err), f.Close())
	}
	return &File{file: f}, nil
}

func prepare(f *os.File, path string) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrLocked
		}
		return fmt.Errorf("lock: %w", err)
	}
	size, err := wholeLines(f)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("cut off the torn last line: %w", err)
	}
	if _, err := f.Seek(size, io.SeekStart); err != nil {
		return fmt.Errorf("find the end: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("open the directory: %w", err)
	}
	// The file's name must survive a crash, too.
	return errors.Join(dir.Sync(), dir.Close())
}

// wholeLines is the length of f up to its last newline, which is included.
func wholeLines(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("size: %w", err)
	}
	buf := make([]byte, 64<<10)
	for end := info.Size(); end > 0; {
		n := min(end, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return 0, fmt.Errorf("read the end: %w", err)
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}

// Append writes a row and fsyncs. Values that JSON cannot have (NaN) are left out and named in Row.Text.
func (f *File) Append(r Row) error {
	r.clean()
	return f.append(r)
}

// AppendFacts writes facts and fsyncs.
func (f *File) AppendFacts(facts Facts) error {
	facts.Schema, facts.Kind = Schema, kindFacts
	return f.append(facts)
}

func (f *File) append(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	if len(line) >= lineBytesMax {
		return fmt.Errorf("append result: a line of %d bytes; at most %d", len(line), lineBytesMax)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	end, err := f.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("append result: %w", err)
	}
	if _, err := f.file.Write(append(line, '\n')); err != nil {
		// A full disk may have taken a part of the line: the next line must not follow that part.
		_, seekErr := f.file.Seek(end, io.SeekStart)
		return fmt.Errorf("append result: %w", errors.Join(err, f.file.Truncate(end), seekErr))
	}
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("sync results: %w", err)
	}
	return nil
}

// Close closes the file and gives up its lock.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.file.Close(); err != nil {
		return fmt.Errorf("close results: %w", err)
	}
	return nil
}

// Results are the contents of a file.
type Results struct {
	Rows  []Row // in the order of the file
	Facts []Facts
	// Torn: the last line was not whole and is not here.
	Torn bool
}

// ReadFile reads a results file.
func ReadFile(path string) (Results, error) {
	f, err := os.Open(path)
	if err != nil {
		return Results{}, fmt.Errorf("open results: %w", err)
	}
	defer f.Close()
	res, err := Read(f)
	if err != nil {
		return res, fmt.Errorf("read results %s: %w", path, err)
	}
	return res, nil
}

// Read reads results. A last line without its newline is torn and left out; any other line that is not a row is an error.
func Read(r io.Reader) (Results, error) {
	var res Results
	reader := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		line, err := readLine(reader)
		if errors.Is(err, io.EOF) {
			res.Torn = len(line) > 0
			return res, nil
		}
		if err != nil {
			return res, fmt.Errorf("line %d: %w", n, err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := res.add(line); err != nil {
			return res, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// readLine returns a line with its newline, or the rest of the file and io.EOF.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > lineBytesMax {
			return nil, fmt.Errorf("longer than %d bytes", lineBytesMax)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func (res *Results) add(line []byte) error {
	var head struct {
		Schema int    `json:"schema"`
		Kind   string `json:"kind"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if head.Schema != Schema {
		return fmt.Errorf("schema %d; this program reads schema %d", head.Schema, Schema)
	}
	switch head.Kind {
	case kindFacts:
		var f Facts
		if err := json.Unmarshal(line, &f); err != nil {
			return fmt.Errorf("decode facts: %w", err)
		}
		res.Facts = append(res.Facts, f)
	case "":
		var r Row
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("decode row: %w", err)
		}
		res.Rows = append(res.Rows, r)
	default:
		return fmt.Errorf("a line of the unknown kind %q", head.Kind)
	}
	return nil
}

// Latest returns one row for each key, in the order in which the keys first came: the last row that is ok, else the last
// row. Its FailedBefore counts the failed rows that it hides.
func (res Results) Latest() []Row {
	at := map[string]int{}
	var rows []Row
	for _, r := range res.Rows {
		i, seen := at[r.Key()]
		if !seen {
			at[r.Key()] = len(rows)
			rows = append(rows, r)
			continue
		}
		shown, hidden := rows[i], r
		if r.Status == OK || shown.Status != OK {
			shown, hidden = r, shown
		}
		shown.FailedBefore = rows[i].FailedBefore
		if hidden.Status == Failed && !hidden.sameAttempt(shown) {
			shown.FailedBefore++
		}
		rows[i] = shown
	}
	return rows
}

// sameAttempt tells whether two rows are of one attempt: a row may be written again, with a note.
func (r Row) sameAttempt(other Row) bool { return r.Run == other.Run && r.Started.Equal(other.Started) }

// Done returns the keys that have an ok row.
func (res Results) Done() map[string]bool {
	done := map[string]bool{}
	for _, r := range res.Rows {
		if r.Status == OK {
			done[r.Key()] = true
		}
	}
	return done
}
