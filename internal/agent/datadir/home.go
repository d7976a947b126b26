package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// Home is a node's data directory, and the life in it. In memory the node is in a life only
// once that is on disk.
type Home struct {
	Dir
	fresh bool

	mu  sync.Mutex
	own Identity
}

// NewHome returns the home of a node, with the identity that was read. fresh: there was none,
// and Begin writes own.
func NewHome(d Dir, own Identity, fresh bool) *Home { return &Home{Dir: d, own: own, fresh: fresh} }

// Visit reads the identity of a data directory and changes nothing. A directory that does not
// exist or is empty will get the identity own when the node begins.
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

// Fresh tells whether the directory had no identity when the agent started.
func (h *Home) Fresh() bool { return h.fresh }

// Own is what identity.json says, or will say once this node has begun.
func (h *Home) Own() Identity {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.own
}

// Life is the life that the node is in.
func (h *Home) Life() Life {
	life, _ := h.Own().Life() // it was checked when it was read, or written
	return life
}

// Blank tells whether there is nothing in the directory that counts.
func (h *Home) Blank() bool {
	id := h.Own()
	return h.fresh && !id.Log || id.Joining
}

// Begin writes the identity if the directory had none.
func (h *Home) Begin() error {
	if !h.fresh {
		return nil
	}
	return h.WriteIdentity(h.Own())
}

// become changes the identity durably, unless is says that the change was made before.
func (h *Home) become(is func(Identity) bool, change func(*Identity)) error {
	return h.mayBecome(is, func(id *Identity) error { change(id); return nil })
}

