package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/quorate/quorate/internal/cluster"
)

const (
	// auditFile holds what operators did: JSON, one line each. The file before it
	// has auditOldSuffix.
	auditFile      = "audit.log"
	auditOldSuffix = ".1"
	// auditBytesMax bounds the file: some thousand lines. With the one before it
	// there is twice as much.
	auditBytesMax = 1 << 20
)

// auditHead is the first line of a file that has another one before it: how far all
// lines up to there went. Most of these are gone after the next rotation.
type auditHead struct {
	Index uint64            `json:"index"`
	Seqs  map[string]uint64 `json:"seqs"`
}

// auditLog is the node's record of what operators did.
type auditLog struct {
	node string // whose it is
	path string
	// files is held while the files are read or written, however long their disk takes.
	files sync.Mutex
	// mu guards what follows, and waits for no disk: statuses need it. It comes after files.
	mu sync.Mutex
	// last is the newest entry of the log of which there is a line: what is replayed
	// at a start is not written again.
	last uint64
	// seqs are the highest numbers of the lines of each node.
	seqs map[string]uint64
}

// open reads how far the audit log of a node goes. Call it before anything else.
func (a *auditLog) open(path, node string) error {
	a.files.Lock()
	defer a.files.Unlock()
	a.path, a.node = path, node
	last, seqs := uint64(0), map[string]uint64{}
	err := a.each(func(l cluster.AuditEntry, head auditHead) {
		last = max(last, l.Index, head.Index)
		if l.Seq > 0 {
			seqs[l.Node] = max(seqs[l.Node], l.Seq)
		}
		for node, seq := range head.Seqs {
			seqs[node] = max(seqs[node], seq)
		}
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last, a.seqs = last, seqs
	return err
}

// append adds lines durably, but for those that are there already.
func (a *auditLog) append(lines ...cluster.AuditEntry) error {
	a.files.Lock()
	defer a.files.Unlock()
	lines, seqs, last := a.number(lines)
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, l := range lines {
		if err := encoder.Encode(l); err != nil {
			return fmt.Errorf("encode audit line: %w", err)
		}
	}
	if text.Len() == 0 {
		return nil
	}
	first, err := a.rotate(int64(text.Len()))
	if err != nil {
		return fmt.Errorf("rotate the audit log: %w", err)
	}
	var head []byte
	if first && (a.last > 0 || len(a.seqs) > 0) {
		if head, err = json.Marshal(auditHead{Index: a.last, Seqs: a.seqs}); err != nil {
			return fmt.Errorf("encode the head of the audit log: %w", err)
		}
		head = append(head, '\n')
	}
	if err := a.write(append(head, text.Bytes()...)); err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last, a.seqs = last, seqs
	return nil
}

// write appends to the file. A line that a crash has cut stays as it is, and the
// next begins behind a newline.
func (a *auditLog) write(text []byte) error {
	f, err := os.OpenFile(a.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > 0 {
		end := make([]byte, 1)
		if _, err = f.ReadAt(end, info.Size()-1); err == nil && end[0] != '\n' {
			text = append([]byte{'\n'}, text...)
		}
	}
	if err == nil {
		_, err = f.Write(text)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if info.Size() == 0 {
		return syncDir(filepath.Dir(a.path))
	}
	return nil
}

// rotate makes room for more bytes. first: the file has nothing so far.
func (a *auditLog) rotate(more int64) (first bool, err error) {
	info, err := os.Stat(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if info.Size()+more <= auditBytesMax {
		return info.Size() == 0, nil
	}
	return true, os.Rename(a.path, a.path+auditOldSuffix)
}

// newest returns the last n lines, oldest first. What came from other nodes came
// late, so the order is that of the times.
func (a *auditLog) newest(n int) ([]cluster.AuditEntry, error) {
	a.files.Lock()
	defer a.files.Unlock()
	lines, err := a.read()
	slices.SortStableFunc(lines, func(a, b cluster.AuditEntry) int { return a.At.Compare(b.At) })
	return lines[max(0, len(lines)-n):], err
}

// read returns all lines, in the order in which they came.
func (a *auditLog) read() (lines []cluster.AuditEntry, err error) {
	err = a.each(func(l cluster.AuditEntry, _ auditHead) {
		if l.What != "" {
			lines = append(lines, l)
		}
	})
	return lines, err
}

// each calls f with each line, which is an entry or a head. What is neither, because a
// crash has cut it, is passed over.
func (a *auditLog) each(f func(cluster.AuditEntry, auditHead)) error {
	for _, path := range []string{a.path + auditOldSuffix, a.path} {
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read the audit log: %w", err)
		}
		for text := range bytes.Lines(b) {
			var l cluster.AuditEntry
			var head auditHead
			if json.Unmarshal(text, &l) == nil && l.What != "" {
				f(l, head)
			} else if json.Unmarshal(text, &head) == nil && head.Seqs != nil {
				f(cluster.AuditEntry{}, head)
			}
		}
	}
	return nil
}
