package reading

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/router"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// node is this node, as its Port sees it.
type node struct {
	is    status.Node
	ended int   // how often sessions were ended
	fault error // of ending them
	machine
}

// machine is a machine whose clocks show what a test says.
type machine struct {
	consensus.RealMachine
	boot, wall time.Duration
}

func (m *machine) Boot() time.Duration { return m.boot }
func (m *machine) Wall() time.Duration { return m.wall }

// newReplica returns a replica that may be read, and its port.
func newReplica(t *testing.T) (*node, *Port) {
	t.Helper()
	n := &node{is: status.Node{ID: 1, Role: status.RoleReplica, Mysqld: status.MysqldRunning, Leader: 7, Reachable: true}}
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	dial := func(context.Context, cluster.NodeID) (net.Conn, error) { return near, nil }
	p := New(Config{
		Self: 1, Clocks: &n.machine, Policy: status.Reads{LagMax: time.Second}, Grace: time.Minute, Nodes: func() []status.Node { return []status.Node{n.is} },
		Replica: func() bool { return n.is.Role == status.RoleReplica }, Changes: func() <-chan struct{} { return nil },
		EndReaders: func(context.Context) error { n.ended++; return n.fault },
		DialLocal:  func(context.Context) (net.Conn, error) { return near, nil }, DialRead: dial, DialPrimary: dial,
	}, &router.Config{Listen: "127.0.0.1:0", ReadOnly: true})
	p.Look(time.Now())
	return n, p
}

// TestEndBeforeWrites: a late look does not open the port again after a promotion has closed it.
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

// TestStoodStill: after an agent stood still, nobody is answered with data that are older than read_max_lag and read_grace
// together. A look that finds them too old gives no further time. Later clients are served once the replica may be read.
func TestStoodStill(t *testing.T) {
	for name, pass := range map[string]func(*machine, time.Duration){
		"the machine, too": func(m *machine, d time.Duration) { m.wall += d },
		"the agent":        func(m *machine, d time.Duration) { m.boot += d },
	} {
		n, p := newReplica(t)
		n.is.LagSeconds = 0.25
		p.Look(time.Now())
		pass(&n.machine, time.Minute+time.Second/2)
		if !p.Serving() {
			t.Errorf("%s: not served within the bound", name)
		}
		pass(&n.machine, time.Second/2)
		if p.Serving() {
			t.Errorf("%s: data are read that are older than is allowed", name)
		}
		n.is.LagSeconds = 61
		p.Look(time.Now())
		if p.Serving() || p.Takes(router.Target{Local: true}) {
			t.Errorf("%s: they are read after a look that found them too old", name)
		}
		n.is.LagSeconds = 0
		if !p.Takes(router.Target{Local: true}) || !p.Serving() {
			t.Errorf("%s: nobody reads what is recent again", name)
		}
	}
}

// TestLetInBeforeTheEnd: a client is let in before the sessions are ended, and is then ended with them; or it is
// refused. If sessions could not be ended, that is tried again.
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

// TestPassesNobodyOn: a node with router.forward = false sends its clients away at once if another node may be read.
// A primary serves them if no replica may be read. It once held the first clients for hold_timeout, and sent the
// second away.
func TestPassesNobodyOn(t *testing.T) {
	replica := func(id cluster.NodeID, lag float64) status.Node {
		return status.Node{ID: id, Role: status.RoleReplica, Mysqld: status.MysqldRunning, Leader: 7, Reachable: true, LagSeconds: lag, ReadOnly: "x"}
	}
	primary := status.Node{ID: 1, Role: status.RolePrimary, Reachable: true, ReadOnly: "x"}
	for name, c := range map[string]struct {
		nodes []status.Node
		away  bool
	}{
		"it lags, another one does not":      {[]status.Node{replica(1, 9), replica(2, 0)}, true},
		"the primary, where replicas are":    {[]status.Node{primary, replica(2, 0)}, true},
		"the primary, where none may":        {[]status.Node{primary, replica(2, 9)}, false},
		"a replica, beside one that is read": {[]status.Node{replica(1, 0), replica(2, 0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dialled := make(chan cluster.NodeID, 1)
			dial := func(_ context.Context, id cluster.NodeID) (net.Conn, error) {
				select {
				case dialled <- id:
				default:
				}
				return nil, errors.New("enough")
			}
			p := New(Config{
				Self: 1, Clocks: consensus.RealMachine{}, Policy: status.Reads{LagMax: time.Second, Primary: true}, Nodes: func() []status.Node { return c.nodes },
				Replica: func() bool { return c.nodes[0].Role == status.RoleReplica }, Changes: func() <-chan struct{} { return nil },
				DialLocal: func(ctx context.Context) (net.Conn, error) { return dial(ctx, 1) }, DialRead: dial, DialPrimary: dial,
			}, &router.Config{Listen: "127.0.0.1:0", ReadOnly: true, Refuse: true, Self: 1, HoldTimeout: time.Minute, HoldMax: 1, Logger: slog.New(slog.DiscardHandler)})
			p.Look(time.Now())
			if err := p.Listen(); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			defer func() { stop(); <-ended }()
			client, err := net.Dial("tcp", p.Router().Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			if !c.away {
				if id := <-dialled; id != 1 {
					t.Errorf("node %d is dialled", id)
				}
				return
			}
			told, err := io.ReadAll(client)
			if !strings.Contains(string(told), "this one passes no clients on") {
				t.Errorf("it is told %q, %v", told, err)
			}
		})
	}
}
