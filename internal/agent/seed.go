package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/operate"
	"github.com/quorate/quorate/internal/primary"
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/seglog"
)

// What a member does for a node that joins: it says from where on, and carries the
// copy of its mysqld's data. The other side is join.go.

// The requests of a node that joins.
const (
	seedPlanRequest = "seed.plan"
	seedDataRequest = "seed.data"
)

// seedPlan is what a member can give to a node that joins.
type seedPlan struct {
	Node string `json:"node"`
	// State has the node that joins as a member. What it is known through is not
	// before Begin.
	State cluster.StatePoint `json:"state"`
	// Begin is where the new log would begin: where one of this log's segments does.
	Begin seedBegin `json:"begin"`
	// LogBytes is about how long the log is from there on.
	LogBytes int64 `json:"log_bytes"`
	// Data is nil where there is no mysqld to copy.
	Data *seedData `json:"data,omitempty"`
}

// seedBarrierTimeout is less than joinAskTimeout, so that who asks hears why not.
const seedBarrierTimeout = 2 * time.Second

type seedBegin struct {
	First             uint64 `json:"first"`
	PreviousTerm      uint64 `json:"previous_term"`
	GTIDs             []byte `json:"gtids"`
	FormatDescription []byte `json:"format_description"`
}

// seedData is how a copy of a mysqld's data is made, and what it will hold.
type seedData struct {
	Role    cluster.Role `json:"role"`
	Backlog float64      `json:"backlog_seconds"`
	// Mark is the mysqld's durable mark: what is copied from now on holds it, too.
	MarkIndex   uint64 `json:"mark_index"`
	MarkWitness string `json:"mark_witness,omitempty"`
	Password    string `json:"password"`
}

// controlSeedPlan answers a node that joins. What this node knows of that one may be
// long ago: it asks a majority first, or it could seed a node that has its vote since,
// and has given votes over another data directory.
func (a *Agent) controlSeedPlan(ctx context.Context, r control.Request) (operate.Done, error) {
	ctx, cancel := context.WithTimeout(ctx, seedBarrierTimeout)
	defer cancel()
	if err := a.node.Barrier(ctx); err != nil {
		return operate.Done{}, control.Errorf(control.CodeFailed, "it is not known whether node %s is still to be seeded: %v", r.From, err)
	}
	point := a.node.Committed().State()
	if err := membership.Seedable(point, r.From); err != nil {
		return operate.Done{}, control.Errorf(control.CodeFailed, "%v", err)
	}
	var err error
	p := seedPlan{Node: a.self.Name, State: point}
	if p.Begin, p.LogBytes, err = a.seedBegin(r.From); err != nil {
		return operate.Done{}, control.Errorf(control.CodeFailed, "%v", err)
	}
	own := a.ownStatus()
	mark := a.durable()
	healthy := own.Role == cluster.RoleReplica || own.Role == cluster.RolePrimary
	if a.runsMysqld() && healthy && own.LogState == cluster.LogOK && (p.Begin.First == 1 || mark.Index+1 >= p.Begin.First) {
		p.Data = &seedData{Role: own.Role, Backlog: own.BacklogSeconds(), MarkIndex: mark.Index, Password: a.secrets.Clone()}
		if mark.Index > 0 {
			p.Data.MarkWitness = mark.Witness.String()
		}
	}
	return operate.Done{Result: p}, nil
}

// seedBegin is the beginning of the log that a node that joins is given.
func (a *Agent) seedBegin(joiner string) (seedBegin, int64, error) {
	segments := a.log.Segments()
	nodes := slices.DeleteFunc(a.nodes(), func(n cluster.NodeStatus) bool { return n.Name == joiner })
	at := replay.SeedSegment(segments, nodes, a.stateNeed(), a.node.Committed().Mark().Index)
	s := segments[at]
	b := seedBegin{First: s.FirstIndex, GTIDs: s.GTIDsBefore.AppendBinary(nil), FormatDescription: s.FormatDescription}
	var err error
	if b.PreviousTerm, err = a.log.Term(s.FirstIndex - 1); s.FirstIndex > 1 && err != nil {
		return b, 0, fmt.Errorf("read the term before the log's part for a new node: %w", err)
	}
	bytes := int64(0)
	for _, s := range segments[at:] {
		bytes += s.Bytes
	}
	return b, bytes, nil
}

// controlSeedData answers a request for the copy of mysqld's data: what follows on
// the stream is between the two servers (serveSeedData).
func (a *Agent) controlSeedData(_ context.Context, r control.Request) (operate.Done, error) {
	m, err := a.node.Committed().State().State.Member(r.From)
	switch {
	case r.From == "" || err != nil || m.Votes():
		return operate.Done{}, control.Errorf(control.CodeInvalid, "only a node that joins is seeded")
	case a.currentProcess() == nil:
		return operate.Done{}, primary.ErrNoMysqld
	}
	return operate.Done{}, nil
}

// serveSeedData carries the bytes between another node's mysqld and this one's
// socket until either has had enough.
func (a *Agent) serveSeedData(ctx context.Context, conn net.Conn) {
	local, err := new(net.Dialer).DialContext(ctx, "unix", a.server.Socket())
	if err != nil {
		a.logger.Warn("seed a node: connect to mysqld", "error", err)
		return
	}
	splice(ctx, conn, local)
}

// splice copies both ways until one ends, or ctx does, and closes both.
func splice(ctx context.Context, x, y net.Conn) {
	shut := sync.OnceFunc(func() { _ = errors.Join(x.Close(), y.Close()) })
	stop := context.AfterFunc(ctx, shut)
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{x, y}, {y, x}} {
		both.Go(func() {
			defer shut()
			_, _ = io.Copy(way[0], way[1])
		})
	}
	both.Wait()
}

// log returns where a new log begins.
func (b seedBegin) log() (*seglog.Begin, error) {
	if b.First <= 1 {
		return nil, nil
	}
	gtids, err := parseGTIDs(b.GTIDs)
	if err != nil {
		return nil, err
	}
	return &seglog.Begin{First: b.First, PreviousTerm: b.PreviousTerm, GTIDs: gtids, FormatDescription: b.FormatDescription}, nil
}
