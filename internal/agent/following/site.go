package following

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// siteTimeout bounds a site's answer to another one: closing waits for commits under way.
	siteTimeout = 20 * time.Second
	// siteLook is the pause between two looks whether two sites have the same.
	siteLook = 20 * time.Millisecond
	// fenceEvery is how often a site is tried that was not closed when this one was promoted.
	fenceEvery = 2 * time.Second
)

// nothingOwn refuses to follow a site that lacks what is here.
func (s *Service) nothingOwn(ctx context.Context, p *mysqld.Process, source *Source, f cluster.Follow) error {
	own, err := executedOf(ctx, p)
	if err != nil {
		return err
	}
	accepted, err := gtid.ParseSet(f.Accepted)
	if err != nil {
		return fmt.Errorf("read what was accepted: %w", err)
	}
	own.Subtract(accepted)
	view, err := source.lookAtSite(ctx, cluster.SiteLook{})
	if err != nil { // what a node without a majority has is committed, too
		if view, err = source.lookAtSite(ctx, cluster.SiteLook{Stale: true}); err != nil {
			return err
		}
	}
	if view.Site != f.Site {
		return fmt.Errorf("a node of cluster %s answers at %s, not of site %s", view.Site, source.addr, f.Site)
	}
	there, err := gtid.ParseSet(view.Executed)
	if err != nil {
		return err
	}
	if own.Subtract(there); !own.IsEmpty() {
		return &OwnError{f.Site, own}
	}
	return nil
}

// checkSite looks at a site before it is followed, and notes its name in f.
func (s *Service) checkSite(ctx context.Context, f *cluster.Follow) (l Look, h Here, checks []cluster.FollowCheck, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	p, _ := s.node.Serving()
	if p == nil {
		return l, h, nil, primary.ErrNoMysqld
	}
	all := sight(ctx, *f, cluster.SiteLook{})
	seen, err := answers(all)
	if err != nil {
		return l, h, nil, err
	}
	f.Site = seen.view.Site
	l = Look{Version: seen.view.Version, Executed: seen.executed}
	h = Here{Version: s.node.Own().ServerVersion}
	if l.Purged, err = gtid.ParseSet(seen.view.Purged); err == nil {
		h.Executed, err = executedOf(ctx, p)
	}
	if err != nil {
		return l, h, nil, err
	}
	add := func(subject, state, found, do string) {
		checks = append(checks, cluster.FollowCheck{Subject: subject, State: state, Found: found, Do: do})
	}
	for _, other := range all {
		switch node := "node " + f.At(other.at).Source; {
		case other.err != nil:
			add(node, cluster.CheckWarn, other.err.Error(), "if it is gone for a while, the others are enough")
		case other.view.Site != f.Site:
			add(node, cluster.CheckFail, "it is of another cluster, "+other.view.Site, "name the nodes of one cluster")
		default:
			add(node, cluster.CheckOK, other.view.Node, "")
		}
	}
	if f.Site == s.node.Cluster() {
		add("name", cluster.CheckFail, "it has the name of this cluster, "+f.Site, "give one of the two another name, or name the other cluster's nodes")
	} else {
		add("name", cluster.CheckOK, f.Site, "")
	}
	if seen.view.Follows != "" {
		add("follows", cluster.CheckFail, "it is no primary site: it follows "+seen.view.Follows, "follow that one")
	}
	if newer(l.Version, h.Version) {
		add("version", cluster.CheckFail, fmt.Sprintf("MySQL %s, newer than %s here", l.Version, h.Version), "upgrade this site first")
	} else {
		add("version", cluster.CheckOK, fmt.Sprintf("MySQL %s, here %s", l.Version, h.Version), "")
	}
	return l, h, append(checks, judgeTransactions(l, h)...), nil
}

// siteLooked answers how this site is.
func (s *Service) siteLooked(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SiteLook
	d := operate.Done{ReadOnly: true}
	if err := operate.Arguments(r, &args); err != nil {
		return d, err
	}
	if !args.Stale {
		if err := s.requests.Node.Raft().Barrier(ctx); err != nil {
			return d, control.Errorf(control.CodeNoLeader, "node %s hears no majority: %v", s.node.Own().Name, err)
		}
	}
	d.Result = s.view()
	return d, nil
}

