package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

const (
	// sourceChangeMean is the mean time between two changes of learners' sources.
	sourceChangeMean = 1500 * time.Millisecond
	// sourcesLook is how often the checker looks.
	sourcesLook = 100 * time.Millisecond
	// aloneAfter: when a learner's source has worked for this long, the leader must send the learner nothing
	// more. Before that, the learner's connection with its former source has to end, which takes 5 s of
	// silence; the learner has to find the new source; and the leader has to hear of that, and act on it.
	aloneAfter = 9 * time.Second
	// caughtUpAfter is how long a learner that the leader reaches may lack committed entries, whatever its
	// source does.
	caughtUpAfter = 10 * time.Second
)

// sources is the part of a world in which learners have sources. An operator gives and takes sources, and
// additional faults strike the sources.
type sources struct {
	w   *World
	rng *rand.Rand
	// troubled is until when the last fault of a source lasts.
	troubled time.Duration
	// fed are the learners that the checker watches.
	fed map[cluster.NodeID]*fedLearner
	// left counts how often the leader left a learner to its source for long. fallbacks counts how often a
	// learner caught up although its source did not answer.
	left, fallbacks int
}

// fedLearner is what the checker knows about a learner that has a source.
type fedLearner struct {
	// leader, learner and source are the watched agents, in a term of the leader. The source has worked for the
	// learner since worksSince. source is nil while it does not work.
	leader, learner, source *agent
	term                    uint64
	worksSince              time.Duration
	// pushed counts the stages that the learner has got from the leader.
	pushed uint64
	// The learner must have committed the entry target within caughtUpAfter of targetAt. lost: its source did
	// not answer at targetAt.
	target        uint64
	targetAt      time.Duration
	lost, counted bool
}

// assignSources gives learners sources in half of the worlds where the members change, unless the options
// decide.
func (w *World) assignSources() {
	rng := w.random(streamSources)
	if w.options.Members == MembersSourced || chance(rng, 50) && w.membersChange && w.options.Losses == 0 && w.options.Members != MembersPair {
		w.sources = &sources{w: w, rng: rng, fed: map[cluster.NodeID]*fedLearner{}}
	}
}

// besideSources drops most of the other faults if the options ask for a world of sources: there a learner's
// source is to fail, and the leader and the learner are not.
func (w *World) besideSources(faults []fault) []fault {
	rng := w.random(streamSources + 1<<12)
	return slices.DeleteFunc(faults, func(fault) bool { return w.options.Members == MembersSourced && chance(rng, 85) })
}

// lacksLearner tells whether the cluster has no learner, so that an operator has to add one.
func (s *sources) lacksLearner(state cluster.State) bool {
	return s != nil && !slices.ContainsFunc(state.Members, func(m cluster.Member) bool { return !m.Votes() })
}

// keeps tells whether the operator leaves a learner without a vote. Most learners that have a source stay
// learners.
func (s *sources) keeps(m cluster.Member) bool {
	return s != nil && m.Source != "" && chance(s.rng, 80)
}

func (s *sources) start() {
	s.change()
	s.look()
}

// change makes an operator give a source to a learner, or take it away, from time to time.
func (s *sources) change() {
	s.w.sched.after(around(s.rng, sourceChangeMean), func() {
		if a := s.w.primary().agent; a != nil && !s.w.faults.ended && a.Raft.Role().Leading {
			s.ask(a)
		}
		s.change()
	})
}

func (s *sources) ask(a *agent) {
	state := a.Raft.Committed().State().State
	members := slices.DeleteFunc(slices.Clone(state.Members), cluster.Member.Votes)
	voters := slices.DeleteFunc(state.Voters(), func(id cluster.NodeID) bool { return id == a.n.id && chance(s.rng, 90) })
	if len(members) == 0 || len(voters) == 0 {
		return
	}
	m, from := members[s.rng.IntN(len(members))], s.w.node(voters[s.rng.IntN(len(voters))])
	c := &cluster.NodeChange{Name: m.Name, Source: &from.member.Name}
	switch {
	case m.Source != "" && chance(s.rng, 75): // the source stays, and gets into trouble
		if from, ok := state.SourceOf(m); ok && from.ID != a.n.id && s.w.sched.now > s.troubled && chance(s.rng, 50) {
			s.trouble(s.w.node(from.ID))
		}
		return
	case m.Source != "" && chance(s.rng, 40):
		c.Source = new("")
	case chance(s.rng, 20):
		c.SourceApplied = new(true)
	}
	change := cluster.Change{ID: fmt.Sprintf("source %v", s.w.sched.now), By: "operator", Node: c}
	a.life.Go(func() { _ = a.propose(context.Background(), "source", change) })
}

// troubleMax bounds how much longer than 3 s a source is in trouble. It is less than the time that a cluster
// gets to recover after the last fault: the source may be one of two voters, and nothing ends a stall early.
const troubleMax = 30 * time.Second

