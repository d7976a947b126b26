package reading

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/router"
)

// node is this node, as its Port sees it.
type node struct {
	is    status.Node
	ended int   // how often sessions were ended
	fault error // of ending them
}

// newReplica returns a replica that may be read, and its port.
func newReplica(t *testing.T) (*node, *Port) {
	t.Helper()
	n := &node{is: status.Node{ID: 1, Role: status.RoleReplica, Mysqld: status.MysqldRunning, Leader: 7, Reachable: true}}
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	dial := func(context.Context, cluster.NodeID) (net.Conn, error) { return near, nil }
	p := New(Config{
		Self: 1, Policy: status.Reads{LagMax: time.Second}, Nodes: func() []status.Node { return []status.Node{n.is} },
		Replica: func() bool { return n.is.Role == status.RoleReplica }, Changes: func() <-chan struct{} { return nil },
		EndReaders: func(context.Context) error { n.ended++; return n.fault },
		DialLocal:  func(context.Context) (net.Conn, error) { return near, nil }, DialRead: dial, DialPrimary: dial,
	}, &router.Config{Listen: "127.0.0.1:0", ReadOnly: true})
	p.Look(time.Now())
	return n, p
}

// TestEndBeforeWrites: a look that comes late does not open the port again, which a promotion has closed.
func TestEndBeforeWrites(t *testing.T) {
	n, p := newReplica(t)
	n.is.Role = status.RolePromoting
	if !p.Serving() {
		t.Fatal("it was looked already")
	}
	if err := p.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Look(time.Now())
	if p.Serving() || p.Takes(router.Target{Local: true}) {
		t.Error("clients read a mysqld that takes writes")
	}
	n.is.Role = status.RoleReplica
	p.Look(time.Now())
	if !p.Serving() || !p.Takes(router.Target{Local: true}) {
		t.Error("nobody reads a replica that was promoted once")
	}
}

// TestLetInBeforeTheEnd: a client is let in before the end of the sessions, which then looks for it; or it is refused.
// Where sessions could not be ended, that is done again.
func TestLetInBeforeTheEnd(t *testing.T) {
	n, p := newReplica(t)
	if err := p.End(t.Context()); err != nil || n.ended != 0 {
		t.Errorf("nobody has come: ended %d times, %v", n.ended, err)
	}
	p.Look(time.Now())
	if _, err := p.DialLocal(t.Context()); err != nil {
		t.Errorf("a client before the end: %v", err)
	}
	n.is.Role = status.RolePromoting
	n.fault = errors.New("mysqld does not answer")
	for i, want := range []error{n.fault, nil, nil} {
		if err := p.End(t.Context()); !errors.Is(err, want) || n.ended != min(i+1, 2) {
			t.Errorf("end %d: %v, sessions were ended %d times", i, err, n.ended)
		}
		if _, err := p.DialLocal(t.Context()); !errors.Is(err, ErrTakesWrites) {
			t.Errorf("let in after end %d: %v", i, err)
		}
		n.fault = nil
	}
}
