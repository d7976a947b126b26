package quorumloss

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// WordRequest asks another agent what it says of a recovery without both of them.
	WordRequest = "recover.order"
	// leftBehindEvery is how often a recovered node asks the former members whether they
	// refuse it. apartFor is for how long the metric of either side shows a refusal: each
	// side is told again every 5 s.
	leftBehindEvery = 5 * time.Second
	apartFor        = 30 * time.Second
	// aboutRecovery is the key of a trouble: former members refuse this node.
	aboutRecovery = "recovery"
)

// Node is what a Stance needs of its node.
type Node interface {
	AsSelf() membership.Self
	// Leave ends the node's life; if it obeys a recovery, Stance.Confirm is called after that. Leave
	// does not block, and only the first call counts.
	Leave(d membership.Departure)
	// AskWord asks another node what it says of a recovery without both (WordRequest).
	AskWord(ctx context.Context, of cluster.NodeID, r cluster.Recovery) (recovery.Word, error)
	// AskWhoRefuses asks nodes that are no members whether they refuse this one.
	AskWhoRefuses(ctx context.Context, peers []transport.Peer) []*transport.RejectedError
}

// Table is what a Stance needs of a status table: see board.Board.
type Table interface {
	Members() []cluster.Member
	State() cluster.State
	SinceLeader() time.Duration
	JoinsBlind() bool
	SetTrouble(about, text string) (news bool)
	SetRefusal(by, text string) (news bool)
}

// Dir keeps refused.json: see datadir.Dir.
type Dir interface {
	Refused() ([]cluster.Recovery, error)
	WriteRefused(refused []cluster.Recovery) error
}

// Config is what a Stance needs.
type Config struct {
	Node            Node
	Board           Table
	Dir             Dir
	ElectionTimeout time.Duration
	Clock           clock.Tasks
	Logger          *slog.Logger
}

// Stance decides what a node does about recoveries without it, and, once it was recovered
// itself, about former members that refuse that.
//
// It rejects recoveries that were made apart from a majority that ran: they lack what that
// majority has acknowledged since. This node obeys none of them, nor an order by such a
// cluster to be rebuilt, even while its own majority is down, until a person has moved its
// data directory away.
type Stance struct {
	cfg  Config
	mu   sync.Mutex
	list recovery.Rejected
	// unnoted are rejections that could not be written. They count until the node restarts.
	unnoted recovery.Rejected
	// apartUntil is until when the node counts as one side of two (TwoSides), by Config.Clock.
	apartUntil atomic.Int64
}

// New makes the stance of a node. It reads nothing.
func New(c Config) *Stance { return &Stance{cfg: c} }

// Load reads refused.json. Call it before anything else.
func (s *Stance) Load() (err error) {
	s.list, err = s.cfg.Dir.Refused()
	return err
}

// Rejected returns the recoveries that are refused. The caller must not change the list.
func (s *Stance) Rejected() recovery.Rejected {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// reject notes durably that a recovery is refused. It is refused even after an error.
func (s *Stance) reject(r cluster.Recovery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list.Has(r) {
		return nil
	}
	list := s.list.With(r)
	if err := s.cfg.Dir.WriteRefused(list); err != nil {
		if !s.unnoted.Has(r) {
			s.unnoted = s.unnoted.With(r)
		}
		return fmt.Errorf("note a recovery that is refused: %w", err)
	}
	s.list = list
	return nil
}

// notices judges the recoveries without this node.
func (s *Stance) notices() recovery.Notices {
	return recovery.Notices{
		Look: func(r cluster.Recovery) recovery.Own {
			self := s.cfg.Node.AsSelf()
			s.mu.Lock()
			defer s.mu.Unlock()
			return recovery.Own{
				News: self.Supersedes(r), Rejected: s.list.Has(r), Unnoted: s.unnoted.Has(r), Superseded: self.Superseded != nil, SinceLeader: s.cfg.Board.SinceLeader(),
			}
		},
		Reject: func(r cluster.Recovery) error {
			err := s.reject(r)
			s.cfg.Logger.Error("this node refuses a recovery that was made although a majority ran, until a person moves the data directory away",
				"recovered_on", r.Node, "at", r.At, "version", r.Version, "error", err)
			return err
		},
	}
}

// Word answers another node that asks what this one says of a recovery. If a rejection cannot
// be noted, that is logged, and the answer does not claim it.
func (s *Stance) Word(r cluster.Recovery) recovery.Word {
	w, _ := s.notices().Word(r)
	return w
}

// Confirm decides once more, when the node has stopped, whether it obeys a recovery: there
// may have been a leader since.
func (s *Stance) Confirm(r cluster.Recovery) (accepted bool, err error) {
	d, err := s.notices().Confirm(r)
	return d == recovery.Accept, err
}

// wordsOfOthers asks all other members at once what they say of a recovery. A member that
// does not answer in time, or whose older quorate does not know the question, says nothing.
func (s *Stance) wordsOfOthers(r cluster.Recovery) (words []recovery.Word) {
	ctx, cancel := s.cfg.Clock.WithTimeout(context.Background(), recovery.AskFor(s.cfg.ElectionTimeout))
	defer cancel()
	self := s.cfg.Node.AsSelf().ID
	others := slices.DeleteFunc(slices.Clone(s.cfg.Board.Members()), func(m cluster.Member) bool { return m.ID == self || m.Name == r.Node })
	var mu sync.Mutex
	left, answered := len(others), make(chan struct{})
	for _, m := range others {
		s.cfg.Clock.Go(func() {
			w, err := s.cfg.Node.AskWord(ctx, m.ID, r.Told())
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.cfg.Logger.Debug("ask what another node says of a recovery", "node", m.Name, "error", err)
			} else {
				words = append(words, w)
			}
			if left--; left == 0 {
				close(answered)
			}
		})
	}
	asks := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return left > 0
	}
	for asks() { // each question ends with ctx
		_ = s.cfg.Clock.Wait(context.Background(), 0, answered)
	}
	return words
}

