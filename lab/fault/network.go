package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/lab/netlab"
)

// Links is the network that a fault is injected into: a *netlab.Network.
type Links interface {
	Topology() netlab.Topology
	Link(from, to string) (netlab.Link, error)
	SetLink(from, to string, l netlab.Link) error
}

// NetworkFault is something that happens to the links of one node.
type NetworkFault struct {
	Name, Description string
	// Conditions says that the fault needs more than cuts: a network of veth pairs
	// cannot have it.
	Conditions bool

	change func(l *netlab.Link)
	in     bool // it changes what comes to the node
	out    bool // it changes what the node sends
	client bool // it changes the links with the client, too
}

// Conditions of a link that is neither cut nor well: a failing cable, and a
// detour.
const (
	lossyPerMille = 50
	slowDelay     = 100 * time.Millisecond
)

// NetworkFaults returns the catalogue.
func NetworkFaults() []NetworkFault {
	cut := func(l *netlab.Link) { l.Cut = true }
	return []NetworkFault{
		{Name: "partition", Description: "the node and the others do not reach each other; clients reach all", change: cut, in: true, out: true},
		{Name: "unplugged", Description: "nobody reaches the node, clients neither", change: cut, in: true, out: true, client: true},
		{Name: "deaf", Description: "nothing from the others reaches the node; what it sends arrives", change: cut, in: true},
		{Name: "mute", Description: "nothing that the node sends reaches the others; it hears them", change: cut, out: true},
		{Name: "lossy", Description: fmt.Sprintf("%d %% of the packets between the node and the others are lost", lossyPerMille/10), Conditions: true,
			change: func(l *netlab.Link) { l.LossPerMille = lossyPerMille }, in: true, out: true},
		{Name: "slow", Description: fmt.Sprintf("%v more each way between the node and the others", slowDelay), Conditions: true,
			change: func(l *netlab.Link) { l.Delay += slowDelay }, in: true, out: true},
	}
}

// Network returns the fault called name.
func Network(name string) (NetworkFault, error) {
	var names []string
	for _, f := range NetworkFaults() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return NetworkFault{}, fmt.Errorf("fault: there is no network fault %q: choose %s", name, strings.Join(names, ", "))
}

func (f NetworkFault) touches(p netlab.Pair, node string) bool {
	to, from := f.in && p.To == node, f.out && p.From == node
	return (to || from) && (f.client || (p.From != netlab.Client && p.To != netlab.Client))
}

// Inject injects the fault on node, and returns the function that undoes it. After an error nothing
// has changed.
func (f NetworkFault) Inject(n Links, node string) (heal func() error, err error) {
	before := map[netlab.Pair]netlab.Link{}
	heal = func() error {
		var errs []error
		for p, l := range before {
			errs = append(errs, n.SetLink(p.From, p.To, l))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("heal %s of node %s: %w", f.Name, node, err)
		}
		return nil
	}
	for p := range n.Topology().Links {
		if !f.touches(p, node) {
			continue
		}
		was, err := n.Link(p.From, p.To)
		if err == nil {
			l := was
			f.change(&l)
			err = n.SetLink(p.From, p.To, l)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("inject %s of node %s: %w", f.Name, node, err), heal())
		}
		before[p] = was
	}
	if len(before) == 0 {
		return nil, fmt.Errorf("fault: network %s has no link of a node %q", n.Topology().Name, node)
	}
	return heal, nil
}
