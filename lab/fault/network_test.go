package fault

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/lab/netlab"
)

// fake is a network without packets.
type fake struct {
	topology netlab.Topology
	links    map[netlab.Pair]netlab.Link
	refused  netlab.Pair
}

var errRefused = errors.New("refused")

func newFake(t *testing.T) *fake {
	t.Helper()
	p, err := netlab.Preset("two-city")
	if err != nil {
		t.Fatal(err)
	}
	return &fake{topology: p, links: maps.Clone(p.Links)}
}

func (f *fake) Topology() netlab.Topology { return f.topology }

func (f *fake) Link(from, to string) (netlab.Link, error) {
	return f.links[netlab.Pair{From: from, To: to}], nil
}

func (f *fake) SetLink(from, to string, l netlab.Link) error {
	p := netlab.Pair{From: from, To: to}
	if p == f.refused {
		return errRefused
	}
	f.links[p] = l
	return nil
}

// changed lists the links that are not as the topology has them.
func (f *fake) changed() []string {
	var all []string
	for p, l := range f.links {
		if l != f.topology.Links[p] {
			all = append(all, p.String())
		}
	}
	slices.Sort(all)
	return all
}

func TestNetworkFaults(t *testing.T) {
	in, out := []string{"a-b", "c-b", "d-b", "e-b", "f-b"}, []string{"b-a", "b-c", "b-d", "b-e", "b-f"}
	both := slices.Concat(in, out)
	want := map[string][]string{
		"partition": both, "unplugged": append(slices.Clone(both), "client-b", "b-client"),
		"deaf": in, "mute": out, "lossy": both, "slow": both,
	}
	for _, fault := range NetworkFaults() {
		t.Run(fault.Name, func(t *testing.T) {
			n := newFake(t)
			n.topology.Links = maps.Clone(n.links)
			n.topology.Links[netlab.Pair{From: "b", To: "c"}] = netlab.Link{Delay: 1, LossPerMille: 3} // from an earlier fault
			n.links = maps.Clone(n.topology.Links)
			heal, err := fault.Inject(n, "b")
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(want[fault.Name])
			if diff := cmp.Diff(want[fault.Name], n.changed()); diff != "" {
				t.Errorf("changed links (-want +got):\n%s", diff)
			}
			for _, p := range n.changed() {
				from, to, _ := strings.Cut(p, "-")
				if l, _ := n.Link(from, to); l.Cut == fault.Conditions {
					t.Errorf("%s: link %s is %+v", fault.Name, p, l)
				}
			}
			if err := heal(); err != nil {
				t.Fatal(err)
			}
			if left := n.changed(); len(left) > 0 {
				t.Errorf("healed, and %v are changed", left)
			}
		})
	}
}

func TestFailedInjectChangesNothing(t *testing.T) {
	fault, err := Network("partition")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // maps have no order
		n := newFake(t)
		n.refused = netlab.Pair{From: "a", To: "b"}
		if _, err := fault.Inject(n, "a"); !errors.Is(err, errRefused) {
			t.Fatalf("Inject: %v, want %v", err, errRefused)
		}
		if left := n.changed(); len(left) > 0 {
			t.Fatalf("Inject failed, and %v are changed", left)
		}
	}
	if _, err := fault.Inject(newFake(t), "x"); err == nil || !strings.Contains(err.Error(), `node "x"`) {
		t.Errorf("Inject into node x: %v", err)
	}
	if _, err := Network("flood"); err == nil || !strings.Contains(err.Error(), "partition, unplugged, deaf") {
		t.Errorf("Network(flood): %v", err)
	}
}

// TestPartitionOfRealNetwork: a real network can make the faults of the catalogue.
func TestPartitionOfRealNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	for _, name := range []string{"same-rack", "two-city"} {
		p, err := netlab.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		n, err := netlab.New(p, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Up(t.Context()); err != nil {
			t.Skipf("needs network namespaces and TUN devices: %v", err)
		}
		defer n.Close()
		for _, fault := range NetworkFaults() {
			heal, err := fault.Inject(n, "b")
			if fault.Conditions && p.Kind == netlab.Veth {
				if err == nil || !strings.Contains(err.Error(), "is a veth pair") {
					t.Errorf("%s on %s: %v", fault.Name, name, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := n.MeasureRTT(t.Context(), netlab.Client, "b", 1); (err == nil) == (fault.Name == "unplugged") {
				t.Errorf("%s on %s: the client's echo: %v", fault.Name, name, err)
			}
			if err := heal(); err != nil {
				t.Fatal(err)
			}
			if _, err := n.MeasureRTT(t.Context(), "a", "b", 1); err != nil {
				t.Errorf("%s on %s: healed: %v", fault.Name, name, err)
			}
		}
	}
}
