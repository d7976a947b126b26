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
	site := ""
	if f, _ := s.node.Committed(); f != nil {
		site = f.Site
	} else if was := s.node.State().Site; was != nil {
		site = was.Site
	}
	if site == "" || site != h.Site {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard.Site != h.Site || s.heard.Less(h) {
		s.heard = h
	}
}

// lastHeard returns what the site that is followed was heard to have; nil = nothing is known.
func (s *Service) lastHeard() *cluster.SiteHeard {
	f, _ := s.node.Committed()
	if f == nil {
		return nil
	}
	return s.heardOf(f.Site)
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
		s.logger.Warn("what the other site was heard to have cannot be read, and is begun anew", "error", err)
	}
	s.learns(kept)
	keep := func() {
		now := s.lastHeard()
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
		if f, _ := s.node.Committed(); f != nil && f.Site != "" { // most clusters follow none
			for _, n := range s.node.Nodes() {
				if n.SiteHeard != nil {
					s.learns(*n.SiteHeard)
				}
			}
		}
		s.node.ShowHeard(s.lastHeard())
		if c.Now() >= next {
			keep()
			next = c.Now() + heardKeptEvery
		}
	}
	keep()
	return nil
}
