package following

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

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
	// siteLookEvery is the pause between two looks whether two sites have the same transactions.
	siteLookEvery = 20 * time.Millisecond
	// knownWithin is how long a switch waits until it is known how far this site follows.
	knownWithin = 10 * time.Second
	// calledOffTimeout bounds the time in which an attempt is called off.
	calledOffTimeout = 15 * time.Second
	// fenceEvery is how often RunFence tries to close a site that was not closed when this one was promoted.
	fenceEvery = 2 * time.Second
	// fenceSeldom is how many of these intervals pass between two looks at a site that was closed.
	fenceSeldom = 10
)

// takeover is one attempt to take over from the site that is followed. That site is closed first.
type takeover struct {
	*Service
	follow cluster.Follow
	// access is how the other site is reached, at is the place of its node that has answered.
	access cluster.Follow
	at     int
	// ballot names the attempt, token opens that site again.
	ballot  cluster.Ballot
	token   string
	process *mysqld.Process
	// version is the version of the cluster state on which all was judged.
	version uint64
	by      string
	// proposed: the end of following was proposed. It may be committed at any time, whatever the answer was.
	proposed bool
}

// attempt begins a takeover, through a node of the other site that has answered: from then on no older attempt counts.
func (s *Service) attempt(ctx context.Context, by string, f cluster.Follow, version uint64, p *mysqld.Process, seen sighting) (*takeover, error) {
	access, err := s.access(f)
	if err != nil {
		return nil, err
	}
	t := takeover{
		Service: s, follow: f, process: p, by: by, token: rand.Text(), access: access, at: seen.at,
		ballot: cluster.NextBallot(s.node.Cluster(), s.node.State().SiteBallot, seen.view.Ballot),
	}
	d, err := s.requests.ChangeState(ctx, by, cluster.Change{Judged: version, Site: &cluster.SiteChange{Step: cluster.SiteAttempt, Site: f.Site, Ballot: t.ballot}})
	if err != nil {
		return nil, err
	}
	t.version = d.Result.(cluster.ChangeResult).Version
	return &t, nil
}

// yield has the other site close. It returns all that was acknowledged there.
func (t *takeover) yield(ctx context.Context, fence bool) (*gtid.Set, error) {
	var view cluster.SiteView
	args := cluster.SiteYield{Site: t.node.Cluster(), Ballot: t.ballot, Token: cluster.SealedToken(t.token), Fence: fence}
	if err := askAt(ctx, t.access, t.at, siteYield, args, &view); err != nil {
		return nil, err
	}
	return gtid.ParseSet(view.Executed)
}

// finish ends the following, and waits until clients can write.
func (t *takeover) finish(ctx context.Context) (index uint64, err error) {
	t.proposed = true
	return t.goesOn(ctx, t.by, cluster.Change{Judged: t.version, Site: &cluster.SiteChange{Step: cluster.SiteTakeOver, Site: t.follow.Site, Ballot: t.ballot}})
}

// stillFollows tells whether it is certain that the cluster has not taken over.
func (s *Service) stillFollows(ctx context.Context, f cluster.Follow) bool {
	if err := s.requests.Barrier(ctx); err != nil {
		return false
	}
	now, _ := s.node.Committed()
	return now != nil && *now == f
}

// calledOff opens the other site again, once it is certain that this one goes on following. why is why the attempt
// came to nothing.
func (t *takeover) calledOff(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), calledOffTimeout)
	defer cancel()
	e, ok := errors.AsType[*control.Error](why)
	if uncertain := ok && e.Code == control.CodeUncertain; t.proposed && uncertain || !t.stillFollows(ctx, t.follow) {
		return control.Errorf(control.CodeUncertain, "not done: %v; and site %s STAYS CLOSED, as it is not known whether this one has taken over: see quorate site", why, t.follow.Site)
	}
	if !t.follow.Follows() { // this site may be opened again, too: if each site opened the other, both would take writes
		return control.Errorf(control.CodeFailed, "not done: %v; and both sites stay closed: switch once more, at the site that is to take writes", why)
	}
	if err := t.resume(ctx); err != nil {
		return control.Errorf(control.CodeUncertain, "called off: %v; and site %s MAY BE CLOSED: %v. Switch once more, here or there", why, t.follow.Site, err)
	}
	return control.Errorf(control.CodeFailed, "called off, site %s is as before, and this one goes on following: %v", t.follow.Site, why)
}

