package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/keys"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// loadKeys reads this node's key, and makes one where there is none: at the first start, or with the first
// quorate that has keys. nil: there is none, and none is needed so far.
func loadKeys(cfg config.Config, data *dataDir, logger *slog.Logger) (*keys.Keys, error) {
	if cfg.KeyFile == "" {
		return nil, nil
	}
	last, err := data.LastState()
	if err != nil {
		return nil, err
	}
	configured := cfg.Self().Key
	known, needed := configured, len(cfg.Members) > 0 && cfg.Members[0].Key != "" // all have one, or none
	if m, ok := last.State.MemberByID(cfg.Self().ID); ok && m.Key != "" {
		known, needed = m.Key, true
	}
	k, err := keys.Load(keys.Files{Own: cfg.KeyFile, Certificate: cfg.PeerTLS.CertificateFile, Key: cfg.PeerTLS.KeyFile}, cfg.Self().ID, known, logger)
	switch {
	case err != nil && needed:
		return nil, unusableKey(err, cfg)
	case err != nil:
		logger.Warn("this node has no key: its connections with other agents are not protected", "error", err)
		return nil, nil
	case data.Fresh() && configured != "" && !k.Has(configured):
		return nil, fmt.Errorf("%w: the configuration says that node %q has the key %s, and %s holds the key %s: correct the one or the other",
			ErrKey, cfg.Node, configured, cfg.KeyFile, k.Shown().Name())
	}
	return k, nil
}

// ErrKey means that this node cannot use its key until somebody mends its files.
var ErrKey = errors.New("this node cannot use its key")

// unusableKey says why the key could not be read or made, and what to do where the reason does not say it.
func unusableKey(err error, cfg config.Config) error {
	errno, failed := errors.AsType[syscall.Errno](err)
	switch {
	case failed && !slices.Contains([]syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.EROFS}, errno):
		return err // of the disk or the host: it may go by itself
	case cfg.PeerTLS.CertificateFile != "" || !failed && errors.Is(err, nodekey.ErrOpen):
		return fmt.Errorf("%w: %w", ErrKey, err)
	case !failed:
		return fmt.Errorf("%w: %w: put the file back, or move it away and make another key with \"quorate key new\"", ErrKey, err)
	}
	if _, there := os.Lstat(cfg.KeyFile); there == nil {
		return fmt.Errorf("%w: %w: give the file to the agent's account", ErrKey, err)
	}
	return fmt.Errorf("%w: there is none, and it cannot be made here (%w): put %s back, or make a key with \"quorate key new\"", ErrKey, err, cfg.KeyFile)
}

// loadAuthority reads the operator's authority for nodes; nil = there is none.
func loadAuthority(cfg config.Config) (*nodekey.Authority, error) {
	if cfg.PeerTLS.CAFile == "" {
		return nil, nil
	}
	return nodekey.NewAuthority(cfg.PeerTLS.CAFile)
}

// shownKey is the key that this node shows; nil = it has none.
func (a *Agent) shownKey() *nodekey.Key {
	if a.keys == nil {
		return nil
	}
	return a.keys.Shown()
}

const (
	// aboutKeys keys among the troubles of whom the configuration has another key.
	aboutKeys = "keys in node.toml"
)

// OutdatedKeys says of which nodes a configuration has other keys than the cluster as this node knew it last;
// "" = of none, or it is not known.
func OutdatedKeys(cfg config.Config) string {
	last, err := datadir.New(vfs.OS{}, cfg.DataDir).LastState()
	if err != nil {
		return ""
	}
	return outdatedKeys(cfg, last.State)
}

func outdatedKeys(cfg config.Config, s cluster.State) string {
	return keys.Outdated(append(cfg.ClusterMembers(), cfg.AddedMembers()...), s)
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
func (n keyed) Trouble(text string) { n.board.SetCutOff(text) }

// keysEvery is how often this node looks whether its key is to be changed.
const keysEvery = time.Second

// runKeys looks apart from all else: who is asked to change the state may not answer for seconds.
func (a *Agent) runKeys(ctx context.Context) error {
	a.lookAtKeys(ctx)
	return every(ctx, keysEvery, func() error {
		a.lookAtKeys(ctx)
		return nil
	})
}

// configured is a node's configuration as its file has it now. One goroutine may use it.
type configured struct {
	cfg config.Config
	// read is the file as it was when cfg was read from it; nil = cfg is that of the agent's start.
	read fs.FileInfo
}

// now reads the file again if it has changed. A file that cannot be read now, or is another node's, changes
// nothing.
func (c *configured) now() config.Config {
	path := c.cfg.File()
	if path == "" {
		return c.cfg
	}
	info, err := os.Stat(path)
	if err != nil || c.read != nil && os.SameFile(info, c.read) && info.ModTime().Equal(c.read.ModTime()) && info.Size() == c.read.Size() {
		return c.cfg
	}
	fresh, err := config.Load(path)
	if err == nil && fresh.Cluster == c.cfg.Cluster && fresh.Node == c.cfg.Node {
		c.cfg, c.read = fresh, info
	}
	return c.cfg
}

// lookAtKeys tells which keys the configuration lacks, and takes the next step of a change of this node's.
func (a *Agent) lookAtKeys(ctx context.Context) {
	if text := outdatedKeys(a.configured.now(), a.board.State()); a.board.SetTrouble(aboutKeys, text) && text != "" {
		a.logger.Warn(text)
	}
	if a.keys != nil {
		a.keys.Look(ctx, keyed{a})
	}
}
