package following

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// siteTimeout bounds a site's answer to another site: closing waits for commits under way.
const siteTimeout = 20 * time.Second

// ErrNoSite means that the configuration names no site, or another site than the one that is meant.
var ErrNoSite = errors.New("[site] of this node's configuration does not name it")

// access is how a site of the cluster state is reached, by the configuration. For a server, f itself says that.
func (s *Service) access(f cluster.Follow) (cluster.Follow, error) {
	if f.Site == "" {
		return f, nil
	}
	a := s.node.SiteAccess()
	if a.Site != f.Site {
		return a, fmt.Errorf("reach site %s from node %s: %w", f.Site, s.node.Own().Name, ErrNoSite)
	}
	return a, nil
}

// beforeSite refuses to follow a site that has not taken over yet, or that lacks what is here. Once that site has
// taken over, beforeSite writes it into the cluster state: from then on the other site cannot take back its request.
func (s *Service) beforeSite(ctx context.Context, p *mysqld.Process, source *Source, f cluster.Follow) error {
	view, there, err := source.lookAtSite(ctx, siteLook)
	if err != nil {
		return err
	}
	own, err := executedOf(ctx, p)
	if err != nil {
		return err
	}
	if f.Token != "" {
		if view.Follows != "" || view.Ballot.Less(f.Ballot) {
			return fmt.Errorf("this site is closed for site %s, which has not taken over", f.Site)
		}
		if _, err := s.requests.ChangeState(ctx, s.requests.ByItself(), cluster.Change{Site: &cluster.SiteChange{Step: cluster.SiteBegin, Site: f.Site, Ballot: f.Ballot}}); err != nil {
			return err
		}
		return fmt.Errorf("site %s has just taken over", f.Site) // with the new state another stretch begins
	}
	switch {
	case view.Follows == s.node.Cluster() && view.Token == "":
		return fmt.Errorf("site %s and this site follow each other: let one of them take over (quorate site promote)", f.Site)
	case view.Follows != "" && view.Follows != s.node.Cluster():
		return fmt.Errorf("site %s takes no writes: it follows %s", f.Site, view.Follows)
	}
	return s.notThere(own, there)
}

// notThere refuses transactions that only this site has, unless an operator has accepted them.
func (s *Service) notThere(own, there *gtid.Set) error {
	f, _ := s.node.Committed()
	if f == nil {
		return nil
	}
	accepted, err := gtid.ParseSet(f.Accepted)
	if err != nil {
		return fmt.Errorf("read what was accepted: %w", err)
	}
	own = own.Clone()
	own.Subtract(there)
	if own.Subtract(accepted); own.IsEmpty() {
		return nil
	}
	return &OwnError{f.Site, own}
}

// siteFollow has the cluster follow the other site, once that site was looked at.
func (s *Service) siteFollow(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SiteFollowRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	access := s.node.SiteAccess()
	c := cluster.Change{Site: &cluster.SiteChange{Step: cluster.SiteFollow, Site: access.Site}}
	d := operate.Done{What: c.String(), ReadOnly: args.Check}
	if access.Site == "" {
		return d, control.Errorf(control.CodeFailed, "nothing was done: the configuration of node %s has no [site]", s.node.Own().Name)
	}
	_, c.Judged = s.node.Committed()
	look, here, checks, err := s.checkSite(ctx, access, &c.Site.Ballot)
	if err != nil {
		return d, control.Errorf(control.CodeFailed, "nothing was done: %v", err)
	}
	checks = append(append(checks, checkFixed(look.Fixed, here.Fixed)...), checkTransactions(look, here)...)
	c.Site.Accepted = onlyHere(look, here).String()
	return s.begins(ctx, r.By, c, checks, args.Check, args.Force)
}

