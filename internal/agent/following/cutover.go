package following

import (
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
)

const (
	// cutoverTimeout bounds a cutover from its request to its answer: also one that is called off at its limit.
	cutoverTimeout = 110 * time.Second
	// cutoverBehindMax is how far behind a cutover does not even begin.
	cutoverBehindMax = 5 * time.Second
	// checkTimeout bounds a look at the source.
	checkTimeout = 20 * time.Second
)

// Handlers are the requests about what is followed.
func (s *Service) Handlers() map[string]operate.Handler {
	return map[string]operate.Handler{
		"follow.start": {Leader: true, Audited: true, Timeout: checkTimeout + control.Timeout, Run: s.start},
		"follow.stop":  {Leader: true, Audited: true, Run: s.end},
		"follow.show":  {Leader: true, Run: s.shown},
		"cutover":      {Leader: true, Audited: true, Timeout: cutoverTimeout, Run: s.takeOver},
	}
}

// start has the cluster follow a source, once that was looked at.
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
	checks, err := s.check(ctx, args.Follow)
	if err != nil {
		return d, control.Errorf(control.CodeFailed, "nothing was done: %v", err)
	}
	result := cluster.FollowResult{Checks: checks, ChangeResult: cluster.ChangeResult{What: c.String(), DryRun: args.Check}}
	if args.Check {
		d.Result = result
		return d, nil
	}
	var against []string
	for _, subject := range cluster.Failed(checks) {
		if !args.Force || subject != OnlyHere {
			against = append(against, subject)
		}
	}
	if len(against) > 0 {
		return d, control.Errorf(control.CodeFailed, "nothing was done, %s speaks against it: look with --check", strings.Join(against, ", "))
	}
	d, err = s.requests.ChangeState(ctx, r.By, c)
	if changed, ok := d.Result.(cluster.ChangeResult); ok {
		result.ChangeResult = changed
		d.Result = result
	}
	return d, err
}

// check looks at a source, as this node sees it.
func (s *Service) check(ctx context.Context, f cluster.Follow) ([]cluster.FollowCheck, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	p, _ := s.node.Serving()
	if p == nil {
		return nil, primary.ErrNoMysqld
	}
	source, err := Open(f)
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Close() }()
	look, err := source.Look(ctx)
	if err != nil {
		return nil, err
	}
	own := s.node.Own()
	here := Here{Version: own.ServerVersion, UUID: own.ServerUUID}
	text, err := p.Admin().GTIDExecuted(ctx)
	if err == nil {
		here.Executed, err = gtid.ParseSet(text)
	}
	if err != nil {
		return nil, err
	}
	return Judge(look, here), nil
}

func (s *Service) end(ctx context.Context, r control.Request) (operate.Done, error) {
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return operate.Done{}, err
	}
	return s.requests.ChangeState(ctx, r.By, cluster.Change{Follow: &cluster.FollowChange{}})
}

func (s *Service) shown(_ context.Context, r control.Request) (operate.Done, error) {
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return operate.Done{ReadOnly: true}, err
	}
	st := s.get()
	st.Follow, _ = s.node.Committed()
	st.Node = s.node.Own().Name
	return operate.Done{ReadOnly: true, Result: st}, nil
}

// takeOver has the cluster go on in place of the source.
func (s *Service) takeOver(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.CutoverRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	f, version := s.node.Committed()
	d, name := operate.Done{What: "cutover"}, s.node.Own().Name
	p, _ := s.node.Serving()
	switch st := s.get(); {
	case args.Within < cluster.CutoverWithinMin || args.Within > cluster.CutoverWithinMax:
		return d, control.Errorf(control.CodeInvalid, "--within must be %s to %s", units.Duration(cluster.CutoverWithinMin), units.Duration(cluster.CutoverWithinMax))
	case args.Verify != cluster.VerifyNothing && args.Verify != cluster.VerifyRows && args.Verify != cluster.VerifyChecksum:
		return d, control.Errorf(control.CodeInvalid, "--verify must be %s or %s", cluster.VerifyRows, cluster.VerifyChecksum)
	case f == nil:
		return d, control.Errorf(control.CodeFailed, "the cluster follows nobody")
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
	c := cutover{Service: s, source: source, process: p, version: version, args: args, result: cluster.Cutover{Source: f.Source, Node: name}}
	index, err := c.run(ctx, r.By)
	d.Index, d.Result = index, c.result
	return d, err
}

// cutover is one attempt.
type cutover struct {
	*Service
	source *Source
	// process is the mysqld that is to go on, version the cluster state's that all was judged on.
	process *mysqld.Process
	version uint64
	args    cluster.CutoverRequest
	result  cluster.Cutover
}

// run closes the source, and ends the following once all of it is here. It opens the source again if it comes to nothing; not if that
// is not known.
func (c *cutover) run(ctx context.Context, by string) (index uint64, err error) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, c.args.Within)
	defer cancel()
	if c.args.SourceClosed {
		index, err = c.goOn(ctx, limited, by)
	} else {
		was, wrong := c.source.Shut(limited)
		if wrong != nil {
			return 0, c.calledOff(ctx, was, fmt.Errorf("%w; if somebody has closed it, say --source-closed", wrong))
		}
		index, err = c.goOn(ctx, limited, by)
		if e, ok := errors.AsType[*control.Error](err); err != nil && (!ok || e.Code != control.CodeUncertain) {
			return 0, c.calledOff(ctx, was, err)
		}
	}
	c.result.Seconds = time.Since(began).Seconds()
	return index, err
}

// goOn ends the following of a source that is closed, and waits until clients can write.
func (c *cutover) goOn(ctx, limited context.Context, by string) (index uint64, err error) {
	if err := c.drain(limited); err != nil {
		return 0, err
	}
	d, err := c.requests.ChangeState(ctx, by, cluster.Change{Judged: c.version, Follow: &cluster.FollowChange{Cutover: true}})
	if err != nil {
		return 0, err
	}
	c.node.Wake()
	for !c.clientsMayWrite() {
		select {
		case <-c.node.Changed():
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return d.Index, control.Errorf(control.CodeUncertain, "the cluster follows no more, and it is not known whether clients can write: see quorate status")
		}
	}
	return d.Index, nil
}

// drain waits until all that the source has is here, compares, and looks whether the source has stayed closed.
func (c *cutover) drain(ctx context.Context) error {
	executed, err := c.source.Executed(ctx)
	if err != nil {
		return err
	}
	c.result.Executed, c.result.Left = executed.String(), c.get().Left
	for {
		done, err := c.process.Admin().AppliedWithin(ctx, executed.String(), time.Second)
		if err == nil && done {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("not all of the source is here within %s: node %s %s", units.Duration(c.args.Within), c.result.Node, c.get())
		}
		if err != nil {
			return err
		}
	}
	if c.args.Verify != cluster.VerifyNothing {
		if err := c.compare(ctx); err != nil {
			return err
		}
	}
	again, err := c.source.Executed(ctx)
	if err == nil && !again.Equal(executed) {
		err = errors.New("the source goes on writing: it is not closed")
	}
	return err
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

// calledOff opens the source again, which is as it was before.
func (c *cutover) calledOff(ctx context.Context, was Closed, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	if err := c.source.OpenAgain(ctx, was); err != nil {
		return control.Errorf(control.CodeFailed, "called off: %v; and the source IS CLOSED: %v", why, err)
	}
	return control.Errorf(control.CodeFailed, "called off, the source is as before, and the cluster goes on following: %v", why)
}
