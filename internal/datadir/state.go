package datadir

import (
	"errors"
	"fmt"

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

// WriteState replaces the cluster state.
func (d Dir) WriteState(p cluster.StatePoint) error {
	return d.replace(ClusterState, NewStateRecord(p))
}
