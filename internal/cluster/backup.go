package cluster

import "time"

// The copies that an agent gives at its control socket. What is in them is package archive's.
const (
	// StreamData is a copy of mysqld's data.
	StreamData = "backup.data"
	// StreamLog is the committed log, as it grows.
	StreamLog = "backup.log"
)

// ArchiveReached is the request of who ships the log from here: how far it is.
const ArchiveReached = "archive.reached"

// ArchiveReachedRequest says up to which entry the log is in the archive.
type ArchiveReachedRequest struct {
	Index uint64 `json:"index"`
}

// FullNewest is the request of who takes full backups, or archives the log beside them: when the newest one was taken.
const FullNewest = "backup.newest"

// FullNewestRequest says when the newest full backup was begun that can be restored.
type FullNewestRequest struct {
	At time.Time `json:"at"`
}

// StreamLogRequest asks for the log from an entry on.
type StreamLogRequest struct {
	First uint64 `json:"first"`
}
