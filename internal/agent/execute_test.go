package agent

import "testing"

// TestRoleChangeClosesNoConnection: a turn of consensus that ends the service wakes the
// router and leaves the connections to it; there may be thousands. Here is no router: to
// call it panics.
func TestRoleChangeClosesNoConnection(t *testing.T) {
	a := &Agent{}
	openBoard(a)
	a.serveTerm.Store(3)
	changed := a.board.Changes()
	if !a.endService() || a.serveTerm.Load() != 0 {
		t.Errorf("the service goes on in term %d", a.serveTerm.Load())
	}
	select {
	case <-changed:
	default:
		t.Error("the router is not woken")
	}
	if a.endService() {
		t.Error("a service that had ended is ended again")
	}
}