// resume asks the nodes of the other site, one after the other, to open it again, for as long as ctx lets it.
func (t *takeover) resume(ctx context.Context) (err error) {
	args := cluster.SiteResume{Site: t.node.Cluster(), Ballot: t.ballot, Token: t.token}
	for n := 0; ctx.Err() == nil; n++ {
		limited, cancel := context.WithTimeout(ctx, askTimeout)
		var changed cluster.ChangeResult
		err = askAt(limited, t.access, n, siteResume, args, &changed)
		cancel()
		if e, ok := errors.AsType[*control.Error](err); err == nil || ok && e.Code == control.CodeInvalid {
			return err
		}
		if clock.Sleep(ctx, clock.Machine{}, conflictPause) != nil {
			break
		}
	}
	return err
}

// same waits until this site has all that the other site has, and nothing else. The other site is closed for this
// attempt. A node there that dies, or a new primary, only costs time.
func (t *takeover) same(ctx context.Context, all *gtid.Set) (*gtid.Set, error) {
	var last error
	for n := 0; ; n++ {
		done, err := t.process.Admin().AppliedWithin(ctx, all.String(), time.Second)
		if err == nil && done {
			var same bool
			if all, same, err = t.compare(ctx, n, all); err == nil && same {
				return all, nil
			}
		}
		if fatal := (*lostError)(nil); errors.As(err, &fatal) {
			return nil, err
		}
		if ctx.Err() == nil {
			last = err
		}
		if clock.Sleep(ctx, clock.Machine{}, siteLookEvery) != nil {
			err := fmt.Errorf("the sites do not have the same transactions in time: node %s %s", t.node.Own().Name, t.get())
			if last != nil {
				err = fmt.Errorf("%w; at last: %w", err, last)
			}
			return nil, err
		}
	}
}

// lostError ends an attempt: looking again does not help.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// compare asks node n of the other site, and tells whether this site has the same transactions. It returns those of
// the other site. Its error is a *lostError if the other site is not closed for this attempt, or if this site has
// more.
func (t *takeover) compare(ctx context.Context, n int, known *gtid.Set) (there *gtid.Set, same bool, err error) {
	seen := sightAt(ctx, t.access, n, siteLook)
	if seen.err != nil {
		return known, false, seen.err
	}
	if there = seen.executed; seen.view.Token != cluster.SealedToken(t.token) {
		return known, false, &lostError{fmt.Errorf("site %s was opened, or asked something else meanwhile", t.follow.Site)}
	}
	here, err := executedOf(ctx, t.process)
	if err != nil {
		return known, false, err
	}
	// A site that took writes before may have more: the other site gets that.
	if t.follow.Follows() {
		if err := t.notThere(here, there); err != nil {
			return known, false, &lostError{err}
		}
	}
	lacks := there.Clone()
	lacks.Subtract(here)
	return there, seen.view.Closed && lacks.IsEmpty(), nil
}

// siteSwitch has this site go on in place of the site that it follows.
func (s *Service) siteSwitch(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SiteSwitchRequest
	d := operate.Done{What: "site switch"}
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	if !s.cutsAlone(ctx) {
		return d, control.Errorf(control.CodeFailed, "nothing was done: a switch is under way")
	}
	defer s.cutting.Unlock()
	was, err := s.tookOver(ctx)
	if err != nil {
		return d, err
	}
	f, version := s.node.Committed()
	name := s.node.Own().Name
	p, _ := s.node.Serving()
	st := s.get()
	if f != nil && f.Follows() && p != nil {
		st = s.known(ctx)
	}
	switch {
	case args.Within < cluster.CutoverWithinMin || args.Within > cluster.SiteWithinMax:
		return d, control.Errorf(control.CodeInvalid, "--within must be %s to %s", units.Duration(cluster.CutoverWithinMin), units.Duration(cluster.SiteWithinMax))
	case was != nil && was.Fence:
		return d, control.Errorf(control.CodeFailed, "nothing was done: this site was promoted, and takes writes; site %s is not closed yet: see quorate site", was.Site)
	case was != nil:
		return s.doneBefore(ctx, d, "this site has taken over from site "+was.Site, cluster.Cutover{Source: was.Site})
	case f == nil || f.Site == "":
		return d, control.Errorf(control.CodeFailed, "nothing was done: this cluster follows no site; ask the site that is to take over")
	case !f.Follows() && p != nil: // both sites are closed, this one for a switch that did not end
	case p == nil || !st.Known || st.Error != "":
		return d, control.Errorf(control.CodeFailed, "nothing was done: node %s %s", name, st)
	case st.Left > 0 && st.Seconds > cutoverBehindMax.Seconds():
		return d, control.Errorf(control.CodeFailed, "nothing was done: node %s is %.0f s behind, at most %s may be left", name, st.Seconds, units.Duration(cutoverBehindMax))
	}
	d.What = "site switch from " + f.Site
	seen, err := s.majorityOf(ctx, *f)
	if err != nil {
		return d, control.Errorf(control.CodeFailed, "nothing was done: %v", err)
	}
	// Where both are closed nobody takes writes: the switch has to end.
	if own := s.node.Own().ServerVersion; f.Follows() && newer(own, seen.view.Version) && !args.Force {
		return d, control.Errorf(control.CodeFailed, "nothing was done: this site has MySQL %s, and site %s, which would follow it, only %s: upgrade that site first; --force switches all the same", own, f.Site, seen.view.Version)
	}
	t, err := s.attempt(ctx, r.By, *f, version, p, seen)
	if err != nil {
		return d, err
	}
	result := cluster.Cutover{Source: f.Site, Node: name, Left: s.get().Left}
	began := time.Now()
	d.Index, result.Executed, err = t.inOrder(ctx, args.Within)
	if result.Seconds = time.Since(began).Seconds(); err != nil {
		return d, t.calledOff(ctx, err)
	}
	d.Result = result
	return d, nil
}

