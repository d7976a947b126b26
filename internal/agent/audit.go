package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// auditLog is the node's record of what operators did.
type auditLog struct {
	mu   sync.Mutex
	path string
	// last is the newest entry of the log of which there is a line: what is replayed
	// at a start is not written again.
	last uint64
}

// open reads how far the audit log goes. Call it before anything else.
func (a *auditLog) open(path string) error {
	a.path = path
	lines, err := a.read()
	for _, l := range lines {
		a.last = max(a.last, l.Index)
	}
	return err
}

// append adds lines durably, but for those of entries that are there already.
func (a *auditLog) append(lines ...cluster.AuditEntry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.last
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, l := range lines {
		if l.Index != 0 && l.Index <= last {
			continue
		}
		if err := encoder.Encode(l); err != nil {
			return fmt.Errorf("encode audit line: %w", err)
		}
		last = max(last, l.Index)
	}
	if text.Len() == 0 {
		return nil
	}
	if err := a.rotate(int64(text.Len())); err != nil {
		return fmt.Errorf("rotate the audit log: %w", err)
	}
	if err := a.write(text.Bytes()); err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	a.last = last
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

// rotate makes room for more bytes.
func (a *auditLog) rotate(more int64) error {
	info, err := os.Stat(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Size()+more <= auditBytesMax {
		return nil
	}
	return os.Rename(a.path, a.path+auditOldSuffix)
}

// newest returns the last n lines, oldest first.
func (a *auditLog) newest(n int) ([]cluster.AuditEntry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	lines, err := a.read()
	return lines[max(0, len(lines)-n):], err
}

// read returns all lines, oldest first. What is no line, because a crash has cut
// it, is passed over.
func (a *auditLog) read() (lines []cluster.AuditEntry, err error) {
	for _, path := range []string{a.path + auditOldSuffix, a.path} {
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		for text := range bytes.Lines(b) {
			var l cluster.AuditEntry
			if json.Unmarshal(text, &l) == nil && l.What != "" {
				lines = append(lines, l)
			}
		}
	}
	return lines, nil
}
