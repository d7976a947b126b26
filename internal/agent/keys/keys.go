package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// NextFile is where a node's next key lies.
func NextFile(file string) string { return file + ".next" }

// TakeNext gives the next key the place of the node's key, durably.
func TakeNext(fs vfs.FS, file string) error {
	if err := vfs.Move(fs, NextFile(file), file); err != nil {
		return fmt.Errorf("give the new key its place: %w", err)
	}
	return nil
}

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
	// NoteKey notes durably which key the node shows.
	NoteKey(n datadir.KeyNote) error
	// Trouble shows in the status why the key is not changed yet; "" = nothing is in the way.
	Trouble(text string)
	// State is the cluster state. Outdated shows in the status for which nodes the configuration has other keys than
	// that state; "" = for none. It tells whether that is news.
	State() cluster.State
	Outdated(text string) (news bool)
}

// Files are where a node's keys lie.
type Files struct {
	// Own is the node's own key; beside it lies the next one (NextFile).
	Own string
	// Certificate and Key are of an operator's authority; "" = there is none. They are read in place of NextFile.
	Certificate, Key string
	// Name is the key that the authority's certificate must give; "" = any.
	Name cluster.Key
}

// issued tells whether there is an authority.
func (f Files) issued() bool { return f.Certificate != "" }

// Next names the file of the key to which a node changes.
func (f Files) Next() string {
	if f.issued() {
		return f.Certificate
	}
	return NextFile(f.Own)
}

// loadIssued reads the key that the authority has issued. Another node's is refused: as that key is a member's, all
// others would refuse this node.
func (f Files) loadIssued() (*nodekey.Key, error) {
	k, err := nodekey.LoadIssued(f.Certificate, f.Key)
	if err == nil && f.Name != "" && k.Name() != f.Name {
		return nil, fmt.Errorf("the certificate %s names %s, and this node is %s", f.Certificate, k.Name(), f.Name)
	}
	return k, err
}

// current reads the key that is not the next one: node.key or, if there is none, the one that an authority has issued.
// Without an authority it makes node.key if there is none.
func (f Files) current() (k *nodekey.Key, made bool, err error) {
	if !f.issued() {
		return nodekey.LoadOrMake(f.Own, nil)
	}
	k, err = nodekey.Load(f.Own)
	if errors.Is(err, fs.ErrNotExist) {
		k, err = f.loadIssued()
	}
	return k, false, err
}

// next reads the key to which a node changes. The error wraps fs.ErrNotExist if there is none.
func (f Files) next() (*nodekey.Key, error) {
	if f.issued() {
		return f.loadIssued()
	}
	return nodekey.Load(NextFile(f.Own))
}

// Keys is a node's own key. Only Shown may be called from other goroutines than the one that calls Look.
type Keys struct {
	files  Files
	self   cluster.NodeID
	logger *slog.Logger
	shown  atomic.Pointer[nodekey.Key]
	// next is the key of the two that is not shown, during a change; nil = there is none.
	next *nodekey.Key
	// since is the index of the state in which the next key, sinceOf, was seen first; 0 = there is none.
	since   uint64
	sinceOf cluster.Key
	// noted is what is noted of the key shown.
	noted datadir.KeyNote
}

// Load reads a node's key, and makes one if there is no file. Of two keys the node shows the key by which
// the others know it. The error is about the file.
func Load(files Files, self cluster.NodeID, known cluster.Key, logger *slog.Logger) (*Keys, error) {
	current, made, err := files.current()
	if err != nil {
		return nil, err
	}
	if made {
		logger.Info("made this node's key", "file", files.Own, "key", current.Name())
	}
	k := &Keys{files: files, self: self, logger: logger}
	k.shown.Store(current)
	if err := k.readNext(); err != nil {
		logger.Warn("this node's next key is not used", "error", err)
	}
	if k.next != nil && k.next.Name() == known {
		k.swap()
	}
	return k, nil
}

// resume has the node show its next key again if it had shown that before it ended: the others may take no other key any
// more, and this node may not have heard so. The note is newer than any state in which that key is not the next one. m
// is the node's member in the state on its disk; is = there is one.
func (k *Keys) resume(noted datadir.KeyNote, m cluster.Member, is bool) {
	k.noted = noted
	if k.next != nil && k.note() == noted && (!is || m.NextKey == noted.Shown) {
		k.swap()
	}
}

// note says that the node shows its next key.
func (k *Keys) note() datadir.KeyNote {
	return datadir.KeyNote{Shown: k.next.Name(), Former: k.Shown().Name()}
}

func (k *Keys) swap() { k.next = k.shown.Swap(k.next) }

// Shown is the key that the node shows; nil = it has none.
func (k *Keys) Shown() *nodekey.Key {
	if k == nil {
		return nil
	}
	return k.shown.Load()
}

// Has tells whether a key is one of the node's.
func (k *Keys) Has(name cluster.Key) bool {
	return k.Shown().Name() == name || k.next != nil && k.next.Name() == name
}

