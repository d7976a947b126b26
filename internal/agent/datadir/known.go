package datadir

import (
	"github.com/quorate/quorate/internal/cluster"
)

// Instances is the id of a data directory (32 hexadecimal digits) for each node.
type Instances = map[cluster.NodeID]string

// Peers is peers.json: the peers' data directories that are pinned. Met is met.json: those
// with which the peers were here last.
const (
	Peers = "peers.json"
	Met   = "met.json"
)

// WritePins replaces the data directories that are pinned.
func (d Dir) WritePins(pins Instances) error { return d.replace(Peers, pins) }

// WriteMet replaces the data directories with which the peers were here last.
func (d Dir) WriteMet(met Instances) error { return d.replace(Met, met) }

// Known reads which data directories the peers have, and with which they were here.
// Where an older agent has not noted the latter, each peer may have come with its pinned
// directory; that is then noted.
func (d Dir) Known() (pins, met Instances, err error) {
	pins, met = Instances{}, Instances{}
	if _, err := d.Load(File{Name: Peers, Remedy: "put it back, or rebuild this node"}, &pins); err != nil {
		return nil, nil, err
	}
	noted, err := d.Load(File{Name: Met, Remedy: "remove it, and the agent goes by " + Peers}, &met)
	if err == nil && !noted {
		met = pins
		err = d.WriteMet(met)
	}
	if err != nil {
		return nil, nil, err
	}
	return pins, met, nil
}
