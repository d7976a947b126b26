package restoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/consensus"
)

const (
	// File says from what a data directory is being made. It is there until the restore is done.
	File = datadir.Restoring
	// DoneFile says from what a data directory was made.
	DoneFile = "restored.json"
	format   = 1
)

// Record is the content of restoring.json and restored.json.
type Record struct {
	Format int `json:"format"`
	// By and At say who restores it, and when.
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Full is the name of the full backup, Target the point, in words.
	Full   string `json:"full"`
	Target string `json:"target"`
	// Index is the last entry of the log, GTIDs are all of its transactions. They are known once the
	// restore is done.
	Index uint64 `json:"index,omitempty"`
	GTIDs string `json:"gtids,omitempty"`
}

// Underway tells whether a restore into a directory was interrupted, and which.
func Underway(fs vfs.FS, dir string) (r Record, found bool, err error) {
	found, err = datadir.New(fs, dir).Load(datadir.File{Name: File, Format: format, Remedy: `empty the directory, and run the same "quorate restore" again`,
		Again: `run the same "quorate restore" again`}, &r)
	return r, found, err
}

// Clear throws away what an interrupted restore has left. The directory is locked.
func Clear(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("clear the data directory: %w", err)
	}
	for _, name := range names {
		if slices.Contains([]string{File, datadir.LockFile, "lost+found"}, name) {
			continue
		}
		if err := fs.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("clear the data directory: %w", err)
		}
	}
	if err := fs.SyncDir(dir); err != nil {
		return fmt.Errorf("clear the data directory: %w", err)
	}
	if err := fs.Remove(filepath.Join(dir, File)); err != nil {
		return fmt.Errorf("clear the data directory: %w", err)
	}
	return fs.SyncDir(dir)
}

// Begin notes what is restored, in an empty directory that is locked.
func Begin(fs vfs.FS, dir string, r Record) error {
	r.Format = format
	return datadir.Replace(fs, dir, File, r)
}

// Items gives the log that is restored, from its first entry on: see archive.Reader.
type Items interface {
	// Next returns io.EOF behind the last entry.
	Next() (archive.Item, error)
}

// Log is a log that was made.
type Log struct {
	// State is the cluster state at its end, GTIDs are all of its transactions.
	State cluster.StatePoint
	GTIDs *gtid.Set
	Last  uint64
	// Time is when its newest transaction was committed.
	Time time.Time
}

// ErrNotThere means that the log ends before the point that is to be restored.
var ErrNotThere = errors.New("the log ends before that point")

// MakeLog makes the log of a node from a full backup's entries, as far as the target says. progress
// is called now and then.
func MakeLog(o seglog.Options, m archive.Manifest, t archive.Target, items Items, progress func(index uint64, at time.Time)) (made Log, err error) {
	if o.Begin, err = m.Begin.Log(); err != nil {
		return made, err
	}
	var record datadir.StateRecord
	if err := json.Unmarshal(m.State, &record); err != nil {
		return made, fmt.Errorf("decode the cluster state of the backup: %w", err)
	}
	log, err := seglog.Open(o)
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	c := copier{log: log, target: t, progress: progress, time: m.Time, next: m.Begin.First, term: m.Begin.PreviousTerm}
	if err := c.copy(items); err != nil {
		return made, err
	}
	switch {
	case !c.reached && !t.Latest():
		return made, fmt.Errorf("%w: its last entry is %d, of %s; --latest restores all that there is", ErrNotThere, log.LastIndex(), c.time.UTC().Format(time.RFC3339))
	case log.LastIndex() < m.End.Index && !t.Latest(): // primaries' clocks differ: Choose went by the backup's last transaction
		return made, fmt.Errorf("%w: the point comes at entry %d, and the data of this full backup may have all up to entry %d. Name an older one with --full",
			archive.ErrTooNew, log.LastIndex()+1, m.End.Index)
	case log.LastIndex() < m.End.Index:
		return made, fmt.Errorf("the log ends at entry %d, and the data of the full backup may have all up to entry %d: pieces are missing",
			log.LastIndex(), m.End.Index)
	}
	term, err := log.Term(log.LastIndex())
	if err == nil {
		err = log.Append(nil, &seglog.HardState{Term: term, Commit: log.LastIndex()})
	}
	if err != nil {
		return made, fmt.Errorf("end the log: %w", err)
	}
	survey, err := consensus.SurveyLog(log, record.StatePoint)
	if err != nil {
		return made, err
	}
	return Log{State: survey.State, GTIDs: survey.GTIDs, Last: log.LastIndex(), Time: c.time}, nil
}

const (
	// groupBytesMax and groupEntriesMax bound what is written at once.
	groupBytesMax   = 4 << 20
	groupEntriesMax = 1024
)

