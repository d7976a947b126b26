package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/bulk"
	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/logcopy"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/mysqld"
	"github.com/quorate/quorate/internal/operate"
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/seglog"
	"github.com/quorate/quorate/internal/transport"
)

const (
	// joinRetry is the pause before a node that joins asks again, seedRetry the one
	// before it begins a copy anew.
	joinRetry = 500 * time.Millisecond
	seedRetry = 5 * time.Second
	// joinAskTimeout bounds one question to one member.
	joinAskTimeout = 3 * time.Second
	// seedProgressEvery is how often the progress of a copy is looked at, and
	// seedStallMax how long it may show none: its last part syncs all files.
	seedProgressEvery = time.Second
	seedStallMax      = 10 * time.Minute
	// seedDir is where the mysqld runs that copies another one's data.
	seedDir = "seed"
)

// join brings a node into a cluster that is there already. Until it has a log it
// takes no part in Raft, as one that is being healed: a leader must take each member
// that answers for one that has what was purged. So it copies, before anything else,
// what is committed now; and because its status says that it has nothing, nobody
// purges anything meanwhile that it knows this node as a member. What purged before
// that was committed, and so is in the copy, or before its beginning.
//
// A node that is stopped in between begins anew: nothing was promised, so what it has
// copied is nobody's, and is deleted. What it had before, if it is rebuilt, it moves
// away first (setAside).
func (a *Agent) join(ctx context.Context) error {
	a.logger.Info("this node joins the cluster", "peer", a.self.Peer, "kind", a.self.Kind)
	a.board.SetRole(cluster.RoleJoining, "")
	if err := a.data.setAside(); err != nil {
		return err
	}
	if err := a.data.known.Forget(); err != nil {
		return err
	}
	a.tidyOld(time.Now(), a.data.disk)
	ctx, end := context.WithCancel(ctx)
	defer end()
	eg, ctx := errgroup.WithContext(ctx)
	joined := false
	eg.Go(func() error { return a.peers.Run(ctx) })
	eg.Go(func() error { return a.router.Run(ctx) })
	eg.Go(func() error { return a.api.Run(ctx) })
	eg.Go(func() error { return a.runGossip(ctx) })
	eg.Go(func() error {
		defer end()
		err := (&joiner{a: a}).run(ctx)
		joined = err == nil
		return err
	})
	err := eg.Wait()
	if !joined {
		return err
	}
	a.logger.Info("this node has a log: it takes part as a learner")
	a.board.Update(func(s *cluster.NodeStatus) { s.Seed, s.Reason = nil, "" })
	return a.listen() // what served until here has ended
}

// joiner is one try to join.
type joiner struct {
	a *Agent
	// plans are the members' answers.
	plans []seedPlan
	// copying: the last try went so far.
	copying bool
	// warned: it was said that the others look for this node elsewhere.
	warned bool
	// began is when the phase began that is shown.
	began time.Time
}

