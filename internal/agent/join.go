package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// joinAskTimeout bounds one question to one member.
	joinAskTimeout = 3 * time.Second
	// seedProgressEvery is how often the progress of a copy is looked at, and
	// seedStallMax how long it may show none: its last part syncs all files.
	seedProgressEvery = time.Second
	seedStallMax      = 10 * time.Minute
)

// join brings this node into a cluster that is there already: see package join. A node that is
// rebuilt first moves its old data away.
func (a *Agent) join(ctx context.Context) error {
	a.logger.Info("this node joins the cluster", "peer", a.self.Peer, "kind", a.self.Kind)
	a.board.SetRole(status.RoleJoining, "")
	if err := a.data.SetAside(); err != nil {
		return err
	}
	if err := a.data.known.Forget(); err != nil {
		return err
	}
	a.old.Tidy(time.Now())
	if err := a.serveWhile(ctx, newJoiner(a).Run); err != nil {
		return err
	}
	a.logger.Info("this node has a log: it takes part as a learner")
	a.board.Update(func(s *status.Node) { s.Seed, s.Reason = nil, "" })
	return a.listen() // what served until here has ended
}

// joiner is this node as a join.Joiner drives it.
type joiner struct {
	a *Agent
	*join.Joiner
}

func newJoiner(a *Agent) *joiner {
	j, self := &joiner{a: a}, a.self
	if k := a.keys.Shown(); k != nil {
		self.Key = k.Name()
	}
	j.Joiner = join.New(join.Config{Node: j, Self: self, Clock: clock.Machine{}, Logger: a.logger})
	return j
}

// AsSelf implements join.Node.
func (j *joiner) AsSelf() membership.Self { return j.a.asSelf() }

// Members implements join.Node.
func (j *joiner) Members() []cluster.Member { return j.a.board.Members() }

// AskPlan implements join.Node.
func (j *joiner) AskPlan(ctx context.Context, of cluster.NodeID) (p join.Offer, err error) {
	err = j.a.requests.Request(ctx, of, seedPlanRequest, struct{}{}, &p)
	return p, err
}

// Follow implements join.Node.
func (j *joiner) Follow(p join.Offer) error {
	j.a.Follower.Follow(p.State, false)
	return j.a.data.known.Learn(p.Known)
}

// Rejected implements join.Node.
func (j *joiner) Rejected(by string, r *transport.RejectedError) { j.a.stance.Refused(by, r) }

// Show implements join.Node.
func (j *joiner) Show(seed status.Seed, reason string) {
	j.a.board.Update(func(s *status.Node) { s.Role, s.Reason, s.Seed = status.RoleJoining, reason, &seed })
}

// CopyFailed implements join.Node.
func (j *joiner) CopyFailed(err error) {
	if noSpace(err) {
		j.a.old.Free()
	}
}

// noSpace tells whether a copy found too little space.
func noSpace(err error) bool {
	return errors.Is(err, mysqld.ErrNoSpace) || errors.Is(err, seglog.ErrFull) || errors.Is(err, unix.ENOSPC)
}

