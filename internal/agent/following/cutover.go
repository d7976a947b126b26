package following

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
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
	// cutoverTimeout bounds a cutover from its request to its answer, even if it is called off at its limit.
	cutoverTimeout = cluster.CutoverWithinMax + reopenFor + 5*time.Second
	// cutoverBehindMax is how far behind the source a primary may be when a cutover begins.
	cutoverBehindMax = 5 * time.Second
	// closedFor is for how long a source must write nothing if somebody else has closed it and it shows no read_only.
	closedFor = 3 * time.Second
	// reopenFor bounds the tries to open a source again.
	reopenFor = 15 * time.Second
	// reopenTimeout bounds one such try.
	reopenTimeout = 2 * askTimeout
	// reopenPause is the pause between two such tries, reopenPauseMax the longest one.
	reopenPause    = 500 * time.Millisecond
	reopenPauseMax = 15 * time.Second
	// checkTimeout bounds a look at the source.
	checkTimeout = 20 * time.Second
)

// Handlers are the requests about what is followed.
func (s *Service) Handlers() map[string]operate.Handler {
	return map[string]operate.Handler{
		"follow.start": {Leader: true, Audited: true, Timeout: checkTimeout + control.Timeout, Run: s.start},
		"follow.stop":  {Leader: true, Audited: true, Timeout: reopenTimeout + control.Timeout, Run: s.end},
		"follow.show":  {Leader: true, Run: s.shown},
		"cutover":      {Leader: true, Audited: true, Timeout: cutoverTimeout, Run: s.takeOver},
		"site.show":    {Leader: true, Timeout: siteTimeout, Run: s.siteShown},
		"site.follow":  {Leader: true, Audited: true, Timeout: checkTimeout + control.Timeout, Run: s.siteFollow},
		"site.switch":  {Leader: true, Audited: true, Timeout: cutoverTimeout, Run: s.siteSwitch},
		"site.promote": {Leader: true, Audited: true, Timeout: cutoverTimeout, Run: s.sitePromote},
		"site.forget":  {Leader: true, Audited: true, Run: s.siteForget},
		siteLook:       {Leader: true, Timeout: askTimeout, Run: s.siteLooked},
		siteKnow:       {Timeout: askTimeout, Run: s.siteKnown},
		siteFixed:      {Leader: true, Timeout: askTimeout, Run: s.siteFixedAt},
		siteYield:      {Leader: true, Audited: true, Timeout: siteTimeout, Run: s.siteYielded},
		siteResume:     {Leader: true, Audited: true, Run: s.siteResumed},
	}
}

// start has the cluster follow a source, once the source was looked at.
func (s *Service) start(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.FollowRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	c := cluster.Change{Follow: &cluster.FollowChange{Start: &args.Follow}}
	d := operate.Done{What: c.String(), ReadOnly: args.Check}
	if err := args.Follow.Check(); err != nil {
		return d, control.Errorf(control.CodeInvalid, "%v", err)
	}
	look, here, err := s.check(ctx, args.Follow)
	checks := Check(look, here)
	if err != nil {
		return d, control.Errorf(control.CodeFailed, "nothing was done: %v", err)
	}
	closing := s.node.State().Closing
	if args.ServerUUID, args.Accepted = look.UUID, onlyHere(look, here).String(); len(args.Accepted) > cluster.FollowAcceptedBytesMax {
		return d, control.Errorf(control.CodeFailed, "the cluster has too many transactions that the source lacks to record them; nothing was changed: start again from a fresh copy of the source")
	}
	d, err = s.begins(ctx, r.By, c, checks, args.Check, args.Force)
	if began, ok := d.Result.(cluster.FollowResult); ok && began.Changed && closing != nil && closing.ServerUUID != args.ServerUUID {
		began.Done += " The server that was followed before may be closed for writes by a cutover (RESET PERSIST super_read_only opens it after a restart)."
		d.Result = began
	}
	return d, err
}

