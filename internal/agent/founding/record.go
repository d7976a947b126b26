package founding

import (
	"bytes"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
)

const (
	// File says what a data directory becomes, while it is adopted or while that is undone.
	File = datadir.Adopting
	// DoneFile is its name once the data directory is adopted. It says how to undo that.
	DoneFile = "adopted.json"
	format   = 1

	autoFile = "auto.cnf"
	autoKey  = "server-uuid="
	// firstEntry is where the log begins: what is before it is the database as it was.
	firstEntry = 2
	firstTerm  = 1
)

// Record is the content of adopting.json and adopted.json: the files as they are to be.
type Record struct {
	Format int `json:"format"`
	// From is where the data were: an absolute path.
	From string `json:"from"`
	// Undo: it is being undone.
	Undo bool `json:"undo,omitempty"`
	// By and At say who adopted it, and when.
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Executed is the server's gtid_executed.
	Executed string `json:"executed"`
	// LockedRoot: root@localhost was locked before the adoption.
	LockedRoot bool `json:"locked_root,omitempty"`
	// UUIDBefore is the server's UUID, ServerUUID its new one: another copy of the server may use
	// the next numbers of the old UUID.
	UUIDBefore string              `json:"uuid_before"`
	ServerUUID string              `json:"server_uuid"`
	Identity   datadir.Identity    `json:"identity"`
	State      datadir.StateRecord `json:"state"`
	Durable    datadir.MarkRecord  `json:"durable"`
}

// Adoption is what is adopted. All fields are required.
type Adoption struct {
	// From is where the data are: an absolute path.
	From string
	By   string
	At   time.Time
	// Executed is the server's gtid_executed, UUIDBefore its UUID, and ServerUUID its new one.
	Executed               *gtid.Set
	LockedRoot             bool
	UUIDBefore, ServerUUID string
	// Identity is the identity of a new node, Members are the members in the configuration.
	Identity datadir.Identity
	Members  []cluster.Member
}

// New is the record of an adoption.
func New(a Adoption) (Record, error) {
	witness, ok := lastOf(a.Executed)
	if !ok {
		return Record{}, errors.New("gtid_executed is empty")
	}
	return Record{
		Format: format, From: a.From, By: a.By, At: a.At.UTC().Truncate(time.Second),
		Executed: a.Executed.String(), LockedRoot: a.LockedRoot, UUIDBefore: a.UUIDBefore, ServerUUID: a.ServerUUID, Identity: a.Identity.AsMember(false),
		State: datadir.NewStateRecord(cluster.StatePoint{State: cluster.NewState(a.Members), Through: firstEntry - 1}),
		// The server was shut down in order: what it has is on disk.
		Durable: datadir.NewMarkRecord(a.ServerUUID, replay.Mark{Index: firstEntry - 1, Witness: witness}),
	}, nil
}

// lastOf returns the last transaction of an interval of a set; false = the set is empty.
func lastOf(s *gtid.Set) (gtid.GTID, bool) {
	for source, interval := range s.Intervals() {
		return gtid.GTID{UUID: source.UUID, Tag: source.Tag, N: interval.End}, true
	}
	return gtid.GTID{}, false
}

// Phase is how far an adoption is.
type Phase int

// The phases.
const (
	None     Phase = iota // there is none
	Underway              // adopting.json is there
	Undoing               // adopting.json is there, and says undo
	Done                  // adopted.json is there
)

// Look reads whether a data directory has an adoption, and how far it is.
func Look(fs vfs.FS, dir string) (Record, Phase, error) {
	for _, f := range []struct {
		name  string
		phase Phase
	}{{File, Underway}, {DoneFile, Done}} {
		var r Record
		found, err := datadir.New(fs, dir).Load(datadir.File{Name: f.name, Format: format, Remedy: "there is no other copy of it, so start again with a backup of the data",
			Again: `run the same "quorate adopt DATADIR" again, or "quorate adopt --undo"`}, &r)
		switch {
		case err != nil:
			return Record{}, f.phase, err
		case found && f.phase == Underway && r.Undo:
			return r, Undoing, nil
		case found:
			return r, f.phase, nil
		}
	}
	return Record{}, None, nil
}

// Make adopts. log says how the node's log is opened; its Begin is set here. After an error the
// adoption may be done, half done, or not begun: Look tells.
func (r Record) Make(fs vfs.FS, dir string, log seglog.Options) error {
	if err := datadir.Replace(fs, dir, File, r); err != nil {
		return err
	}
	return Finish(fs, dir, log)
}