// view is what this node knows of its site.
func (s *Service) view() cluster.SiteView {
	v := cluster.SiteView{Site: s.node.Cluster(), Node: s.node.Own().Name, Version: s.node.Own().ServerVersion}
	// The state first: what is committed of a site that was closed is not less a moment later.
	if f, _ := s.node.Committed(); f != nil {
		v.Follows, v.Token = f.Source, f.Token
		if f.Site != "" {
			v.Follows = f.Site
		}
	}
	executed, purged := s.node.GTIDs()
	v.Executed, v.Purged = executed.String(), purged.String()
	return v
}

// siteYield closes this site for writes, and has it follow the site that asks. It answers with all that was acknowledged here.
func (s *Service) siteYield(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SiteYield
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	f := args.Follow
	d := operate.Done{What: "yield to " + f.String()}
	now, version := s.node.Committed()
	switch err := f.Check(); {
	case err != nil:
		return d, control.Errorf(control.CodeInvalid, "%v", err)
	case f.Site == "" || f.Token == "" || f.Site == s.node.Cluster():
		return d, control.Errorf(control.CodeInvalid, "site %q is not another site", f.Site)
	case now != nil && now.Site != f.Site:
		return d, control.Errorf(control.CodeFailed, "nothing was done: the cluster follows %s", now)
	}
	if source, err := Open(f.At(0)); err == nil {
		_ = source.Close()
	} else if !args.Fence {
		return d, control.Errorf(control.CodeFailed, "nothing was done: site %s could not follow back: %v", s.node.Cluster(), err)
	}
	changed, err := s.requests.ChangeState(ctx, r.By, cluster.Change{Judged: version, Follow: &cluster.FollowChange{Start: &f}})
	if err != nil {
		return d, err
	}
	d.Index = changed.Index
	if !s.awaitClients(ctx, false) {
		return d, control.Errorf(control.CodeUncertain, "site %s is about to close, and it is not known whether clients write", s.node.Cluster())
	}
	if err := s.requests.Node.Raft().Barrier(ctx); err != nil {
		return d, control.Errorf(control.CodeUncertain, "site %s is closed, and it is not known whether it has stayed so: %v", s.node.Cluster(), err)
	}
	view := s.view()
	if view.Token != f.Token {
		return d, control.Errorf(control.CodeStale, "site %s was asked something else meanwhile", s.node.Cluster())
	}
	d.Result = view
	return d, nil
}

// siteResume opens this site again, if it is closed by the request that is taken back.
func (s *Service) siteResume(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SiteResume
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	now, version := s.node.Committed()
	if now == nil || args.Token == "" || now.Token != args.Token {
		return operate.Done{What: "site resume"}, control.Errorf(control.CodeInvalid, "nothing was done: site %s is not closed by this request", s.node.Cluster())
	}
	return s.requests.ChangeState(ctx, r.By, cluster.Change{Judged: version, Follow: &cluster.FollowChange{}})
}

// siteShown says how the two sites stand to each other.
func (s *Service) siteShown(ctx context.Context, r control.Request) (operate.Done, error) {
	d := operate.Done{ReadOnly: true}
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return d, err
	}
	st := cluster.SiteStatus{Site: s.node.Cluster(), Node: s.node.Own().Name, FollowStatus: s.get()}
	st.Follow, _ = s.node.Committed()
	st.FollowStatus.Node = st.Node
	other := st.Follow
	if former := s.node.OtherSite(); former != nil {
		other, st.Fence = &former.Follow, former.Fence
	}
	if other != nil && other.Site != "" {
		seen, err := answers(sight(ctx, *other, cluster.SiteLook{}))
		if err != nil {
			st.OtherError = err.Error()
		} else {
			st.Other = &seen.view
		}
	}
	d.Result = st
	return d, nil
}

