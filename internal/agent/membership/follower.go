package membership

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// lookEvery is how often a Follower looks at the other members' statuses.
	lookEvery = time.Second
	// leaderlessMax is after how many looks without a leader a voter starts again from a
	// newer state that another node keeps: elections take less.
	leaderlessMax = 5
	// addedAfter is for how long a node has no leader before it asks the nodes that only its configuration names.
	addedAfter = 5 * time.Second
	// askStateTimeout bounds the question to one member.
	askStateTimeout = 3 * time.Second
	// aboutKind is the key of a trouble: this node is of another kind than it was added as.
	aboutKind = "kind"
	// AboutRepairs is the key of a trouble: why nodes are not rebuilt.
	AboutRepairs = "nodes that are not rebuilt"
)

// Table is what a Follower needs of a status table: see board.Board.
type Table interface {
	Name(id cluster.NodeID) string
	State() cluster.State
	SetState(s cluster.State)
	Nodes() []status.Node
	SetTrouble(about, text string) (news bool)
}

// Node is the node that follows the members. Before its Raft runs, only AsSelf and SetPeers
// are called.
type Node interface {
	// AsSelf is the node as it sees itself.
	AsSelf() Self
	// Leader returns the leader that the node knows (0 = none), and whether the node leads itself.
	Leader() (id cluster.NodeID, leading bool)
	// Committed returns the committed cluster state; changed is closed when there is a newer one.
	Committed() (p cluster.StatePoint, changed <-chan struct{})
	// CommittedIndex is the last index that is committed.
	CommittedIndex() uint64
	// Kept is the cluster state on disk. Keep makes what is committed durable, or logs why not.
	Kept() cluster.StatePoint
	Keep()
	// SetPeers has the node talk to the members in its table, and tell former members that they are out.
	SetPeers(former transport.Former)
	// Hangup ends the connections that a member has made, which then dials again; false = there was none.
	Hangup(id cluster.NodeID) (ended bool)
	// AskState asks a member for the cluster state on its disk.
	AskState(ctx context.Context, of cluster.NodeID) (cluster.StatePoint, error)
	// Change has the cluster change its state, in the name of the node itself.
	Change(ctx context.Context, c cluster.Change) error
	// FirstIndex is the first index of its log. LogHolder is the member because of which the log
	// is too long: see Repairs.Holder.
	FirstIndex() uint64
	LogHolder(s cluster.State, away func(name string) bool) (name string, bytes int64)
	// Leave ends the node's life. It does not block, and only the first call counts.
	Leave(d Departure)
}

// FollowerConfig is what a Follower needs. All fields are required but Also.
type FollowerConfig struct {
	Node   Node
	Table  Table
	Known  *Directories
	Clock  clock.Clock
	Logger *slog.Logger
	// RunsMysqld: the node has a mysqld.
	RunsMysqld bool
	// Also is called at each look.
	Also func(ctx context.Context)
}

// Follower has a node go by the cluster state: whom it talks to, whether it may stay, and,
// as the leader, who gets a vote, and who is rebuilt. Run and Follow must not run at once.
type Follower struct {
	cfg FollowerConfig
	// leaderless counts the looks without a leader.
	leaderless int
	reminder   Reminder
	unnoted    func() // follows again the state that could not be noted; nil = every state was noted
	unmet      bool   // what others said of rebuilt nodes could not be noted
	// said is what was logged of each learner that gets no vote, so that it is logged once.
	said map[string]string
	// repairer finds who is to be rebuilt, held is why others are not.
	repairer Repairer
	held     map[cluster.NodeID]string
}

// NewFollower returns a Follower that has seen nothing yet.
func NewFollower(cfg FollowerConfig) *Follower {
	return &Follower{cfg: cfg, said: map[string]string{}}
}

// Follow has this node talk to the members of a cluster state, unless it knows a newer state.
// It tells others to go only by a state on its own disk (kept): those nodes give up their data.
// A state that this node was only told of is forgotten in a crash, and then it would wait for
// their votes again.
//
// If the data directories of rebuilt nodes cannot be noted, Run tries again.
func (f *Follower) Follow(p cluster.StatePoint, kept bool) {
	if p.State.Version < f.cfg.Table.State().Version {
		return
	}
	f.cfg.Table.SetState(p.State)
	if err := f.cfg.Known.Expect(p, kept); err == nil {
		f.unnoted = nil
	} else {
		if f.unnoted == nil {
			f.cfg.Logger.Error("cannot write down the data directories of nodes that are rebuilt: trying again; until then this node may refuse these nodes", "error", err)
		}
		f.unnoted = func() { f.Follow(p, kept) }
	}
	f.cfg.Node.SetPeers(Former(p.State, kept, f.cfg.Node.AsSelf().ID))
}