// Finish makes what adopting.json says, if there is one. It can be done again, from the
// beginning, wherever it was interrupted.
func Finish(fs vfs.FS, dir string, log seglog.Options) error {
	r, phase, err := Look(fs, dir)
	switch {
	case err != nil:
		return err
	case phase == Underway:
		return r.adopt(fs, dir, log)
	case phase == Undoing:
		return r.undo(fs, dir)
	}
	return nil
}

// ErrStarted refuses to undo an adoption whose data may have changed since.
var ErrStarted = errors.New("mysqld was started after the adoption, so it cannot be undone any more")

// Undo puts the data back to where they were, from whichever state an adoption is in, and
// leaves nothing else in dir but its lock. Once mysqld was started, it asks untouched, which returns nil
// if it is certain that this start has changed nothing, else the error to return.
func Undo(fs vfs.FS, dir string, untouched func(Record) error) error {
	r, phase, err := Look(fs, dir)
	if err != nil || phase == None {
		return err
	}
	err = r.unchanged(fs, dir, phase)
	if errors.Is(err, ErrStarted) {
		if err = r.still(fs, dir, phase); err == nil {
			err = untouched(r)
		}
	}
	if err != nil {
		return err
	}
	if phase != Undoing {
		r.Undo = true
		if err := datadir.Replace(fs, dir, File, r); err != nil {
			return err
		}
	}
	return r.undo(fs, dir)
}

// Moved tells whether the data are the node's already. Until then their own server may start, and change them.
func (r Record) Moved(fs vfs.FS, dir string) (bool, error) {
	moved, err := find(fs, filepath.Join(dir, "mysql", "data"))
	if err != nil {
		return false, fmt.Errorf("look for the data: %w", err)
	}
	return moved, nil
}

// Unchanged returns nil if an adoption that is done can still be undone, else why not.
func (r Record) Unchanged(fs vfs.FS, dir string) error { return r.unchanged(fs, dir, Done) }

func (r Record) unchanged(fs vfs.FS, dir string, phase Phase) error {
	if phase == Undoing { // it was checked before the undoing began
		return nil
	}
	started, err := find(fs, filepath.Join(dir, "mysql", "incarnation"))
	switch {
	case err != nil:
		return fmt.Errorf("look whether mysqld was started: %w", err)
	case started:
		return ErrStarted
	}
	return r.still(fs, dir, phase)
}

// ErrRebuilt refuses to undo an adoption whose data are no longer those that were adopted.
var ErrRebuilt = errors.New("this node was rebuilt after the adoption, so it cannot be undone any more. The data that were adopted are below old/, if they are still kept")

// still checks that the directory is what was adopted. A rebuild moves the data away, with all that
// mysqld has left of its starts: undoing would then remove them.
func (r Record) still(fs vfs.FS, dir string, phase Phase) error {
	id, found, err := datadir.New(fs, dir).Identity()
	if err != nil {
		return err
	}
	old, err := find(fs, filepath.Join(dir, datadir.OldDir))
	switch {
	case err != nil:
		return fmt.Errorf("look whether this node was rebuilt: %w", err)
	case old || found && id.Instance != r.Identity.Instance:
		return ErrRebuilt
	case !found && phase == Done:
		return fmt.Errorf("%s has no %s, so it is not as the adoption left it: nothing was undone", dir, datadir.IdentityFile)
	}
	data := filepath.Join(dir, "mysql", "data")
	after, err := find(fs, data)
	if err == nil && !after && phase == Done {
		err = fmt.Errorf("the data are not in %s: nothing was undone; mount the disk", data)
	}
	if err != nil {
		return err
	}
	return r.apart(fs, data)
}

func (r Record) adopt(fs vfs.FS, dir string, log seglog.Options) error {
	mysql := filepath.Join(dir, "mysql")
	return run([]func() error{
		func() error { return fs.MkdirAll(mysql) },
		func() error { return r.apart(fs, filepath.Join(mysql, "data")) },
		func() error { return move(fs, r.From, filepath.Join(mysql, "data")) },
		func() error { return setUUID(fs, filepath.Join(mysql, "data", autoFile), r.UUIDBefore, r.ServerUUID) },
		func() error { return r.makeLog(fs, log) },
		func() error { return datadir.Replace(fs, dir, datadir.Durable, r.Durable) },
		func() error { return datadir.Replace(fs, dir, datadir.ClusterState, r.State) },
		func() error { return datadir.New(fs, dir).Found(r.Identity) },
		func() error { return fs.Rename(filepath.Join(dir, File), filepath.Join(dir, DoneFile)) },
		func() error { return fs.SyncDir(dir) },
	})
}

