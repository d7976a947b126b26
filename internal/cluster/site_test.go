package cluster

import (
	"strings"
	"testing"
)

// TestSites: a site is followed, yields to another one, takes over, and knows whom it has to close.
func TestSites(t *testing.T) {
	s := NewState([]Member{{ID: 1, Name: "a", Kind: KindFull, Weight: 5}})
	with := func(c FollowChange) {
		t.Helper()
		next, err := s.With(Change{ID: "x", Follow: &c})
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	east := Follow{Source: "a1:1,a2:1", Here: "b1:1", User: "site", PasswordFile: "/p", Site: "east"}
	with(FollowChange{Start: &east})
	if got := s.Follow.At(3).Source; got != "a2:1" || s.Format() != 8 {
		t.Errorf("the fourth attempt is at %s; format %d", got, s.Format())
	}
	other := Follow{Source: "c1:1", Here: "b1:1", User: "site", PasswordFile: "/p", Site: "east"}
	if _, err := s.With(Change{ID: "x", Follow: &FollowChange{Start: &other}}); err == nil || !strings.Contains(err.Error(), "end that first") {
		t.Errorf("another site is followed: %v", err)
	}
	other.Token = "t" // a request of that site: it knows where it is
	with(FollowChange{Start: &other})
	with(FollowChange{Cutover: true, Fence: true})
	if s.Follow != nil || s.Site == nil || !s.Site.Fence || s.Site.Token != "" || s.Clone().Site == s.Site || s.Format() != 8 {
		t.Errorf("after a promotion: %+v, %+v", s.Follow, s.Site)
	}
	with(FollowChange{Fenced: true})
	if s.Site.Fence {
		t.Error("the other site is to be closed again")
	}
	back := s.Site.Back("west", "u")
	if back.Source != "b1:1" || back.Here != "c1:1" || back.Site != "west" || back.Token != "u" || back.Check() != nil {
		t.Errorf("it follows back %+v: %v", back, back.Check())
	}
	for _, bad := range []string{"", "a", "a:1,", "a:1,a:1", ":1", strings.Repeat("x", sitesBytesMax) + ":1"} {
		f := east
		if f.Source = bad; f.Check() == nil {
			t.Errorf("%q is a site", bad)
		}
	}
}