// RefusedDial takes a peer's rejection of this node, which had dialled it. A node that joins and knows no cluster state
// does not obey an order to be rebuilt: what this one peer knows may be old. join.Joiner weighs what all peers say, and
// then calls Refused.
func (s *Stance) RefusedDial(by string, r *transport.RejectedError) {
	if r.Code == transport.CodeRebuild && s.cfg.Board.JoinsBlind() {
		return
	}
	s.Refused(by, r)
}

// Refused takes a peer's rejection of the node.
func (s *Stance) Refused(by string, r *transport.RejectedError) {
	switch x := membership.React(s.cfg.Node.AsSelf(), by, r); {
	case x.Recovery != nil:
		s.Hear(by, *x.Recovery)
	case x.Departure != nil:
		s.cfg.Node.Leave(*x.Departure)
	case x.Refusal:
		s.cfg.Board.SetRefusal(by, x.Trouble)
	default:
		s.cfg.Board.SetTrouble(by, x.Trouble)
	}
}

// Hear is told by a node that the cluster was recovered without this node. It is told so
// again every few seconds.
func (s *Stance) Hear(by string, r cluster.Recovery) {
	said := fmt.Sprintf("cluster %q was recovered on node %s at %s", r.Cluster, r.Node, units.Time(r.At))
	// An error is logged, and the notice comes again.
	switch d, _ := s.notices().Decide(r, func() []recovery.Word { return s.wordsOfOthers(r) }); d {
	case recovery.Ignore:
		return
	case recovery.Accept:
		s.cfg.Node.Leave(membership.Departure{Superseded: &r})
		return
	case recovery.Defer:
		said += " without this node; this node, or a node that it hears, had a leader a moment ago: it waits to see whether there is a leader again"
	case recovery.Reject:
		s.apart()
		said += fmt.Sprintf(" although its majority runs: both sides may take writes; this node refuses that recovery, also after a restart; "+
			"stop the agent of node %s now, then see \"A majority is gone for good\" in the operations guide", r.Node)
	}
	if s.cfg.Board.SetTrouble(by, said) {
		s.cfg.Logger.Error("a recovery without this node", "told_by", by, "reason", said)
	}
}

// Watch has a node that was recovered show which former members refuse it, until ctx ends. It
// asks them: by themselves they tell it nothing, because it is no longer their peer.
func (s *Stance) Watch(ctx context.Context) error {
	for before := []string(nil); s.cfg.Clock.Wait(ctx, leftBehindEvery, nil) == nil; {
		now := s.askLeftBehind(ctx)
		text := ""
		if by := refuseStill(before, now); len(by) > 0 {
			s.apart()
			text = fmt.Sprintf("refused by %s, without which this node was recovered: if a majority runs there, both sides take writes; "+
				"stop this agent now, then see \"A majority is gone for good\" in the operations guide", strings.Join(by, ", "))
		}
		before = now
		if ctx.Err() == nil && s.cfg.Board.SetTrouble(aboutRecovery, text) && text != "" {
			s.cfg.Logger.Error("former members refuse this recovery", "reason", text)
		}
	}
	return nil
}

// askLeftBehind returns which of the nodes that the recovery left behind refuse it.
func (s *Stance) askLeftBehind(ctx context.Context) []string {
	r := StillWithout(s.cfg.Board.State())
	if r == nil {
		return nil
	}
	return refusersOf(*r, s.cfg.Node.AskWhoRefuses(ctx, transport.PeersOf(r.Without)))
}

// refuseStill returns the nodes that refuse a recovery now, and refused it when they were asked
// before: a node that has just started needs a moment to obey.
func refuseStill(before, now []string) []string {
	return slices.DeleteFunc(slices.Clone(now), func(name string) bool { return !slices.Contains(before, name) })
}

// refusersOf returns the former members that refuse a recovery, from their answers.
func refusersOf(r cluster.Recovery, answers []*transport.RejectedError) (names []string) {
	for _, e := range answers {
		switch e.Code {
		case transport.CodeRecovered:
			if order := e.Order.Recovery; order != nil && order.Is(r) {
				continue // it obeys
			}
		case transport.CodePeer, transport.CodeRemoved, transport.CodeRebuild:
		default:
			// Another node is at that address now, or it cannot be known. A former member
			// that obeys also says CodeUnknown, to a node that was added since.
			continue
		}
		names = append(names, e.By)
	}
	slices.Sort(names)
	return names
}

// Outside answers the peers of a node that has obeyed a recovery without it: other former members learn of that recovery.
type Outside struct{ By *cluster.Recovery }

// CheckPeer implements transport.Checker. It rejects all peers.
func (o Outside) CheckPeer(id transport.Identity) error {
	return &transport.RejectedError{Code: transport.CodeRecovered, Text: o.By.Sentence(id.NodeName), Order: transport.Order{Recovery: o.By}}
}

func (s *Stance) apart() { s.apartUntil.Store(int64(s.cfg.Clock.Now() + apartFor)) }

// TwoSides tells whether this node is on one side of a cluster that was recovered apart
// from a majority that runs.
func (s *Stance) TwoSides() bool {
	return int64(s.cfg.Clock.Now()) < s.apartUntil.Load()
}

// StillWithout is the recovery of a cluster, while it goes on without former members.
func StillWithout(s cluster.State) *cluster.Recovery {
	if s.Recovered == nil || len(s.Recovered.Without) == 0 {
		return nil
	}
	return s.Recovered
}