// begins has the cluster follow what was looked at, unless only is set, or a check speaks against it that force does
// not overrule.
func (s *Service) begins(ctx context.Context, by string, c cluster.Change, checks []cluster.Check, only, force bool) (operate.Done, error) {
	result := cluster.FollowResult{Checks: checks, ChangeResult: cluster.ChangeResult{What: c.String(), DryRun: only}}
	d := operate.Done{What: c.String(), ReadOnly: only}
	if only {
		d.Result = result
		return d, nil
	}
	var against []string
	for _, subject := range cluster.Failed(checks) {
		if !force || subject != OnlyHere {
			against = append(against, subject)
		}
	}
	if len(against) > 0 {
		return d, control.Errorf(control.CodeFailed, "nothing was done: these checks fail: %s; --check says more", strings.Join(against, ", "))
	}
	d, err := s.requests.ChangeState(ctx, by, c)
	if changed, ok := d.Result.(cluster.ChangeResult); ok {
		result.ChangeResult = changed
		d.Result = result
	}
	return d, err
}

// check looks at a source, as this node sees it.
func (s *Service) check(ctx context.Context, f cluster.Follow) (look Look, here Here, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	p, _ := s.node.Serving()
	if p == nil {
		return look, here, primary.ErrNoMysqld
	}
	source, err := Open(f)
	if err != nil {
		return look, here, err
	}
	defer func() { _ = source.Close() }()
	own := s.node.Own()
	here = Here{Version: own.ServerVersion, UUID: own.ServerUUID}
	// First: a cluster that follows already gets more while the source is asked. That would look as if the source
	// lacked it.
	if here.Executed, err = executedOf(ctx, p); err != nil {
		return look, here, err
	}
	if look, err = source.Look(ctx); err != nil {
		return look, here, err
	}
	here.Fixed, err = ownFixed(ctx, p)
	return look, here, err
}

// executedOf is what a mysqld of the cluster has.
func executedOf(ctx context.Context, p *mysqld.Process) (*gtid.Set, error) {
	text, err := p.Admin().GTIDExecuted(ctx)
	if err != nil {
		return nil, fmt.Errorf("read gtid_executed: %w", err)
	}
	return gtid.ParseSet(text)
}

func (s *Service) end(ctx context.Context, r control.Request) (operate.Done, error) {
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return operate.Done{}, err
	}
	if !s.cutsAlone(ctx) {
		return operate.Done{What: "follow --stop"}, errCutting
	}
	defer s.cutting.Unlock()
	stays := ""
	if s.node.State().Closing != nil {
		if err := s.tryUndo(ctx, r.By); err != nil {
			stays = fmt.Sprintf(" The source may be closed by a cutover, also after its restart (RESET PERSIST super_read_only), and another node may yet open it: %v", err)
		}
	}
	d, err := s.requests.ChangeState(ctx, r.By, cluster.Change{Follow: &cluster.FollowChange{}})
	if changed, ok := d.Result.(cluster.ChangeResult); ok && err == nil {
		changed.Done += stays
		d.Result = changed
	}
	return d, err
}

const (
	// cuttingWait is how long a request waits for another one to end. Checking whether a source can be opened takes a few ms.
	cuttingWait = 2 * time.Second
	cuttingPoll = 20 * time.Millisecond
)

// cutsAlone locks cutting, and tells whether it got the lock. The caller unlocks it.
func (s *Service) cutsAlone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, cuttingWait)
	defer cancel()
	for !s.cutting.TryLock() {
		if clock.Sleep(ctx, clock.Machine{}, cuttingPoll) != nil {
			return false
		}
	}
	return true
}

// errCutting is the answer to a request that would disturb a cutover.
var errCutting = control.Errorf(control.CodeFailed, "nothing was done: a cutover is under way, or is being called off")

func (s *Service) shown(_ context.Context, r control.Request) (operate.Done, error) {
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return operate.Done{ReadOnly: true}, err
	}
	st := s.get()
	state := s.node.State()
	st.Follow, st.Closing = state.Follow, state.Closing
	st.Node = s.node.Own().Name
	return operate.Done{ReadOnly: true, Result: st}, nil
}

