package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of the texts about another site.
const (
	sitesBytesMax = 1000 // the addresses of its nodes
	tokenBytesMax = 64
	// BallotMax bounds the number of an attempt: no site makes a greater one.
	BallotMax = 1 << 62
)

// Sources returns the addresses of what is followed: of the nodes of a site, or of the one server.
func (f Follow) Sources() []string { return strings.Split(f.Source, ",") }

// At returns f with one of its addresses. n counts from 0; after the last address comes the first again.
func (f Follow) At(n int) Follow {
	all := f.Sources()
	f.Source = all[n%len(all)]
	return f
}

// Follows tells whether this cluster is a follower: it is not closed, or it followed already before it was closed.
// Such a cluster takes no writes unless it takes over. A cluster that did not follow took writes before it was
// closed, and will do so again if the other site gives up.
func (f Follow) Follows() bool { return f.Token == "" || f.Followed }

// SiteAddresses checks a list of host:port with commas between them.
func SiteAddresses(text string) error {
	if text == "" || len(text) > sitesBytesMax || !printable(text) {
		return fmt.Errorf("the addresses of a site have 1 to %d bytes", sitesBytesMax)
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

// checkSite refuses a value that cannot be a site. How to reach the site is in each node's configuration, not
// in the state.
func (f Follow) checkSite() error {
	switch {
	case f.Source != "" || f.User != "" || f.PasswordFile != "" || f.CAFile != "" || f.Plain || f.ServerUUID != "":
		return errors.New("only the name of a site can be given: how to reach it is in [site] of each node's configuration")
	case len(f.Accepted) > FollowAcceptedBytesMax:
		return errors.New("the cluster has too many transactions that the other site lacks to record them")
	case len(f.Site) > siteBytesMax || !printable(f.Site) || len(f.Token) > tokenBytesMax || !printable(f.Token):
		return errors.New("the name or the token of the site is too long, or has characters that are not allowed")
	}
	return nil
}

// Ballot orders the attempts of two sites to take writes. No two attempts have the same one. A request with an
// older ballot is refused, so a request that was given up, or is late, changes nothing.
type Ballot struct {
	Number uint64 `json:"number"`
	// Site is the site that makes the attempt.
	Site string `json:"site"`
}

// Less tells whether b is older than o.
func (b Ballot) Less(o Ballot) bool {
	return cmp.Or(cmp.Compare(b.Number, o.Number), cmp.Compare(b.Site, o.Site)) < 0
}

// NextBallot returns a ballot for a site's next attempt, above all known ones.
func NextBallot(site string, known ...Ballot) Ballot {
	b := Ballot{Site: site}
	for _, k := range known {
		b.Number = max(b.Number, k.Number)
	}
	b.Number++
	return b
}

// SealedToken is the form of a token that a closed site is told and shows. The site is opened again with the
// token itself, which nobody can derive from this form.
func SealedToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:16])
}

// OtherSite is a site that this cluster has followed, and from which it has taken over.
type OtherSite struct {
	Site string `json:"site"`
	// Fence: the other site was not closed before, so it may take writes. It is told to close once it answers.
	Fence bool `json:"fence,omitempty"`
}

// SiteStep is a step in what this site and the other one do.
type SiteStep string

// The steps.
const (
	SiteFollow   SiteStep = "follow"    // this site follows the other one, as an operator asked; this site learns its ballot
	SiteAttempt  SiteStep = "attempt"   // this site follows, and is about to ask the other one to close
	SiteTakeOver SiteStep = "take over" // this site takes writes
	SiteFenced   SiteStep = "fenced"    // the other site, which was not closed before, is closed now
	SiteForget   SiteStep = "forget"    // the other site will not come back
	SiteClose    SiteStep = "close"     // this site closes, as the other one asked
	SiteOpen     SiteStep = "open"      // the other site has given up its request
	SiteBegin    SiteStep = "begin"     // the other site has taken over: this one follows it
)