// checkSite looks at a site before it is followed. It sets ballot to the newest attempt that the site knows.
func (s *Service) checkSite(ctx context.Context, f cluster.Follow, ballot *cluster.Ballot) (l Look, h Here, checks []cluster.Check, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	p, _ := s.node.Serving()
	if p == nil {
		return l, h, nil, primary.ErrNoMysqld
	}
	h = Here{Version: s.node.Own().ServerVersion}
	// First: see check.
	if h.Executed, err = executedOf(ctx, p); err != nil {
		return l, h, nil, err
	}
	all := sight(ctx, f, siteLook)
	seen, err := answers(all)
	if err != nil {
		return l, h, nil, err
	}
	*ballot = seen.view.Ballot
	l = Look{Version: seen.view.Version, Executed: seen.executed}
	if l.Purged, err = gtid.ParseSet(seen.view.Purged); err == nil {
		h.Fixed, err = ownFixed(ctx, p)
	}
	if err == nil {
		l.Fixed, err = askFixed(ctx, f, seen.at)
	}
	if err != nil {
		return l, h, nil, err
	}
	add := func(subject string, state cluster.CheckState, found, do string) {
		checks = append(checks, cluster.Check{Subject: subject, State: state, Found: found, Do: do})
	}
	for _, other := range all {
		node := "node " + f.At(other.at).Source
		if other.err != nil {
			add(node, cluster.CheckWarn, other.err.Error(), "if it is gone for a while, the others are enough")
		} else {
			add(node, cluster.CheckOK, "it answers, for "+other.view.Node, "")
		}
	}
	if seen.view.Follows != "" {
		add("follows", cluster.CheckFail, "it takes no writes: it follows "+seen.view.Follows, "have it take over first: quorate site promote there")
	} else {
		add("follows", cluster.CheckOK, "nobody", "")
	}
	if newer(l.Version, h.Version) {
		add("version", cluster.CheckFail, fmt.Sprintf("MySQL %s, newer than %s here", l.Version, h.Version), "upgrade this site first")
	} else {
		add("version", cluster.CheckOK, fmt.Sprintf("MySQL %s, here %s", l.Version, h.Version), "")
	}
	return l, h, checks, nil
}

// askFixed asks the site that a node belongs to what its primary's mysqld has. An older quorate does not know this request.
func askFixed(ctx context.Context, f cluster.Follow, at int) (there Fixed, err error) {
	err = askAt(ctx, f, at, siteFixed, struct{}{}, &there)
	if e, ok := errors.AsType[*control.Error](err); ok && (e.Code == control.CodeInvalid || e.Code == control.CodeUnknown) {
		return Fixed{}, nil
	}
	return there, err
}

// siteFixedAt answers askFixed.
func (s *Service) siteFixedAt(ctx context.Context, r control.Request) (operate.Done, error) {
	d := operate.Done{ReadOnly: true}
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return d, err
	}
	p, _ := s.node.Serving()
	if p == nil {
		return d, primary.ErrNoMysqld
	}
	fixed, err := ownFixed(ctx, p)
	d.Result = fixed
	return d, err
}

// siteLooked answers with the state of this site, behind a read barrier.
func (s *Service) siteLooked(ctx context.Context, r control.Request) (operate.Done, error) {
	if err := s.requests.Barrier(ctx); err != nil {
		return operate.Done{ReadOnly: true}, control.Errorf(control.CodeNoLeader, "node %s hears no majority: %v", s.node.Own().Name, err)
	}
	return s.siteKnown(ctx, r)
}

// siteKnown answers with what this node knows of its site.
func (s *Service) siteKnown(_ context.Context, r control.Request) (operate.Done, error) {
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return operate.Done{ReadOnly: true}, err
	}
	return operate.Done{ReadOnly: true, Result: s.view()}, nil
}

func (s *Service) view() cluster.SiteView {
	v := cluster.SiteView{Site: s.node.Cluster(), Node: s.node.Own().Name, Version: s.node.Own().ServerVersion}
	// The state is read first, then the doors, then the transactions: as long as a site is closed for a token, it
	// does not get more.
	state := s.node.State()
	v.Ballot = state.SiteBallot
	if f := state.Follow; f != nil {
		v.Follows, v.Token = f.Source, f.Token
		if f.Site != "" {
			v.Follows = f.Site
		}
		if p, _ := s.node.Serving(); p != nil {
			v.Closed = s.opened() == DoorsOf(p.Admin(), f)
		}
	}
	executed, purged := s.node.GTIDs()
	v.Executed, v.Purged = executed.String(), purged.String()
	return v
}

