package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
)

const (
	// AuditFile holds what operators did, File what became of the nodes: JSON, one line
	// each. After a rotation, the former file has oldSuffix.
	AuditFile = "audit.log"
	File      = "history.log"
	oldSuffix = ".1"
	// damagedSuffix is behind the name of a file that could not be read.
	damagedSuffix = ".damaged"
	// fileBytesMax bounds a file: some thousand lines. With the one before it there is
	// twice as much.
	fileBytesMax = 1 << 20
	// sinceMax bounds the lines of one answer to another node, which asks again for more.
	sinceMax = 500
)

// head is the first line of a file that follows another file: how far all lines before it
// went. The next rotation removes most of these.
type head struct {
	Index uint64            `json:"index"`
	Seqs  map[string]uint64 `json:"seqs"`
}

// Log is a file of lines.
type Log struct {
	fs   vfs.FS
	path string
	node string // the node that writes it
	// files is held while the files are read or written, however long their disk takes.
	files sync.Mutex
	// mu guards what follows, and waits for no disk: statuses need it. It comes after files.
	mu sync.Mutex
	// last is the newest entry of the replicated log that has a line: entries that a
	// start replays are not written again.
	last uint64
	// seqs are the highest numbers of the lines of each node.
	seqs map[string]uint64
}

// NewLog names a node's file in a directory. It reads nothing.
func NewLog(fs vfs.FS, dir, file, node string) *Log {
	return &Log{fs: fs, path: filepath.Join(dir, file), node: node}
}