// known returns how this site follows. A primary that has just begun does not know that yet, so known waits.
func (s *Service) known(ctx context.Context) cluster.FollowStatus {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	for {
		if st := s.get(); st.Known || st.Error != "" || clock.Sleep(ctx, clock.Machine{}, siteLookEvery) != nil {
			return st
		}
	}
}

// inOrder takes over once both sites have the same transactions, within a time.
func (t *takeover) inOrder(ctx context.Context, within time.Duration) (index uint64, executed string, err error) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	all, err := t.yield(limited, false)
	if err == nil {
		all, err = t.same(limited, all)
	}
	if err != nil {
		return 0, "", err
	}
	index, err = t.finish(ctx)
	return index, all.String(), err
}

// sitePromote has this site go on without the site that it follows.
func (s *Service) sitePromote(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.SitePromoteRequest
	d := operate.Done{What: "site promote"}
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	if !s.cutsAlone(ctx) {
		return d, control.Errorf(control.CodeFailed, "nothing was done: a switch is under way")
	}
	defer s.cutting.Unlock()
	was, err := s.tookOver(ctx)
	if err != nil {
		return d, err
	}
	f, version := s.node.Committed()
	p, _ := s.node.Serving()
	switch {
	case was != nil && p != nil:
		return s.promotedBefore(ctx, d, p, *was)
	case was != nil:
		return d, primary.ErrNoMysqld
	case f == nil || f.Site == "":
		return d, control.Errorf(control.CodeFailed, "nothing was done: this cluster follows no site")
	case p == nil:
		return d, primary.ErrNoMysqld
	}
	d.What, d.ReadOnly = "site promote, without "+f.Site, !args.Yes
	var known *gtid.Set
	var result cluster.SitePromotion
	var asking sync.WaitGroup // both questions at once: a node that is gone costs askTimeout for each
	asking.Go(func() { known, result = s.knownOf(ctx, *f) })
	seen, err := s.majorityOf(ctx, *f)
	asking.Wait()
	if err == nil {
		known.Union(seen.executed)
		err = control.Errorf(control.CodeFailed, "nothing was done: site %s answers, and has a majority: quorate site switch loses nothing; --force closes it, and goes on with what is here", f.Site)
	} else if result.Unheard = err.Error(); silent(err) {
		err = nil
	} else {
		err = control.Errorf(control.CodeFailed, "nothing was done: it is not known whether site %s is there: %v; --force goes on all the same", f.Site, err)
	}
	if err != nil && !args.Force {
		return d, err
	}
	if args.Yes {
		if d.Index, err = s.promote(ctx, r.By, *f, version, p, seen, &result, known); err != nil {
			return d, err
		}
	}
	return d, s.tellLost(ctx, p, &d, result, known)
}

// tookOver is the site from which this one has taken over, behind a read barrier; nil = this one follows, or has not
// taken over.
func (s *Service) tookOver(ctx context.Context) (*cluster.OtherSite, error) {
	if f, _ := s.node.Committed(); f != nil || s.node.State().Site == nil {
		return nil, nil
	}
	if err := s.barrier(ctx); err != nil {
		return nil, err
	}
	if f, _ := s.node.Committed(); f != nil {
		return nil, nil
	}
	return s.node.State().Site, nil
}

