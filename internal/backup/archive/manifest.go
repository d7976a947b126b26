package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/internal/mysql/replay"
)

// Format is the version of the JSON that this package writes. Part of the format.
const Format = 1

// The files of a backup's tar beside the data. Part of the format.
const (
	StartFile = "backup.json"
	DataDir   = "data/"
	EndFile   = "end.json"
)

// Start says what a full backup is a copy of, and where the log goes on from it. It is the first
// file of the tar.
type Start struct {
	Format    int    `json:"format"`
	Cluster   string `json:"cluster"`
	ClusterID string `json:"cluster_id"`
	// Generation grows when the cluster is recovered without a majority, or restored: it then has another
	// history under the same name.
	Generation uint64 `json:"generation"`
	// Node is the node whose mysqld was copied, Quorate and MySQL are the versions there.
	Node    string    `json:"node"`
	Quorate string    `json:"quorate"`
	MySQL   string    `json:"mysql"`
	At      time.Time `json:"at"`
	// FromPrimary says that the node was the primary when it was asked.
	FromPrimary bool `json:"from_primary,omitempty"`
	// Begin is the beginning of the log that the data need.
	Begin replay.LogBegin `json:"begin"`
	// The durable mark of the mysqld before it was copied.
	replay.MarkText
	// State is the cluster state when the backup began, in the form of cluster.json.
	State json.RawMessage `json:"state"`
	// Newest is when the newest transaction before the backup was committed, by the clock of its primary; zero if
	// there is none. It is kept here because the log from Begin on may have no transaction.
	Newest time.Time `json:"newest"`
	// DataBytes is roughly the length of the data.
	DataBytes int64 `json:"data_bytes"`
}

// End says how the copy ended. It is the last file of the tar.
type End struct {
	At time.Time `json:"at"`
	// Index is the commit index when the copy was complete. The data have no transaction behind
	// it.
	Index uint64 `json:"index"`
}

// Manifest describes a full backup. It is an object of its own.
type Manifest struct {
	Start
	End End `json:"end"`
	// Time is when the newest transaction up to the end was committed, by the clock of its primary:
	// no earlier point can be restored from this backup. Zero = there is no transaction.
	Time time.Time `json:"time"`
	// GTIDs are all transactions up to the end.
	GTIDs string `json:"gtids"`
	// Data is the name of the object with the data. Bytes is the length of the tar, before it is
	// compressed. Encrypted says that the data and the log are encrypted.
	Data      string `json:"data"`
	Bytes     int64  `json:"bytes"`
	Encrypted bool   `json:"encrypted"`
	// Files are the files of the data, in the order of the tar.
	Files []File `json:"files"`
}

// File is one file of the data.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// manifestBytesMax bounds a manifest: a million files.
const manifestBytesMax = 256 << 20

// ErrManifest is returned for a manifest that is cut off or no JSON.
var ErrManifest = errors.New("it is damaged")

// ReadManifest reads a manifest. It returns ErrManifest for a part of a manifest, which a killed command may have
// left.
func ReadManifest(r io.Reader) (Manifest, error) {
	var m Manifest
	err := json.NewDecoder(io.LimitReader(r, manifestBytesMax)).Decode(&m)
	_, syntax := errors.AsType[*json.SyntaxError](err)
	switch {
	case syntax || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return m, fmt.Errorf("read the manifest: %w: %w", ErrManifest, err)
	case err != nil:
		return m, fmt.Errorf("read the manifest: %w", err)
	case m.Format > Format:
		return m, fmt.Errorf("the manifest has format %d, and this quorate knows %d: use a newer one", m.Format, Format)
	case m.Format < 1 || m.Begin.First == 0 || m.End.Index < m.Begin.First-1 || m.Data == "":
		return m, fmt.Errorf("the manifest is damaged: format %d, entries %d to %d, data %q", m.Format, m.Begin.First, m.End.Index, m.Data)
	}
	return m, nil
}
