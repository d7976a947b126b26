package seglog

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrNoLog: the directory holds no log.
	ErrNoLog = errors.New("directory holds no log")
	// ErrCorrupt is the error of every *CorruptError: the log is damaged where it was durable. The node must
	// not vote; it is healed or rebuilt from its peers.
	ErrCorrupt = errors.New("log is corrupt")
	// ErrFormat is returned by Open for a directory that holds something else, or a log of a newer format.
	// Nothing was changed.
	ErrFormat = errors.New("not a log of this format")
	// ErrIdentity is returned by Open for the log of another cluster or node. Nothing was changed.
	ErrIdentity = errors.New("log belongs to another node")
	// ErrFailed is returned by Append once a write or sync has failed. It is
	// terminal; the process must end and open the log again.
	ErrFailed = errors.New("log has failed")
	// ErrClosed is returned by Append after Close.
	ErrClosed = errors.New("log is closed")
	// ErrReplaced is returned by InPlace.
	ErrReplaced = errors.New("was removed or replaced while the log was open")
	// ErrCompacted is returned for an index before FirstIndex.
	ErrCompacted = errors.New("index is before the log's first")
	// ErrNotInMemory is returned by EntriesInMemory: the entry is being read ahead.
	ErrNotInMemory = errors.New("entry is not in memory")
	// ErrUnavailable is returned for an index behind LastIndex.
	ErrUnavailable = errors.New("index is behind the log's last")
	// ErrTooLarge is returned by Append for an entry over EntryBytesMax.
	// Nothing of the call was written.
	ErrTooLarge = errors.New("entry is too large")
	// ErrFull is returned if the disk has no room. Nothing of the call is acknowledged, and the log goes on:
	// the same call may be made again.
	ErrFull = fmt.Errorf("disk is full: %w", syscall.ENOSPC)
	// ErrNoStage is returned for a stage that is not here, or not complete.
	ErrNoStage = errors.New("there is no such stage")
	// ErrStageExists is returned by CreateStage for a stage that is here, or that is being written.
	ErrStageExists = errors.New("stage exists")
)

// full marks an error of a write, or of making a name, that found no room. It is never used for an error of a
// sync: what a sync lost is not known.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %v", ErrFull, err)
	}
	return err
}

// CorruptError says where a log is damaged. errors.Is(err, ErrCorrupt) is true for it.
type CorruptError struct {
	// File is the name of the segment, or of the state file.
	File string
	// Offset is where the damage begins, in bytes from the file's start.
	Offset int64
	// Index is the index of the entry that should be there; 0 = no entry.
	Index uint64
	// Detail says what is wrong.
	Detail string
	// Err is the error of the disk if it could not return the bytes; nil = the disk returned them, and they are
	// wrong.
	Err error
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: file %s, offset %d, index %d: %s", ErrCorrupt, e.File, e.Offset, e.Index, e.Detail)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// Is makes errors.Is(err, syscall.EIO) true if the disk could not read the bytes.
func (e *CorruptError) Is(target error) bool {
	return target == error(syscall.EIO) && errors.Is(e.Err, syscall.EIO)
}
