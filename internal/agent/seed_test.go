package agent

import (
	"errors"
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
