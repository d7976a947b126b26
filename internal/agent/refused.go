package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/operate"
	"github.com/quorate/quorate/internal/recovery"
	"github.com/quorate/quorate/internal/transport"
	"github.com/quorate/quorate/internal/units"
)

const (
	// leftBehindEvery is how often a recovered node asks those of before whether they
	// refuse it, apartFor how long either side's metric says that they do: each of them
	// is told every 5 s.
	leftBehindEvery = 5 * time.Second
	apartFor        = 30 * time.Second
	// aboutRecovery keys that nodes of before refuse this one.
	aboutRecovery = "recovery"
)

// refusals are the recoveries that were made apart from a majority that ran. What that
// has acknowledged since is not in them, so this node obeys none of them, nor an order
// by such a cluster to be rebuilt, also not while its majority is down, until a person
// has moved its data directory away.
type refusals struct {
	dir  datadir.Dir
	mu   sync.Mutex
	list recovery.Rejected
}

func (f *refusals) load() (err error) {
	f.list, err = f.dir.Refused()
	return err
}

// has tells whether a recovery is refused.
func (f *refusals) has(r cluster.Recovery) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list.Has(r)
}

// add notes durably that a recovery is refused.
func (f *refusals) add(r cluster.Recovery) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.list.Has(r) {
		return nil
	}
	list := f.list.With(r)
	if err := f.dir.WriteRefused(list); err != nil {
		return fmt.Errorf("note a recovery that is refused: %w", err)
	}
	f.list = list
	return nil
}

// rejected returns them. Nobody may change the list.
func (f *refusals) rejected() recovery.Rejected {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list
}

// orderRequest asks another agent what it says of a recovery without both of them.
const orderRequest = "recover.order"

// notices judges the recoveries without this node.
func (a *Agent) notices() recovery.Notices {
	return recovery.Notices{
		Look: func(r cluster.Recovery) recovery.Own {
			self := a.asSelf()
			return recovery.Own{
				News: self.Supersedes(r), Rejected: a.data.refused.has(r), Superseded: self.Superseded != nil, SinceLeader: a.board.SinceLeader(),
			}
		},
		Reject: func(r cluster.Recovery) error {
			err := a.data.refused.add(r)
			a.logger.Error("a recovery apart from a running majority: it is refused here until a person has moved the data directory away",
				"recovered_on", r.Node, "at", r.At, "version", r.Version, "error", err)
			return err
		},
	}
}

func (a *Agent) controlOrder(_ context.Context, r control.Request) (operate.Done, error) {
	var order cluster.Recovery
	if err := operate.Arguments(r, &order); err != nil {
		return operate.Done{}, err
	}
	w, _ := a.notices().Word(order) // an error is logged, and what it says is true
	return operate.Done{Result: w, ReadOnly: true}, nil
}

