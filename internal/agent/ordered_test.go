package agent

import (
	"context"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/front/router"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// openPrimary is a mysqld that serves in term 3, and consensus, whose leader in that term is this node.
type openPrimary struct {
	primary.Local
	primary.Raft
	committed consensus.Committed
}

func (p *openPrimary) Incarnation() uint64 { return 7 }
func (p *openPrimary) ConnectTap(context.Context, primary.Epoch, mysqlwire.TapConfig) (*mysqlwire.Tap, primary.TapObserver, error) {
	return new(mysqlwire.Tap), nil, nil
}
func (p *openPrimary) SemiSyncStatus(context.Context) (primary.SemiSync, error) {
	return primary.SemiSync{On: true, Clients: 1}, nil
}
func (p *openPrimary) Role() consensus.RoleState       { return consensus.RoleState{Term: 3, Leading: true} }
func (p *openPrimary) Committed() *consensus.Committed { return &p.committed }
func (p *openPrimary) Leads() bool                     { return true }

// TestPlanHoldsClientsOfAllNodes: while an operator's plan closes writes, the primary lets no new client in: one of its
// own port, one that another node has sent, one of the read-only port (which comes like the second). Once the plan is
// called off it lets them in again.
func TestPlanHoldsClientsOfAllNodes(t *testing.T) {
	a, p := openLone(t), &openPrimary{}
	a.Slot = primary.NewSlot(primary.SlotConfig{
		Local: func() (primary.Local, error) { return p, nil }, Raft: func() primary.Raft { return p },
		Clients: clients{a}, Clock: clock.Machine{},
	})
	if err := a.Slot.OpenTap(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	a.Slot.Serve(3)
	b := routeBackend{a}
	takes := func(when string, want bool) {
		t.Helper()
		for who, target := range map[string]router.Target{"its own": {Node: a.self.ID, Local: true}, "another node's": {Local: true}} {
			if got := b.Takes(target); got != want {
				t.Errorf("%s: it takes %s client: %t", when, who, got)
			}
		}
		if _, ok := b.Choose(nil, nil); ok != want {
			t.Errorf("%s: there is a node for clients: %t", when, ok)
		}
		if b.Takes(router.Target{Node: a.self.ID}) {
			t.Errorf("%s: it takes a client by way of itself", when)
		}
		if !b.Serving() {
			t.Errorf("%s: the sessions that there are end", when)
		}
	}
	takes("before", true)
	reason, err := a.Orders.Run(t.Context(), primary.NewOrder("ann", true, time.Second, clock.Machine{}), func() {
		takes("the plan waits for the other node", true)
		a.Orders.Closing()
		takes("writes are being closed", false)
		a.Orders.Ended("called off")
	})
	if reason != "called off" || err != nil {
		t.Errorf("the plan: %q, %v", reason, err)
	}
	takes("called off", true)
}
