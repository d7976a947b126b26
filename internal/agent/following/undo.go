package following

import (
	"context"
	"errors"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/sys/clock"
)

// errOvertaken: the cluster state is another one than a step at the source was judged on.
var errOvertaken = errors.New("the cluster state has changed meanwhile")

// noted writes how far a cutover is into the cluster state, if that is still version. It returns the next version.
func (s *Service) noted(ctx context.Context, by string, version uint64, c cluster.FollowChange) (uint64, error) {
	d, err := s.requests.ChangeState(ctx, by, cluster.Change{Judged: version, Follow: &c})
	if err != nil {
		return 0, err
	}
	return d.Result.(cluster.ChangeResult).Version, nil
}

// still fails once the cluster state is another one than version, by all that was committed anywhere before.
func (s *Service) still(ctx context.Context, version uint64) error {
	if err := s.requests.Barrier(ctx); err != nil {
		return err
	}
	if s.node.State().Version != version {
		return errOvertaken
	}
	return nil
}

// holds holds a source, as long as the cluster state is version. A node that changes the state in order to act at the source first
// ends this Hold's session.
func (s *Service) holds(ctx context.Context, source *Source, version uint64) (*Hold, error) {
	if err := s.still(ctx, version); err != nil { // who is late takes the lock from nobody
		return nil, err
	}
	_, uuid := s.node.ReplicaName()
	hold, err := source.Hold(ctx, "quorate "+uuid)
	if err != nil {
		return nil, err
	}
	if err := s.still(ctx, version); err != nil {
		hold.Close()
		return nil, err
	}
	return hold, nil
}

// undo opens the source of a cutover again that came to nothing: of this node's, or of a node that is gone. Once it is called off in the
// cluster state it takes over no more, whatever is still under way of it. It returns a *leftError where somebody else wants the source closed:
// that is noted, and an undo is over only once somebody has opened it.
func (s *Service) undo(ctx context.Context, by string) error {
	state := s.node.State()
	f, closing, version := state.Follow, state.Closing, state.Version
	if f == nil || closing == nil {
		return nil
	}
	var err error
	if !closing.CalledOff {
		if version, err = s.noted(ctx, by, version, cluster.FollowChange{CallOff: true}); err != nil {
			return err
		}
	}
	source, err := Open(*f)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	if closing.Left != "" {
		g, err := gateOf(ctx, source.db, closing.ServerUUID)
		if err == nil && g.closed(*closing) {
			err = &leftError{closing.Left}
		}
		if err != nil {
			return err
		}
	} else if err := s.opens(ctx, by, version, source, *closing); err != nil {
		return err
	}
	_, err = s.noted(ctx, by, version, cluster.FollowChange{Opened: true})
	return err
}

// opens opens the source again, or notes why it is left closed: what has once been found to be wanted so is opened by an operator alone.
func (s *Service) opens(ctx context.Context, by string, version uint64, source *Source, closing cluster.Closing) error {
	hold, err := s.holds(ctx, source, version)
	if err != nil {
		return err
	}
	defer hold.Close()
	err = hold.OpenAgain(ctx, closing)
	if left, ok := errors.AsType[*leftError](err); ok {
		if _, err := s.noted(ctx, by, version, cluster.FollowChange{Left: left.why}); err != nil {
			return err
		}
	}
	return err
}

// tryUndo is undo within a time, and notes for the status why the source could not be opened.
func (s *Service) tryUndo(ctx context.Context, by string) error {
	ctx, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	err := s.undo(ctx, by)
	said := ""
	if err != nil {
		said = brief(err)
	}
	s.set(func(st *cluster.FollowStatus) { st.OpenError = said })
	return err
}

// calledOff reopens the source; applications may use it again.
func (c *cutover) calledOff(ctx context.Context, by string, why error) error {
	follows := func() bool {
		f, _ := c.node.Committed()
		return f != nil && f.Source == c.follow.Source && f.ServerUUID == c.follow.ServerUUID
	}
	over := func() bool { return !follows() || c.node.State().Closing == nil }
	err := reopen(context.WithoutCancel(ctx), over, func(ctx context.Context) error { return c.tryUndo(ctx, by) })
	_, left := errors.AsType[*leftError](err)
	switch {
	case left:
		return control.Errorf(control.CodeFailed, "called off, and the cluster goes on following, but %v. The cutover: %v", err, why)
	case !follows():
		return control.Errorf(control.CodeUncertain, "not done: %v; and the cluster follows the source no more, which MAY STAY CLOSED: look there", why)
	case err != nil:
		return control.Errorf(control.CodeUncertain, "not done: %v; the cluster goes on following, and the source MAY BE CLOSED: %v. It is opened as soon as that is possible: see quorate status", why, err)
	}
	return control.Errorf(control.CodeFailed, "called off, the source is as before, and the cluster goes on following: %v", why)
}

// reopen tries to undo a cutover until it is over, for reopenFor: one break of a connection must leave no outage. Then RunUndo goes on with it.
func reopen(ctx context.Context, over func() bool, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reopenFor)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil || over() {
			return nil
		}
		if _, left := errors.AsType[*leftError](err); left { // it may be so for long
			return err
		}
		if clock.Sleep(ctx, clock.Machine{}, reopenPause) != nil {
			return err
		}
	}
}

// RunUndo opens the source again that a cutover has left closed: its node was stopped, or killed, or is primary no more.
func (s *Service) RunUndo(ctx context.Context) error {
	c, pause, last := clock.Machine{}, reopenPause, ""
	for c.Wait(ctx, pause, nil) == nil {
		if p, _ := s.node.Serving(); p == nil || s.node.State().Closing == nil || !s.cutting.TryLock() { // who has it makes an end of it
			pause, last = reopenPause, ""
			continue
		}
		closing := s.node.State().Closing
		if closing == nil { // that was the end of it
			s.cutting.Unlock()
			continue
		}
		err := s.tryUndo(ctx, s.requests.ByItself())
		s.cutting.Unlock()
		switch {
		case err == nil:
			s.logger.Info("a cutover was interrupted, and is called off: the source takes writes again", "since", units.Time(closing.Since))
			pause, last = reopenPause, ""
		case ctx.Err() == nil:
			if said := err.Error(); said != last {
				s.logger.Warn("a cutover was interrupted, and its source may be closed", "error", err)
				last = said
			}
			pause = min(2*pause, reopenPauseMax)
		}
	}
	return nil
}
