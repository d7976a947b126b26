package keys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// NextFile is where a node's next key lies.
func NextFile(file string) string { return file + ".next" }

// Node is what Keys needs of the node.
type Node interface {
	// Kept is the cluster state on its disk.
	Kept() cluster.StatePoint
	// Nodes are the statuses of all members as they were heard last.
	Nodes() []status.Node
	// ShowKey has all connections that are made from now on show a key.
	ShowKey(k *nodekey.Key)
	// ChangeKey has the cluster change its state, through the leader.
	ChangeKey(ctx context.Context, c cluster.KeysChange) error
	// Trouble shows in the status why the key is not changed so far; "" = nothing is in the way.
	Trouble(text string)
}

// Keys is a node's own key. Only Shown may be called from other goroutines than Look's.
type Keys struct {
	file   string
	self   cluster.NodeID
	logger *slog.Logger
	shown  atomic.Pointer[nodekey.Key]
	// next is the other one of the two keys during a change, what NextFile held; nil = there is none.
	next *nodekey.Key
	// since is the index of the state in which the next key was seen first; 0 = there is none.
	since uint64
}

// Load reads a node's key, and makes one where there is no file. Of two keys the node shows the one by
// which the others know it. The error is about the file.
func Load(file string, self cluster.NodeID, known cluster.Key, logger *slog.Logger) (*Keys, error) {
	current, made, err := nodekey.LoadOrMake(file)
	if err != nil {
		return nil, err
	}
	if made {
		logger.Info("made this node's key", "file", file, "key", current.Name())
	}
	k := &Keys{file: file, self: self, logger: logger}
	k.shown.Store(current)
	if err := k.readNext(); err != nil {
		logger.Warn("this node's next key is left aside", "error", err)
	}
	if k.next != nil && k.next.Name() == known {
		k.swap()
	}
	return k, nil
}

func (k *Keys) swap() { k.next = k.shown.Swap(k.next) }

// Shown is the key that the node shows.
func (k *Keys) Shown() *nodekey.Key { return k.shown.Load() }

// Has tells whether a key is one of the node's.
func (k *Keys) Has(name cluster.Key) bool {
	return k.Shown().Name() == name || k.next != nil && k.next.Name() == name
}

func (k *Keys) readNext() error {
	next, err := nodekey.Load(NextFile(k.file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		k.next = next
	}
	return err
}

// Look takes the next step of a change of the key, if there is one.
func (k *Keys) Look(ctx context.Context, n Node) {
	p := n.Kept()
	m, ok := p.State.MemberByID(k.self)
	if !ok || m.NextKey == "" {
		k.since = 0
		if k.next != nil && m.Key == k.next.Name() { // somebody has said so: "quorate node set --key"
			k.show(n)
		}
		n.Trouble(k.unknown(m))
		return
	}
	if k.since == 0 {
		k.since = p.Index
	}
	if m.NextKey == k.Shown().Name() {
		n.Trouble("")
		if err := n.ChangeKey(ctx, cluster.KeysChange{Name: m.Name, Key: &m.NextKey, NextKey: new(cluster.Key)}); err != nil {
			k.logger.Warn("make the next key of this node its key: it is tried again", "error", err)
		}
		return
	}
	if err := k.readNext(); err != nil || !k.Has(m.NextKey) {
		n.Trouble(fmt.Sprintf("its next key, %s, is not in %s: %s", m.NextKey, NextFile(k.file), notThere(err)))
		return
	}
	if away := k.behind(n.Nodes()); len(away) > 0 {
		n.Trouble("its key is changed once all nodes know the next one; these do not so far: " + strings.Join(away, ", "))
		return
	}
	n.Trouble("")
	k.show(n)
}

func (k *Keys) show(n Node) {
	k.swap()
	n.ShowKey(k.Shown())
	k.logger.Info("this node shows its next key", "key", k.Shown().Name())
}

func notThere(err error) string {
	if err == nil {
		return "\"quorate key rotate\" makes it"
	}
	return err.Error()
}

// unknown says that the others know this node by another key than it has; "" = they do not.
func (k *Keys) unknown(m cluster.Member) string {
	if m.Key == "" || k.Has(m.Key) {
		return ""
	}
	return fmt.Sprintf("the cluster knows this node by the key %s, and %s holds %s: \"quorate node set %s --key %s\" on another node, if that is right",
		m.Key, k.file, k.Shown().Name(), m.Name, k.Shown().Name())
}

// behind names the members that do not have the next key on their disks.
func (k *Keys) behind(nodes []status.Node) (names []string) {
	for _, n := range nodes {
		if n.ID != k.self && (!n.Reachable || n.StateKept < k.since) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}
