package following

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// heardEvery is how often what another site was heard to have is passed on to the other nodes of this one, heardKeptEvery the
	// shortest time between two writes of it.
	heardEvery     = 500 * time.Millisecond
	heardKeptEvery = 5 * time.Second
)

// seenBallot is the newest ballot that was seen at a site.
type seenBallot struct {
	site   string
	ballot cluster.Ballot
}

// knowsBallot notes a ballot that was seen at a site.
func (s *Service) knowsBallot(site string, b cluster.Ballot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ballot.site != site || s.ballot.ballot.Less(b) {
		s.ballot = seenBallot{site, b}
	}
}

func (s *Service) lastBallot(site string) cluster.Ballot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ballot.site != site {
		return cluster.Ballot{}
	}
	return s.ballot.ballot
}

// hears notes what a majority of the site has that this primary follows, which was asked at a time.
func (s *Service) hears(there *gtid.Set, asked time.Time) {
	f, _ := s.node.Committed()
	p, term := s.node.Serving()
	if p != nil && f != nil {
		s.learns(cluster.SiteHeard{Site: f.Site, Term: term, At: asked.UTC().Truncate(time.Millisecond), Executed: there.String()})
	}
}

// learns notes what the site was heard to have that is followed, or from which this one has taken over, unless newer is known.
func (s *Service) learns(h cluster.SiteHeard) {
	if site := s.otherSite(); site == "" || site != h.Site {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard.Site != h.Site || s.heard.Less(h) {
		s.heard = h
	}
}

// otherSite is the site that is followed, or from which this one has taken over: who asks for that a second time is told the same of what
// is lost, also by a node that was not the primary. "" = there is none.
func (s *Service) otherSite() string {
	if f, _ := s.node.Committed(); f != nil {
		return f.Site
	}
	if was := s.node.State().Site; was != nil {
		return was.Site
	}
	return ""
}

// learnsOfOthers notes what the other nodes of this site say that the other site was heard to have.
func (s *Service) learnsOfOthers() {
	if s.otherSite() == "" { // most clusters have no other one
		return
	}
	for _, n := range s.node.Nodes() {
		if n.SiteHeard != nil {
			s.learns(*n.SiteHeard)
		}
	}
}

// heardOf returns what a site was heard to have; nil = nothing is known.
func (s *Service) heardOf(site string) *cluster.SiteHeard {
	s.mu.Lock()
	defer s.mu.Unlock()
	if site == "" || s.heard.Site != site {
		return nil
	}
	h := s.heard
	return &h
}

// RunHeard keeps what the other site was heard to have: at the other nodes of this one, by this node's status, and on its disk. So the
// primary knows it that comes after a disaster and has not heard that site itself. At most heardKeptEvery is missing if all lose their
// power at once: then it says so by its time.
func (s *Service) RunHeard(ctx context.Context) error {
	c, said := clock.Machine{}, ""
	kept, err := s.node.SiteHeard()
	if err != nil {
		s.logger.Warn("what the other site was heard to have cannot be read, and is forgotten", "error", err)
	}
	s.learns(kept)
	keep := func() {
		now := s.heardOf(s.otherSite())
		if now == nil || *now == kept {
			return
		}
		text := ""
		if err := s.node.WriteSiteHeard(*now); err == nil {
			kept = *now
		} else if text = err.Error(); text != said {
			s.logger.Warn("what the other site was heard to have is not on disk", "error", err)
		}
		said = text
	}
	for next := c.Now(); c.Wait(ctx, heardEvery, nil) == nil; {
		s.learns(kept) // it may not have known before which site is followed
		s.learnsOfOthers()
		s.node.ShowHeard(s.heardOf(s.otherSite()))
		if c.Now() >= next {
			keep()
			next = c.Now() + heardKeptEvery
		}
	}
	keep()
	return nil
}