func (k *Keys) readNext() error {
	next, err := k.files.next()
	if err == nil && k.files.issued() && k.Shown().Name().Issued() {
		next, err = nodekey.Load(k.files.Own) // the way back from an authority
	}
	if err == nil && next.Name() == k.Shown().Name() {
		return nil
	}
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
		k.correct(n)
		n.Trouble(cmp.Or(k.unknown(m), k.renew(n), k.aside()))
		return
	}
	if k.since == 0 || k.sinceOf != m.NextKey {
		k.since, k.sinceOf = p.Index, m.NextKey
	}
	if m.NextKey == k.Shown().Name() {
		n.Trouble("")
		if err := n.ChangeKey(ctx, cluster.KeysChange{Name: m.Name, Key: &m.NextKey, NextKey: new(cluster.Key)}); err != nil {
			k.logger.Warn("cannot make the next key of this node its key: trying again", "error", err)
		}
		return
	}
	if err := k.readNext(); err != nil || !k.Has(m.NextKey) {
		n.Trouble(fmt.Sprintf("its next key, %s, is not in %s: %s", m.NextKey, k.files.Next(), notThere(err)))
		return
	}
	nodes := n.Nodes()
	if away := k.behind(nodes); len(away) > 0 {
		n.Trouble("the key change waits for these nodes to learn the new key: " + strings.Join(away, ", "))
		return
	}
	if lack := status.WithoutAuthority(m.NextKey, nodes); len(lack) > 0 {
		n.Trouble("the key change waits for [peer_tls] in the node.toml of these nodes, which do not know the authority of the new key: " + strings.Join(lack, ", "))
		return
	}
	if err := n.NoteKey(k.note()); err != nil { // it is to show this key also after a restart
		n.Trouble(fmt.Sprintf("the key change waits, because the new key cannot be noted: %v", err))
		return
	}
	k.noted = k.note()
	n.Trouble("")
	k.show(n)
}

// correct notes which key is shown, once another one is noted and no change is under way: that change was taken back.
func (k *Keys) correct(n Node) {
	now := datadir.KeyNote{Shown: k.Shown().Name(), Former: k.noted.Shown}
	if k.noted.Shown == "" || k.noted.Shown == now.Shown {
		return
	}
	if err := n.NoteKey(now); err != nil {
		k.logger.Warn("cannot note which key this node shows: trying again", "error", err)
		return
	}
	k.noted = now
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

// endsSoon is how long before its end a certificate is an alarm.
const endsSoon = 30 * 24 * time.Hour

// renew takes a certificate that was issued again, and says that the one shown ends soon, or has ended, or
// that its files cannot be read; "" = nothing is wrong.
func (k *Keys) renew(n Node) string {
	shown := k.Shown()
	if shown.Ends().IsZero() {
		return ""
	}
	fresh, err := nodekey.LoadIssued(k.files.Certificate, k.files.Key)
	switch {
	case err != nil:
		return err.Error()
	case fresh.Name() != shown.Name():
		return fmt.Sprintf("%s now names %s, and this node shows %s: \"quorate key rotate\" makes the new name this node's key", k.files.Certificate, fresh.Name(), shown.Name())
	case !fresh.Same(shown):
		k.shown.Store(fresh)
		n.ShowKey(fresh)
		k.logger.Info("this node shows a renewed certificate", "file", k.files.Certificate, "ends", fresh.Ends())
	}
	if left := time.Until(fresh.Ends()); left < endsSoon {
		ends := "ends"
		if left < 0 {
			ends = "ended"
		}
		return fmt.Sprintf("its certificate for other agents, %s, %s at %s: connections still work; renew it",
			k.files.Certificate, ends, units.Time(fresh.Ends()))
	}
	return ""
}

// aside says why the key that the authority has issued could not be shown; "" = it could, it is shown, or there is none.
func (k *Keys) aside() string {
	if !k.files.issued() || k.Shown().Name().Issued() {
		return ""
	}
	if _, err := k.files.loadIssued(); err != nil {
		return fmt.Sprintf("it shows %s, because its key in [peer_tls] cannot be used: %v", k.files.Own, err)
	}
	return ""
}

// unknown says that the others know this node by another key than it has; "" = they do not.
func (k *Keys) unknown(m cluster.Member) string {
	if m.Key == "" || k.Has(m.Key) {
		return ""
	}
	if why := k.aside(); why != "" && m.Key.Issued() {
		return fmt.Sprintf("the cluster knows this node by the key %s: %s", m.Key, why)
	}
	return fmt.Sprintf("the cluster knows this node by the key %s, and %s holds %s: if the file is right, run \"quorate node set %s --key %s\" on the host of the node that leads",
		m.Key, k.files.Own, k.Shown().Name(), m.Name, k.Shown().Name())
}

// Outdated says for which nodes a configuration has other keys than the cluster; "" = for none. While the cluster
// requires TLS, a missing key counts, too.
func Outdated(configured []cluster.Member, s cluster.State) string {
	var texts []string
	for _, c := range configured {
		m, ok := s.MemberByID(c.ID)
		if !ok || m.Key == "" || m.Has(c.Key) || c.Key == "" && s.PeerSecurity != cluster.PeersRequire {
			continue
		}
		texts = append(texts, fmt.Sprintf("of node %s, key = %q", m.Name, string(m.Key)))
	}
	if len(texts) == 0 {
		return ""
	}
	return "node.toml lacks keys that the cluster has: write them into it; without them this node would not know the other nodes if it lost its data (" +
		strings.Join(texts, "; ") + ")"
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