// copier writes entries into a log, up to a target.
type copier struct {
	log      *seglog.Log
	target   archive.Target
	progress func(index uint64, at time.Time)
	pending  []seglog.Entry
	bytes    int
	time     time.Time
	reached  bool
	// next is the index of the entry that has to come, term is the term of the entry before it.
	next, term uint64
}

func (c *copier) copy(items Items) error {
	for !c.reached {
		item, err := items.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		e := item.Entry
		if e.Index == 0 {
			continue // a point
		}
		if e.Index != c.next || e.Term < c.term {
			return fmt.Errorf("entry %d of term %d comes where entry %d of term %d or later should come", e.Index, e.Term, c.next, c.term)
		}
		c.next, c.term = e.Index+1, e.Term
		cut, done, err := c.target.Cut(e)
		if err != nil {
			return err
		}
		c.reached = done
		if cut.Index == 0 {
			break
		}
		if err := c.add(cut, item.Stage); err != nil {
			return err
		}
	}
	return c.flush()
}

func (c *copier) add(e seglog.Entry, stage io.Reader) error {
	all, err := archive.Transactions(e)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		c.time = all[len(all)-1].Time
	}
	if stage != nil {
		if err := c.flush(); err != nil {
			return err
		}
		if err := c.stage(e, stage); err != nil {
			return err
		}
	}
	c.pending, c.bytes = append(c.pending, e), c.bytes+len(e.Data)
	if stage != nil || c.bytes >= groupBytesMax || len(c.pending) >= groupEntriesMax {
		return c.flush()
	}
	return nil
}

func (c *copier) stage(e seglog.Entry, from io.Reader) (err error) {
	named, _ := e.Staged()
	stage, err := c.log.CreateStage(named.ID)
	if err != nil {
		return fmt.Errorf("write the transaction of entry %d: %w", e.Index, err)
	}
	if _, err = io.Copy(stage, from); err == nil {
		err = stage.Finish(named.Bytes, named.CRC)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the transaction of entry %d: %w", e.Index, err), stage.Abort())
	}
	return nil
}

func (c *copier) flush() error {
	if len(c.pending) == 0 {
		return nil
	}
	if err := c.log.Append(c.pending, nil); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	c.progress(c.pending[len(c.pending)-1].Index, c.time)
	c.pending, c.bytes = nil, 0
	return nil
}

// Node is the node that is made. All fields are required.
type Node struct {
	Identity datadir.Identity
	Members  []cluster.Member
	// ServerUUID is the UUID of the restored mysqld.
	ServerUUID string
	// GiveAway gives all files to the account that runs the agent.
	GiveAway func() error
	// Sets tells for which server variables the node's own value counts, and not the backed-up cluster's.
	Sets func(variable string) bool
}

// Finish makes the directory the node's.
func Finish(fs vfs.FS, dir string, r Record, m archive.Manifest, l Log, n Node) error {
	mark, err := m.Mark()
	if err != nil {
		return err
	}
	state := l.State.State.Clone()
	begun := cluster.NewState(n.Members)
	state.Members, state.PeerSecurity, state.Maintenance, state.Recovered = begun.Members, begun.PeerSecurity, nil, nil
	state.Removed, state.RemovedKeys, state.RemovedNextKeys = nil, nil, nil
	state.Durability = begun.Durability
	state.Follow, state.Closing, state.CutOver, state.Site = nil, nil, nil, nil // the cluster that was backed up may live, and follow its source: two clusters must not
	state.EventsOff = true                                                      // an event that deletes old rows, or drops tables, would do so to what was restored
	state.MySQLRouter = false                                                   // its writes would be in this cluster alone, which could then not follow the backed-up one
	maps.DeleteFunc(state.Variables, func(name, _ string) bool { return n.Sets(name) })
	state.Version = cluster.NextGeneration(state.Version)
	id := n.Identity.AsMember(false)
	id.Format = datadir.FormatState
	r.Format, r.Index, r.GTIDs = format, l.Last, l.GTIDs.String()
	point := cluster.StatePoint{State: state, Index: l.Last, Through: l.Last}
	for _, step := range []func() error{
		func() error {
			if mark.Index == 0 {
				return nil
			}
			return datadir.Replace(fs, dir, datadir.Durable, datadir.NewMarkRecord(n.ServerUUID, mark))
		},
		func() error { return datadir.Replace(fs, dir, datadir.ClusterState, datadir.NewStateRecord(point)) },
		func() error { return datadir.New(fs, dir).Found(id) },
		func() error { return datadir.Replace(fs, dir, DoneFile, r) },
		n.GiveAway, // before the restore is finished: nobody would do it later
		func() error { return fs.Remove(filepath.Join(dir, File)) },
		func() error { return fs.SyncDir(dir) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("finish the restore (begin it again): %w", err)
		}
	}
	return nil
}
