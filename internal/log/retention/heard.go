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

// Heard is what each member needs of the log, as the member said last. It is kept in a file for a leader that
// has not heard a member since its agent started. Such a member may be dead, and the log may be too long
// because of it. Heard does not count for a purge: a member that has not been heard may have begun again with
// nothing.
type Heard struct {
	dir datadir.Dir

	mu   sync.Mutex
	need map[cluster.NodeID]datadir.HeardNeed
}

// Load reads the file. Call it before anything else. The file is a hint: if it cannot be read, there is a
// warning, and the members say it again.
func (h *Heard) Load(dir datadir.Dir, logger *slog.Logger) {
	var err error
	h.dir = dir
	if h.need, err = dir.Heard(); err != nil {
		logger.Warn("what members need of the log cannot be read: a new one is begun", "error", err)
	}
}

// note keeps what all nodes but self say. If that is news, it is made durable.
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

// fill fills in what is kept of members that were not heard. What belongs to another data directory of a member
// is left out.
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