// siteSwitch has this site go on in place of the site that it follows.
func (s *Service) siteSwitch(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SiteSwitchRequest
	d := operate.Done{What: "site switch"}
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	if !s.cutting.TryLock() {
		return d, control.Errorf(control.CodeFailed, "nothing was done: a switch is under way")
	}
	defer s.cutting.Unlock()
	f, version := s.node.Committed()
	name := s.node.Own().Name
	p, _ := s.node.Serving()
	switch st := s.get(); {
	case args.Within < cluster.CutoverWithinMin || args.Within > cluster.CutoverWithinMax:
		return d, control.Errorf(control.CodeInvalid, "--within must be %s to %s", units.Duration(cluster.CutoverWithinMin), units.Duration(cluster.CutoverWithinMax))
	case f == nil || f.Site == "":
		return d, control.Errorf(control.CodeFailed, "nothing was done: this cluster follows no site; ask the site that is to take over")
	case p == nil || !st.Known || st.Error != "":
		return d, control.Errorf(control.CodeFailed, "nothing was done: node %s %s", name, st)
	case st.Left > 0 && st.Seconds > cutoverBehindMax.Seconds():
		return d, control.Errorf(control.CodeFailed, "nothing was done: node %s is %.0f s behind, at most %s may be left", name, st.Seconds, units.Duration(cutoverBehindMax))
	}
	d.What = "site switch from " + f.Site
	seen, err := answers(sight(ctx, *f, cluster.SiteLook{}))
	if err != nil {
		return d, control.Errorf(control.CodeFailed, "nothing was done: %v", err)
	}
	source, err := Open(f.At(seen.at))
	if err != nil {
		return d, control.Errorf(control.CodeFailed, "nothing was done: %v", err)
	}
	defer func() { _ = source.Close() }()
	c := siteCutover{Service: s, follow: *f, source: source, process: p, version: version, within: args.Within, token: rand.Text(), result: cluster.Cutover{Source: f.Site, Node: name}}
	d.Index, err = c.run(ctx, r.By)
	d.Result = c.result
	return d, err
}

// siteCutover is one attempt of a switch between sites.
type siteCutover struct {
	*Service
	follow  cluster.Follow
	source  *Source
	process *mysqld.Process
	// version is the cluster state's that all was judged on, token names the request to the other site.
	version uint64
	token   string
	within  time.Duration
	result  cluster.Cutover
}

// run closes the other site, and ends the following once both have the same. The other one is opened again if it comes to
// nothing; not if that is not known.
func (c *siteCutover) run(ctx context.Context, by string) (index uint64, err error) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	var view cluster.SiteView
	err = c.source.ask(limited, "site.yield", cluster.SiteYield{Follow: c.follow.Back(c.node.Cluster(), c.token)}, &view)
	if err == nil {
		index, err = c.goOn(ctx, limited, by, view)
	}
	c.result.Seconds = time.Since(began).Seconds()
	if err == nil {
		return index, nil
	}
	return 0, c.calledOff(ctx, err)
}

func (c *siteCutover) goOn(ctx, limited context.Context, by string, view cluster.SiteView) (index uint64, err error) {
	all, err := gtid.ParseSet(view.Executed)
	if err != nil {
		return 0, err
	}
	c.result.Left = c.get().Left
	for same := false; !same; {
		done, err := c.process.Admin().AppliedWithin(limited, all.String(), time.Second)
		if err == nil && done {
			same, all, err = c.same(limited)
		}
		if err == nil && !same {
			err = clock.Sleep(limited, clock.Machine{}, siteLook)
		}
		switch {
		case limited.Err() != nil:
			return 0, fmt.Errorf("the sites do not have the same within %s: node %s %s", units.Duration(c.within), c.result.Node, c.get())
		case err != nil:
			return 0, err
		}
	}
	c.result.Executed = all.String()
	return c.goesOn(ctx, by, cluster.Change{Judged: c.version, Follow: &cluster.FollowChange{Cutover: true}})
}

// same tells whether both sites have the same, and the other one is closed for this switch. there is what that one has.
func (c *siteCutover) same(ctx context.Context) (same bool, there *gtid.Set, err error) {
	view, err := c.source.lookAtSite(ctx, cluster.SiteLook{})
	if err != nil {
		return false, nil, err
	}
	if view.Site != c.follow.Site || view.Token != c.token {
		return false, nil, fmt.Errorf("site %s was opened, or asked something else meanwhile", c.follow.Site)
	}
	if there, err = gtid.ParseSet(view.Executed); err != nil {
		return false, nil, err
	}
	here, err := executedOf(ctx, c.process)
	if err != nil {
		return false, nil, err
	}
	return here.Equal(there), there, nil
}

// calledOff opens the other site again, once it is certain that this one goes on following.
func (c *siteCutover) calledOff(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*askTimeout)
	defer cancel()
	if !c.stillFollows(ctx, c.follow) {
		return control.Errorf(control.CodeUncertain, "not done: %v; and site %s STAYS CLOSED, as it is not known whether this one has taken over: see quorate site", why, c.follow.Site)
	}
	var changed cluster.ChangeResult
	if err := c.source.ask(ctx, "site.resume", cluster.SiteResume{Token: c.token}, &changed); err != nil {
		return control.Errorf(control.CodeUncertain, "called off: %v; and site %s MAY BE CLOSED: %v. Switch again, or quorate site promote there", why, c.follow.Site, err)
	}
	return control.Errorf(control.CodeFailed, "called off, site %s is open again, and this one goes on following: %v", c.follow.Site, why)
}

