package join

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// TestDataCopies: a password belongs to one node and one copy; a copy has a bounded number of connections; a copy
// that is not used is forgotten.
func TestDataCopies(t *testing.T) {
	var s DataCopies
	now := time.Now()
	if _, _, err := s.Enter("d", now); err == nil {
		t.Error("a node without a plan comes in")
	}
	first := s.Begin("d", now)
	g, leave, err := s.Enter("d", now)
	if err != nil || g.Password != first {
		t.Fatalf("%v", err)
	}
	if _, _, err := s.Enter("e", now); err == nil {
		t.Error("another node comes in")
	}
	second := s.Begin("d", now)
	if second == first {
		t.Error("the next copy has the password of the one before")
	}
	select {
	case <-g.Ended():
	default:
		t.Error("the next copy leaves the one before its connections")
	}
	leave(now)
	for range copyConnectionsMax {
		if g, _, err = s.Enter("d", now); err != nil || g.Password != second {
			t.Fatalf("%v", err)
		}
	}
	if _, _, err := s.Enter("d", now); err == nil {
		t.Errorf("more than %d connections", copyConnectionsMax)
	}
	s.Begin("e", now)
	if _, _, err := s.Enter("e", now.Add(copyIdleMax+1)); err == nil {
		t.Error("a password that was not used is good for ever")
	}
	if _, _, err := s.Enter("d", now.Add(copyIdleMax+1)); err == nil || errors.Is(err, errNoPlan) {
		t.Errorf("a copy that is under way is given up: %v", err)
	}
}

// TestDataCopiesAreForgotten: copies of nodes that are gone leave nothing behind; a copy that is under way stays.
func TestDataCopiesAreForgotten(t *testing.T) {
	var s DataCopies
	now := time.Now()
	s.Begin("busy", now)
	if _, _, err := s.Enter("busy", now); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * copiesMax {
		s.Begin(fmt.Sprint("n", i), now.Add(time.Duration(i)))
		if len(s.of) > copiesMax {
			t.Fatalf("%d copies", len(s.of))
		}
	}
	if _, _, err := s.Enter("n0", now); !errors.Is(err, errNoPlan) {
		t.Errorf("the oldest copy: %v", err)
	}
	last := fmt.Sprint("n", 3*copiesMax-1)
	for _, node := range []string{"busy", last} {
		if _, _, err := s.Enter(node, now); err != nil {
			t.Errorf("the copy of %s: %v", node, err)
		}
	}
	s.Begin("late", now.Add(2*copyIdleMax))
	if got := slices.Sorted(maps.Keys(s.of)); !slices.Equal(got, []string{"busy", "late", last}) {
		t.Errorf("later there are %v", got)
	}
}