func (j *joiner) run(ctx context.Context) error {
	said := ""
	for {
		err := j.try(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case j.a.leaving.Load() != nil:
			return j.a.leaving.Load()
		case errors.Is(err, seglog.ErrFailed):
			return fmt.Errorf("make the log: %w", err)
		}
		if j.copying && noSpace(err) {
			j.a.freeOld()
		}
		j.say(cluster.Seed{Phase: cluster.SeedWaiting}, err.Error())
		if err.Error() != said {
			j.a.logger.Warn("this node has not joined so far", "reason", err)
			said = err.Error()
		}
		retry := joinRetry
		if j.copying {
			retry = seedRetry
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// say shows where the seeding is.
func (j *joiner) say(p cluster.Seed, reason string) {
	j.a.board.Update(func(s *cluster.NodeStatus) {
		if s.Seed == nil || s.Seed.Phase != p.Phase {
			j.began = time.Now()
		}
		if took := time.Since(j.began).Seconds(); p.Bytes > 0 && p.BytesTotal > p.Bytes {
			p.Seconds = took / float64(p.Bytes) * float64(p.BytesTotal-p.Bytes)
			reason += fmt.Sprintf(", %d of %d MiB, %.0f s left", p.Bytes>>20, p.BytesTotal>>20, p.Seconds)
		}
		s.Role, s.Reason, s.Seed = cluster.RoleJoining, reason, &p
	})
}

func (j *joiner) try(ctx context.Context) error {
	j.copying = false
	if err := j.ask(ctx); err != nil {
		return err
	}
	plan, clone, err := j.choose()
	if err != nil {
		return err
	}
	if m, ok := membership.Find(plan.State.State, j.a.self.ID); ok && m.Peer != j.a.self.Peer && !j.warned {
		j.a.logger.Warn("the others may not reach this node: "+m.UnreachedByAll(j.a.self.Peer), "peer", m.Peer)
		j.warned = true
	}
	j.copying = true
	if err := j.wipe(); err != nil {
		return err
	}
	if clone {
		if err := j.copyData(ctx, plan); err != nil {
			return fmt.Errorf("copy the data of node %s: %w", plan.Node, err)
		}
	}
	if err := j.copyLog(ctx, plan); err != nil {
		return fmt.Errorf("copy the log of node %s: %w", plan.Node, err)
	}
	if err := j.copyAudit(ctx, plan); err != nil {
		j.a.logger.Warn("the audit log begins here with what comes from now on: what was before is on the other nodes", "error", err)
	}
	return j.finish(plan)
}

// ask asks every member what it can give. The first answer tells who the members
// are; the configuration only knows those of the beginning.
func (j *joiner) ask(ctx context.Context) error {
	j.plans = nil
	asked := map[cluster.NodeID]bool{j.a.self.ID: true}
	var errs []error
	var rejections []*transport.RejectedError
	by := map[*transport.RejectedError]string{}
	defer func() {
		if r := membership.Weightiest(rejections); r != nil {
			j.a.rejected(by[r], r)
		}
	}()
	for {
		members := slices.DeleteFunc(slices.Clone(j.a.board.Members()), func(m cluster.Member) bool { return asked[m.ID] })
		if len(members) == 0 {
			break
		}
		asked[members[0].ID] = true
		var p seedPlan
		if err := j.request(ctx, members[0].ID, seedPlanRequest, struct{}{}, &p); err != nil {
			errs = append(errs, err)
			if r, ok := errors.AsType[*transport.RejectedError](err); ok {
				rejections, by[r] = append(rejections, r), members[0].Name
			}
			continue
		}
		if m, _ := membership.Find(p.State.State, j.a.self.ID); m.Instance != "" && m.Instance != j.a.data.Own().Instance {
			errs = append(errs, fmt.Errorf("node %s knows this node by another data directory", p.Node))
			continue
		}
		j.plans = append(j.plans, p)
		if p.State.State.Version >= j.a.board.State().Version {
			j.a.followMembers(p.State, false)
		}
	}
	if len(j.plans) > 0 {
		return nil
	}
	errs = append(errs, errors.New("there is nobody to ask"))
	return notTakenIn(j.a.self, errs[0], rejections) // the others say the like
}

// notTakenIn says why no member takes a node in, and what a person can do. Who was a
// member before a recovery cannot be added.
func notTakenIn(self cluster.Member, first error, rejections []*transport.RejectedError) error {
	for _, r := range rejections {
		if r.Code == transport.CodeRecovered {
			return fmt.Errorf("node %s refuses this node: %s", r.By, r.Text)
		}
	}
	return fmt.Errorf("no member of the cluster answers as one that knows this node (add it there: quorate node add %s --peer %s --kind %s): %w",
		self.Name, self.Peer, self.Kind, first)
}

// request asks another node's agent.
func (j *joiner) request(ctx context.Context, to cluster.NodeID, name string, args, result any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, joinAskTimeout)
	defer cancel()
	question := j.a.requests.Question(name)
	if question.Args, err = json.Marshal(args); err != nil {
		return fmt.Errorf("encode the arguments of %s: %w", name, err)
	}
	if err := operate.AskFor(ctx, j.a.peers, to, question, result); err != nil {
		return fmt.Errorf("ask node %s: %w", j.a.board.Name(to), err)
	}
	return nil
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

// choose chooses where from, and whether mysqld's data are copied.
func (j *joiner) choose() (plan seedPlan, clone bool, err error) {
	offers := make([]membership.Offer, len(j.plans))
	for i, p := range j.plans {
		o := membership.Offer{First: p.Begin.First, Through: p.State.Through}
		if p.Data != nil {
			o.Data, o.Primary, o.Backlog = true, p.Data.Role == cluster.RolePrimary, p.Data.Backlog
		}
		offers[i] = o
	}
	at, clone, err := membership.ChooseSource(offers, j.a.runsMysqld())
	if err != nil {
		return seedPlan{}, false, err
	}
	return j.plans[at], clone, nil
}

// wipe removes what an earlier try has left.
func (j *joiner) wipe() error {
	d := j.a.data
	if own := d.Own(); !own.Joining || own.GivenUp != nil {
		return errors.New("this node's data directory is in use: nothing is removed")
	}
	for _, name := range []string{"log", "mysql", seedDir} {
		if err := os.RemoveAll(d.Join(name)); err != nil {
			return fmt.Errorf("remove what an earlier try has left: %w", err)
		}
	}
	return d.Wipe()
}

// copyData has a mysqld in a directory of its own copy another node's data, and
// makes them this node's.
func (j *joiner) copyData(ctx context.Context, plan seedPlan) (err error) {
	a := j.a
	from, err := plan.State.State.Member(plan.Node)
	if err != nil {
		return err
	}
	seed := cluster.Seed{Phase: cluster.SeedData, From: plan.Node}
	j.say(seed, "copying the data of node "+plan.Node)
	cfg := a.mysqldConfig()
	cfg.DataDir = a.data.Join(seedDir)
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
	way, err := j.openWay(ctx, &eg, from.ID)
	if err != nil {
		return err
	}
	eg.Go(func() error { j.watchData(ctx, p, seed); return nil })
	target := filepath.Join(cfg.DataDir, "clone")
	if err := p.Admin().Clone(ctx, mysqld.CloneSource{Addr: way, Password: plan.Data.Password}, target); err != nil {
		return err
	}
	p.Kill()
	uuid, err := a.server.Adopt(ctx, target)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(cfg.DataDir); err != nil {
		return fmt.Errorf("remove the directory of the copying mysqld: %w", err)
	}
	if plan.Data.MarkIndex == 0 {
		return nil
	}
	// What that node's InnoDB held durably before, the copy holds.
	witness, err := gtid.ParseGTID(plan.Data.MarkWitness)
	if err != nil {
		return fmt.Errorf("parse the durable mark of node %s: %w", plan.Node, err)
	}
	return a.data.WriteMark(uuid, replay.Mark{Index: plan.Data.MarkIndex, Witness: witness})
}

// openWay listens where our mysqld finds the other node's: each connection goes on
// through that node's agent.
func (j *joiner) openWay(ctx context.Context, eg *errgroup.Group, to cluster.NodeID) (addr string, err error) {
	l, err := net.Listen("tcp", net.JoinHostPort(j.a.localHost(), "0"))
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
					j.a.logger.Warn("copy data: open a connection", "node", j.a.board.Name(to), "error", err)
					_ = conn.Close()
					return nil
				}
				splice(ctx, conn, far)
				return nil
			})
		}
	})
	return l.Addr().String(), nil
}

