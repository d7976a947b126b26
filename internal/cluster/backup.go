package cluster

import "time"

// The copies that an agent gives at its control socket. Package archive defines their contents.
const (
	// StreamData is a copy of mysqld's data.
	StreamData = "backup.data"
	// StreamLog is the committed log, as it grows.
	StreamLog = "backup.log"
)

// ArchiveReached is the request by which a program that ships the log from here says how far it is.
const ArchiveReached = "archive.reached"

// ArchiveReachedRequest names the entry up to which the log is in the archive.
type ArchiveReachedRequest struct {
	Index uint64 `json:"index"`
}

// FullNewest is the request by which a program that takes full backups, or archives the log beside them, says
// when the newest full backup was taken.
const FullNewest = "backup.newest"

// FullNewestRequest has the time at which the newest full backup was begun that can be restored.
type FullNewestRequest struct {
	At time.Time `json:"at"`
}

// StreamLogRequest asks for the log from an entry on; 0 = what is committed from now on.
type StreamLogRequest struct {
	First uint64 `json:"first"`
}
