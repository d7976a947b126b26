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
	"github.com/quorate/quorate/internal/transport"
	"github.com/quorate/quorate/internal/units"
)

const (
	// refusedMax bounds the recoveries that this node refuses: each is a person's mistake. The oldest go first.
	refusedMax = 16
	// orderAskMax bounds the question to the others what they say of a recovery. It is
	// less than half of an election timeout, too: two of before that start together
	// must not elect one another over it.
	orderAskMax = 500 * time.Millisecond
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
	list []cluster.Recovery
}

func (f *refusals) load() (err error) {
	f.list, err = f.dir.Refused()
	return err
}

// has tells whether a recovery is refused. A later one is not: its version may be that
// of one that is, if it was made on the other side.
func (f *refusals) has(r cluster.Recovery) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.list, r.Is)
}

// add notes durably that a recovery is refused.
func (f *refusals) add(r cluster.Recovery) error {
	if f.has(r) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r = r.Told()
	r.GTIDs = ""
	list := append(slices.Clone(f.list), r)
	list = list[max(0, len(list)-refusedMax):]
	if err := f.dir.WriteRefused(list); err != nil {
		return fmt.Errorf("note a recovery that is refused: %w", err)
	}
	f.list = list
	return nil
}

// version is that of the latest one, 0 = there is none.
func (f *refusals) version() (v uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.list {
		v = max(v, r.Version)
	}
	return v
}

// orderRequest asks another agent what it says of a recovery without both of them.
const orderRequest = "recover.order"

// orderWord is what a node of before says of a recovery.
type orderWord struct {
	// Refuses: it was made apart from a majority that ran.
	Refuses bool `json:"refuses"`
	// Led: the node had a leader less than obeyAfter ago.
	Led bool `json:"led"`
}

// word is what this node says of a recovery. That it has a leader right now makes it
// one to be refused for good: nobody can recover a cluster beside one who says so.
func (a *Agent) word(r cluster.Recovery) orderWord {
	if !a.asSelf().Supersedes(r) {
		return orderWord{}
	}
	w := orderWord{Refuses: a.data.refused.has(r), Led: a.board.led(obeyAfter)}
	if !w.Refuses && a.data.identity.Superseded == nil && a.board.own().Leader != 0 {
		w.Refuses = true
		a.refuseOrder(r)
	}
	return w
}

// refuseOrder notes durably that a recovery is not obeyed, if it can.
func (a *Agent) refuseOrder(r cluster.Recovery) {
	if a.data.refused.has(r) {
		return
	}
	err := a.data.refused.add(r)
	a.logger.Error("a recovery apart from a running majority: it is refused here until a person has moved the data directory away",
		"recovered_on", r.Node, "at", r.At, "version", r.Version, "error", err)
}

func (a *Agent) controlOrder(_ context.Context, r control.Request) (done, error) {
	var order cluster.Recovery
	if err := arguments(r, &order); err != nil {
		return done{}, err
	}
	return done{result: a.word(order), readOnly: true}, nil
}

// wordsOfOthers asks all other members at once what they say of a recovery. Who does
// not answer in time, or has no word for it (its quorate is older), says nothing.
func (a *Agent) wordsOfOthers(r cluster.Recovery) (words []orderWord) {
	ctx, cancel := context.WithTimeout(context.Background(), min(orderAskMax, a.cfg.Raft.ElectionTimeout/2))
	defer cancel()
	question := a.question(orderRequest)
	var err error
	if question.Args, err = json.Marshal(r.Told()); err != nil {
		return nil
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range a.board.list() {
		if m.ID == a.self.ID || m.Name == r.Node {
			continue
		}
		all.Go(func() {
			var w orderWord
			if err := askFor(ctx, a.peers, m.ID, question, &w); err != nil {
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

// stance is what a node makes of a recovery without it.
type stance int

const (
	obeys stance = iota
	waits
	refuses
)

// judgeOrder decides it, from the node's own word and those of the others that answer.
func judgeOrder(own orderWord, others ...orderWord) stance {
	for _, o := range others {
		own.Refuses, own.Led = own.Refuses || o.Refuses, own.Led || o.Led
	}
	switch {
	case own.Refuses:
		return refuses
	case own.Led:
		return waits
	}
	return obeys
}

// obey takes it that the cluster was recovered without this node, as by says. It is
// told so again every few seconds.
func (a *Agent) obey(by string, r cluster.Recovery) {
	said := fmt.Sprintf("cluster %q was recovered on node %s at %s", r.Cluster, r.Node, units.Time(r.At))
	own := a.word(r)
	s := judgeOrder(own)
	if s != refuses {
		s = judgeOrder(own, a.wordsOfOthers(r)...)
	}
	switch s {
	case obeys:
		a.leave(membership.Departure{Superseded: &r})
		if e := a.leaving.Load(); e.Superseded != nil {
			a.end(e) // nobody waits for an answer, and it must elect nobody
		}
		return
	case waits:
		said += " without this one, which had a leader a moment ago, or hears of a node that had: it waits whether there is one again"
	case refuses:
		a.refuseOrder(r)
		a.apartAt.Store(time.Now().UnixNano())
		said += fmt.Sprintf(" although its majority runs: both sides may take writes; this node refuses that recovery, also after a restart; "+
			"stop the agent of node %s now, then see \"A majority is gone for good\" in the operations guide", r.Node)
	}
	if a.board.setTrouble(by, said) {
		a.logger.Error("a recovery without this node", "told_by", by, "reason", said)
	}
}

// supersede notes durably that the cluster was recovered without this node; unless
// there was a leader since it took it so.
func (a *Agent) supersede(r cluster.Recovery) error {
	if a.data.identity.Superseded == nil && a.board.led(obeyAfter) {
		return a.data.refused.add(r)
	}
	return a.data.superseded(r)
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
		if ctx.Err() == nil && a.board.setTrouble(aboutRecovery, text) && text != "" {
			a.logger.Error("nodes of before refuse this recovery", "reason", text)
		}
		return nil
	})
}

// askLeftBehind returns who of those that the recovery left behind refuses it.
func (a *Agent) askLeftBehind(ctx context.Context) []string {
	r := stillWithout(a.board.clusterState())
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