// SiteChange is one such step.
type SiteChange struct {
	Step SiteStep `json:"step"`
	// Site is the other site, Ballot the ballot of the attempt.
	Site   string `json:"site"`
	Ballot Ballot `json:"ballot,omitzero"`
	// Token is sealed.
	Token string `json:"token,omitempty"`
	// Fence: the other site may take writes.
	Fence bool `json:"fence,omitempty"`
	// Accepted are transactions of this site that the other one lacks. An operator accepts that, and has this
	// site follow.
	Accepted string `json:"accepted,omitempty"`
}

// String says in one line what is changed.
func (c SiteChange) String() string {
	switch c.Step {
	case SiteFollow:
		return "follow site " + c.Site
	case SiteAttempt:
		return "ask site " + c.Site + " to close"
	case SiteTakeOver:
		return "take over from site " + c.Site
	case SiteFenced:
		return "site " + c.Site + " is closed"
	case SiteForget:
		return "site forget"
	case SiteClose:
		return "close for site " + c.Site
	case SiteOpen:
		return "take back what site " + c.Site + " has asked"
	}
	return "follow site " + c.Site + ", which has taken over"
}

func (c SiteChange) done() string {
	switch c.Step {
	case SiteFollow:
		return fmt.Sprintf("The cluster follows site %s. Clients cannot write until it takes over.", c.Site)
	case SiteTakeOver:
		return "The cluster has taken over: clients write here."
	case SiteForget:
		return "The other site is forgotten."
	}
	return ""
}

// olderError refuses an attempt that is older than another one.
func (s *State) olderError(c SiteChange) error {
	return fmt.Errorf("the attempt %d of site %s is older than attempt %d of site %s, which is known here", c.Ballot.Number, c.Ballot.Site, s.SiteBallot.Number, s.SiteBallot.Site)
}

func (s *State) setSite(c Change) (changed bool, err error) {
	step := *c.Site
	follows := s.Follow != nil && s.Follow.Site == step.Site
	if step.Step == SiteForget {
		changed = s.Site != nil
		s.Site = nil
		return changed, nil
	}
	if step.Site == "" || step.Ballot.Number > BallotMax || len(step.Ballot.Site) > siteBytesMax || !printable(step.Ballot.Site) {
		return false, fmt.Errorf("site %q cannot ask with attempt %d", step.Site, step.Ballot.Number)
	}
	if err := (Follow{Site: step.Site, Token: step.Token, Accepted: step.Accepted}).checkSite(); err != nil {
		return false, err
	}
	switch step.Step {
	case SiteFollow:
		if s.Site != nil && s.Site.Site != step.Site {
			return false, s.Site.error()
		}
		if s.Follow != nil && !follows {
			return false, fmt.Errorf("the cluster follows %s: end that first", s.Follow)
		}
		// The other site knows this ballot. A promotion after it has a newer one.
		if s.SiteBallot.Less(step.Ballot) {
			s.SiteBallot, changed = step.Ballot, true
		}
		if follows {
			changed = changed || s.Follow.Accepted != step.Accepted && step.Accepted != ""
			s.Follow.Accepted = cmp.Or(step.Accepted, s.Follow.Accepted)
			return changed, nil
		}
		s.Follow, s.Site = &Follow{Site: step.Site, Accepted: step.Accepted, By: c.By, Since: c.At}, nil
		return true, nil
	case SiteClose:
		return s.closeFor(c)
	case SiteOpen:
		return s.openAgain(step)
	case SiteFenced:
		changed = s.Site != nil && s.Site.Site == step.Site && s.Site.Fence && step.Ballot == s.SiteBallot
		if changed {
			s.Site.Fence = false
		}
		return changed, nil
	}
	return s.setFollower(step, follows)
}