// watchData shows the progress of a copy, and ends one that makes none.
func (j *joiner) watchData(ctx context.Context, p *mysqld.Process, s cluster.Seed) {
	ticker := time.NewTicker(seedProgressEvery)
	defer ticker.Stop()
	for went := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			j.a.tidyOld(time.Now(), j.a.data.disk)
		}
		if time.Since(went) > seedStallMax {
			j.a.logger.Error("the copy of the data goes no further: it is given up", "from", s.From, "for", seedStallMax)
			p.Kill()
			return
		}
		if bytes, total, err := p.Admin().CloneProgress(ctx); err == nil {
			if bytes != s.Bytes {
				went = time.Now()
			}
			s.Bytes, s.BytesTotal = bytes, total
			j.say(s, "copying the data of node "+s.From)
		}
	}
}

// copyLog makes this node's log, with all that is committed now.
func (j *joiner) copyLog(ctx context.Context, plan seedPlan) (err error) {
	from, err := plan.State.State.Member(plan.Node)
	if err != nil {
		return err
	}
	o := j.a.logOptions(false)
	if o.Begin, err = plan.Begin.log(); err != nil {
		return err
	}
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
	copies := bulk.New(j.a.bulkConfig(log, func() uint64 { return 0 }, noEntries{}))
	running := make(chan struct{})
	eg.Go(func() error { close(running); return copies.Run(ctx) })
	<-running
	c := logcopy.Copy{Log: log, Peers: copies, Clock: clock.Machine{}, Others: j.a.others, Copied: plan.Begin.First - 1}
	c.Progress = func(cluster.NodeID) {
		j.say(cluster.Seed{Phase: cluster.SeedLog, From: plan.Node, Bytes: c.Total(), BytesTotal: max(plan.LogBytes, c.Total())},
			fmt.Sprintf("copying the log of node %s, entry %d of %d", plan.Node, c.Copied, c.Until()))
	}
	return c.Join(ctx, j.a.self.ID, from.ID, max(plan.State.Index, plan.Begin.First))
}

// finish makes the data directory one that is in use.
func (j *joiner) finish(plan seedPlan) error {
	d := j.a.data
	if err := d.WriteState(plan.State); err != nil {
		return err
	}
	return d.Joined(plan.State.State.Recovered != nil)
}

func parseGTIDs(b []byte) (*gtid.Set, error) {
	set, err := gtid.DecodeBinary(b)
	if err != nil {
		return nil, fmt.Errorf("decode the transactions before the log: %w", err)
	}
	return set, nil
}

// copyAudit takes over what the audit log of the node has that is copied.
func (j *joiner) copyAudit(ctx context.Context, plan seedPlan) error {
	from, err := plan.State.State.Member(plan.Node)
	if err != nil {
		return err
	}
	var lines []cluster.AuditEntry
	if err := j.request(ctx, from.ID, "audit", cluster.LastRequest{Last: cluster.LinesMax}, &lines); err != nil {
		return err
	}
	audit := j.a.records.Audit
	if err := audit.Open(); err != nil {
		return err
	}
	return audit.Take(lines)
}
