package following

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// heardEvery is how often a node tells the other nodes of its site what the other site was heard to have.
	// heardKeptEvery is the shortest time between two writes of that to disk.
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

// hears notes what a majority of the site that this primary follows has. asked is when the site was asked.
func (s *Service) hears(there *gtid.Set, asked time.Time) {
	f, _ := s.node.Committed()
	p, term := s.node.Serving()
	if p != nil && f != nil {
		s.learns(cluster.SiteHeard{Site: f.Site, Term: term, At: asked.UTC().Truncate(time.Millisecond), Executed: there.String()})
	}
}

// learns notes what the other site was heard to have, unless something newer is known.
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

// otherSite is the site that is followed, or from which this one has taken over; "" = there is none. It is kept after
// a takeover, so that an operator who asks for that again is told the same losses, also by a node that was not the
// primary.
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
	if s.otherSite() == "" { // most clusters have no other site
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

// RunHeard keeps what the other site was heard to have: on this node's disk and, through its status, at the other
// nodes of this site. So a primary that takes over after a disaster knows it without having heard that site itself.
// If all nodes lose their power at once, at most the last heardKeptEvery is missing, and the time in it shows that.
func (s *Service) RunHeard(ctx context.Context) error {
	c, said := clock.Machine{}, ""
	kept, err := s.node.SiteHeard()
	if err != nil {
		s.logger.Warn("cannot read which transactions the other site was heard to have: they are forgotten", "error", err)
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
			s.logger.Warn("cannot write to disk which transactions the other site was heard to have", "error", err)
		}
		said = text
	}
	for next := c.Now(); c.Wait(ctx, heardEvery, nil) == nil; {
		s.learns(kept) // before, this node may not have known which site is followed
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
