package membership

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/quorate/quorate/internal/cluster"
)

// ErrNoSource means that no member can give a node that joins what it needs.
var ErrNoSource = errors.New("no log goes back to the beginning, and no member has a healthy mysqld with a durable mark, whose data could be copied")

// Offer is what a member can give to a node that joins.
type Offer struct {
	// First is the first entry of the log that it gives, Through is the last entry that its
	// cluster state takes into account.
	First, Through uint64
	// Data: its mysqld's data can be copied.
	Data bool
	// Primary: it is the primary.
	Primary bool
	// Backlog is how long its mysqld needs for what it lacks, in seconds.
	Backlog float64
}

// cost orders the members by what it costs the cluster to copy from them: first the replica
// that lags least, then members that have no data to give, the primary last.
func (o Offer) cost() float64 {
	switch {
	case !o.Data:
		return 1e6
	case o.Primary:
		return 1e9
	}
	return o.Backlog
}

// ChooseSource chooses the member from which a node that joins copies. clone: it copies mysqld's
// data, and the log behind them, because no log goes back to the beginning.
func ChooseSource(offers []Offer, runsMysqld bool) (at int, clone bool, err error) {
	order := make([]int, len(offers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(offers[i].cost(), offers[j].cost()), cmp.Compare(offers[j].Through, offers[i].Through))
	})
	if !runsMysqld && len(order) > 0 {
		return order[0], false, nil
	}
	for _, i := range order {
		if offers[i].First == 1 {
			return i, false, nil
		}
	}
	for _, i := range order {
		if offers[i].Data {
			return i, true, nil
		}
	}
	return 0, false, ErrNoSource
}

// Seedable says why a node is not seeded, by the committed cluster state; nil = it is. The
// caller must have passed a read barrier: otherwise it could seed a node that has got its vote
// since, and has voted with another data directory.
func Seedable(p cluster.StatePoint, name string) error {
	m, err := p.State.Member(name)
	switch {
	case name == "" || err != nil:
		return errors.New("only a member of the cluster is seeded")
	case m.Votes():
		return fmt.Errorf("node %s has a vote and cannot be seeded", m.Name)
	case len(p.Outgoing) > 0:
		return errors.New("a change of the voters is under way")
	}
	return nil
}
