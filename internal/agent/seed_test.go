package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// TestSeedings: a password is of one node and one copy, a copy has a bounded number of
// connections, and what is not used is forgotten.
func TestSeedings(t *testing.T) {
	var s seedings
	now := time.Now()
	if _, _, err := s.enter("d", now); err == nil {
		t.Error("a node without a plan comes in")
	}
	first := s.begin("d", now)
	g, leave, err := s.enter("d", now)
	if err != nil || g.password != first {
		t.Fatalf("%v", err)
	}
	if _, _, err := s.enter("e", now); err == nil {
		t.Error("another node comes in")
	}
	second := s.begin("d", now)
	if second == first {
		t.Error("the next copy has the password of the one before")
	}
	select {
	case <-g.ended:
	default:
		t.Error("the next copy leaves the one before its connections")
	}
	leave()
	for range seedConnectionsMax {
		if g, _, err = s.enter("d", now); err != nil || g.password != second {
			t.Fatalf("%v", err)
		}
	}
	if _, _, err := s.enter("d", now); err == nil {
		t.Errorf("more than %d connections", seedConnectionsMax)
	}
	s.begin("e", now)
	if _, _, err := s.enter("e", now.Add(seedIdleMax+1)); err == nil {
		t.Error("a password that was not used is good for ever")
	}
	if _, _, err := s.enter("d", now.Add(seedIdleMax+1)); err == nil || errors.Is(err, errNotSeeded) {
		t.Errorf("a copy that is under way is given up: %v", err)
	}
}

// TestSeedingsAreForgotten: copies of nodes that are gone leave nothing behind, and one that is under way stays.
func TestSeedingsAreForgotten(t *testing.T) {
	var s seedings
	now := time.Now()
	s.begin("busy", now)
	if _, _, err := s.enter("busy", now); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * seedingsMax {
		s.begin(fmt.Sprint("n", i), now.Add(time.Duration(i)))
		if len(s.of) > seedingsMax {
			t.Fatalf("%d copies", len(s.of))
		}
	}
	if _, _, err := s.enter("n0", now); !errors.Is(err, errNotSeeded) {
		t.Errorf("the oldest copy: %v", err)
	}
	last := fmt.Sprint("n", 3*seedingsMax-1)
	for _, node := range []string{"busy", last} {
		if _, _, err := s.enter(node, now); err != nil {
			t.Errorf("the copy of %s: %v", node, err)
		}
	}
	s.begin("late", now.Add(2*seedIdleMax))
	if got := slices.Sorted(maps.Keys(s.of)); !slices.Equal(got, []string{"busy", "late", last}) {
		t.Errorf("later there are %v", got)
	}
}