// error refuses to follow another source while the other site may take writes.
func (o *OtherSite) error() error {
	return fmt.Errorf("this cluster has taken over from site %s, and closes it if it comes back: quorate site forget, if it never does", o.Site)
}

// setFollower makes a site that follows attempt to take over, take over, or begin to follow.
func (s *State) setFollower(step SiteChange, follows bool) (changed bool, err error) {
	switch {
	case !follows:
		return false, fmt.Errorf("the cluster does not follow site %s", step.Site)
	case step.Step == SiteBegin:
		if s.Follow.Token == "" || s.Follow.Ballot != step.Ballot {
			return false, nil
		}
		s.Follow.Token = ""
		return true, nil
	case step.Ballot.Less(s.SiteBallot):
		return false, s.olderError(step)
	case step.Step == SiteAttempt:
		changed = step.Ballot != s.SiteBallot
		s.SiteBallot = step.Ballot
		return changed, nil
	case step.Step == SiteTakeOver:
		s.Follow, s.Site, s.SiteBallot = nil, &OtherSite{step.Site, step.Fence}, step.Ballot
		return true, nil
	}
	return false, fmt.Errorf("%q is no step", step.Step)
}

// closeFor closes this site for an attempt of the other one: nobody writes here until that site has taken over,
// or has given up.
func (s *State) closeFor(c Change) (changed bool, err error) {
	step := *c.Site
	switch {
	case s.Follow != nil && s.Follow.Site != step.Site:
		return false, fmt.Errorf("the cluster follows %s", s.Follow)
	case step.Token == "":
		return false, errors.New("the request has no token")
	case step.Ballot.Less(s.SiteBallot) || step.Ballot == s.SiteBallot && s.Follow == nil:
		return false, s.olderError(step)
	}
	next := Follow{Site: step.Site, Token: step.Token, Ballot: step.Ballot, By: c.By, Since: c.At}
	// If the other site gives up, this site is opened only for its agent, which follows.
	if s.Follow != nil {
		next.Followed, next.Accepted = s.Follow.Follows(), s.Follow.Accepted
	}
	s.Follow, s.Site, s.SiteBallot = &next, nil, step.Ballot
	return true, nil
}

// openAgain undoes closeFor. If the request has not come yet, it will be refused.
func (s *State) openAgain(step SiteChange) (changed bool, err error) {
	switch {
	case s.Follow != nil && s.Follow.Site == step.Site && s.Follow.Token != "" && s.Follow.Token == step.Token:
		if s.Follow.Followed {
			s.Follow.Token = ""
			return true, nil
		}
		s.Follow = nil
		return true, nil
	case s.Follow != nil:
		return false, errors.New("the cluster is not closed by this request")
	case s.SiteBallot.Less(step.Ballot):
		s.SiteBallot = step.Ballot
		return true, nil
	}
	return false, nil
}

// SiteYield asks a site to close itself for writes, and to follow the asking site once that has taken over.
type SiteYield struct {
	// Site is the site that asks, with Ballot. Token is sealed.
	Site   string `json:"site"`
	Ballot Ballot `json:"ballot"`
	Token  string `json:"token"`
	// Fence: close even if the site could not follow.
	Fence bool `json:"fence,omitempty"`
}

// String says in one line what is asked.
func (y SiteYield) String() string { return SiteChange{Step: SiteClose, Site: y.Site}.String() }

// SiteResume withdraws a SiteYield. Token is not sealed.
type SiteResume struct {
	Site   string `json:"site"`
	Ballot Ballot `json:"ballot"`
	Token  string `json:"token"`
}

// String says in one line what is asked.
func (y SiteResume) String() string { return SiteChange{Step: SiteOpen, Site: y.Site}.String() }

