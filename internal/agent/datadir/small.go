package datadir

import (
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

const (
	// Fence is fence.json. It is there while an operator wants no mysqld to run here.
	Fence = "fence.json"
	// Heard is heard.json, what the members last said that they need of the log.
	Heard = "heard.json"
	// Site is site.json, what the other site was heard to have.
	Site       = "site.json"
	siteFormat = 1
	// Hook is hook.json, what the operator's hook was told last.
	Hook       = "hook.json"
	hookFormat = 1
	// Refused is refused.json, the recoveries that the node refuses for good.
	Refused       = "refused.json"
	refusedFormat = 1
	// Key is key.json, which key the node shows since its key was changed.
	Key       = "key.json"
	keyFormat = 1
)

// Fence reads an operator's fence; nil = there is none.
func (d Dir) Fence() (*cluster.Fence, error) {
	f := &cluster.Fence{}
	found, err := d.Load(File{Name: Fence, Remedy: "remove it, and fence this node again if no mysqld is to run here"}, f)
	if err != nil || !found {
		return nil, err
	}
	return f, nil
}

// WriteFence notes an operator's fence.
func (d Dir) WriteFence(f cluster.Fence) error { return d.replace(Fence, f) }

// RemoveFence takes the fence away.
func (d Dir) RemoveFence() error { return d.remove(Fence) }

// HeardNeed is what a member said that it has: all that replay.Needs asks for, and the instance of its
// data directory. The figures only grow, so an old HeardNeed needs more of the log, never less.
type HeardNeed struct {
	Instance    string             `json:"instance"`
	Role        status.Role        `json:"role"`
	Mysqld      status.MysqldState `json:"mysqld"`
	LogState    status.LogState    `json:"log_state"`
	LogFirst    uint64             `json:"log_first"`
	LogCommit   uint64             `json:"log_commit"`
	DurableMark uint64             `json:"durable_mark"`
}

// Heard reads what the members said last. It is a hint: after an error the caller goes on
// without it.
func (d Dir) Heard() (map[cluster.NodeID]HeardNeed, error) {
	need := map[cluster.NodeID]HeardNeed{}
	if _, err := d.Load(File{Name: Heard, Remedy: "a new one is begun"}, &need); err != nil {
		return map[cluster.NodeID]HeardNeed{}, err
	}
	return need, nil
}

// WriteHeard replaces what the members said last.
func (d Dir) WriteHeard(need map[cluster.NodeID]HeardNeed) error { return d.replace(Heard, need) }

// siteRecord is the content of site.json.
type siteRecord struct {
	Format int `json:"format"`
	cluster.SiteHeard
}

// SiteHeard reads what another site was heard to have; zero = nothing is known.
func (d Dir) SiteHeard() (cluster.SiteHeard, error) {
	var r siteRecord
	_, err := d.Load(File{Name: Site, Format: siteFormat, Remedy: "remove it"}, &r)
	return r.SiteHeard, err
}

// WriteSiteHeard replaces what another site was heard to have.
func (d Dir) WriteSiteHeard(h cluster.SiteHeard) error {
	return d.replace(Site, siteRecord{siteFormat, h})
}

// refusedRecord is the content of refused.json.
type refusedRecord struct {
	Format  int                `json:"format"`
	Refused []cluster.Recovery `json:"refused"`
}

// Refused reads the recoveries that the node refuses.
func (d Dir) Refused() ([]cluster.Recovery, error) {
	var r refusedRecord
	_, err := d.Load(File{Name: Refused, Format: refusedFormat, Remedy: "put it back, or rebuild this node"}, &r)
	return r.Refused, err
}

// WriteRefused replaces the recoveries that the node refuses.
func (d Dir) WriteRefused(refused []cluster.Recovery) error {
	return d.replace(Refused, refusedRecord{Format: refusedFormat, Refused: refused})
}

// HookNote is what the operator's hook was told last, and the number of that call.
type HookNote struct {
	Sequence uint64      `json:"sequence"`
	Role     status.Role `json:"role"`
	Primary  string      `json:"primary"`
	// Pending: the hook is being told something newer, or that call has failed.
	Pending bool `json:"pending,omitempty"`
}

// hookRecord is the content of hook.json.
type hookRecord struct {
	Format int `json:"format"`
	HookNote
}

// HookNote reads what the hook was told; zero = nothing yet.
func (d Dir) HookNote() (HookNote, error) {
	var r hookRecord
	_, err := d.Load(File{Name: Hook, Format: hookFormat, Remedy: "remove it: the hook is told the state again"}, &r)
	return r.HookNote, err
}

// WriteHookNote replaces what the hook was told.
func (d Dir) WriteHookNote(n HookNote) error { return d.replace(Hook, hookRecord{hookFormat, n}) }

// KeyNote says that the node shows a key in place of another one, from before the others hear of it. The zero KeyNote
// says nothing.
type KeyNote struct {
	Shown  cluster.Key `json:"shown"`
	Former cluster.Key `json:"former"`
}

// keyRecord is the content of key.json.
type keyRecord struct {
	Format int `json:"format"`
	KeyNote
}

// KeyNote reads which key the node shows since its key was changed; zero = it was never changed.
func (d Dir) KeyNote() (KeyNote, error) {
	var r keyRecord
	_, err := d.Load(File{Name: Key, Format: keyFormat, Remedy: "remove it"}, &r)
	if err != nil {
		return KeyNote{}, err
	}
	return r.KeyNote, nil
}

// WriteKeyNote notes which key the node shows from now on.
func (d Dir) WriteKeyNote(n KeyNote) error { return d.replace(Key, keyRecord{keyFormat, n}) }
