package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// modelSite is a site in TestTwoSites: its state, and the transactions that it has.
type modelSite struct {
	name  string
	state State
	has   map[int]bool
}

func (s *modelSite) open() bool { return s.state.Follow == nil }

// takes applies a step to the state, if the state allows it.
func (s *modelSite) takes(c SiteChange) bool {
	next, err := s.state.With(Change{ID: "x", Site: &c})
	if err == nil {
		s.state = next
	}
	return err == nil
}

// modelAttempt is what a primary that attempts to take over knows. The primary may die, and its messages may
// come late, twice or never.
type modelAttempt struct {
	site    int
	ballot  Ballot
	token   string
	version uint64
	// proposed: the end of following was proposed on the basis of version. It may be committed at any time, or
	// never.
	proposed bool
}

// twoSites is a world in which everything that can be delayed may be delayed.
type twoSites struct {
	t        *testing.T
	r        *rand.Rand
	sites    [2]*modelSite
	attempts []*modelAttempt
	messages []func()
	acked    int
	takes    int
	promoted bool
}

// TestTwoSites: the two sites never both take writes unless one was promoted, whatever message is late,
// repeated or lost, and whichever primary dies. A site that takes over has everything that was acknowledged.
func TestTwoSites(t *testing.T) {
	for _, promotes := range []bool{false, true} {
		overs := 0
		for seed := range uint64(2000) {
			w := newTwoSites(t, seed)
			for range 400 {
				w.step(promotes)
				if w.sites[0].open() && w.sites[1].open() && !w.promoted {
					t.Fatalf("seed %d: both sites take writes", seed)
				}
			}
			overs += w.takes
			if promotes {
				w.finish(seed)
			}
		}
		if t.Logf("promotions %t: %d times one took over", promotes, overs); overs < 2000 {
			t.Errorf("only %d times one took over", overs)
		}
	}
}

func newTwoSites(t *testing.T, seed uint64) *twoSites {
	w := &twoSites{t: t, r: rand.New(rand.NewPCG(seed, 1))}
	for i, name := range []string{"east", "west"} {
		w.sites[i] = &modelSite{name, NewState([]Member{{ID: 1, Name: "a", Kind: KindFull, Weight: 5}}), map[int]bool{}}
	}
	w.sites[1].takes(SiteChange{Step: SiteFollow, Site: "east"})
	return w
}

func (w *twoSites) step(promotes bool) {
	i := w.r.IntN(2)
	s, other := w.sites[i], w.sites[1-i]
	switch w.r.IntN(10) {
	case 0, 1:
		if s.open() {
			w.acked++
			s.has[w.acked] = true
		}
	case 2, 3:
		w.follow(s, other)
	case 4:
		w.attempt(i)
	case 5, 6:
		w.deliver()
	case 7, 8:
		if len(w.attempts) > 0 {
			w.goOn(w.attempts[w.r.IntN(len(w.attempts))])
		}
	case 9:
		switch {
		case w.r.IntN(4) == 0 && len(w.attempts) > 0: // the primary dies, or nobody waits for the attempt
			at := w.r.IntN(len(w.attempts))
			w.attempts = append(w.attempts[:at], w.attempts[at+1:]...)
		case promotes && w.r.IntN(20) == 0:
			w.promote(s, other)
		case promotes:
			w.fence(s, other)
		}
	}
}

// follow lets a following site get some of the transactions that it lacks, or lets it begin to follow when the
// other site has taken over.
func (w *twoSites) follow(s, other *modelSite) {
	f := s.state.Follow
	switch {
	case f == nil:
	case f.Token != "":
		if other.open() && !other.state.SiteBallot.Less(f.Ballot) {
			s.takes(SiteChange{Step: SiteBegin, Site: other.name, Ballot: f.Ballot})
		}
	default:
		for n := range s.has {
			if !other.has[n] {
				return // a site with transactions that the other one lacks does not follow
			}
		}
		for n := range w.acked {
			if other.has[n+1] && w.r.IntN(2) == 0 {
				s.has[n+1] = true
			}
		}
	}
}

