package retention

import (
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// Heard is what the members need of the log, kept for a leader that has not heard a member since its agent started:
// it may be dead, and the log be longer than it is to be because of it. For a purge they
// do not count: who has not been heard may have begun anew.
type Heard struct {
	dir datadir.Dir

	mu   sync.Mutex
	need map[cluster.NodeID]datadir.HeardNeed
}

// Load reads them. Call it before anything else. They are a hint: what cannot be read
// is warned of, and the members say it again.
func (h *Heard) Load(dir datadir.Dir, logger *slog.Logger) {
	var err error
	h.dir = dir
	if h.need, err = dir.Heard(); err != nil {
		logger.Warn("what members need of the log cannot be read: a new one is begun", "error", err)
	}
}

// note keeps what the nodes but one say, durably if that is news.
func (h *Heard) note(self cluster.NodeID, nodes []status.Node) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	need := map[cluster.NodeID]datadir.HeardNeed{}
	for _, n := range nodes {
		if n.ID == self {
			continue
		}
		if n.Role != "" {
			need[n.ID] = datadir.HeardNeed{
				Instance: n.Instance, Role: n.Role, Mysqld: n.Mysqld, LogState: n.LogState,
				LogFirst: n.LogFirst, LogCommit: n.LogCommit, DurableMark: n.DurableMark,
			}
		} else if before, ok := h.need[n.ID]; ok {
			need[n.ID] = before
		}
	}
	if maps.Equal(need, h.need) {
		return nil
	}
	if err := h.dir.WriteHeard(need); err != nil {
		return err
	}
	h.need = need
	return nil
}

// fill puts what is kept of a member in place of what was never heard. What another
// data directory of it had does not count.
func (h *Heard) fill(s cluster.State, nodes []status.Node) []status.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	filled := slices.Clone(nodes)
	for i := range filled {
		n := &filled[i]
		m, ok := s.MemberByID(n.ID)
		kept, found := h.need[n.ID]
		if n.Role != "" || !ok || !found || m.Instance != "" && m.Instance != kept.Instance {
			continue
		}
		n.Instance, n.Role, n.Mysqld, n.LogState = kept.Instance, kept.Role, kept.Mysqld, kept.LogState
		n.LogFirst, n.LogCommit, n.DurableMark = kept.LogFirst, kept.LogCommit, kept.DurableMark
	}
	return filled
}