// barrier returns once this node knows all that was committed before: another node may be the primary now.
func (s *Service) barrier(ctx context.Context) error {
	if err := s.requests.Barrier(ctx); err != nil {
		return control.Errorf(control.CodeNoLeader, "nothing was done: node %s hears no majority: %v", s.node.Own().Name, err)
	}
	return nil
}

// promotedBefore answers if this site has already taken over: the operator may have had no answer, and asks again.
func (s *Service) promotedBefore(ctx context.Context, d operate.Done, p *mysqld.Process, was cluster.OtherSite) (operate.Done, error) {
	d.ReadOnly = true
	known, result := s.knownOf(ctx, cluster.Follow{Site: was.Site})
	result.Done, result.Already, result.Fence = true, true, was.Fence
	return d, s.tellLost(ctx, p, &d, result, known)
}

// tellLost has the result of a promotion name the known transactions that are not here.
func (s *Service) tellLost(ctx context.Context, p *mysqld.Process, d *operate.Done, result cluster.SitePromotion, known *gtid.Set) error {
	here, err := executedOf(ctx, p)
	if err != nil && result.Done {
		return control.Errorf(control.CodeUncertain, "site %s has taken over, and what is lost is not known: %v", result.Site, err)
	} else if err != nil {
		return err
	}
	own := map[gtid.UUID]bool{}
	for _, n := range append(s.node.Nodes(), s.node.Own()) {
		if uuid, err := gtid.ParseUUID(n.ServerUUID); err == nil {
			own[uuid] = true
		}
	}
	known.Union(holes(here, known, own))
	known.Subtract(here)
	result.Executed, result.Lost, result.LostCount = here.String(), known.String(), known.Count()
	d.Result = result
	return nil
}

// holes returns what the other site has had beyond what is known, because something later of the same server is here:
// it sends committed transactions alone, in the order of its log. A hole among what is known is not lost: the other
// site has it, too. Nothing is said of a server of which nothing is known: its holes may be as old as the data. own
// are this site's servers: what they write now, they commit in any order.
func holes(here, known *gtid.Set, own map[gtid.UUID]bool) *gtid.Set {
	lost, ends := &gtid.Set{}, map[gtid.Source]uint64{}
	for source, interval := range known.Intervals() {
		ends[source] = interval.End
	}
	for source, interval := range here.Intervals() {
		end, ok := ends[source]
		if !ok || own[source.UUID] || interval.End <= end {
			continue
		}
		if interval.Start > end+1 {
			_ = lost.AddInterval(source.UUID, source.Tag, end+1, interval.Start-1) // it is within a valid set
		}
		ends[source] = interval.End
	}
	return lost
}

// promote takes over: from a site that answers (seen) once that is closed, else without it. It adds what was
// acknowledged there to known.
func (s *Service) promote(ctx context.Context, by string, f cluster.Follow, version uint64, p *mysqld.Process, seen sighting, result *cluster.SitePromotion, known *gtid.Set) (index uint64, err error) {
	if seen.executed != nil {
		all, index, err := s.promoteOver(ctx, by, f, version, p, seen)
		if err == nil {
			known.Union(all)
			result.Closed, result.Done = true, true
		}
		return index, err
	}
	c := cluster.SiteChange{Step: cluster.SiteTakeOver, Site: f.Site, Ballot: cluster.NextBallot(s.node.Cluster(), s.node.State().SiteBallot, s.lastBallot(f.Site)), Fence: true}
	index, err = s.goesOn(ctx, by, cluster.Change{Judged: version, Site: &c})
	result.Done = err == nil
	return index, err
}

// majorityOf returns the answer of a node of a site that has a majority.
func (s *Service) majorityOf(ctx context.Context, f cluster.Follow) (sighting, error) {
	access, err := s.access(f)
	if err != nil {
		return sighting{}, err
	}
	return answers(sight(ctx, access, siteLook))
}

// silent tells whether a site that did not answer may be gone, by the errors of its nodes: nothing is wrong on this
// side, and no node has refused.
func silent(err error) bool {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		op, network := errors.AsType[*net.OpError](err) // not net.Error: the error of a file wraps one, too
		_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
		said, answered := errors.AsType[*control.Error](err)
		switch {
		case certificate, network && op.Op != "dial" && op.Op != "read" && op.Op != "write": // a refusal of TLS has another Op
			return false
		case answered && (said.Code == control.CodeNoLeader || said.Code == control.CodeUncertain), errors.Is(err, context.DeadlineExceeded), network:
		case errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF):
		default:
			return false
		}
	}
	return true
}