// mayBecome is become for a change that may fail.
func (h *Home) mayBecome(is func(Identity) bool, change func(*Identity) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if is(h.own) {
		return nil
	}
	next := h.own
	if err := change(&next); err != nil {
		return err
	}
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

// Joined notes durably that the node has joined, with the cluster state that its log begins with.
func (h *Home) Joined(p cluster.StatePoint) error {
	if err := h.WriteState(p); err != nil {
		return err
	}
	return h.become(never, func(id *Identity) { *id = id.AsMember(p.State.Recovered != nil) })
}

// Remove notes durably that the cluster has removed this node.
func (h *Home) Remove() error { return h.become(never, func(id *Identity) { id.Removed = true }) }

// Supersede notes durably that the cluster was recovered without this node.
func (h *Home) Supersede(r cluster.Recovery) error {
	return h.become(never, func(id *Identity) { id.Superseded = &r })
}

// Rebuild notes durably that this node is to be rebuilt, under a new instance.
// Nothing is moved away yet.
func (h *Home) Rebuild(instance string, now time.Time) error {
	if raw, err := hex.DecodeString(instance); err != nil || len(raw) != 16 {
		return fmt.Errorf("rebuild this node: %q is no instance of a data directory", instance)
	}
	return h.mayBecome(never, func(id *Identity) error {
		given, err := h.giveUp(*id, now)
		if err != nil {
			return fmt.Errorf("rebuild this node: %w", err)
		}
		id.GivenUp = given
		id.Instance, id.Joining, id.Log, id.State, id.Superseded = instance, true, false, false, nil
		return nil
	})
}

// giveUp names what a node that is rebuilt gives up; nil = it has nothing, or only the rest of an
// earlier try to join, which nobody needs. If the disk does not say what is there, that is an error:
// Clear would delete what giveUp does not name.
func (h *Home) giveUp(id Identity, now time.Time) (*GivenUp, error) {
	if id.Joining {
		return id.GivenUp, nil
	}
	if !id.Log {
		log, err := h.Find("log")
		mysql, err2 := h.Find("mysql")
		if err := errors.Join(err, err2); err != nil || !log && !mysql {
			return nil, err
		}
	}
	reason := "rebuild"
	if id.Superseded != nil {
		reason = "recovered"
	}
	name := now.UTC().Format(OldTimeFormat) + "-" + reason
	// The wall clock may have been set back, so the name may be taken.
	for i, dir := 2, name; ; i++ {
		taken, err := h.Find(New(h.fs, OldDir).Join(dir))
		if err != nil {
			return nil, err
		}
		if !taken {
			return &GivenUp{Dir: dir, Identity: id}, nil
		}
		dir = fmt.Sprintf("%s-%d", name, i)
	}
}

// SeedDir is the directory of the mysqld that copies another mysqld's data.
const SeedDir = "seed"

// Clear removes what an earlier try to join has left.
func (h *Home) Clear() error {
	if own := h.Own(); !own.Joining || own.GivenUp != nil {
		return errors.New("this node's data directory is in use: nothing is removed")
	}
	for _, name := range []string{"log", "mysql", SeedDir, ClusterState, Durable} {
		if err := h.fs.RemoveAll(h.Join(name)); err != nil {
			return fmt.Errorf("remove what an earlier try to join has left: %w", err)
		}
	}
	return nil
}

// Copied ends a copy of another node's data, which are this mysqld's now. It removes the directory of the mysqld that
// made the copy. m is what the other node's InnoDB held durably before: the copy holds it, too.
func (h *Home) Copied(serverUUID string, m replay.Mark) error {
	if err := h.fs.RemoveAll(h.Join(SeedDir)); err != nil {
		return fmt.Errorf("remove the directory of the copying mysqld: %w", err)
	}
	if m.Index == 0 {
		return nil
	}
	return h.WriteMark(serverUUID, m)
}

// NewInstance returns a random id for a new data directory.
func NewInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// Instance is the directory's id in the form in which peers are told it.
func (h *Home) Instance() (b [16]byte) {
	raw, err := hex.DecodeString(h.Own().Instance)
	if err == nil {
		copy(b[:], raw)
	}
	return b
}

// Adopting and Restoring are the first file that is written in a directory that is made from a server's data, or
// from a backup: see packages founding and restoring.
const (
	Adopting  = "adopting.json"
	Restoring = "restoring.json"
)

// lostFound is in each file system of ext4, also in an empty one.
const lostFound = "lost+found"

// CheckEmpty refuses a directory without an identity that has something in it.
func (d Dir) CheckEmpty() error {
	found, err := d.fs.List(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read data directory: %w", err)
	}
	ours := []string{ClusterState, Durable, Met, Peers, Promise}
	if slices.ContainsFunc(found, func(name string) bool { return slices.Contains(ours, name) }) {
		return fmt.Errorf("data directory %s: its "+IdentityFile+" is lost: put it back; or, if the other nodes run, move the directory away, and run \"quorate node rebuild\" for this node on one of them", d.path)
	}
	for _, name := range found { // a crash may have left the lock, or a file that was not complete
		if !slices.Contains([]string{lostFound, LockFile, IdentityFile + ".tmp", Adopting + ".tmp", Restoring + ".tmp"}, name) {
			return fmt.Errorf("data directory %s holds %q but no "+IdentityFile+": it is not quorate's; choose an empty one", d.path, name)
		}
	}
	return nil
}

// ErrLogGone is what CheckLog refuses: the log, or its state, is gone.
var ErrLogGone = errors.New("without it the node has to be rebuilt")

// CheckLog refuses a directory whose log is gone, for instance because its file
// system is not mounted: with an empty log the node would vote as if it had promised nothing.
func (h *Home) CheckLog() error {
	if !h.Own().Log {
		return nil
	}
	if _, err := h.fs.Stat(h.Join("log", "state")); errors.Is(err, fs.ErrNotExist) {
		files, _ := h.fs.List(h.Join("log"))
		if slices.ContainsFunc(files, func(name string) bool { return name != lostFound }) {
			return fmt.Errorf("data directory %s: %s is gone, and the log's other files are there: put it back; %w",
				h.Path(), h.Join("log", "state"), ErrLogGone)
		}
		return fmt.Errorf("data directory %s: the log is gone from %s, but this node has had one: mount it, or put it back; %w",
			h.Path(), h.Join("log"), ErrLogGone)
	} else if err != nil {
		return fmt.Errorf("look for the log: %w", err)
	}
	return nil
}
