package agent

import (
	"sync"

	"github.com/quorate/quorate/internal/role"
)

// mailbox passes inputs to the role machine from callers that may not block. It is bounded
// by keeping only what matters: of Raft's states and of the peers' reports the
// newest, of doubts the first, which fences already, of the log's state the
// newest.
type mailbox struct {
	mu      sync.Mutex
	raft    *role.RaftChanged
	peers   *role.Peers
	doubted *role.Doubt
	trouble *role.LogTrouble
	// signal has room for one: something is there.
	signal chan struct{}
}

func newMailbox() *mailbox { return &mailbox{signal: make(chan struct{}, 1)} }

func (m *mailbox) raftChanged(in role.RaftChanged) {
	m.put(func() { m.raft = &in })
}

func (m *mailbox) peersChanged(in role.Peers) {
	m.put(func() { m.peers = &in })
}

func (m *mailbox) doubt(in role.Doubt) {
	m.put(func() {
		if m.doubted == nil || m.doubted.Incarnation < in.Incarnation {
			m.doubted = &in
		}
	})
}

func (m *mailbox) logTrouble(in role.LogTrouble) {
	m.put(func() { m.trouble = &in })
}

func (m *mailbox) put(f func()) {
	m.mu.Lock()
	f()
	m.mu.Unlock()
	m.wake()
}

// wake has the role machine look at what there is.
func (m *mailbox) wake() {
	select {
	case m.signal <- struct{}{}:
	default: // there is a signal already
	}
}

func (m *mailbox) take() (batch []role.Input) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.raft != nil {
		batch = append(batch, *m.raft)
	}
	if m.doubted != nil {
		batch = append(batch, *m.doubted)
	}
	if m.trouble != nil {
		batch = append(batch, *m.trouble)
	}
	if m.peers != nil {
		batch = append(batch, *m.peers)
	}
	m.raft, m.peers, m.doubted, m.trouble = nil, nil, nil, nil
	return batch
}
