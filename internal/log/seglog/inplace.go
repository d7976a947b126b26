package seglog

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"slices"
)

// InPlace returns ErrReplaced if the state file, or a segment's file, is no longer at its name: what Append writes from
// then on is on no disk for the next Open. It reports no other error: a disk that fails tells that at the next write. Any
// goroutine may call it before Close.
func (l *Log) InPlace() error {
	l.mu.RLock()
	segments := l.segments // never changed in place
	l.mu.RUnlock()
	if same, err := l.state.file.Has(filepath.Join(l.options.Dir, stateName)); errors.Is(err, iofs.ErrNotExist) || err == nil && !same {
		return fmt.Errorf("%s in %s %w", stateName, l.options.Dir, ErrReplaced)
	}
	for _, s := range segments {
		_, err := l.options.FS.Stat(filepath.Join(l.options.Dir, s.name()))
		// What the log itself removes, it takes off the list before.
		if errors.Is(err, iofs.ErrNotExist) && l.lists(s) {
			return fmt.Errorf("segment %s in %s %w", s.name(), l.options.Dir, ErrReplaced)
		}
	}
	return nil
}

// lists tells whether s is a segment of the log now.
func (l *Log) lists(s *segment) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Contains(l.segments, s)
}
