package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/membership"
)

// heardFile holds what the members said last that they need of the log.
const heardFile = "heard.json"

// heardNeed is what a member said of what it has: with what it was made of, all that
// replay.Needs asks for. Its figures only grow, so an old one needs more, never less.
type heardNeed struct {
	Instance    string              `json:"instance"`
	Role        cluster.Role        `json:"role"`
	Mysqld      cluster.MysqldState `json:"mysqld"`
	LogState    cluster.LogState    `json:"log_state"`
	LogFirst    uint64              `json:"log_first"`
	LogCommit   uint64              `json:"log_commit"`
	DurableMark uint64              `json:"durable_mark"`
}

// heardNeeds are kept for a leader that has not heard a member since its agent started:
// it may be dead, and the log be longer than it is to be because of it. For a purge they
// do not count: who has not been heard may have begun anew.
type heardNeeds struct {
	path string

	mu   sync.Mutex
	need map[cluster.NodeID]heardNeed
}

// load reads them. Call it before anything else. They are a hint: what cannot be read
// is warned of, and the members say it again.
func (h *heardNeeds) load(path string, logger *slog.Logger) {
	h.path, h.need = path, map[cluster.NodeID]heardNeed{}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(b, &h.need)
	}
	if err != nil {
		logger.Warn("what members need of the log cannot be read: it is begun anew", "file", path, "error", err)
		h.need = map[cluster.NodeID]heardNeed{}
	}
}

// note keeps what the nodes but one say, durably if that is news.
func (h *heardNeeds) note(self cluster.NodeID, nodes []cluster.NodeStatus) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	need := map[cluster.NodeID]heardNeed{}
	for _, n := range nodes {
		if n.ID == self {
			continue
		}
		if n.Role != "" {
			need[n.ID] = heardNeed{n.Instance, n.Role, n.Mysqld, n.LogState, n.LogFirst, n.LogCommit, n.DurableMark}
		} else if before, ok := h.need[n.ID]; ok {
			need[n.ID] = before
		}
	}
	if maps.Equal(need, h.need) {
		return nil
	}
	if err := writeJSON(h.path, need); err != nil {
		return err
	}
	h.need = need
	return nil
}

// fill puts what is kept of a member in place of what was never heard. What another
// data directory of it had does not count.
func (h *heardNeeds) fill(s cluster.State, nodes []cluster.NodeStatus) []cluster.NodeStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	filled := slices.Clone(nodes)
	for i := range filled {
		n := &filled[i]
		m, ok := membership.Find(s, n.ID)
		kept, found := h.need[n.ID]
		if n.Role != "" || !ok || !found || m.Instance != "" && m.Instance != kept.Instance {
			continue
		}
		n.Instance, n.Role, n.Mysqld, n.LogState = kept.Instance, kept.Role, kept.Mysqld, kept.LogState
		n.LogFirst, n.LogCommit, n.DurableMark = kept.LogFirst, kept.LogCommit, kept.DurableMark
	}
	return filled
}