// SiteView is what a site says of itself.
type SiteView struct {
	// Site is the name of its cluster, Node the node that answers.
	Site string `json:"site"`
	Node string `json:"node"`
	// Follows is the site or server that it follows: then clients do not write to it. Token is the sealed token
	// of the SiteYield by which it is closed; "" = it is not closed, or follows already. Closed: its mysqld was
	// told so. With a Token nobody writes there, without one only the agent that follows.
	Follows string `json:"follows,omitempty"`
	Token   string `json:"token,omitempty"`
	Closed  bool   `json:"closed,omitempty"`
	// Ballot is the newest ballot that is known there.
	Ballot Ballot `json:"ballot"`
	// Executed is what is committed there. Purged is the part of it that its log does not have any more.
	Executed string `json:"executed"`
	Purged   string `json:"purged,omitempty"`
	Version  string `json:"version"`
}

// SiteHeard is what another site had when a primary of this site heard a majority of it.
type SiteHeard struct {
	Site string `json:"site"`
	// Term is the term of that primary, At the time by its clock.
	Term     uint64    `json:"term"`
	At       time.Time `json:"at"`
	Executed string    `json:"executed"`
}

// Less tells whether h is older than o. Times of different primaries are not compared: their clocks may differ.
func (h SiteHeard) Less(o SiteHeard) bool {
	return cmp.Or(cmp.Compare(h.Term, o.Term), h.At.Compare(o.At)) < 0
}

// SiteStatus is the relation of two sites, as one of them sees it.
type SiteStatus struct {
	Site string `json:"site"`
	Node string `json:"node"`
	FollowStatus
	// Other is the other site; nil = it is not known, or does not answer; OtherError says why.
	Other      *SiteView `json:"other,omitempty"`
	OtherError string    `json:"other_error,omitempty"`
	// Fence: the other site may take writes, as far as this site knows. FenceError is why it could not be
	// closed yet.
	Fence      bool   `json:"fence,omitempty"`
	FenceError string `json:"fence_error,omitempty"`
}

// SiteFollowRequest asks the cluster to follow the other site of its configuration.
type SiteFollowRequest struct {
	// Check: only check whether that is possible.
	Check bool `json:"check,omitempty"`
	// Force: follow even if the cluster has transactions that the other site lacks; these are recorded as
	// accepted.
	Force bool `json:"force,omitempty"`
}

// SiteWithinMax bounds how long writes may be stopped when sites are switched.
const SiteWithinMax = time.Minute

// SiteSwitchRequest asks the site to replace the site that it follows, which is closed first.
type SiteSwitchRequest struct {
	Within time.Duration `json:"within_ns"`
	// Force: switch even if the MySQL here is of a later series, so that the other site may not be able to follow.
	Force bool `json:"force,omitempty"`
}

// SitePromoteRequest asks the site to go on without the site that it follows.
type SitePromoteRequest struct {
	// Yes: do it. Otherwise the answer only says what would be lost.
	Yes bool `json:"yes,omitempty"`
	// Force: promote even if the other site answers. The other site is closed first.
	Force bool `json:"force,omitempty"`
}

// SitePromotion is what a promotion would mean, or its result.
type SitePromotion struct {
	Site string `json:"site"`
	From string `json:"from"`
	Node string `json:"node"`
	Done bool   `json:"done"`
	// Already: this site had taken over before the request. Fence: the other site is not closed yet.
	Already bool `json:"already,omitempty"`
	Fence   bool `json:"fence,omitempty"`
	// Closed: the other site was closed for writes first, so it is known exactly what is lost.
	Closed bool `json:"closed,omitempty"`
	// Executed is the set of transactions that this site has.
	Executed string `json:"executed"`
	// Unheard is why the other site did not answer with a majority.
	Unheard string `json:"unheard,omitempty"`
	// Heard is when a majority of the other site was heard last, by the clock of the primary that heard it;
	// zero = this node knows of no such time. Lost are the transactions that are known to be there, even by
	// nodes without a majority, and are not here.
	Heard     time.Time `json:"heard,omitzero"`
	Lost      string    `json:"lost,omitempty"`
	LostCount uint64    `json:"lost_count"`
}
