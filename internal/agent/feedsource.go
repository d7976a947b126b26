package agent

import (
	"errors"
	"io"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
)

// logReader implements feed.Log.
type logReader struct {
	*seglog.Log
	committed *consensus.Committed
	entries   *seglog.Reader
	damaged   func(error)
}

func (a *Agent) logReader() logReader {
	return logReader{a.log, a.node.Committed(), a.log.NewReader(), a.damaged}
}

// Close implements feed.Log. The log itself goes on.
func (r logReader) Close() { r.entries.Close() }

// ReadCommitted implements replay.CommittedLog.
func (r logReader) ReadCommitted(index, bytesMax uint64) ([]seglog.Entry, bool, error) {
	found, ok, err := r.committed.Read(r.entries, index, bytesMax)
	if errors.Is(err, seglog.ErrCorrupt) {
		r.damaged(err)
	}
	return found, ok, err
}

// ReadStage implements replay.CommittedLog.
func (r logReader) ReadStage(id entry.StageID) (io.ReadCloser, error) {
	stage, err := r.OpenStage(id)
	if err != nil {
		return nil, err
	}
	n, _ := stage.Bytes()
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(stage, 0, n), stage}, nil
}
