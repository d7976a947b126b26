package following

import (
	"context"
	"errors"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/sys/clock"
)

// errOvertaken means that the cluster state has changed since a step at the source was judged on it.
var errOvertaken = errors.New("the cluster state has changed meanwhile")

// noted writes into the cluster state how far a cutover is, if its version is still version. It returns the next
// version.
func (s *Service) noted(ctx context.Context, by string, version uint64, c cluster.FollowChange) (uint64, error) {
	d, err := s.requests.ChangeState(ctx, by, cluster.Change{Judged: version, Follow: &c})
	if err != nil {
		return 0, err
	}
	return d.Result.(cluster.ChangeResult).Version, nil
}

// still fails once the cluster state has another version than version, by all that was committed anywhere before.
func (s *Service) still(ctx context.Context, version uint64) error {
	if err := s.requests.Barrier(ctx); err != nil {
		return err
	}
	if s.node.State().Version != version {
		return errOvertaken
	}
	return nil
}

// holds takes the Hold of a source, if the cluster state still has this version. A node that changes the state in
// order to act at the source first ends the session of this Hold.
func (s *Service) holds(ctx context.Context, source *Source, version uint64) (*Hold, error) {
	if err := s.still(ctx, version); err != nil { // a node that is late must not take the lock from another
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

// undo opens the source again after a cutover that came to nothing, of this node or of a node that is gone. Once the
// cutover is called off in the cluster state, it cannot take over, even if parts of it still run. undo returns a
// *leftError if somebody else wants the source closed: that is noted, and the undo is complete only once somebody has
// opened the source.
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

// opens opens the source again, or notes why it is left closed: once that is noted, only an operator opens it.
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

// calledOff opens the source again, so that applications can use it, and says how that went. why is why the cutover
// came to nothing.
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
		return control.Errorf(control.CodeFailed, "called off, and the cluster goes on following, but %v. The cutover failed: %v", err, why)
	case !follows():
		return control.Errorf(control.CodeUncertain, "not done: %v; and the cluster does not follow the source any more, which MAY STAY CLOSED: look there", why)
	case err != nil:
		return control.Errorf(control.CodeUncertain, "not done: %v; the cluster goes on following, and the source MAY BE CLOSED: %v. It is opened as soon as that is possible: see quorate status", why, err)
	}
	return control.Errorf(control.CodeFailed, "called off, the source is as before, and the cluster goes on following: %v", why)
}

// reopen tries to undo a cutover until that is over, for reopenFor: one broken connection must not leave an outage.
// Then RunUndo goes on.
func reopen(ctx context.Context, over func() bool, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reopenFor)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil || over() {
			return nil
		}
		if _, left := errors.AsType[*leftError](err); left { // that may last
			return err
		}
		if clock.Sleep(ctx, clock.Machine{}, reopenPause) != nil {
			return err
		}
	}
}

// RunUndo opens the source again that a cutover has left closed, because its node was stopped, killed, or is no
// longer the primary.
func (s *Service) RunUndo(ctx context.Context) error {
	c, pause, last := clock.Machine{}, reopenPause, ""
	for c.Wait(ctx, pause, nil) == nil {
		if p, _ := s.node.Serving(); p == nil || s.node.State().Closing == nil || !s.cutting.TryLock() { // the cutover that has the lock ends it itself
			pause, last = reopenPause, ""
			continue
		}
		closing := s.node.State().Closing
		if closing == nil { // it has ended meanwhile
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
