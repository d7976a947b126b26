package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
)

const (
	// LockFile has the flock of the one agent per directory.
	LockFile = "lock"
	// lockText is in the lock of a directory that was empty (Reserve).
	lockText = "one quorate agent at a time\n"
	// OldTimeFormat begins the name of what a node has given up.
	OldTimeFormat = "20060102T150405Z"
)

// Home is a node's data directory: its lock, and the life in it. In memory the node is in
// a life only once that is on disk.
type Home struct {
	Dir
	fresh bool
	lock  *os.File
	// made is what the lock has made: it goes again if this node does not begin here.
	made []string

	mu  sync.Mutex
	own Identity
}

// NewHome is the home of a node over an identity that was read. fresh: there was none,
// and it is written by Open.
func NewHome(d Dir, own Identity, fresh bool) *Home { return &Home{Dir: d, own: own, fresh: fresh} }

// Visit reads whose directory it is, and changes nothing: one that does not exist, or is
// empty, is to become that of own.
func Visit(d Dir, own Identity) (*Home, error) {
	id, found, err := d.Identity()
	if err != nil {
		return nil, err
	}
	if !found {
		return NewHome(d, own, true), d.CheckEmpty()
	}
	return NewHome(d, id, false), nil
}

// Fresh tells whether the directory was nobody's when the agent started.
func (h *Home) Fresh() bool { return h.fresh }

// Own is what identity.json says, or will say once this node has begun.
func (h *Home) Own() Identity {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.own
}

// Life is the node's.
func (h *Home) Life() Life {
	life, _ := h.Own().Life() // it was looked at when it was read, or written
	return life
}

// become makes a change of the identity durable, unless it is one already.
func (h *Home) become(is func(Identity) bool, change func(*Identity)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if is(h.own) {
		return nil
	}
	next := h.own
	change(&next)
	if err := h.WriteIdentity(next); err != nil {
		return err
	}
	h.own = next
	return nil
}

func never(Identity) bool { return false }

// HasLog notes durably that there is a log.
func (h *Home) HasLog() error {
	return h.become(func(id Identity) bool { return id.Log }, func(id *Identity) { id.Log = true })
}

// HasState notes durably that there is a cluster.json.
func (h *Home) HasState() error {
	return h.become(func(id Identity) bool { return id.State }, func(id *Identity) { id.State = true })
}

// HasChanges notes durably that the log has changes of the cluster state: from now on
// no older quorate may run here.
func (h *Home) HasChanges() error {
	return h.become(func(id Identity) bool { return id.Format >= FormatState }, func(id *Identity) { id.Format = FormatState })
}

// Joined notes durably that the node has joined; recovered: a cluster that was recovered.
func (h *Home) Joined(recovered bool) error {
	return h.become(never, func(id *Identity) { id.Joining, id.Log, id.State, id.Recovered = false, true, true, recovered })
}

// Remove notes durably that the cluster has removed this node.
func (h *Home) Remove() error { return h.become(never, func(id *Identity) { id.Removed = true }) }

// Supersede notes durably that the cluster was recovered without this node.
func (h *Home) Supersede(r cluster.Recovery) error {
	return h.become(never, func(id *Identity) { id.Superseded = &r })
}

// Rebuild notes durably that everything here is to be made anew, under a new
// instance. Nothing is moved away yet.
func (h *Home) Rebuild(instance string, now time.Time) error {
	if raw, err := hex.DecodeString(instance); err != nil || len(raw) != 16 {
		return fmt.Errorf("rebuild this node: %q is no instance of a data directory", instance)
	}
	if err := MakeDir(h.Path()); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	return h.become(never, func(id *Identity) {
		id.GivenUp = h.giveUp(*id, now)
		id.Instance, id.Joining, id.Log, id.State, id.Superseded = instance, true, false, false, nil
	})
}

// giveUp names what a node gives up that is rebuilt; nil = it has nothing, or what is
// left of an earlier try to join, which is nobody's.
func (h *Home) giveUp(id Identity, now time.Time) *GivenUp {
	if id.Joining {
		return id.GivenUp
	}
	if !id.Log && !h.Has("log") && !h.Has("mysql") {
		return nil
	}
	reason := "rebuild"
	if id.Superseded != nil {
		reason = "recovered"
	}
	return &GivenUp{Dir: now.UTC().Format(OldTimeFormat) + "-" + reason, Identity: id}
}