// agreed refuses a request from any cluster but the configured site, and a request by an attempt of another cluster.
func (s *Service) agreed(site string, b cluster.Ballot) error {
	switch {
	case s.node.SiteAccess().Site != site || site == "":
		return control.Errorf(control.CodeInvalid, "nothing was done: site %q is not the site in the configuration of node %s", site, s.node.Own().Name)
	case b.Site != site:
		return control.Errorf(control.CodeInvalid, "nothing was done: site %s asks in the name of site %q", site, b.Site)
	}
	return nil
}

// siteYielded closes this site for writes, and has it follow the site that asks once that site has taken over. It
// answers with all that was acknowledged here.
func (s *Service) siteYielded(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SiteYield
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	c := cluster.Change{Site: &cluster.SiteChange{Step: cluster.SiteClose, Site: args.Site, Ballot: args.Ballot, Token: args.Token}}
	d := operate.Done{What: c.String()}
	if err := s.agreed(args.Site, args.Ballot); err != nil {
		return d, err
	}
	if err := s.couldClose(ctx); err != nil && !args.Fence {
		return d, control.Errorf(control.CodeFailed, "nothing was done at site %s: %v", s.node.Cluster(), err)
	}
	d, err := s.requests.ChangeState(ctx, r.By, c)
	if err != nil {
		return d, err
	}
	if !s.awaitDoors(ctx, func(are Doors) bool { return are.Token == args.Token && are.Writers == mysqld.Nobody }) {
		return d, control.Errorf(control.CodeUncertain, "site %s is about to close, and it is not known whether clients can still write there", s.node.Cluster())
	}
	if err := s.requests.Barrier(ctx); err != nil {
		return d, control.Errorf(control.CodeUncertain, "site %s is closed, and it is not known whether it has stayed so: %v", s.node.Cluster(), err)
	}
	view := s.view()
	if view.Token != args.Token || !view.Closed {
		return d, control.Errorf(control.CodeStale, "site %s was asked something else meanwhile", s.node.Cluster())
	}
	d.Result = view
	return d, nil
}

// couldClose refuses if it can be seen beforehand that this site could not be closed, or could not follow the other
// one.
func (s *Service) couldClose(ctx context.Context) error {
	source, err := Open(s.node.SiteAccess().At(0))
	if err != nil {
		return fmt.Errorf("it could not follow the site that takes over: %w", err)
	}
	if err := source.Close(); err != nil {
		return err
	}
	p, _ := s.node.Serving()
	if p == nil {
		return primary.ErrNoMysqld
	}
	return noPreparedXA(ctx, p.Admin())
}

// siteResumed opens this site again, if it is closed because of the request that is taken back.
func (s *Service) siteResumed(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SiteResume
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	c := cluster.SiteChange{Step: cluster.SiteOpen, Site: args.Site, Ballot: args.Ballot, Token: cluster.SealedToken(args.Token)}
	if err := s.agreed(args.Site, args.Ballot); err != nil {
		return operate.Done{What: c.String()}, err
	}
	return s.requests.ChangeState(ctx, r.By, cluster.Change{Site: &c})
}

// siteShown says how the two sites stand to each other.
func (s *Service) siteShown(ctx context.Context, r control.Request) (operate.Done, error) {
	d := operate.Done{ReadOnly: true}
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return d, err
	}
	state := s.node.State()
	st := cluster.SiteStatus{Site: s.node.Cluster(), Node: s.node.Own().Name, FollowStatus: s.get()}
	st.Follow, st.FollowStatus.Node = state.Follow, st.Node
	st.Fence, st.FenceError = state.Site != nil && state.Site.Fence, s.whyNotFenced()
	if access := s.node.SiteAccess(); access.Site != "" {
		seen, err := answers(sight(ctx, access, siteLook))
		if err != nil {
			st.OtherError = err.Error()
		} else {
			st.Other = &seen.view
		}
	}
	d.Result = st
	return d, nil
}

// siteForget has this cluster forget the site from which it has taken over.
func (s *Service) siteForget(ctx context.Context, r control.Request) (operate.Done, error) {
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return operate.Done{}, err
	}
	return s.requests.ChangeState(ctx, r.By, cluster.Change{Site: &cluster.SiteChange{Step: cluster.SiteForget}})
}
