package feed

import (
	"errors"
	"io"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
)

// Reader reads the committed part of a log. It implements Log.
type Reader struct {
	*seglog.Log
	Committed *consensus.Committed
	// Entries reads the entries: a seglog.Reader, which Close closes, or the log itself.
	Entries consensus.Entries
	// Damaged is told of an entry that cannot be read.
	Damaged func(error)
}

// Close implements Log. The log itself goes on.
func (r Reader) Close() {
	if e, ok := r.Entries.(*seglog.Reader); ok {
		e.Close()
	}
}

// ReadCommitted implements replay.CommittedLog.
func (r Reader) ReadCommitted(index, bytesMax uint64) ([]seglog.Entry, bool, error) {
	found, ok, err := r.Committed.Read(r.Entries, index, bytesMax)
	if errors.Is(err, seglog.ErrCorrupt) {
		r.Damaged(err)
	}
	return found, ok, err
}

// ReadStage implements replay.CommittedLog.
func (r Reader) ReadStage(id entry.StageID) (io.ReadCloser, error) {
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
