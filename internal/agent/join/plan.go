package join

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Offer is what a member can give to a node that joins. Agents send it to each other.
type Offer struct {
	Node string `json:"node"`
	// State has the node that joins as a member. Its Through is not before Begin.
	State cluster.StatePoint `json:"state"`
	// Known are the data directories that the member has pinned. They count for the node that joins,
	// too, which has not met the members that are away now.
	Known membership.Known `json:"known,omitempty"`
	// Begin is where the new log would begin: at the beginning of one of the member's segments.
	Begin replay.LogBegin `json:"begin"`
	// LogBytes is about how long the log is from there on.
	LogBytes int64 `json:"log_bytes"`
	// Data is nil where there is no mysqld to copy.
	Data *Data `json:"data,omitempty"`
}

// Data is how a copy of a mysqld's data is made, and what it will hold.
type Data struct {
	Role    status.Role `json:"role"`
	Backlog float64     `json:"backlog_seconds"`
	// The mysqld's durable mark: a copy that is made from now on holds all of that, too.
	replay.MarkText
	Password string `json:"password"`
}

// barrierTimeout is less than askTimeout, so that the node that asks hears why it gets nothing.
const barrierTimeout = 2 * time.Second

// Member is a member that is asked for an Offer. All fields are required.
type Member struct {
	Name  string
	Clock clock.Clock
	// Barrier returns nil once a majority has confirmed that this node knows what was
	// committed before the call.
	Barrier   func(ctx context.Context) error
	Committed *consensus.Committed
	Log       *seglog.Log
	// Known are the data directories that it has pinned.
	Known func() membership.Known
	// Nodes has the status of every member as it is now, Own has this member's.
	Nodes func() []status.Node
	Own   func() status.Node
	// StateNeed is what its cluster state needs of its log.
	StateNeed func() replay.Need
	// RunsMysqld: it has a mysqld, with the mark Durable. Password lets one node copy it once.
	RunsMysqld bool
	Durable    func() replay.Mark
	Password   func(joiner string) string
}

// Plan is what the member can give to a node. An error says why it gives nothing.
func (m Member) Plan(ctx context.Context, joiner string) (Offer, error) {
	ctx, cancel := m.Clock.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	if err := m.Barrier(ctx); err != nil {
		return Offer{}, fmt.Errorf("it is not known whether node %s is still to be seeded: %w", joiner, err)
	}
	p := Offer{Node: m.Name, State: m.Committed.State(), Known: m.Known()}
	err := membership.Seedable(p.State, joiner)
	if err == nil {
		p.Begin, p.LogBytes, err = m.Begin(joiner)
	}
	if err != nil {
		return Offer{}, err
	}
	if !m.RunsMysqld {
		return p, nil
	}
	own, mark := m.Own(), m.Durable()
	if givesData(own, mark, p.Begin) {
		p.Data = &Data{Role: own.Role, Backlog: own.BacklogSeconds(), MarkText: mark.Text(), Password: m.Password(joiner)}
	}
	return p, nil
}

// givesData tells whether a node that joins may copy this member's mysqld. An applier that has stopped would stop in the
// copy again, at the same transaction: then another replica gives the data, or the primary.
func givesData(own status.Node, mark replay.Mark, begin replay.LogBegin) bool {
	return own.Role.Judged() && own.Stopped() == "" && own.LogState == status.LogOK && (begin.First == 1 || mark.Index+1 >= begin.First)
}

// Begin is the beginning of the log that a node that joins is given, and about how long the
// log is from there on.
func (m Member) Begin(joiner string) (b replay.LogBegin, logBytes int64, err error) {
	segments := m.Log.Segments()
	others := slices.DeleteFunc(m.Nodes(), func(n status.Node) bool { return n.Name == joiner })
	at := replay.SeedSegment(segments, others, m.StateNeed(), m.Committed.Mark().Index)
	if b, err = replay.NewLogBegin(segments[at], m.Log.Term); err != nil {
		return b, 0, err
	}
	for _, s := range segments[at:] {
		logBytes += s.Bytes
	}
	return b, logBytes, nil
}
