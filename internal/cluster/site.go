package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// sitesBytesMax bounds the addresses of a site's nodes.
const sitesBytesMax = 1000

// Sources are the addresses of what is followed: the nodes of a site, or a server alone.
func (f Follow) Sources() []string { return strings.Split(f.Source, ",") }

// At is what is followed at one of its addresses, counted from 0, and from the first again behind the last.
func (f Follow) At(n int) Follow {
	all := f.Sources()
	f.Source = all[n%len(all)]
	return f
}

// Back is how the site that is followed follows this one, which is named.
func (f Follow) Back(name, token string) Follow {
	return Follow{
		Source: f.Here, Here: f.Source, Site: name, Token: token,
		User: f.User, PasswordFile: f.PasswordFile, Plain: f.Plain, CAFile: f.CAFile,
	}
}

// SiteAddresses reads a list of host:port with commas between them.
func SiteAddresses(text string) error {
	if len(text) > sitesBytesMax || !printable(text) {
		return fmt.Errorf("the addresses of a site have at most %d bytes", sitesBytesMax)
	}
	all := strings.Split(text, ",")
	for _, one := range all {
		if at := strings.LastIndexByte(one, ':'); at < 1 || at == len(one)-1 {
			return fmt.Errorf("%q is not a host:port", one)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(all)))) < len(all) {
		return errors.New("an address of a site is named twice")
	}
	return nil
}

// checkSite refuses what can be no site.
func (f Follow) checkSite() error {
	if err := SiteAddresses(f.Source); err != nil {
		return fmt.Errorf("site: %w", err)
	}
	if err := SiteAddresses(f.Here); err != nil {
		return fmt.Errorf("this site's own addresses (--here): %w", err)
	}
	if len(f.Site) > followTextBytesMax || !printable(f.Site) || len(f.Token) > followTextBytesMax {
		return errors.New("too much is said of the site")
	}
	return nil
}

// OtherSite is a site that this cluster has followed, and from which it has taken over.
type OtherSite struct {
	Follow
	// Fence: it was not asked before, so it may take writes. It is told once it answers.
	Fence bool `json:"fence,omitempty"`
}

// SiteYield asks a site to close itself for writes, and to follow the site that asks.
type SiteYield struct {
	// Follow says how; its Token names the request.
	Follow Follow `json:"follow"`
	// Fence: also if it could not follow as it is asked to.
	Fence bool `json:"fence,omitempty"`
}

// SiteResume takes back a SiteYield.
type SiteResume struct {
	Token string `json:"token"`
}

// SiteLook asks a site how it is.
type SiteLook struct {
	// Stale: as far as the node knows that answers, also without a majority.
	Stale bool `json:"stale,omitempty"`
}

// SiteView is what a site says of itself.
type SiteView struct {
	// Site is its cluster's name, Node who answers.
	Site string `json:"site"`
	Node string `json:"node"`
	// Follows is the site, or the server, that it follows: then it is closed for writes. Token is that of the SiteYield.
	Follows string `json:"follows,omitempty"`
	Token   string `json:"token,omitempty"`
	// Executed and Purged are what is committed there, and what of that its log does not have any more.
	Executed string `json:"executed"`
	Purged   string `json:"purged,omitempty"`
	Version  string `json:"version"`
}

// SiteStatus is how two sites stand to each other, as one of them sees it.
type SiteStatus struct {
	Site string `json:"site"`
	Node string `json:"node"`
	FollowStatus
	// Other is the other site; nil = it is not known, or does not answer: OtherError says why.
	Other      *SiteView `json:"other,omitempty"`
	OtherError string    `json:"other_error,omitempty"`
	// Fence: the other one may take writes, as far as is known here.
	Fence bool `json:"fence,omitempty"`
}

// SiteSwitchRequest asks the site to go on in place of the site that it follows, which is closed before.
type SiteSwitchRequest struct {
	Within time.Duration `json:"within_ns"`
}

// SitePromoteRequest asks the site to go on without the site that it follows.
type SitePromoteRequest struct {
	// Yes: it is done. Otherwise it is only said what is lost.
	Yes bool `json:"yes,omitempty"`
	// Force: also if the other site answers. It is closed first.
	Force bool `json:"force,omitempty"`
}

// SitePromotion is what that means, or what became of it.
type SitePromotion struct {
	Site string `json:"site"`
	From string `json:"from"`
	Node string `json:"node"`
	Done bool   `json:"done"`
	// Closed: the other site was closed for writes before, so that what is lost is known exactly.
	Closed bool `json:"closed,omitempty"`
	// Executed is what is here.
	Executed string `json:"executed"`
	// Known is what the other site had when it was heard last, at Heard; zero = this primary has not heard it. Lost is
	// what of that is not here.
	Heard     time.Time `json:"heard,omitzero"`
	Lost      string    `json:"lost,omitempty"`
	LostCount uint64    `json:"lost_count"`
}