// Open reads how far the log goes. Call it before Append, Take and Seq.
func (l *Log) Open() error {
	l.files.Lock()
	defer l.files.Unlock()
	last, seqs := uint64(0), map[string]uint64{}
	err := l.each(func(e cluster.AuditEntry, h head) {
		last = max(last, e.Index, h.Index)
		if e.Seq > 0 {
			seqs[e.Node] = max(seqs[e.Node], e.Seq)
		}
		for node, seq := range h.Seqs {
			seqs[node] = max(seqs[node], seq)
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.seqs = last, seqs
	return err
}

// setAside gives each file that cannot be read another name. An older file of that name goes.
func (l *Log) setAside() (err error) {
	l.files.Lock()
	defer l.files.Unlock()
	for _, path := range []string{l.path + oldSuffix, l.path} {
		if _, unread := vfs.ReadFile(l.fs, path); unread != nil && !errors.Is(unread, fs.ErrNotExist) {
			err = errors.Join(err, vfs.Move(l.fs, path, path+damagedSuffix))
		}
	}
	return err
}

// Append adds lines durably, except those that are there already.
func (l *Log) Append(lines ...cluster.AuditEntry) error {
	l.files.Lock()
	defer l.files.Unlock()
	lines, seqs, last := l.number(lines)
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, e := range lines {
		if err := encoder.Encode(e); err != nil {
			return fmt.Errorf("encode audit line: %w", err)
		}
	}
	if text.Len() == 0 {
		return nil
	}
	size, err := l.rotate(int64(text.Len()))
	if err != nil {
		return fmt.Errorf("rotate the audit log: %w", err)
	}
	var first []byte
	if size == 0 && (l.last > 0 || len(l.seqs) > 0) {
		if first, err = json.Marshal(head{Index: l.last, Seqs: l.seqs}); err != nil {
			return fmt.Errorf("encode the head of the audit log: %w", err)
		}
		first = append(first, '\n')
	}
	if err := l.write(append(first, text.Bytes()...), size); err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.seqs = last, seqs
	return nil
}

// write appends to the file, which has size bytes. A line that a crash has cut stays as it
// is, and the next line begins behind a newline.
func (l *Log) write(text []byte, size int64) (err error) {
	f, err := l.fs.OpenReadWrite(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = l.fs.Create(l.path)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size > 0 {
		end := make([]byte, 1)
		if _, err := f.ReadAt(end, size-1); err != nil {
			return err
		}
		if end[0] != '\n' {
			text = append([]byte{'\n'}, text...)
		}
	}
	if _, err = f.WriteAt(text, size); err == nil {
		err = f.Sync()
	}
	if err == nil && size == 0 {
		err = l.fs.SyncDir(filepath.Dir(l.path))
	}
	return err
}

// rotate makes room for more bytes, and returns how many the file has.
func (l *Log) rotate(more int64) (size int64, err error) {
	info, err := l.fs.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil || info.Size+more <= fileBytesMax {
		return info.Size, err
	}
	return 0, l.fs.Rename(l.path, l.path+oldSuffix)
}

// Newest returns the last n lines, oldest first. Lines from other nodes came late, so it
// sorts them by time.
func (l *Log) Newest(n int) ([]cluster.AuditEntry, error) {
	lines, err := l.read()
	slices.SortStableFunc(lines, func(a, b cluster.AuditEntry) int { return a.At.Compare(b.At) })
	return lines[max(0, len(lines)-n):], err
}

// Since returns this node's own lines behind a number: the oldest sinceMax of them.
func (l *Log) Since(seq uint64) ([]cluster.AuditEntry, error) {
	lines, err := l.read()
	lines = slices.DeleteFunc(lines, func(e cluster.AuditEntry) bool { return e.Node != l.node || e.Seq <= seq })
	return lines[:min(len(lines), sinceMax)], err
}

// read returns all lines, in the order in which they came.
func (l *Log) read() (lines []cluster.AuditEntry, err error) {
	l.files.Lock()
	defer l.files.Unlock()
	err = l.each(func(e cluster.AuditEntry, _ head) {
		if e.What != "" {
			lines = append(lines, e)
		}
	})
	return lines, err
}

// each calls f with each line, which is an entry or a head. A line that is neither, because
// a crash has cut it, is passed over.
func (l *Log) each(f func(cluster.AuditEntry, head)) error {
	for _, path := range []string{l.path + oldSuffix, l.path} {
		b, err := vfs.ReadFile(l.fs, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read the audit log: %w", err)
		}
		for text := range bytes.Lines(b) {
			var e cluster.AuditEntry
			var h head
			if json.Unmarshal(text, &e) == nil && e.What != "" {
				f(e, h)
			} else if json.Unmarshal(text, &h) == nil && h.Seqs != nil {
				f(cluster.AuditEntry{}, h)
			}
		}
	}
	return nil
}

// Take adds the lines of another node's log, which may be in any order, except those that are here.
func (l *Log) Take(lines []cluster.AuditEntry) error {
	lines = slices.DeleteFunc(slices.Clone(lines), func(e cluster.AuditEntry) bool { return e.Index == 0 && e.Seq == 0 })
	slices.SortStableFunc(lines, func(x, y cluster.AuditEntry) int {
		return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.Seq, y.Seq))
	})
	return l.Append(lines...)
}

// Seq is the highest number that there is of a node's lines.
func (l *Log) Seq(node string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seqs[node]
}

// number numbers lines, and leaves out those that are there already. Append keeps seqs
// and last once the lines are written. A number is a time, so that it goes on growing
// after this node was rebuilt.
func (l *Log) number(lines []cluster.AuditEntry) (fresh []cluster.AuditEntry, seqs map[string]uint64, last uint64) {
	seqs, last = maps.Clone(l.seqs), l.last
	for _, e := range lines {
		switch {
		case e.Index != 0 && e.Index <= last, e.Seq != 0 && e.Seq <= seqs[e.Node]:
			continue
		case e.Index != 0:
			last = e.Index
		case e.Seq == 0:
			e.Node, e.Seq = l.node, max(seqs[l.node]+1, uint64(max(0, e.At.UnixMicro())))
		}
		if e.Seq != 0 {
			seqs[e.Node] = e.Seq
		}
		fresh = append(fresh, e)
	}
	return fresh, seqs, last
}

// KeptAudit returns the newest lines of the audit log in a data directory, at most last
// (>= 1), oldest first. It is for a node whose agent gives no answer.
func KeptAudit(dataDir string, last int) ([]cluster.AuditEntry, error) {
	return NewLog(vfs.OS{}, dataDir, AuditFile, "").Newest(last)
}

// Kept is like KeptAudit, for the history.
func Kept(dataDir string, last int) ([]cluster.HistoryRow, error) {
	return NewLog(vfs.OS{}, dataDir, File, "").rows(last)
}

// rows makes the rows of a history from its newest lines.
func (l *Log) rows(last int) ([]cluster.HistoryRow, error) {
	lines, err := l.Newest(cluster.LinesMax)
	rows := cluster.History(lines)
	return rows[max(0, len(rows)-last):], err
}
