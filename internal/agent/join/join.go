package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// retry is the pause before a node that joins asks again, copyRetry the pause before it
	// begins a copy again.
	retry     = 500 * time.Millisecond
	copyRetry = 5 * time.Second
	// askTimeout bounds one question to one member.
	askTimeout = 3 * time.Second
)

// Node is the node that joins.
type Node interface {
	// AsSelf is the node as it sees itself.
	AsSelf() membership.Self
	// Members are the members by the newest state that the node was told of, or by its
	// configuration.
	Members() []cluster.Member
	// AskPlan asks a member for its Member.Plan.
	AskPlan(ctx context.Context, of cluster.NodeID) (Offer, error)
	// Follow has the node go by the cluster state and the data directories that it was told of.
	Follow(p Offer) error
	// Rejected takes the weightiest of the members' rejections.
	Rejected(by string, r *transport.RejectedError)
	// Show shows how far the join is, and why.
	Show(s status.Seed, reason string)
	// Begin removes what an earlier try has left: the copy from a member begins.
	Begin(from cluster.NodeID) error
	// CopyData copies the data of a member's mysqld, and notes their durable mark.
	CopyData(ctx context.Context, p Offer, from cluster.NodeID) error
	// CopyFailed is told that a copy has failed, and may make space for the next try.
	CopyFailed(err error)
	// MakeLog makes the log, which begins at b (nil = with entry 1), and has fill fill it.
	MakeLog(ctx context.Context, b *seglog.Begin, fill func(ctx context.Context, log logcopy.Log, from logcopy.Peers) error) error
	// Finish notes durably that the data directory is a member's.
	Finish(ctx context.Context, p Offer) error
}

// Config is what a Joiner needs. Fields are required unless it is said otherwise.
type Config struct {
	Node   Node
	Self   cluster.Member // as it is configured, with the key that it shows
	Clock  clock.Clock
	Logger *slog.Logger
	// GroupBytesMax is as in logcopy.Copy; 0 = 4 MiB.
	GroupBytesMax int
}

// Joiner is one join. Make one with New.
type Joiner struct {
	cfg Config
	// plans are the members' answers.
	plans []Offer
	// copying: the last try has got to the copy.
	copying bool
	// warned: the warning was logged that the others look for this node at another address.
	warned bool
	// phase is the phase that is shown, began is when it began.
	phase status.SeedPhase
	began time.Duration
}

// New returns a Joiner that has asked nobody yet.
func New(cfg Config) *Joiner { return &Joiner{cfg: cfg} }

// Run returns nil once the node has joined. It tries again until ctx ends, or the log's disk
// fails.
func (j *Joiner) Run(ctx context.Context) error {
	said := ""
	for {
		err := j.try(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, seglog.ErrFailed):
			return fmt.Errorf("make the log: %w", err)
		}
		if j.copying {
			j.cfg.Node.CopyFailed(err)
		}
		j.say(status.Seed{Phase: status.SeedWaiting}, err.Error())
		if err.Error() != said {
			j.cfg.Logger.Warn("this node has not joined yet", "reason", err)
			said = err.Error()
		}
		pause := retry
		if j.copying {
			pause = copyRetry
		}
		if j.cfg.Clock.Wait(ctx, pause, nil) != nil {
			return context.Cause(ctx)
		}
	}
}

// say shows how far the join is, and how long it will take.
func (j *Joiner) say(s status.Seed, reason string) {
	now := j.cfg.Clock.Now()
	if j.phase != s.Phase {
		j.phase, j.began = s.Phase, now
	}
	if took := (now - j.began).Seconds(); s.Bytes > 0 && s.BytesTotal > s.Bytes {
		s.Seconds = took / float64(s.Bytes) * float64(s.BytesTotal-s.Bytes)
		reason += fmt.Sprintf(", %d of %d MiB, %.0f s left", s.Bytes>>20, s.BytesTotal>>20, s.Seconds)
	}
	j.cfg.Node.Show(s, reason)
}

func (j *Joiner) try(ctx context.Context) error {
	j.copying = false
	if err := j.Ask(ctx); err != nil {
		return err
	}
	plan, clone, err := j.choose()
	if err != nil {
		return err
	}
	self := j.cfg.Self
	if m, ok := plan.State.State.MemberByID(self.ID); ok && m.Peer != self.Peer && !j.warned {
		j.cfg.Logger.Warn("the others may not reach this node: "+m.UnreachedByAll(self.Peer), "peer", m.Peer)
		j.warned = true
	}
	from, err := plan.State.State.Member(plan.Node)
	if err != nil {
		return err
	}
	j.copying = true
	if err := j.cfg.Node.Begin(from.ID); err != nil {
		return err
	}
	if clone {
		j.ShowData(plan.Node, 0, 0)
		if err := j.cfg.Node.CopyData(ctx, plan, from.ID); err != nil {
			return fmt.Errorf("copy the data of node %s: %w", plan.Node, err)
		}
	}
	if err := j.copyLog(ctx, plan, from.ID); err != nil {
		return fmt.Errorf("copy the log of node %s: %w", plan.Node, err)
	}
	return j.cfg.Node.Finish(ctx, plan)
}

// ShowData shows how far the copy of a mysqld's data is.
func (j *Joiner) ShowData(from string, bytes, total int64) {
	j.say(status.Seed{Phase: status.SeedData, From: from, Bytes: bytes, BytesTotal: total}, "copying the data of node "+from)
}