// Run follows the members until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	var followed <-chan struct{}
	for next := f.cfg.Clock.Now() + lookEvery; ; {
		point, changed := f.cfg.Node.Committed()
		if f.cfg.Node.Kept().Index < point.Index {
			f.cfg.Node.Keep() // on disk first: a node that is told to go gives up its data
		}
		kept := f.cfg.Node.Kept().Index >= point.Index
		if kept && followed != changed {
			f.Follow(point, true)
			followed = changed
		}
		if now := f.cfg.Clock.Now(); now >= next {
			next = now + lookEvery
			if kept {
				f.look(ctx, point)
			}
		}
		if f.cfg.Clock.Wait(ctx, max(1, next-f.cfg.Clock.Now()), changed) != nil {
			return nil
		}
	}
}

func (f *Follower) look(ctx context.Context, p cluster.StatePoint) {
	f.checkSelf(p)
	if f.unnoted != nil {
		f.unnoted()
	}
	err := f.cfg.Known.Note()
	if err != nil && !f.unmet {
		f.cfg.Logger.Error("cannot write down which rebuilt nodes have begun again: trying again", "error", err)
	}
	f.unmet = err != nil
	f.learn(ctx)
	f.promote(ctx)
	leaving := slices.DeleteFunc(slices.Clone(f.cfg.Table.Nodes()), func(n status.Node) bool {
		return slices.Contains(p.Outgoing, n.ID) // it is told nothing yet: its data are still needed
	})
	for _, id := range f.reminder.Due(f.cfg.Clock.Now(), leaving) {
		if f.cfg.Node.Hangup(id) {
			f.cfg.Logger.Warn("closed the connections of a node, so that it hears again that it is to be rebuilt", "node", f.cfg.Table.Name(id))
		}
	}
	if f.cfg.Also != nil {
		f.cfg.Also(ctx)
	}
	f.repair(ctx)
}

// checkSelf ends a node that the cluster has removed, or that is to be rebuilt, once it
// may leave.
func (f *Follower) checkSelf(p cluster.StatePoint) {
	self := f.cfg.Node.AsSelf()
	m, _ := p.State.MemberByID(self.ID)
	f.cfg.Table.SetTrouble(aboutKind, OtherKind(m, f.cfg.RunsMysqld))
	kept := map[cluster.NodeID]uint64{}
	for _, n := range f.cfg.Table.Nodes() {
		kept[n.ID] = n.StateKept
	}
	if d := Follow(p, self, kept); d != nil {
		f.cfg.Node.Leave(*d)
	}
}

// learn asks a member that knows a newer cluster state for it. A node that was away may
// not know the present leader, would refuse it, and so never get the log. The answer only
// decides with whom this node talks: Raft's configuration and cluster.json follow the log.
// But if there was no leader for long, the node starts again from the newer state.
func (f *Follower) learn(ctx context.Context) {
	f.leaderless++
	if leader, _ := f.cfg.Node.Leader(); leader != 0 {
		f.leaderless = 0
	}
	stuck := f.leaderless > leaderlessMax
	self, own := f.cfg.Node.AsSelf(), f.cfg.Table.State().Version
	for _, n := range f.cfg.Table.Nodes() {
		if n.ID == self.ID || !n.Reachable || n.StateVersion == nil {
			continue
		}
		if *n.StateVersion <= own && (!stuck || n.StateKept <= f.cfg.Node.Kept().Index) {
			continue
		}
		p, err := f.askState(ctx, n.ID)
		switch {
		case err != nil:
			f.cfg.Logger.Debug("cannot ask for the newer cluster state", "node", n.Name, "error", err)
		case stuck && p.TakenUpBy(self.ID, self.Instance, f.cfg.Node.Kept()):
			f.cfg.Node.Leave(Departure{State: &p})
			return
		case f.Told(n.Name, p):
			return
		}
	}
}

