package logcopy

import (
	"context"

	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// Entries shows a node's committed log to a peer that copies it. It implements bulk.Entries.
type Entries struct {
	Node *consensus.Runner
	Log  func() bulk.Reader
}

// Open implements bulk.Entries.
func (e Entries) Open() bulk.Reader { return e.Log() }

// Tail implements bulk.Entries.
func (e Entries) Tail(ctx context.Context) (bulk.Tail, error) {
	t, err := e.Node.Tail(ctx)
	return bulk.Tail(t), err
}