// takeOver carries out a cutover: the cluster goes on in place of the source.
func (s *Service) takeOver(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.CutoverRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	if !s.cutsAlone(ctx) {
		return operate.Done{What: "cutover"}, errCutting
	}
	defer s.cutting.Unlock()
	d, name := operate.Done{What: "cutover"}, s.node.Own().Name
	if s.node.State().Follow == nil { // as far as this node knows: it may have been replaced
		if err := s.barrier(ctx); err != nil {
			return d, err
		}
	}
	state := s.node.State()
	f := state.Follow
	p, _ := s.node.Serving()
	switch st := s.get(); {
	case args.Within < cluster.CutoverWithinMin || args.Within > cluster.CutoverWithinMax:
		return d, control.Errorf(control.CodeInvalid, "--within must be %s to %s", units.Duration(cluster.CutoverWithinMin), units.Duration(cluster.CutoverWithinMax))
	case args.Verify != cluster.VerifyNothing && args.Verify != cluster.VerifyRows && args.Verify != cluster.VerifyChecksum:
		return d, control.Errorf(control.CodeInvalid, "--verify must be %s or %s", cluster.VerifyRows, cluster.VerifyChecksum)
	case f == nil && state.CutOver != nil:
		return s.doneBefore(ctx, d, "the cluster has taken over from "+state.CutOver.Source, cluster.Cutover{Source: state.CutOver.Source, At: state.CutOver.At})
	case f == nil:
		return d, control.Errorf(control.CodeFailed, "nothing was done: the cluster follows nobody, and takes writes")
	case f.Site != "":
		return d, control.Errorf(control.CodeInvalid, "nothing was done: the cluster follows site %s: quorate site switch", f.Site)
	case p == nil || !st.Known || st.Error != "":
		return d, control.Errorf(control.CodeFailed, "nothing was done: node %s %s", name, st)
	case st.Left > 0 && st.Seconds > cutoverBehindMax.Seconds() && !args.SourceClosed:
		return d, control.Errorf(control.CodeFailed, "nothing was done: node %s is %.0f s behind, at most %s may be left", name, st.Seconds, units.Duration(cutoverBehindMax))
	}
	d.What = "cutover from " + f.Source
	source, err := Open(*f)
	if err != nil {
		return d, control.Errorf(control.CodeFailed, "nothing was done: %v", err)
	}
	defer func() { _ = source.Close() }()
	c := cutover{Service: s, follow: *f, source: source, process: p, version: state.Version, earlier: state.Closing, args: args, result: cluster.Cutover{Source: f.Source, Node: name}}
	index, err := c.run(ctx, r.By)
	d.Index, d.Result = index, c.result
	return d, err
}

// doneBefore answers a request that was carried out before, once clients can write here: the operator may have had no
// answer, and asks again.
func (s *Service) doneBefore(ctx context.Context, d operate.Done, done string, result cluster.Cutover) (operate.Done, error) {
	if !s.awaitDoors(ctx, func(d Doors) bool { return d.Writers == mysqld.Everybody }) {
		return d, control.Errorf(control.CodeUncertain, "%s before, and it is not known whether clients can write: see quorate status", done)
	}
	result.Node, result.Already = s.node.Own().Name, true
	d.ReadOnly, d.Result = true, result
	return d, nil
}

// cutover is one attempt of a cutover.
type cutover struct {
	*Service
	follow cluster.Follow
	source *Source
	// process is the mysqld that is to go on. version is the version of the cluster state on which all was judged.
	process *mysqld.Process
	version uint64
	// earlier is a cutover that has closed the source, and is not over; nil = none.
	earlier *cluster.Closing
	// closing is what was noted of the source before this cutover closes it.
	closing *cluster.Closing
	args    cluster.CutoverRequest
	result  cluster.Cutover
}

// run closes the source, and ends the following once all that the source has is here. If the cutover comes to
// nothing, run opens the source again; but not if it is not known whether it has come to nothing.
func (c *cutover) run(ctx context.Context, by string) (index uint64, err error) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, c.args.Within)
	defer cancel()
	if err := c.mayBegin(limited); err != nil {
		return 0, control.Errorf(control.CodeFailed, "nothing was done: %v", err)
	}
	if c.args.SourceClosed {
		index, err = c.goOnClosed(ctx, limited, by)
	} else {
		if err := c.note(limited, by); err != nil {
			return 0, err
		}
		index, err = c.closeAndGoOn(ctx, limited, by)
	}
	c.result.Seconds = time.Since(began).Seconds()
	if e, ok := errors.AsType[*control.Error](err); err == nil || ok && e.Code == control.CodeUncertain {
		if err != nil && c.result.Reopens != "" {
			err = control.Errorf(e.Code, "%v. The source may take writes again once it restarts: %s", err, c.result.Reopens)
		}
		return index, err
	}
	if c.args.SourceClosed && c.earlier == nil {
		return 0, control.Errorf(control.CodeFailed, "called off, the source was not touched, and the cluster goes on following: %v", err)
	}
	return 0, c.calledOff(ctx, by, err)
}