// trouble strikes the source of a learner.
func (s *sources) trouble(n *node) {
	f := fault{id: -1, target: n.id, lasts: 3*time.Second + min(around(s.rng, 9*time.Second), troubleMax), size: s.rng.IntN(100)}
	f.kind = []faultKind{killAgent, losePower, isolate, stall, stallDisk, deafen, mute}[s.rng.IntN(7)]
	s.troubled = s.w.sched.now + f.lasts
	s.w.faults.strike(f)
}

// look watches the learners that have a source.
func (s *sources) look() {
	s.w.sched.after(sourcesLook, func() {
		leader, state := s.w.primary().agent, s.w.check.state()
		for _, m := range state.Members {
			learner := s.w.node(m.ID).agent
			l, from, ok := s.fed[m.ID], cluster.Member{}, false
			if s.sound(leader, learner) && leader.Raft.Role().Leading {
				from, ok = leader.sourceOf(m.ID)
			}
			switch {
			case !ok:
				delete(s.fed, m.ID)
			case l == nil || l.leader != leader || l.learner != learner || l.term != leader.Raft.Role().Term:
				s.fed[m.ID] = &fedLearner{leader: leader, learner: learner, term: leader.Raft.Role().Term, targetAt: s.w.sched.now}
			default:
				s.alone(m, l, s.w.node(from.ID).agent)
				s.progress(m, l)
			}
		}
		s.look()
	})
}

// sourceOf returns the node that has to feed a member, as far as this agent knows.
func (a *agent) sourceOf(id cluster.NodeID) (cluster.Member, bool) {
	s := a.Raft.Committed().State().State
	m, _ := s.MemberByID(id)
	return s.SourceOf(m)
}

// sound tells whether two agents run, reach each other, and are slowed down by nothing.
func (s *sources) sound(a, b *agent) bool {
	if a == nil || b == nil || a == b || !s.w.net.sound(a.n.id, b.n.id) || a.conns[b.n.id] != b || b.conns[a.n.id] != a {
		return false
	}
	return a.well() && b.well()
}

// well tells whether an agent goes on, and nothing slows it down.
func (a *agent) well() bool {
	n, now := a.n, a.w.sched.now
	return a.departing.Because() == nil && n.stalledUntil <= now && n.pausedUntil <= now && n.disk.full == 0 && n.disk.stalledUntil <= now && n.disk.slow == 1
}

// alone checks a learner that has a source: while the source works, the leader sends the learner no stages.
func (s *sources) alone(m cluster.Member, l *fedLearner, source *agent) {
	now, pushed := s.w.sched.now, l.learner.Bulk.Stats().StagesReceived
	works := s.sound(source, l.learner) && s.sound(source, l.leader) && source.Raft.Role().Leader == l.leader.n.id &&
		source.log.FirstIndex() <= l.learner.Raft.Committed().Mark().Index+1
	for _, a := range []*agent{source, l.learner} {
		if works {
			from, ok := a.sourceOf(m.ID)
			works = ok && from.ID == source.n.id
		}
	}
	if !works || source != l.source {
		l.source, l.worksSince = nil, now
	}
	if works {
		l.source = source
	}
	switch {
	case now-l.worksSince < aloneAfter:
		l.pushed = pushed
	case pushed != l.pushed:
		s.w.fail("source", "n%d is sent a stage, though its source n%d works since %v", m.ID, source.n.id, l.worksSince)
	case now-l.worksSince < aloneAfter+sourcesLook:
		s.left++
	}
}

// sends checks a leader that sends entries to a peer: the peer must not have a source that works.
func (s *sources) sends(leader *agent, to cluster.NodeID) {
	l := s.fed[to]
	if l == nil || l.leader != leader || l.term != leader.Raft.Role().Term || l.source == nil || s.w.sched.now-l.worksSince < aloneAfter {
		return
	}
	if from, ok := leader.sourceOf(to); ok && from.ID == l.source.n.id {
		s.w.fail("source", "n%d sends n%d entries, though its source n%d works since %v", leader.n.id, to, from.ID, l.worksSince)
	}
}

// progress checks that a learner gets the committed entries, from its source or from the leader. A source that
// answers gives only what it has itself, or what its mysqld has applied.
func (s *sources) progress(m cluster.Member, l *fedLearner) {
	now, has := s.w.sched.now, l.learner.Raft.Committed().Mark().Index
	if has < l.target {
		if now-l.targetAt > caughtUpAfter {
			s.w.fail("source", "n%d has committed %d, and lacks entry %d since %v: its source %s", m.ID, has, l.target, l.targetAt, m.Source)
		}
		return
	}
	if l.lost && !l.counted {
		s.fallbacks++
	}
	l.counted = l.lost
	l.target, l.targetAt, l.lost = l.leader.Raft.Committed().Mark().Index, now, false
	from, _ := l.leader.sourceOf(m.ID)
	switch source := s.w.node(from.ID).agent; {
	case l.learner.log.LastIndex()+1 < l.leader.log.FirstIndex():
		l.target = 0 // the learner has to be rebuilt
	case source == nil || source.n.stalledUntil > now || !s.w.net.connected(source.n.id, m.ID):
		l.lost = l.target > has
	case m.SourceApplied:
		l.target = 0
	default:
		l.target = min(l.target, source.Raft.Committed().Mark().Index)
	}
}