// wordsOfOthers asks all other members at once what they say of a recovery. Who does
// not answer in time, or has no word for it (its quorate is older), says nothing.
func (a *Agent) wordsOfOthers(r cluster.Recovery) (words []recovery.Word) {
	ctx, cancel := context.WithTimeout(context.Background(), recovery.AskFor(a.cfg.Raft.ElectionTimeout))
	defer cancel()
	question := a.requests.Question(orderRequest)
	var err error
	if question.Args, err = json.Marshal(r.Told()); err != nil {
		return nil
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range a.board.Members() {
		if m.ID == a.self.ID || m.Name == r.Node {
			continue
		}
		all.Go(func() {
			var w recovery.Word
			if err := operate.AskFor(ctx, a.peers, m.ID, question, &w); err != nil {
				a.logger.Debug("ask what another node says of a recovery", "node", m.Name, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			words = append(words, w)
		})
	}
	all.Wait()
	return words
}

// hearOfRecovery takes it that the cluster was recovered without this node, as by says.
// It is told so again every few seconds.
func (a *Agent) hearOfRecovery(by string, r cluster.Recovery) {
	said := fmt.Sprintf("cluster %q was recovered on node %s at %s", r.Cluster, r.Node, units.Time(r.At))
	// An error is logged, and the notice comes again.
	switch d, _ := a.notices().Judge(r, func() []recovery.Word { return a.wordsOfOthers(r) }); d {
	case recovery.Ignore:
		return
	case recovery.Accept:
		a.leave(membership.Departure{Superseded: &r})
		if e := a.leaving.Load(); e.Superseded != nil {
			a.end(e) // nobody waits for an answer, and it must elect nobody
		}
		return
	case recovery.Defer:
		said += " without this one, which had a leader a moment ago, or hears of a node that had: it waits whether there is one again"
	case recovery.Reject:
		a.apartAt.Store(time.Now().UnixNano())
		said += fmt.Sprintf(" although its majority runs: both sides may take writes; this node refuses that recovery, also after a restart; "+
			"stop the agent of node %s now, then see \"A majority is gone for good\" in the operations guide", r.Node)
	}
	if a.board.SetTrouble(by, said) {
		a.logger.Error("a recovery without this node", "told_by", by, "reason", said)
	}
}

// supersede notes durably that the cluster was recovered without this node, unless there
// was a leader since it accepted that.
func (a *Agent) supersede(r cluster.Recovery) error {
	d, err := a.notices().Confirm(r)
	if d == recovery.Accept {
		return a.data.superseded(r)
	}
	return err
}

// runLeftBehind has a node that was recovered say who refuses it. They tell it nothing:
// it is no peer of theirs any more.
func (a *Agent) runLeftBehind(ctx context.Context) error {
	var before []string
	return every(ctx, leftBehindEvery, func() error {
		now := a.askLeftBehind(ctx)
		text := ""
		if by := refuseStill(before, now); len(by) > 0 {
			a.apartAt.Store(time.Now().UnixNano())
			text = fmt.Sprintf("refused by %s, without which this node was recovered: if a majority runs there, both sides take writes; "+
				"stop this agent now, then see \"A majority is gone for good\" in the operations guide", strings.Join(by, ", "))
		}
		before = now
		if ctx.Err() == nil && a.board.SetTrouble(aboutRecovery, text) && text != "" {
			a.logger.Error("nodes of before refuse this recovery", "reason", text)
		}
		return nil
	})
}

// askLeftBehind returns who of those that the recovery left behind refuses it.
func (a *Agent) askLeftBehind(ctx context.Context) []string {
	r := stillWithout(a.board.State())
	if r == nil {
		return nil
	}
	var peers []transport.Peer
	for _, m := range r.Without {
		peers = append(peers, transport.Peer{ID: m.ID, Name: m.Name, Addr: m.Peer})
	}
	asking := transport.New(transport.Config{Identity: a.transportIdentity(), Peers: peers, Handler: stranger{}, Logger: a.logger})
	return refusersOf(*r, asking.AskWhoRefuses(ctx))
}

// refuseStill returns who refuses a recovery now, and did when it was asked before: one
// that has just started needs a moment to obey.
func refuseStill(before, now []string) []string {
	return slices.DeleteFunc(slices.Clone(now), func(name string) bool { return !slices.Contains(before, name) })
}

// refusersOf returns who does not go by a recovery, from what nodes of before answer.
func refusersOf(r cluster.Recovery, answers []*transport.RejectedError) (names []string) {
	for _, e := range answers {
		switch e.Code {
		case transport.CodeRecovered:
			if order := e.Order.Recovery; order != nil && order.Is(r) {
				continue // it obeys
			}
		case transport.CodePeer, transport.CodeRemoved, transport.CodeRebuild:
		default:
			// Another node is there now, or nobody can know. CodeUnknown is what one that
			// obeys says, too, to a node that was added since.
			continue
		}
		names = append(names, e.By)
	}
	slices.Sort(names)
	return names
}

// twoSides tells whether this node is on one side of a cluster that was recovered apart
// from a majority that runs.
func (a *Agent) twoSides() bool {
	return time.Since(time.Unix(0, a.apartAt.Load())) < apartFor
}
