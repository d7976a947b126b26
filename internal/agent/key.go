package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/keys"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// loadAuthority reads the operator's authority for nodes; nil = there is none.
func loadAuthority(cfg config.Config) (*nodekey.Authority, error) {
	if cfg.PeerTLS.CAFile == "" {
		return nil, nil
	}
	return nodekey.NewAuthority(cfg.PeerTLS.CAFile)
}

// aboutCutOff is the key of a trouble: why the others do not hear the node.
const aboutCutOff = "cut off"

// aboutKeys is the key, among the node's troubles, of nodes for which the configuration has outdated keys.
const aboutKeys = board.Last + "keys in node.toml"

// OutdatedKeys names the nodes for which a configuration has other keys than the newest cluster state on this
// node's disk; "" = there are none, or that state cannot be read.
func OutdatedKeys(cfg config.Config) string {
	last, err := datadir.New(vfs.OS{}, cfg.DataDir).LastState()
	if err != nil {
		return ""
	}
	return keys.OutdatedIn(cfg, last.State)
}

// openKeys reads this node's keys. Without the note of the key shown it goes by the cluster state alone.
func openKeys(cfg config.Config, data *dataDir, last cluster.State, logger *slog.Logger) (*keys.Keys, error) {
	noted, err := data.KeyNote()
	if err != nil {
		logger.Warn("it is not known which key this node has shown", "error", err)
	}
	return keys.Open(cfg, last, noted, data.Fresh(), logger)
}

// keyed is this node as package keys sees it.
type keyed struct{ *Agent }

// Kept implements keys.Node.
func (n keyed) Kept() cluster.StatePoint { return n.state.Point() }

// Nodes implements keys.Node.
func (n keyed) Nodes() []status.Node { return n.board.Nodes() }

// ShowKey implements keys.Node.
func (n keyed) ShowKey(k *nodekey.Key) {
	n.peers.SetKey(k)
	n.board.Update(func(s *status.Node) { s.Key = k.Name() })
}

// NoteKey implements keys.Node.
func (n keyed) NoteKey(note datadir.KeyNote) error { return n.data.WriteKeyNote(note) }

// ChangeKey implements keys.Node.
func (n keyed) ChangeKey(ctx context.Context, c cluster.KeysChange) error {
	args, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode a change of keys: %w", err)
	}
	answer := n.requests.Serve(ctx, control.Request{Name: "node.key", By: n.records.ByItself(), Args: args})
	return answer.Err()
}

// Trouble implements keys.Node.
func (n keyed) Trouble(text string) {
	n.board.SetTrouble(aboutCutOff, strings.Trim(n.onLoopback+"; "+text, "; "))
}

// State implements keys.Node.
func (n keyed) State() cluster.State { return n.board.State() }

// Outdated implements keys.Node.
func (n keyed) Outdated(text string) (news bool) { return n.board.SetTrouble(aboutKeys, text) }
