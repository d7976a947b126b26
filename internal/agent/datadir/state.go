package datadir

import (
	"errors"
	"fmt"
	"sync"

	"github.com/quorate/quorate/internal/cluster"
)

const (
	// ClusterState is cluster.json, the newest cluster state that the node has applied.
	ClusterState = "cluster.json"
	stateFormat  = 1
)

// StateRecord is the content of cluster.json.
type StateRecord struct {
	Format int `json:"format"`
	cluster.StatePoint
}

// NewStateRecord is the record of a cluster state.
func NewStateRecord(p cluster.StatePoint) StateRecord {
	return StateRecord{Format: stateFormat, StatePoint: p}
}

// State is the cluster state on disk and in memory.
type State struct {
	dir     Dir
	writing sync.Mutex // one at a time; before mu

	mu   sync.Mutex
	kept cluster.StatePoint // as the file has it
}

// Load reads the state, as Dir.State does. Call it before anything else.
func (s *State) Load(d Dir, members []cluster.Member, had bool, first uint64) (err error) {
	s.dir = d
	s.kept, err = d.State(members, had, first)
	return err
}

// Point is what the file has.
func (s *State) Point() cluster.StatePoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// Write makes a state durable, unless the file has it, or a newer one.
func (s *State) Write(p cluster.StatePoint) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if kept := s.Point(); p.Through <= kept.Through && p.Index <= kept.Index && s.dir.Has(ClusterState) {
		return nil
	}
	if err := s.dir.WriteState(p); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = p
	return nil
}

// State reads the cluster state that the node has kept over a log that begins at first.
// Without a file it is what the configuration says, and the whole log is looked through
// for changes; had says that there was a file once.
func (d Dir) State(members []cluster.Member, had bool, first uint64) (cluster.StatePoint, error) {
	p, found, err := d.state()
	switch {
	case err != nil:
		return cluster.StatePoint{}, err
	case !found && had && first > 1:
		return cluster.StatePoint{}, fmt.Errorf("%s is gone, and the log begins at entry %d, after what it may have lost: "+
			"give it back, or copy it from another node of the cluster", d.Join(ClusterState), first)
	case !found:
		return cluster.StatePoint{State: cluster.NewState(members), Through: first - 1}, nil
	case p.State.Version == 0:
		p.State = cluster.NewState(members) // nothing was agreed on so far
	}
	return p, nil
}

// LastState reads the cluster state as the file has it; zero where there is none, or it
// cannot be used, which State says.
func (d Dir) LastState() (cluster.StatePoint, error) {
	p, _, err := d.state()
	_, damaged := errors.AsType[*DamageError](err)
	_, newer := errors.AsType[*VersionError](err)
	if damaged || newer {
		return cluster.StatePoint{}, nil
	}
	return p, err
}

func (d Dir) state() (p cluster.StatePoint, found bool, err error) {
	var r StateRecord
	f := file{name: ClusterState, format: stateFormat, remedy: "copy it from another node of the cluster"}
	found, err = d.load(f, &r)
	if err == nil && r.State.Version > 0 && len(r.State.Members) == 0 {
		err = d.damaged(f, "it has no members")
	}
	if err != nil {
		return cluster.StatePoint{}, found, err
	}
	return r.StatePoint, found, nil
}

// Wipe removes what is there of a node that has not joined so far, but for the log and
// mysqld's data.
func (d Dir) Wipe() error {
	for _, name := range []string{ClusterState, Durable} {
		if err := d.fs.RemoveAll(d.Join(name)); err != nil {
			return fmt.Errorf("remove what an earlier try has left: %w", err)
		}
	}
	return nil
}

// WriteState replaces the cluster state.
func (d Dir) WriteState(p cluster.StatePoint) error {
	return d.replace(ClusterState, NewStateRecord(p))
}