// sitePromote has this site go on without the site that it follows.
func (s *Service) sitePromote(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SitePromoteRequest
	d := operate.Done{What: "site promote"}
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	if !s.cutting.TryLock() {
		return d, control.Errorf(control.CodeFailed, "nothing was done: a switch is under way")
	}
	defer s.cutting.Unlock()
	f, version := s.node.Committed()
	p, _ := s.node.Serving()
	switch {
	case f == nil || f.Site == "":
		return d, control.Errorf(control.CodeFailed, "nothing was done: this cluster follows no site")
	case p == nil:
		return d, primary.ErrNoMysqld
	}
	d.What = "site promote, without " + f.Site
	known, at := s.lastHeard(f.Site)
	if known == nil {
		known = &gtid.Set{}
	}
	for _, seen := range sight(ctx, *f, cluster.SiteLook{Stale: true}) { // what nodes have that are left
		if seen.err == nil {
			known.Union(seen.executed)
			at = time.Now()
		}
	}
	result := cluster.SitePromotion{Site: s.node.Cluster(), From: f.Site, Node: s.node.Own().Name, Heard: at}
	if seen, err := answers(sight(ctx, *f, cluster.SiteLook{})); err == nil {
		if !args.Force {
			return d, control.Errorf(control.CodeFailed, "nothing was done: site %s answers, and has a majority: quorate site switch loses nothing; --force closes it, and goes on with what is here", f.Site)
		}
		known.Union(seen.executed)
		if args.Yes {
			if known, err = s.fence(ctx, *f, seen.at); err != nil {
				return d, control.Errorf(control.CodeFailed, "nothing was done here: site %s answers, and could not be closed: %v", f.Site, err)
			}
			result.Closed = true
		}
	}
	if args.Yes {
		var err error
		change := cluster.FollowChange{Cutover: true, Fence: !result.Closed}
		if d.Index, err = s.goesOn(ctx, r.By, cluster.Change{Judged: version, Follow: &change}); err != nil {
			return d, err
		}
		result.Done = true
	}
	d.ReadOnly = !args.Yes
	err := s.lost(ctx, p, &result, known)
	d.Result = result
	return d, err
}

// lost says what of the other site is not here: what it is known to have had, and what is lacking between transactions that are here.
func (s *Service) lost(ctx context.Context, p *mysqld.Process, result *cluster.SitePromotion, known *gtid.Set) error {
	here, err := executedOf(ctx, p)
	if err != nil {
		return err
	}
	result.Executed = here.String()
	known.Subtract(here)
	result.Lost, result.LostCount = known.String(), known.Count()
	return nil
}

// fence closes another site for writes, by its node of a place. It returns all that was acknowledged there.
func (s *Service) fence(ctx context.Context, f cluster.Follow, at int) (*gtid.Set, error) {
	source, err := Open(f.At(at))
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Close() }()
	ctx, cancel := context.WithTimeout(ctx, siteTimeout)
	defer cancel()
	var view cluster.SiteView
	if err := source.ask(ctx, "site.yield", cluster.SiteYield{Follow: f.Back(s.node.Cluster(), rand.Text()), Fence: true}, &view); err != nil {
		return nil, err
	}
	return gtid.ParseSet(view.Executed)
}

// RunFence closes the site for writes that did not answer when this one was promoted, once it answers.
func (s *Service) RunFence(ctx context.Context) error {
	c, said := clock.Machine{}, ""
	for c.Wait(ctx, fenceEvery, nil) == nil {
		err := s.fenceFormer(ctx)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != said && text != "" && ctx.Err() == nil {
			s.logger.Warn("the other site is not closed so far, and may take writes", "error", err)
		}
		said = text
	}
	return nil
}

func (s *Service) fenceFormer(ctx context.Context) error {
	former := s.node.OtherSite()
	if p, _ := s.node.Serving(); p == nil || former == nil || !former.Fence {
		return nil
	}
	seen, err := answers(sight(ctx, former.Follow, cluster.SiteLook{}))
	if err != nil {
		return errors.New("no node of it answers that has a majority")
	}
	if _, err := s.fence(ctx, former.Follow, seen.at); err != nil {
		return err
	}
	s.logger.Info("the other site is closed for writes", "site", former.Site)
	_, err = s.requests.ChangeState(ctx, s.requests.Records.ByItself(), cluster.Change{Follow: &cluster.FollowChange{Fenced: true}})
	return err
}
