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
	home    *Home
	writing sync.Mutex // one at a time; before mu

	mu   sync.Mutex
	kept cluster.StatePoint // as the file has it
}

// Load reads the state that belongs to a log that begins at first, as Dir.State does. Call
// it before anything else. If the cluster was recovered, the file must be there: the
// configuration and the log have the former members.
func (s *State) Load(h *Home, members []cluster.Member, first uint64) (err error) {
	there, err := h.Find(ClusterState)
	if err != nil {
		return err
	}
	if h.Own().Recovered && !there {
		return fmt.Errorf("%s is missing. Only this file says that the cluster was recovered, and who its members are: "+
			"put it back, or rebuild this node", h.Join(ClusterState))
	}
	s.home = h
	s.kept, err = h.State(members, h.Own().State, first)
	return err
}

// Point is what the file has.
func (s *State) Point() cluster.StatePoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// Write makes a state durable, unless the file has it, or a newer one. In the identity it notes
// before that there are changes, and afterwards that there is a file.
func (s *State) Write(p cluster.StatePoint) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if p.State.Version > 0 {
		if err := s.home.HasChanges(); err != nil {
			return err
		}
	}
	there, err := s.home.Find(ClusterState)
	if err != nil {
		return err
	}
	if kept := s.Point(); p.Through > kept.Through || p.Index > kept.Index || !there {
		if err := s.home.WriteState(p); err != nil {
			return err
		}
		s.mu.Lock()
		s.kept = p
		s.mu.Unlock()
	}
	return s.home.HasState()
}

// State reads the cluster state that the node has kept beside a log that begins at first.
// Without a file it is what the configuration says, and the whole log has to be read
// for changes. had: there was a file once.
func (d Dir) State(members []cluster.Member, had bool, first uint64) (cluster.StatePoint, error) {
	p, found, err := d.state()
	switch {
	case err != nil:
		return cluster.StatePoint{}, err
	case !found && had && first > 1:
		return cluster.StatePoint{}, fmt.Errorf("%s is gone, and the log begins only at entry %d, so changes of the cluster state may be lost: "+
			"put it back, or copy it from another node of the cluster", d.Join(ClusterState), first)
	case !found:
		return cluster.StatePoint{State: cluster.NewState(members), Through: first - 1}, nil
	case p.State.Version == 0:
		p.State = cluster.NewState(members) // nothing was agreed on yet
	}
	return p, nil
}

// LastState reads the cluster state as the file has it; zero if there is no file, or it
// cannot be used. (State returns an error for such a file.)
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
	f := File{Name: ClusterState, Format: stateFormat, Remedy: "copy it from another node of the cluster"}
	found, err = d.Load(f, &r)
	if err == nil && r.State.Version > 0 && len(r.State.Members) == 0 {
		err = d.damaged(f, "it has no members")
	}
	if err != nil {
		return cluster.StatePoint{}, found, err
	}
	return r.StatePoint, found, nil
}

// WriteState replaces the cluster state.
func (d Dir) WriteState(p cluster.StatePoint) error {
	return d.replace(ClusterState, NewStateRecord(p))
}