// dialData opens a connection to another node's mysqld through its agent.
func (j *joiner) dialData(ctx context.Context, to cluster.NodeID) (net.Conn, error) {
	conn, answer, err := operate.Ask(ctx, j.a.peers, to, j.a.requests.Question(seedDataRequest))
	if err != nil {
		return nil, err
	}
	if err := answer.Err(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// Begin implements join.Node.
func (j *joiner) Begin(cluster.NodeID) error { return j.a.data.Clear() }

// CopyData implements join.Node: a mysqld in a directory of its own copies the data, and they
// become this node's.
func (j *joiner) CopyData(ctx context.Context, plan join.Offer, from cluster.NodeID) (err error) {
	a := j.a
	cfg := a.mysqldConfig()
	cfg.DataDir = a.data.Join(datadir.SeedDir)
	server := mysqld.New(cfg)
	if err := server.Initialize(ctx); err != nil {
		return err
	}
	p, err := server.Start(ctx, mysqld.StartOptions{})
	if err != nil {
		return err
	}
	defer p.Kill()
	if err := p.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var eg errgroup.Group
	defer func() {
		cancel()
		err = errors.Join(err, eg.Wait())
	}()
	way, err := j.openWay(ctx, &eg, from)
	if err != nil {
		return err
	}
	cloning, cloned := context.WithCancel(ctx)
	defer cloned()
	eg.Go(func() error { j.watchData(cloning, p, plan.Node); return nil })
	target := server.CloneDir()
	if err := p.Admin().Clone(ctx, mysqld.CloneSource{Addr: way, Password: plan.Data.Password}, target); err != nil {
		return err
	}
	cloned() // what follows may take longer than seedStallMax
	p.Kill()
	mark, err := plan.Data.Mark()
	if err != nil {
		return err
	}
	uuid, err := a.local.Server().Adopt(ctx, target)
	if err != nil {
		return err
	}
	return a.data.Copied(uuid, mark)
}

// openWay opens a local port for our mysqld. Each connection to it goes on, through the other
// node's agent, to the other node's mysqld.
func (j *joiner) openWay(ctx context.Context, eg *errgroup.Group, to cluster.NodeID) (addr string, err error) {
	l, err := net.Listen("tcp", net.JoinHostPort(j.a.ownAddress().LocalHost(), "0"))
	if err != nil {
		return "", fmt.Errorf("open the way to the other mysqld: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	eg.Go(func() error {
		for {
			conn, err := l.Accept()
			if err != nil {
				return nil // closed
			}
			eg.Go(func() error {
				far, err := j.dialData(ctx, to)
				if err != nil {
					j.a.logger.Warn("cannot open a connection to copy the data", "node", j.a.board.Name(to), "error", err)
					_ = conn.Close()
					return nil
				}
				_ = splice(ctx, conn, far)
				return nil
			})
		}
	})
	return l.Addr().String(), nil
}

// watchData shows the progress of a copy, and ends a copy that makes none.
func (j *joiner) watchData(ctx context.Context, p *mysqld.Process, from string) {
	ticker := time.NewTicker(seedProgressEvery)
	defer ticker.Stop()
	copied := int64(0)
	for went := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			j.a.old.Tidy(time.Now())
		}
		if time.Since(went) > seedStallMax {
			j.a.logger.Error("the copy of the data has stopped: this node gives the copy up", "from", from, "for", seedStallMax)
			p.Kill()
			return
		}
		if bytes, total, err := p.Admin().CloneProgress(ctx); err == nil {
			if bytes != copied {
				went = time.Now()
			}
			copied = bytes
			j.ShowData(from, bytes, total)
		}
	}
}

// MakeLog implements join.Node.
func (j *joiner) MakeLog(ctx context.Context, b *seglog.Begin, fill func(context.Context, logcopy.Log, logcopy.Peers) error) (err error) {
	o := j.a.logOptions()
	o.Begin = b
	log, err := seglog.Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var eg errgroup.Group
	defer func() {
		cancel()
		err = errors.Join(err, eg.Wait())
	}()
	copies := j.a.copiesOf(log)
	running := make(chan struct{})
	eg.Go(func() error { close(running); return copies.Run(ctx) })
	<-running
	return fill(ctx, log, copies)
}

// Finish implements join.Node.
func (j *joiner) Finish(ctx context.Context, plan join.Offer) error {
	if err := j.takeOver(ctx, plan); err != nil {
		j.a.logger.Warn("the audit log or the history of this node lacks older lines: the other nodes have them", "error", err)
	}
	return j.a.data.Joined(plan.State)
}

// takeOver takes over the audit log and the history of the node from which this one was copied.
func (j *joiner) takeOver(ctx context.Context, plan join.Offer) error {
	from, err := plan.State.State.Member(plan.Node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinAskTimeout)
	defer cancel()
	return j.a.records.TakeOver(ctx, from.ID, j.a.askLines)
}
