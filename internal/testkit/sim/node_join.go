package sim

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/raft/transport"
)

const (
	// oldFileFor is how long a node's configuration may name none of the members that were
	// added later.
	oldFileFor = 12 * time.Second
)

// joiner runs instead of the agent until the node has joined. If the data directory is unexpectedly empty, it
// only asks whether the node has to be rebuilt.
type joiner struct {
	*host
	log    *seglog.Log        // while the log is copied
	end    context.CancelFunc // ends its copies
	cloned bool
	knocks *join.Knocks // while the node introduces itself
}

func (n *node) startJoiner() {
	n.log("join", "begins, instance %s", n.instance())
	if chance(n.rng, 10) {
		n.disk.callsLeft = n.rng.IntN(16)
	}
	p, err := n.newHost(cluster.State{Members: n.named()})
	if err == nil {
		err = n.home.SetAside()
	}
	if err == nil {
		err = p.known.Forget()
	}
	n.disk.callsLeft = -1
	if err != nil {
		n.log("join", "cannot start: %v", err)
		n.w.restartAgent(n)
		return
	}
	j := &joiner{host: p}
	n.joiner = j
	j.board.SetRole(status.RoleJoining, "")
	j.life.start(func() { j.runGossip(j.board.Own) })
	j.life.start(j.runDial)
	j.life.start(j.run)
	j.nameLater()
}

// startNewcomer starts the process of a node whose data directory is empty.
func (n *node) startNewcomer() {
	n.log("join", "begins with an empty directory, lost %t", n.lost)
	p, err := n.newHost(cluster.State{Members: n.named()})
	if err != nil {
		n.w.fail("start", "n%d: %v", n.id, err)
	}
	j := &joiner{host: p, knocks: &join.Knocks{Self: n.member.Name}}
	for _, m := range n.w.members()[n.w.initialNodes:] {
		j.knocks.Added = append(j.knocks.Added, m.Name)
	}
	n.joiner, j.door.Checker = j, j.knocks
	j.life.start(j.introduce)
	j.nameLater()
}

// named returns the members that the node's configuration names.
func (n *node) named() []cluster.Member {
	if n.oldFile {
		return n.w.members()[:n.w.initialNodes]
	}
	return n.w.members()
}

// nameLater makes an operator correct an old configuration, after a while.
func (j *joiner) nameLater() {
	n := j.n
	if !n.oldFile || n.naming {
		return
	}
	n.naming = true // also if this process ends and starts again
	n.w.sched.after(oldFileFor/2+around(n.rng, oldFileFor/2), func() {
		n.log("join", "an operator names the members that were added later")
		n.oldFile, n.naming = false, false
		if n.joiner != nil {
			n.endJoiner()
			n.w.restartAgent(n)
		}
	})
}

func (j *joiner) introduce() {
	i := join.Introduction{
		Node: j, Clock: j.life, Logger: j.n.logger("join"), Joins: j.n.spare, Knocks: j.knocks,
		Alone: j.w.initialNodes == 1, Bootstrap: j.w.initialNodes == 1 && !j.n.lost, Listen: dialEvery,
	}
	r, err := i.Run(context.Background())
	if r != nil {
		j.Rejected("the cluster", r)
		err = r
	}
	j.w.sched.after(0, func() {
		if err == nil && j.n.joiner == j {
			if j.n.lost && !j.n.spare {
				j.w.fail("begin", "n%d, whose disk was lost, begins as if the cluster were new", j.n.id)
			}
			err = j.n.home.Begin()
		}
		j.ended(err)
	})
}

// Begun implements join.Newcomer.
func (j *joiner) Begun() bool { return j.n.home.Has(datadir.IdentityFile) }

// Waits implements join.Newcomer.
func (j *joiner) Waits(status.Role, string) {}

func (n *node) endJoiner() {
	if j := n.joiner; j != nil {
		n.joiner, n.writes = nil, nil
		j.life.end()
		j.closeLog()
	}
}

func (j *joiner) closeLog() {
	if j.log != nil {
		j.end()
		_ = j.log.Close()
		j.log = nil
	}
}

func (j *joiner) run() {
	jn := join.New(join.Config{Node: j, Self: j.n.member, Clock: j.life, Logger: j.n.logger("join"), GroupBytesMax: copyGroupBytes})
	ctx, end := j.departing.Context(context.Background())
	defer end()
	err := jn.Run(ctx)
	j.w.sched.after(0, func() { j.ended(err) })
}

func (j *joiner) ended(err error) {
	if j.n.joiner != j {
		return
	}
	j.n.endJoiner()
	if err == nil && j.departing.Because() == nil {
		j.n.live()
		return
	}
	j.n.persistExit(j.departing)
}

// Members implements join.Node.
func (j *joiner) Members() []cluster.Member { return j.board.Members() }

// AskPlan implements join.Node.
func (j *joiner) AskPlan(ctx context.Context, of cluster.NodeID) (join.Offer, error) {
	return callAgent(ctx, j.life, j.known, j.w.node(of), func(a *agent) (o join.Offer, err error) {
		defer a.n.check.offers(a.n, j.n)(&o)
		return a.AsMember(func(string) string { return "" }).Plan(context.Background(), j.n.member.Name)
	})
}

// Follow implements join.Node.
func (j *joiner) Follow(p join.Offer) error {
	membership.NewFollower(membership.FollowerConfig{
		Node: told{p: j.host}, Table: j.board, Known: j.known, Clock: j.life, Logger: j.n.logger("members"),
	}).Follow(p.State, false)
	return j.known.Learn(p.Known)
}

// told is a joiner as a membership.Follower drives it. Before there is a Raft, the Follower calls only these
// methods.
type told struct {
	membership.Node
	p *host
}

func (t told) AsSelf() membership.Self { return t.p.AsSelf() }

// SetPeers implements membership.Node.
func (t told) SetPeers(former transport.Former) { t.p.door.SetFormer(former) }

// Rejected implements join.Node.
func (j *joiner) Rejected(by string, r *transport.RejectedError) { j.stance.Refused(by, r) }

// Show implements join.Node.
func (j *joiner) Show(status.Seed, string) {}

// CopyFailed implements join.Node.
func (j *joiner) CopyFailed(error) {}

// Begin implements join.Node.
func (j *joiner) Begin(from cluster.NodeID) error {
	j.closeLog()
	j.n.belongTo(j.w.node(from).check)
	j.n.durable, j.cloned, j.n.copied = durableLog{}, false, true
	j.n.forget()
	return j.n.home.Clear()
}

// MakeLog implements join.Node.
func (j *joiner) MakeLog(ctx context.Context, b *seglog.Begin, fill func(context.Context, logcopy.Log, logcopy.Peers) error) (err error) {
	o := j.n.logOptions(false)
	o.Begin = b
	if j.log, err = seglog.Open(o); err != nil {
		return err
	}
	copies, end := j.n.copiesOf(j.log, j.life)
	j.end = end
	return fill(ctx, slowLog{j.log, j.n, j.life}, copies)
}

// Finish implements join.Node.
func (j *joiner) Finish(_ context.Context, plan join.Offer) error {
	if err := j.n.write(j.life, func() error { return j.n.home.Joined(plan.State) }); err != nil {
		return err
	}
	j.n.log("join", "done: entries %d to %d, state %d, copied data %t",
		j.log.FirstIndex(), j.log.LastIndex(), plan.State.State.Version, j.cloned)
	j.w.joins++
	if j.cloned {
		j.w.clones++
	}
	return nil
}
