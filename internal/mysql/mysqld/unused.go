package mysqld

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/mysql/binlog"
)

// unusedEventsMax is how many events a binlog without a transaction may have: its FORMAT_DESCRIPTION, PREVIOUS_GTIDS, and
// the ROTATE or STOP at its end.
const unusedEventsMax = 3

// removeUnusedBinlogs removes the binlog directories without a transaction. Each start that failed leaves one, and the judge
// removes them only after a start that succeeded. What is not understood stays, for the judge.
func (s *Server) removeUnusedBinlogs() error {
	files, err := s.BinlogFiles()
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, file := range files {
		if dir := filepath.Dir(file); !used[dir] {
			used[dir] = mayHaveTransactions(file)
		}
	}
	entries, err := os.ReadDir(s.paths.binlogs)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		n, ok := binlog.ParseIncarnationDir(e.Name())
		if dir := s.paths.binlogDir(n); ok && e.IsDir() && !used[dir] {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// mayHaveTransactions tells whether a binlog file has anything but what every file has. Half an event at its end is no
// transaction: package errant passes over it, too.
func mayHaveTransactions(path string) bool {
	f, err := OpenFile(path)
	if err != nil {
		return true
	}
	defer f.Close()
	magic := make([]byte, len(binlog.Magic))
	if n, err := io.ReadFull(f, magic); err != nil || string(magic) != binlog.Magic {
		return n > 0 || !errors.Is(err, io.EOF)
	}
	at := int64(len(magic))
	for range unusedEventsMax + 1 {
		head := make(binlog.Event, binlog.HeaderBytes)
		if _, err := f.ReadAt(head, at); err != nil {
			return !errors.Is(err, io.EOF)
		}
		switch head.Type() {
		case binlog.TypeFormatDescription, binlog.TypePreviousGTIDs, binlog.TypeRotate, binlog.TypeStop:
		default:
			return true
		}
		at += int64(head.Length())
	}
	return true
}