// mayBegin refuses a cutover that cannot come to a good end.
func (c *cutover) mayBegin(ctx context.Context) error {
	if !c.args.SourceClosed { // before a note is written: only a Hold can undo what follows
		if err := c.source.MayHold(ctx); err != nil {
			return err
		}
	}
	why, err := c.source.Applies(ctx)
	if err != nil {
		return fmt.Errorf("%w: GRANT SELECT ON performance_schema.* to its account", err)
	}
	if why != "" {
		return fmt.Errorf("the source may lack transactions that another server acknowledges: %s", why)
	}
	xa, err := c.source.XA(ctx)
	if err != nil {
		return fmt.Errorf("%w: \"quorate follow --check\" says what its account needs", err)
	}
	return refusesXA(xa)
}

// refusesXA refuses a source with XA transactions, if there are any: one that ends stops the following, and so the
// source must not be closed for it.
func refusesXA(xa string) error {
	if xa == "" {
		return nil
	}
	return fmt.Errorf("XA COMMIT writes even at a server that is closed for writes, so end these first: %s", xa)
}

// note writes into the cluster state that the source is about to be closed, and its state before that.
func (c *cutover) note(ctx context.Context, by string) error {
	g, err := gateOf(ctx, c.source.db, c.follow.ServerUUID)
	if err == nil {
		c.closing, err = g.closing(c.earlier)
	}
	if err != nil {
		return control.Errorf(control.CodeFailed, "nothing was done: %v", err)
	}
	c.version, err = c.noted(ctx, by, c.version, cluster.FollowChange{Close: c.closing})
	return err
}

// closeAndGoOn closes the source, and takes over. Before that it has the source stay closed over a restart:
// afterwards there may be no time for that. If that fails, the cluster takes over all the same, and the answer says
// so.
func (c *cutover) closeAndGoOn(ctx, limited context.Context, by string) (index uint64, err error) {
	hold, err := c.holds(limited, c.source, c.version)
	if err != nil {
		return 0, err
	}
	defer hold.Close()
	if err := hold.Shut(limited, *c.closing); err != nil {
		return 0, err
	}
	if err := hold.KeepShut(limited); err != nil {
		c.result.Reopens = err.Error()
	}
	return c.goOn(ctx, limited, by)
}

// goOnClosed takes over from a source that an operator has closed. If an earlier cutover is noted, the new note says
// that it is not called off any more. So a node that would undo it has to call it off again, and that comes after the
// take-over.
func (c *cutover) goOnClosed(ctx, limited context.Context, by string) (index uint64, err error) {
	if c.earlier == nil {
		return c.goOn(ctx, limited, by)
	}
	closing := *c.earlier
	closing.CalledOff, closing.Left = false, cmp.Or(closing.Left, "an operator has closed it (cutover --source-closed)") // Left is for an undo of this cutover
	c.closing = &closing
	if c.version, err = c.noted(limited, by, c.version, cluster.FollowChange{Close: c.closing}); err != nil {
		return 0, err
	}
	hold, err := c.holds(limited, c.source, c.version)
	if err != nil {
		return 0, err
	}
	defer hold.Close()
	g, err := gateOf(limited, hold.conn, closing.ServerUUID)
	switch {
	case err != nil:
		return 0, err
	case !g.superReadOnly && !g.readOnly:
		return 0, errors.New("the source is open: run the cutover without --source-closed")
	case g.persisted != "ON":
		c.result.Reopens = "super_read_only is not persisted there"
	}
	return c.goOn(ctx, limited, by)
}

// goOn ends the following of a source that is closed, and waits until clients can write.
func (c *cutover) goOn(ctx, limited context.Context, by string) (index uint64, err error) {
	if err := c.drain(limited); err != nil {
		return 0, err
	}
	return c.goesOn(ctx, by, cluster.Change{Judged: c.version, Follow: &cluster.FollowChange{Cutover: true}})
}

