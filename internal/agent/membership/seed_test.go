package membership

import (
	"errors"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

// TestSeedIsChosen: only the log if it goes back to the beginning, else the data of the replica that lags least; the
// primary last.
func TestSeedIsChosen(t *testing.T) {
	offer := func(first uint64, data, primary bool, backlog float64) Offer {
		return Offer{First: first, Data: data, Primary: primary, Backlog: backlog}
	}
	primary, slow, near, logger := offer(5, true, true, 0), offer(5, true, false, 9), offer(5, true, false, 0.5), offer(5, false, false, 0)
	from := func(o Offer, first uint64) Offer {
		o.First = first
		return o
	}
	later := near
	later.Through = 9
	for name, c := range map[string]struct {
		offers []Offer
		logger bool
		want   int
		clone  bool
	}{
		"the nearest":      {[]Offer{primary, slow, near}, false, 2, true},
		"the one further":  {[]Offer{near, later}, false, 1, true},
		"the primary last": {[]Offer{primary, slow}, false, 1, true},
		"only the primary": {[]Offer{logger, primary}, false, 1, true},
		"log alone":        {[]Offer{from(primary, 1), from(slow, 1), near}, false, 1, false},
		"a logger's log":   {[]Offer{primary, from(logger, 1), near}, false, 1, false},
		"for a logger":     {[]Offer{primary, slow, logger}, true, 1, false},
		"nobody":           {[]Offer{logger}, false, -1, false},
		"nobody at all":    {nil, true, -1, false},
	} {
		got, clone, err := ChooseSource(c.offers, !c.logger)
		if errors.Is(err, ErrNoSource) {
			got = -1
		}
		if got != c.want || clone != c.clone {
			t.Errorf("%s: %d, clone %t, %v, want %d, %t", name, got, clone, err, c.want, c.clone)
		}
	}
}

// TestSeedable: a voter is not seeded, because it has promised what its data directory holds; nobody is seeded while
// the voters change.
func TestSeedable(t *testing.T) {
	p := cluster.StatePoint{State: cluster.State{Members: []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull}, {ID: 2, Name: "b", Kind: cluster.KindLearner}}}}
	under := p
	under.Outgoing = []cluster.NodeID{1}
	for name, want := range map[string]bool{"a": false, "b": true, "c": false, "": false} {
		if err := Seedable(p, name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
		if Seedable(under, name) == nil {
			t.Errorf("%q is seeded while the voters change", name)
		}
	}
}