// Told follows a state that another node keeps, if this node knows none that is as new, and is not its last voter.
func (f *Follower) Told(by string, p cluster.StatePoint) (news bool) {
	own := f.cfg.Table.State().Version
	if p.State.Version <= own || slices.Equal(p.State.Voters(), []cluster.NodeID{f.cfg.Node.AsSelf().ID}) {
		// The last voter needs no other node to lead. If it followed that state, it would refuse the present directories of
		// the others (Expect), and it has to ask them again once it is stuck.
		return false
	}
	f.cfg.Logger.Info("this node's log does not have the newest member list yet", "from", by, "version", p.State.Version, "was", own)
	f.Follow(p, false)
	return true
}

func (f *Follower) askState(ctx context.Context, of cluster.NodeID) (cluster.StatePoint, error) {
	ctx, cancel := f.cfg.Clock.WithTimeout(ctx, askStateTimeout)
	defer cancel()
	return f.cfg.Node.AskState(ctx, of)
}

// promote gives a vote to each node that joined for one and has caught up.
func (f *Follower) promote(ctx context.Context) {
	if _, leading := f.cfg.Node.Leader(); !leading {
		return
	}
	committed := f.cfg.Node.CommittedIndex()
	for _, n := range f.cfg.Table.Nodes() {
		m, ok := f.cfg.Table.State().MemberByID(n.ID)
		if !ok || !ReadyForVote(m, n, committed) {
			continue
		}
		text := ""
		c := cluster.MembershipChange{Op: cluster.OpPromote, Name: m.Name, Kind: m.Becomes, Instance: m.Instance}
		if err := f.cfg.Node.Change(ctx, cluster.Change{Membership: &c}); err != nil {
			text = err.Error()
		}
		if text != "" && f.said[m.Name] != text {
			f.cfg.Logger.Warn("the node has caught up, but was not given a vote", "node", m.Name, "error", text)
		}
		f.said[m.Name] = text
	}
}

// repair, on the leader, has nodes rebuilt that cannot go on with the data that they have, if the
// cluster's settings allow it. It asks for that as an operator would. The status says why a node
// is not rebuilt.
func (f *Follower) repair(ctx context.Context) {
	if _, leading := f.cfg.Node.Leader(); !leading {
		f.repairer.Follow()
		f.cfg.Table.SetTrouble(AboutRepairs, "")
		return
	}
	first := f.cfg.Node.FirstIndex()
	p, _ := f.cfg.Node.Committed()
	held := f.repairer.Look(f.cfg.Clock.Now(), Repairs{
		Self: f.cfg.Node.AsSelf().ID, State: p.State, Nodes: f.cfg.Table.Nodes(), First: first, Known: f.cfg.Known,
		Holder: func(away func(string) bool) (string, int64) { return f.cfg.Node.LogHolder(p.State, away) },
	}, func(m cluster.Member, why string) error { return f.rebuild(ctx, m, why, p.State.Version) })
	var texts []string
	for _, id := range slices.Sorted(maps.Keys(held)) {
		if held[id] != f.held[id] {
			f.cfg.Logger.Warn(held[id])
		}
		texts = append(texts, held[id])
	}
	f.held = held
	slices.Sort(texts)
	f.cfg.Table.SetTrouble(AboutRepairs, strings.Join(texts, "; "))
}

// rebuild asks for what "quorate node rebuild" asks for, but only in the state that was judged:
// meanwhile maintenance may have begun, or the rebuild of another node.
func (f *Follower) rebuild(ctx context.Context, m cluster.Member, why string, judged uint64) error {
	c := cluster.MembershipChange{Op: cluster.OpRebuild, Name: m.Name, Instance: datadir.NewInstance(), Why: why}
	if err := f.cfg.Node.Change(ctx, cluster.Change{Judged: judged, Membership: &c}); err != nil {
		return err
	}
	f.cfg.Logger.Warn("a node is rebuilt", "node", m.Name, "reason", why)
	return nil
}

// Added says which of the nodes that a configuration names a node asks for the cluster state: those that it does not know,
// while it has no leader. It may have missed that all members that it knows were replaced. What those in past said does
// not matter any more.
func Added(s cluster.State, added []cluster.Member, sinceLeader time.Duration) (ask, past []cluster.Member) {
	for _, m := range added {
		_, member := s.MemberByID(m.ID)
		switch {
		case member:
		case sinceLeader < addedAfter, slices.Contains(s.Removed, m.ID):
			past = append(past, m)
		default:
			ask = append(ask, m)
		}
	}
	return ask, past
}
