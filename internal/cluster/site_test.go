package cluster

import (
	"strings"
	"testing"
)

// sited is a cluster on which the tests try the steps of a site.
type sited struct {
	t *testing.T
	State
}

// takes applies a step to the state. refused is a part of the expected refusal, "" if the step is allowed.
func (s *sited) takes(c SiteChange, refused string) {
	s.t.Helper()
	next, err := s.With(Change{ID: "x", By: "ann", Site: &c})
	switch {
	case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
		s.t.Errorf("%s: %v, want %q", c, err, refused)
	case refused == "" && err != nil:
		s.t.Errorf("%s: %v", c, err)
	case err == nil:
		s.State = next
	}
}

func newSited(t *testing.T) *sited {
	return &sited{t, NewState([]Member{{ID: 1, Name: "a", Kind: KindFull, Weight: 5}})}
}

// ballot makes the ballot of an attempt of east or west.
func ballot(number uint64, site string) Ballot { return Ballot{number, site} }

// TestSiteTakesOver: a site follows, attempts, takes over, and knows which site it has to close.
func TestSiteTakesOver(t *testing.T) {
	s := newSited(t)
	s.takes(SiteChange{Step: SiteTakeOver, Site: "east", Ballot: ballot(1, "west")}, "does not follow")
	s.takes(SiteChange{Step: SiteFollow, Site: "east"}, "")
	if s.Format() != 8 || s.Follow.Site != "east" || s.Follow.By != "ann" {
		t.Errorf("it follows %+v, format %d", s.Follow, s.Format())
	}
	s.takes(SiteChange{Step: SiteFollow, Site: "north"}, "end that first")
	s.takes(SiteChange{Step: SiteAttempt, Site: "east", Ballot: ballot(4, "west")}, "")
	s.takes(SiteChange{Step: SiteTakeOver, Site: "east", Ballot: ballot(3, "west")}, "older")
	if _, err := s.With(Change{ID: "x", Follow: &FollowChange{}}); err == nil || !strings.Contains(err.Error(), "quorate site switch") {
		t.Errorf("following ends without a promotion: %v", err)
	}
	s.takes(SiteChange{Step: SiteTakeOver, Site: "east", Ballot: ballot(5, "west"), Fence: true}, "")
	if s.Follow != nil || s.Site == nil || !s.Site.Fence || s.Clone().Site == s.Site || s.SiteBallot != ballot(5, "west") {
		t.Errorf("after a promotion: %+v, %+v, %v", s.Follow, s.Site, s.SiteBallot)
	}
	source := Follow{Source: "c1:1", User: "u", PasswordFile: "/p"}
	if _, err := s.With(Change{ID: "x", Follow: &FollowChange{Start: &source}}); err == nil || !strings.Contains(err.Error(), "site forget") {
		t.Errorf("whom it has to close is forgotten: %v", err)
	}
	s.takes(SiteChange{Step: SiteFollow, Site: "north"}, "site forget")
	s.takes(SiteChange{Step: SiteFenced, Site: "north"}, "so already")
	s.takes(SiteChange{Step: SiteFenced, Site: "east", Ballot: ballot(4, "west")}, "so already") // of an earlier promotion
	s.takes(SiteChange{Step: SiteFenced, Site: "east", Ballot: ballot(5, "west")}, "")
	if s.Site.Fence {
		t.Error("the other site is to be closed again")
	}
	s.takes(SiteChange{Step: SiteForget}, "")
	if s.Site != nil || s.Format() != 8 {
		t.Errorf("it still knows %+v, format %d", s.Site, s.Format())
	}
}

// TestSiteCloses: only the newest attempt closes a site, and only that attempt's token opens it again. A late
// request changes nothing.
func TestSiteCloses(t *testing.T) {
	s := newSited(t)
	yield := func(b Ballot, token string) SiteChange {
		return SiteChange{Step: SiteClose, Site: "west", Ballot: b, Token: SealedToken(token)}
	}
	resume := func(b Ballot, token string) SiteChange {
		return SiteChange{Step: SiteOpen, Site: "west", Ballot: b, Token: SealedToken(token)}
	}
	s.takes(yield(ballot(1, "west"), "one"), "")
	s.takes(resume(ballot(1, "west"), "other"), "not closed by this request")
	s.takes(yield(ballot(2, "west"), "two"), "")
	s.takes(resume(ballot(1, "west"), "one"), "not closed by this request")
	s.takes(yield(ballot(1, "west"), "one"), "older")
	s.takes(resume(ballot(2, "west"), "two"), "")
	if s.Follow != nil {
		t.Fatalf("after it was taken back it follows %+v", s.Follow)
	}
	s.takes(yield(ballot(2, "west"), "two"), "older") // late
	// The request comes after its own end: the end came first, so the request is refused.
	s.takes(resume(ballot(3, "west"), "three"), "")
	s.takes(yield(ballot(3, "west"), "three"), "older")
	s.takes(yield(ballot(4, "west"), "four"), "")
	s.takes(SiteChange{Step: SiteBegin, Site: "west", Ballot: ballot(3, "west")}, "so already")
	s.takes(SiteChange{Step: SiteBegin, Site: "west", Ballot: ballot(4, "west")}, "")
	s.takes(resume(ballot(4, "west"), "four"), "not closed by this request") // the site has taken over
	// A site that already follows and is closed for an attempt follows again afterwards.
	s.takes(yield(ballot(5, "west"), "five"), "")
	s.takes(yield(ballot(6, "west"), "six"), "")
	s.takes(resume(ballot(6, "west"), "six"), "")
	if s.Follow == nil || s.Follow.Token != "" {
		t.Errorf("a site that follows was opened: %+v", s.Follow)
	}
	s.takes(SiteChange{Step: SiteClose, Site: "north", Ballot: ballot(9, "north"), Token: "x"}, "the cluster follows site west")
}

// TestBothPromoted: if both sites were promoted, only one of them may close the other.
func TestBothPromoted(t *testing.T) {
	east, west := newSited(t), newSited(t)
	west.takes(SiteChange{Step: SiteFollow, Site: "east"}, "")
	first := NextBallot("west", west.SiteBallot)
	west.takes(SiteChange{Step: SiteAttempt, Site: "east", Ballot: first}, "")
	east.takes(SiteChange{Step: SiteClose, Site: "west", Ballot: first, Token: "t"}, "")
	e, w := NextBallot("east", east.SiteBallot), NextBallot("west", west.SiteBallot)
	east.takes(SiteChange{Step: SiteTakeOver, Site: "west", Ballot: e, Fence: true}, "")
	west.takes(SiteChange{Step: SiteTakeOver, Site: "east", Ballot: w, Fence: true}, "")
	west.takes(SiteChange{Step: SiteClose, Site: "east", Ballot: e, Token: "e"}, "older")
	east.takes(SiteChange{Step: SiteClose, Site: "west", Ballot: w, Token: "w"}, "")
}

// TestSiteAddresses: a text that is no list of addresses is refused.
func TestSiteAddresses(t *testing.T) {
	for _, bad := range []string{"", "a", "a:1,", "a:1,a:1", ":1", strings.Repeat("x", sitesBytesMax) + ":1"} {
		if SiteAddresses(bad) == nil {
			t.Errorf("%q are a site's", bad)
		}
	}
	f := Follow{Source: "a1:1,a2:1"}
	if err := SiteAddresses(f.Source); err != nil || f.At(3).Source != "a2:1" {
		t.Errorf("the fourth attempt is at %s: %v", f.At(3).Source, err)
	}
}