func (r Record) undo(fs vfs.FS, dir string) error {
	data := filepath.Join(dir, "mysql", "data")
	return run([]func() error{
		func() error { return r.apart(fs, data) },
		func() error { return clearAllBut(fs, dir, File, datadir.LockFile, "mysql", "lost+found") },
		func() error {
			if there, err := find(fs, data); err != nil || !there {
				return err
			}
			return setUUID(fs, filepath.Join(data, autoFile), r.ServerUUID, r.UUIDBefore)
		},
		func() error { return move(fs, data, r.From) },
		// Only directories of quorate are left: move has seen that the data are elsewhere.
		func() error { return fs.RemoveAll(filepath.Join(dir, "mysql")) },
		func() error { return fs.Remove(filepath.Join(dir, File)) },
		func() error { return fs.SyncDir(dir) },
	})
}

func run(steps []func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func find(fs vfs.FS, path string) (bool, error) {
	_, err := fs.Stat(path)
	if errors.Is(err, iofs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// apart checks that the data are only in one place. The node's directory was empty, so what is in it
// are the data. What is in the old place, too, was made since, perhaps by an installation.
func (r Record) apart(fs vfs.FS, data string) error {
	before, err := find(fs, r.From)
	after, err2 := find(fs, data)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("look for the data: %w", err)
	}
	if before && after {
		return fmt.Errorf("both %s and %s are there: the data are in %s. Something has made %s since: stop that, move %s away, and run this again",
			r.From, data, data, r.From, r.From)
	}
	return nil
}

// move renames a directory durably, unless that was done before.
func move(fs vfs.FS, from, to string) error {
	before, err := find(fs, from)
	if err != nil {
		return fmt.Errorf("move the data: %w", err)
	}
	after, err := find(fs, to)
	switch {
	case err != nil:
		return fmt.Errorf("move the data: %w", err)
	case before && after:
		return fmt.Errorf("move the data from %s to %s: both are there", from, to)
	case !before && !after:
		return fmt.Errorf("move the data: neither %s nor %s is there: mount the disk", from, to)
	case before:
		if err := fs.Rename(from, to); err != nil {
			return fmt.Errorf("move the data: %w", err)
		}
	}
	// The rename of an earlier try may not be on disk. The parent of from may be gone since.
	err = fs.SyncDir(filepath.Dir(from))
	if errors.Is(err, iofs.ErrNotExist) {
		err = nil
	}
	return errors.Join(fs.SyncDir(filepath.Dir(to)), err)
}

// setUUID gives mysqld another UUID, in place: the file stays its own, and the change is within
// a sector.
func setUUID(fs vfs.FS, path, before, after string) (err error) {
	auto, err := vfs.ReadFile(fs, path)
	if err != nil {
		return fmt.Errorf("read mysqld's UUID: %w", err)
	}
	if bytes.Contains(auto, []byte(autoKey+after)) {
		before = after // it is written again: it may not be on disk
	}
	at := bytes.Index(auto, []byte(autoKey+before))
	if at < 0 || len(before) != len(after) {
		return fmt.Errorf("%s does not name server-uuid %s: it was changed meanwhile", path, before)
	}
	f, err := fs.OpenReadWrite(path)
	if err != nil {
		return fmt.Errorf("write mysqld's UUID: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err = f.WriteAt([]byte(after), int64(at+len(autoKey))); err != nil {
		return fmt.Errorf("write mysqld's UUID: %w", err)
	}
	return f.Sync()
}

// makeLog makes the node's log. If there is part of a log, it begins again.
func (r Record) makeLog(fs vfs.FS, o seglog.Options) (err error) {
	executed, err := gtid.ParseSet(r.Executed)
	if err != nil {
		return fmt.Errorf("parse gtid_executed: %w", err)
	}
	if err := fs.RemoveAll(o.Dir); err != nil {
		return fmt.Errorf("remove the part of a log: %w", err)
	}
	o.Begin = &seglog.Begin{First: firstEntry, PreviousTerm: firstTerm, GTIDs: executed}
	log, err := seglog.Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	return log.Append([]seglog.Entry{{Index: firstEntry, Term: firstTerm}}, &seglog.HardState{Term: firstTerm, Commit: firstEntry})
}

// clearAllBut removes what is in a directory, except some names.
func clearAllBut(fs vfs.FS, dir string, keep ...string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, name := range keep {
		kept[name] = true
	}
	for _, name := range names {
		if kept[name] {
			continue
		}
		if err := fs.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove what the adoption has made: %w", err)
		}
	}
	return fs.SyncDir(dir)
}