// Ask asks every member what it can give. The first answer tells who the members are; the
// configuration has only the initial ones.
func (j *Joiner) Ask(ctx context.Context) error {
	j.plans = nil
	self := j.cfg.Node.AsSelf()
	asked := map[cluster.NodeID]bool{self.ID: true}
	var errs []error
	var rejections []*transport.RejectedError
	by := map[*transport.RejectedError]string{}
	defer func() {
		if r := membership.Weightiest(rejections); r != nil {
			j.cfg.Node.Rejected(by[r], r)
		}
	}()
	for {
		members := slices.DeleteFunc(slices.Clone(j.cfg.Node.Members()), func(m cluster.Member) bool { return asked[m.ID] })
		if len(members) == 0 {
			break
		}
		asked[members[0].ID] = true
		p, err := j.ask(ctx, members[0].ID)
		if _, ok := errors.AsType[*cluster.NewerError](err); ok {
			return err
		}
		if err != nil {
			errs = append(errs, err)
			if r, ok := errors.AsType[*transport.RejectedError](err); ok {
				rejections, by[r] = append(rejections, r), members[0].Name
			}
			continue
		}
		if m, _ := p.State.State.MemberByID(self.ID); m.Instance != "" && m.Instance != self.Instance {
			errs = append(errs, fmt.Errorf("node %s knows this node by another data directory", p.Node))
			continue
		}
		if err := j.cfg.Node.Follow(p); err != nil {
			return err
		}
		j.plans = append(j.plans, p)
	}
	if len(j.plans) > 0 {
		return nil
	}
	errs = append(errs, errors.New("there is no member to ask"))
	return notTakenIn(j.cfg.Self, j.cfg.Node.Members(), errs[0], rejections) // the other errors are alike
}

func (j *Joiner) ask(ctx context.Context, of cluster.NodeID) (Offer, error) {
	ctx, cancel := j.cfg.Clock.WithTimeout(ctx, askTimeout)
	defer cancel()
	return j.cfg.Node.AskPlan(ctx, of)
}

// notTakenIn says why no member takes a node in, and what a person can do. A node that was
// a member before a recovery cannot be added. members are the members that the node knows.
func notTakenIn(self cluster.Member, members []cluster.Member, first error, rejections []*transport.RejectedError) error {
	for _, r := range rejections {
		if r.Code == transport.CodeRecovered {
			return fmt.Errorf("node %s refuses this node: %s", r.By, r.Text)
		}
	}
	return fmt.Errorf("no member that answers knows this node (%s): %w", takeIn(self, members, rejections), first)
}

// takeIn is what a person does on a member so that the node is taken in. A member that does not know the node's key
// says nothing but that: it may know the node by another key.
func takeIn(self cluster.Member, members []cluster.Member, rejections []*transport.RejectedError) string {
	add := fmt.Sprintf("add it on a member: quorate node add %s --peer %s --kind %s", self.Name, self.Peer, self.Kind)
	if self.Key == "" {
		return add
	}
	add += " --key " + string(self.Key)
	set := fmt.Sprintf("quorate node set %s --key %s", self.Name, self.Key)
	for _, m := range members {
		if m.ID == self.ID && m.Key != "" && !m.Has(self.Key) {
			return "it is a member with another key; correct that on a member: " + set
		}
	}
	if slices.ContainsFunc(rejections, func(r *transport.RejectedError) bool { return r.Code == transport.CodeKey && r.By != self.Name }) {
		return add + "; if it was added with another key: " + set
	}
	return add
}

// choose chooses the member to copy from, and whether mysqld's data are copied.
func (j *Joiner) choose() (plan Offer, clone bool, err error) {
	offers := make([]membership.Offer, len(j.plans))
	for i, p := range j.plans {
		o := membership.Offer{First: p.Begin.First, Through: p.State.Through}
		if p.Data != nil {
			o.Data, o.Primary, o.Backlog = true, p.Data.Role == status.RolePrimary, p.Data.Backlog
		}
		offers[i] = o
	}
	at, clone, err := membership.ChooseSource(offers, j.cfg.Self.Kind != cluster.KindLogger)
	if err != nil {
		return Offer{}, false, err
	}
	return j.plans[at], clone, nil
}

// copyLog makes this node's log, with all that is committed now.
func (j *Joiner) copyLog(ctx context.Context, plan Offer, from cluster.NodeID) error {
	begin, err := plan.Begin.Log()
	if err != nil {
		return err
	}
	return j.cfg.Node.MakeLog(ctx, begin, func(ctx context.Context, log logcopy.Log, peers logcopy.Peers) error {
		c := logcopy.Copy{
			Log: log, Peers: peers, Clock: j.cfg.Clock, Others: j.others, Copied: plan.Begin.First - 1, GroupBytesMax: j.cfg.GroupBytesMax,
		}
		c.Progress = func(from cluster.NodeID) {
			m, _ := plan.State.State.MemberByID(from)
			node := cmp.Or(m.Name, plan.Node)
			j.say(status.Seed{Phase: status.SeedLog, From: node, Bytes: c.Total(), BytesTotal: max(plan.LogBytes, c.Total())},
				fmt.Sprintf("copying the log of node %s, entry %d of %d", node, c.Copied, c.Until()))
		}
		return c.Join(ctx, j.cfg.Self.ID, from, max(plan.State.Index, plan.Begin.First))
	})
}

// others are the other members that this node knows.
func (j *Joiner) others() (ids []cluster.NodeID) {
	for _, m := range j.cfg.Node.Members() {
		if m.ID != j.cfg.Self.ID {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
