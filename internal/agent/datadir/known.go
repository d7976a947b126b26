package datadir

import (
	"github.com/quorate/quorate/internal/cluster"
)

// Instances is the id of a data directory (32 hexadecimal digits) for each node.
type Instances = map[cluster.NodeID]string

// Peers is peers.json: the data directories of the peers that are pinned. Met is met.json: the data
// directories with which the peers last shook hands.
const (
	Peers = "peers.json"
	Met   = "met.json"
)

// WritePins replaces the data directories that are pinned.
func (d Dir) WritePins(pins Instances) error { return d.replace(Peers, pins) }

// WriteMet replaces the data directories with which the peers last shook hands.
func (d Dir) WriteMet(met Instances) error { return d.replace(Met, met) }

// Known reads which data directories are pinned, and with which the peers last shook hands.
// An older agent has not noted the second: then each peer may have come with its pinned
// directory, and that is noted now.
func (d Dir) Known() (pins, met Instances, err error) {
	pins, met, noted, err := d.readKnown()
	if err == nil && !noted {
		met = pins
		err = d.WriteMet(met)
	}
	if err != nil {
		return nil, nil, err
	}
	return pins, met, nil
}

// CheckKnown says why Known would fail to read, and notes nothing.
func (d Dir) CheckKnown() error {
	_, _, _, err := d.readKnown()
	return err
}

func (d Dir) readKnown() (pins, met Instances, noted bool, err error) {
	pins, met = Instances{}, Instances{}
	if _, err := d.Load(File{Name: Peers, Remedy: "put it back, or rebuild this node"}, &pins); err != nil {
		return nil, nil, false, err
	}
	noted, err = d.Load(File{Name: Met, Remedy: "remove it, and the agent goes by " + Peers}, &met)
	return pins, met, noted, err
}