// knownOf returns what is known of what the other site has: what any primary of this site heard last, and what the
// nodes say that are left there, without a majority.
func (s *Service) knownOf(ctx context.Context, f cluster.Follow) (*gtid.Set, cluster.SitePromotion) {
	s.learnsOfOthers()
	known, at := &gtid.Set{}, time.Time{}
	if h := s.heardOf(f.Site); h != nil {
		if was, err := gtid.ParseSet(h.Executed); err == nil { // else nothing is known
			known, at = was, h.At
		}
	}
	if access, err := s.access(f); err == nil {
		for _, seen := range sight(ctx, access, siteKnow) {
			if seen.err == nil {
				known.Union(seen.executed)
				s.knowsBallot(f.Site, seen.view.Ballot)
			}
		}
	}
	return known, cluster.SitePromotion{Site: s.node.Cluster(), From: f.Site, Node: s.node.Own().Name, Heard: at}
}

// promoteOver closes a site that answers, and takes over with what is here. It returns all that was acknowledged there.
func (s *Service) promoteOver(ctx context.Context, by string, f cluster.Follow, version uint64, p *mysqld.Process, seen sighting) (all *gtid.Set, index uint64, err error) {
	t, err := s.attempt(ctx, by, f, version, p, seen)
	if err != nil {
		return nil, 0, err
	}
	limited, cancel := context.WithTimeout(ctx, siteTimeout)
	defer cancel()
	if all, err = t.yield(limited, true); err == nil {
		index, err = t.finish(ctx)
	}
	if err != nil {
		return nil, index, t.calledOff(ctx, err)
	}
	return all, index, nil
}

// RunFence closes for writes a site that did not answer when this one was promoted, once it answers. It also closes a
// site that was closed and takes writes again, because it was restored to an earlier state, for example.
func (s *Service) RunFence(ctx context.Context) error {
	c, said := clock.Machine{}, ""
	for n := 0; c.Wait(ctx, fenceEvery, nil) == nil; n++ {
		former := s.former()
		if former == nil || !former.Fence && n%fenceSeldom != 0 {
			continue
		}
		err := s.fenceFormer(ctx, former)
		text := ""
		if err != nil && former.Fence {
			text = err.Error()
		}
		if text != said && text != "" && ctx.Err() == nil {
			s.logger.Warn("the other site is not closed yet, and may take writes", "error", err)
		}
		said = text
		s.mu.Lock()
		s.fenceError = text
		s.mu.Unlock()
	}
	return nil
}

func (s *Service) whyNotFenced() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fenceError
}

// former is the site from which this one has taken over; nil = there is none, or this node is not the primary.
func (s *Service) former() *cluster.OtherSite {
	if p, _ := s.node.Serving(); p == nil {
		return nil
	}
	return s.node.State().Site
}

func (s *Service) fenceFormer(ctx context.Context, former *cluster.OtherSite) error {
	access, err := s.access(cluster.Follow{Site: former.Site})
	if err != nil {
		return err
	}
	seen, err := answers(sight(ctx, access, siteLook))
	if err != nil {
		return fmt.Errorf("no node of the other site answers with a majority: %w", err)
	}
	ballot := s.node.State().SiteBallot
	// While the other site has a token, a late request may open it again: a newer request makes that void. And that
	// site refuses an attempt of its own once it knows of this promotion.
	follows := seen.view.Follows == s.node.Cluster() && seen.view.Token == "" && seen.view.Closed && !seen.view.Ballot.Less(ballot)
	if !follows && (former.Fence || seen.view.Follows == "") {
		// A former primary of this site must not close a site that has taken over since.
		if err := s.requests.Barrier(ctx); err != nil {
			return err
		}
		if now := s.former(); now == nil || *now != *former || s.node.State().SiteBallot != ballot {
			return nil
		}
		t := takeover{Service: s, ballot: ballot, token: rand.Text(), access: access, at: seen.at}
		ctx, cancel := context.WithTimeout(ctx, siteTimeout)
		defer cancel()
		if _, err := t.yield(ctx, true); err != nil {
			return err
		}
		follows = true
		s.logger.Info("the other site could take writes, and is closed now", "site", former.Site)
	}
	if !follows || !former.Fence {
		return nil
	}
	_, err = s.requests.ChangeState(ctx, s.requests.ByItself(), cluster.Change{Site: &cluster.SiteChange{Step: cluster.SiteFenced, Site: former.Site, Ballot: ballot}})
	return err
}