// attempt begins an attempt, and asks the other site to close.
func (w *twoSites) attempt(i int) {
	s, other := w.sites[i], w.sites[1-i]
	if s.open() {
		return
	}
	a := &modelAttempt{site: i, ballot: NextBallot(s.name, s.state.SiteBallot, other.state.SiteBallot), token: fmt.Sprint(w.r.Uint64())}
	if !s.takes(SiteChange{Step: SiteAttempt, Site: other.name, Ballot: a.ballot}) {
		w.t.Fatal("an attempt is refused")
	}
	a.version = s.state.Version
	w.attempts = append(w.attempts, a)
	w.send(func() {
		other.takes(SiteChange{Step: SiteClose, Site: s.name, Ballot: a.ballot, Token: SealedToken(a.token)})
	})
}

func (w *twoSites) send(m func()) { w.messages = append(w.messages, m) }

// deliver delivers some message. The same message may be delivered again.
func (w *twoSites) deliver() {
	if len(w.messages) == 0 {
		return
	}
	at := w.r.IntN(len(w.messages))
	m := w.messages[at]
	if w.r.IntN(3) > 0 {
		w.messages = append(w.messages[:at], w.messages[at+1:]...)
	}
	m()
}

// goOn lets an attempt propose to take over, if the other site is closed for it and has nothing that this site
// lacks. Or the attempt gives up.
func (w *twoSites) goOn(a *modelAttempt) {
	s, other := w.sites[a.site], w.sites[1-a.site]
	all := true
	for n := range other.has {
		all = all && s.has[n]
	}
	f := other.state.Follow
	switch {
	case a.proposed:
	case f != nil && f.Token == SealedToken(a.token) && all:
		a.proposed = true
		w.send(func() { w.takeOver(a) })
	case w.r.IntN(4) == 0 && s.state.Follow != nil && s.state.Follow.Follows(): // it is certain that the site continues to follow
		w.send(func() {
			other.takes(SiteChange{Step: SiteOpen, Site: s.name, Ballot: a.ballot, Token: SealedToken(a.token)})
		})
		a.proposed = true // this attempt proposes nothing more
	}
}

func (w *twoSites) takeOver(a *modelAttempt) {
	s, other := w.sites[a.site], w.sites[1-a.site]
	if s.state.Version != a.version || !s.takes(SiteChange{Step: SiteTakeOver, Site: other.name, Ballot: a.ballot}) {
		return
	}
	w.takes++
	for n := range w.acked {
		if !w.promoted && !s.has[n+1] {
			w.t.Fatalf("transaction %d was acknowledged, and site %s takes over without it", n+1, s.name)
		}
	}
}

// promote makes a site go on without the other one, which is not asked.
func (w *twoSites) promote(s, other *modelSite) {
	if s.takes(SiteChange{Step: SiteTakeOver, Site: other.name, Ballot: NextBallot(s.name, s.state.SiteBallot), Fence: true}) {
		w.promoted = true
	}
}

// fence makes a promoted site close the other one.
func (w *twoSites) fence(s, other *modelSite) {
	if s.state.Site == nil || !s.state.Site.Fence {
		return
	}
	if f := other.state.Follow; f != nil && f.Site == s.name && f.Token == "" && !other.state.SiteBallot.Less(s.state.SiteBallot) {
		s.takes(SiteChange{Step: SiteFenced, Site: other.name, Ballot: s.state.SiteBallot})
		return
	}
	ballot, token := s.state.SiteBallot, SealedToken(fmt.Sprint(w.r.Uint64()))
	w.send(func() {
		if other.takes(SiteChange{Step: SiteClose, Site: s.name, Ballot: ballot, Token: token}) {
			w.send(func() { s.takes(SiteChange{Step: SiteFenced, Site: other.name, Ballot: ballot}) })
		}
	})
}

// finish: when all messages have come and no attempt is left, at most one site takes writes, and both know
// which.
func (w *twoSites) finish(seed uint64) {
	w.attempts = nil
	for range 30 {
		now := w.messages
		w.messages = nil
		for _, m := range now {
			m()
		}
		for i, s := range w.sites {
			w.fence(s, w.sites[1-i])
			w.follow(s, w.sites[1-i])
		}
	}
	if w.sites[0].open() && w.sites[1].open() {
		w.t.Fatalf("seed %d: both sites take writes, for good: %+v, %+v", seed, w.sites[0].state, w.sites[1].state)
	}
	for i, s := range w.sites {
		if s.open() && s.state.Site != nil && s.state.Site.Fence {
			w.t.Fatalf("seed %d: site %s does not know that the other one is closed: %+v %+v; %+v %+v", seed, s.name, *s.state.Site, s.state.SiteBallot, w.sites[1-i].state.Follow, w.sites[1-i].state.SiteBallot)
		}
	}
}
