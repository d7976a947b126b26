package cluster

// The copies that an agent gives at its control socket. What is in them is package archive's.
const (
	// StreamData is a copy of mysqld's data.
	StreamData = "backup.data"
	// StreamLog is the committed log, as it grows.
	StreamLog = "backup.log"
)

// StreamLogRequest asks for the log from an entry on.
type StreamLogRequest struct {
	First uint64 `json:"first"`
}