// goesOn ends the following, and waits until clients can write.
func (s *Service) goesOn(ctx context.Context, by string, c cluster.Change) (index uint64, err error) {
	d, err := s.requests.ChangeState(ctx, by, c)
	if err != nil {
		return 0, err
	}
	if !s.awaitDoors(ctx, func(d Doors) bool { return d.Writers == mysqld.Everybody }) {
		return d.Index, control.Errorf(control.CodeUncertain, "the cluster does not follow any more, and it is not known whether clients can write: see quorate status")
	}
	return d.Index, nil
}

// drain waits until all that the source has is here, compares the tables, and checks that the source has stayed the
// same, and closed.
func (c *cutover) drain(ctx context.Context) error {
	seen, err := c.source.See(ctx)
	if err != nil {
		return err
	}
	if c.follow.ServerUUID != "" && seen.UUID != c.follow.ServerUUID || c.closing != nil && seen.UUID != c.closing.ServerUUID {
		return fmt.Errorf("another server answers at %s now: look at it, and follow it again (quorate follow)", c.follow.Source)
	}
	c.result.Executed, c.result.Left, c.result.LeftOut = seen.Executed.String(), c.get().Left, c.get().LeftOut
	if err := c.await(ctx, seen.Executed); err != nil {
		return err
	}
	if err := c.nothingOfItsOwn(ctx, seen.Executed); err != nil {
		return err
	}
	if c.args.Verify != cluster.VerifyNothing {
		if err := c.compare(ctx); err != nil {
			return err
		}
	}
	if !seen.SuperReadOnly && !seen.ReadOnly { // the operator says that it is closed by other means
		if err := clock.Sleep(ctx, clock.Machine{}, closedFor); err != nil {
			return err
		}
	}
	// Before the source is seen again: then an XA transaction that has ended in between shows in its GTIDs.
	xa, err := c.source.XA(ctx)
	if err := cmp.Or(err, refusesXA(xa)); err != nil {
		return err
	}
	again, err := c.source.See(ctx)
	switch {
	case err != nil:
		return err
	case again.UUID != seen.UUID:
		return fmt.Errorf("another server answers at %s now", c.follow.Source)
	case again.SuperReadOnly != seen.SuperReadOnly || again.ReadOnly != seen.ReadOnly || !c.args.SourceClosed && !again.SuperReadOnly:
		return errors.New("somebody has opened the source, or it has restarted")
	case !again.Executed.Equal(seen.Executed):
		return errors.New("the source goes on writing: it is not closed")
	}
	return nil
}

// await waits until transactions are here.
func (c *cutover) await(ctx context.Context, all *gtid.Set) error {
	for {
		var st cluster.FollowStatus
		stopped := false
		c.set(func(now *cluster.FollowStatus) { st, stopped = *now, c.stopped })
		if stopped { // waiting would only keep the source closed
			return fmt.Errorf("the cluster cannot get all transactions of the source: node %s %s", c.result.Node, st)
		}
		done, err := c.process.Admin().AppliedWithin(ctx, all.String(), time.Second)
		if err == nil && done {
			return nil
		}
		if c.node.State().Version != c.version { // it can no longer take over: another primary has called it off, for example
			return errOvertaken
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the cluster does not have all transactions of the source within %s: node %s %s", units.Duration(c.args.Within), c.result.Node, c.get())
		}
		if err != nil {
			return err
		}
	}
}

// nothingOfItsOwn refuses if the cluster has transactions that the source lacks and that no operator has accepted:
// somebody has written here.
func (c *cutover) nothingOfItsOwn(ctx context.Context, source *gtid.Set) error {
	here, err := executedOf(ctx, c.process)
	if err != nil {
		return err
	}
	accepted, err := gtid.ParseSet(c.follow.Accepted)
	if err != nil {
		return fmt.Errorf("read what was accepted: %w", err)
	}
	here.Subtract(source)
	here.Subtract(accepted)
	if here.IsEmpty() || c.args.Force {
		return nil
	}
	return fmt.Errorf("the cluster has %d transactions that the source lacks, from after it began to follow: %s; look what they are (quorate log dump); --force, if they touch other data", here.Count(), cut(here))
}

func (c *cutover) compare(ctx context.Context) error {
	db, err := c.process.OpenFollow()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	c.result.Tables, err = c.source.Compare(ctx, db, c.args.Verify)
	if err != nil {
		return fmt.Errorf("compare tables: %w", err)
	}
	return nil
}