// MovedAside notes durably that what the node had given up is where it goes to.
func (h *Home) MovedAside() error { return h.become(never, func(id *Identity) { id.GivenUp = nil }) }

// NewInstance is the id of a data directory that is made anew.
func NewInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// Instance is the directory's id as peers are told it.
func (h *Home) Instance() (b [16]byte) {
	raw, err := hex.DecodeString(h.Own().Instance)
	if err == nil {
		copy(b[:], raw)
	}
	return b
}

// Open takes the directory's lock, if Reserve has not, and, in a fresh one, writes whose
// it is.
func (h *Home) Open() error {
	if err := h.hold(); err != nil {
		return err
	}
	if h.fresh {
		if err := h.WriteIdentity(h.Own()); err != nil {
			return errors.Join(err, h.Close())
		}
	}
	return nil
}

// CheckEmpty refuses a directory without an identity that has something in it.
func (d Dir) CheckEmpty() error {
	found, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read data directory: %w", err)
	}
	for _, f := range found { // a crash may have left the lock
		if !slices.Contains([]string{"lost+found", LockFile, IdentityFile + ".tmp"}, f.Name()) {
			return fmt.Errorf("data directory %s holds %q but no "+IdentityFile+": it is not quorate's; choose an empty one", d.path, f.Name())
		}
	}
	return nil
}

// CheckLog refuses a directory whose log is gone, for instance because its file
// system is not mounted: an empty one would vote as if it had promised nothing.
func (h *Home) CheckLog() error {
	if !h.Own().Log {
		return nil
	}
	if _, err := os.Stat(h.Join("log", "state")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory %s: the log is gone from %s, but this node has had one: mount it, or give it back; without it the node has to be rebuilt",
			h.Path(), h.Join("log"))
	} else if err != nil {
		return fmt.Errorf("look for the log: %w", err)
	}
	return nil
}

// Reserve locks an empty directory, and proves that files can be written there: before
// any peer is told that it is empty, which costs the node what it had.
func (h *Home) Reserve() error {
	if err := h.hold(); err != nil {
		return err
	}
	_, err := h.lock.WriteAt([]byte(lockText), 0)
	if err = errors.Join(err, h.lock.Sync()); err == nil {
		err = h.fs.SyncDir(h.Path())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write in data directory %s (is its disk mounted?): %w", h.Path(), err), h.Close())
	}
	return nil
}

// hold makes the directory if it is not there, and takes its lock. A fresh one has to be
// empty still.
func (h *Home) hold() error {
	if !h.Held() {
		var made []string
		for path := h.Join(LockFile); !exists(path); path = filepath.Dir(path) {
			made = append(made, path)
		}
		if err := MakeDir(h.Path()); err != nil {
			return errors.Join(fmt.Errorf("create data directory (is its disk mounted?): %w", err), h.Close())
		}
		if err := h.TakeLock(); err != nil {
			return errors.Join(err, h.Close())
		}
		h.made = made
	}
	if h.fresh && h.Has(IdentityFile) { // it was mounted since
		return errors.Join(fmt.Errorf("data directory %s is not empty any more: start again", h.Path()), h.Close())
	}
	return nil
}

// TakeLock takes the lock of what is mounted at the path now.
func (h *Home) TakeLock() error {
	f, err := os.OpenFile(h.Join(LockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("write in data directory %s (is its disk mounted?): %w", h.Path(), err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("data directory %s is in use by another quorate agent", h.Path())
		}
		return fmt.Errorf("lock data directory: %w", err)
	}
	if h.lock != nil {
		_ = h.lock.Close() // of what was there before it was mounted
	}
	h.lock = f
	if !h.Held() { // an agent that did not begin has removed it meanwhile
		return fmt.Errorf("data directory %s is in use by another quorate agent", h.Path())
	}
	return nil
}

// Held tells whether the lock is held, and is the one at the path.
func (h *Home) Held() bool {
	if h.lock == nil {
		return false
	}
	held, err := h.lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(h.Join(LockFile))
	return err == nil && os.SameFile(held, there)
}

// Close gives the lock back. Where this node has not begun, nothing of it stays.
func (h *Home) Close() error {
	if h.lock == nil {
		return nil
	}
	if h.Held() && !h.Has(IdentityFile) {
		for _, path := range h.made {
			_ = os.Remove(path) // of a directory only if it is empty
		}
	}
	err := h.lock.Close()
	h.lock, h.made = nil, nil
	return err
}
