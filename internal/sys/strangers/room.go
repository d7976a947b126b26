package strangers

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Errors that end a stranger's connection.
var (
	// ErrExpelled: it had to make room for another.
	ErrExpelled = errors.New("too many connections have not logged in")
	// ErrTurnedAway: as many as may wait for their turn.
	ErrTurnedAway = errors.New("too many connections wait for their turn")
)

// Limits are those of a Room.
type Limits struct {
	// Max bounds all strangers; at least 1.
	Max int
	// PerSource is how many of one source may be inside who have shown nothing so far. Of more, the next one takes
	// the place of the oldest one that has had it for Spare. If there is none, Enter refuses it, and Await has it wait,
	// for WaitMax.
	PerSource      int
	Spare, WaitMax time.Duration
	// Known tells of a source that who has logged in is at home there: its strangers go last, are not refused,
	// and need no turn. nil = of none.
	Known func(source netip.Addr) bool
	// Turns is how many strangers of another source have a turn (Stay.Turn) at a time.
	Turns int
	// TurnEvery is the time from one turn to the next of all other sources together, TurnsWaiting how many
	// may wait for theirs beyond what Turns holds back; of more each is turned away. 0 = no bound.
	TurnEvery    time.Duration
	TurnsWaiting int
	// Allow is where strangers may come from; empty = from anywhere.
	Allow []netip.Prefix
}

// Stats count since the Room was made, but for Inside.
type Stats struct {
	// Inside is the number of strangers now, those included that wait for a place.
	Inside int
	// Expelled had to make room for others, or found none; Refused came from where nobody may come from, TurnedAway
	// found too many that waited for a turn.
	Expelled, Refused, TurnedAway uint64
}

// Room holds the strangers of one port.
type Room struct {
	limits Limits
	log    *Log

	refused atomic.Uint64

	mu sync.Mutex
	// sources has those that have strangers.
	sources              map[netip.Addr]*group
	inside               int
	pace                 pace
	expelled, turnedAway uint64
}

// group is the strangers of one source, oldest first.
type group struct {
	stays []*Stay
	// fresh counts those that have a place and have shown nothing. While stays wait, these are PerSource.
	fresh int
	known bool
	turns chan struct{}
}

// Stay is one stranger's time in a Room.
type Stay struct {
	room   *Room
	source netip.Addr
	group  *group
	gone   chan struct{}
	from   net.Addr
	expel  func()
	state  state
	over   bool
	// since is when it came, or got a place, or began. began: the time for which it is spared runs.
	since  time.Time
	began  bool
	place  chan struct{} // closed when it has one; nil: it had one at once
	spared *time.Timer
}

// state is what a stranger has.
type state uint8

const (
	fresh state = iota // a place
	waits              // none
	shown              // a place, and it has shown something
)

// New returns an empty Room. It logs whom it expels.
func New(limits Limits, logger *slog.Logger) *Room {
	return &Room{
		limits: limits, log: NewLog(logger), sources: make(map[netip.Addr]*group),
		pace: pace{every: limits.TurnEvery, waiting: limits.TurnsWaiting},
	}
}

// Log is for what else there is to say of this port's strangers.
func (r *Room) Log() *Log { return r.log }

// Allows tells whether a connection may come from an address, and counts it if it may not.
func (r *Room) Allows(from net.Addr) bool {
	if Allowed(r.limits.Allow, from) {
		return true
	}
	r.refused.Add(1)
	return false
}

// Enter takes a place for a connection from an address; nil: its source has all that it may have. expel is
// called, at most once, if the stranger has to make room for another; Leave returns false from then on. expel must
// not wait.
func (r *Room) Enter(from net.Addr, expel func()) *Stay {
	s := &Stay{room: r, source: Source(from), from: from, since: time.Now(), began: true, expel: expel, gone: make(chan struct{})}
	if !r.take(s) {
		r.log.Warn(from, "closed a connection that had not logged in: too many of them", "age", time.Duration(0))
		return nil
	}
	return s
}

// Await is Enter, but waits where Enter refuses. The stranger is spared for as long as it has not begun (Begin).
// The error is ctx's, or ErrExpelled.
func (r *Room) Await(ctx context.Context, from net.Addr, expel func()) (*Stay, error) {
	s := &Stay{
		room: r, source: Source(from), from: from, since: time.Now(), expel: expel, gone: make(chan struct{}), place: make(chan struct{}),
	}
	if r.take(s) {
		return s, nil
	}
	limit := time.NewTimer(r.limits.WaitMax)
	defer limit.Stop()
	select {
	case <-s.place:
		return s, nil
	case <-s.gone:
		return nil, ErrExpelled
	case <-limit.C:
		r.expel(s, func() bool { return true })
		return nil, ErrExpelled
	case <-ctx.Done():
		s.Leave()
		return nil, ctx.Err()
	}
}

// take has a stranger enter, and returns true if it has a place. Of who may not wait nothing is kept then.
func (r *Room) take(s *Stay) (ok bool) {
	known, now := r.limits.Known != nil && r.limits.Known(s.source), s.since
	r.mu.Lock()
	expelled, ok := r.makePlace(s, known)
	if !ok && s.place == nil {
		r.expelled++
		r.mu.Unlock()
		return false
	}
	if !ok {
		s.state = waits
	}
	expelled = r.makeRoom(s, expelled)
	r.add(s, known)
	r.mu.Unlock()
	r.tell(expelled, now)
	return ok
}

// makePlace returns false if the next one's source has all that it may have.
func (r *Room) makePlace(next *Stay, known bool) (expelled []*Stay, ok bool) {
	g := r.sources[next.source]
	if known || g == nil || g.fresh < r.limits.PerSource {
		return nil, true
	}
	oldest := g.stays[slices.IndexFunc(g.stays, func(s *Stay) bool { return s.state == fresh })]
	if !oldest.began || next.since.Sub(oldest.since) < r.limits.Spare {
		return nil, false
	}
	others := g.wait()
	r.remove(oldest) // its place goes to who has waited for longest
	r.expelled++
	return []*Stay{oldest}, !others
}

// wait tells whether strangers wait for a place.
func (g *group) wait() bool {
	return slices.ContainsFunc(g.stays, func(s *Stay) bool { return s.state == waits })
}

func (r *Room) add(s *Stay, known bool) {
	s.group = r.sources[s.source]
	if s.group == nil {
		s.group = &group{turns: make(chan struct{}, r.limits.Turns)}
		r.sources[s.source] = s.group
	}
	s.group.known = known
	s.group.stays = append(s.group.stays, s)
	r.inside++
	if s.state == fresh {
		s.group.fresh++
	}
}

// tell ends those who were expelled.
func (r *Room) tell(expelled []*Stay, now time.Time) {
	for _, old := range expelled {
		close(old.gone)
		old.expel()
		r.log.Warn(old.from, "closed a connection that had not logged in: too many of them", "age", now.Sub(old.since))
	}
}

// Begin starts the time for which a stranger is spared that has waited: from now on, silence is its own.
func (s *Stay) Begin() {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if s.over || s.began {
		return
	}
	s.began, s.since = true, time.Now()
	s.spared = time.AfterFunc(s.room.limits.Spare, s.yield)
}

// yield expels a stranger that is not spared any more, if another waits for its place.
func (s *Stay) yield() { s.room.expel(s, s.group.wait) }

// expel expels a stranger if that is due.
func (r *Room) expel(s *Stay, due func() bool) {
	r.mu.Lock()
	expelled := !s.over && due()
	if expelled {
		r.remove(s)
		r.expelled++
	}
	r.mu.Unlock()
	if expelled {
		r.tell([]*Stay{s}, time.Now())
	}
}

// Renew makes a stranger that has shown something the newest of its source; it does not count against
// PerSource any more.
func (s *Stay) Renew() {
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.over {
		return
	}
	known := s.group.known
	r.remove(s)
	s.over, s.state, s.since = false, shown, time.Now()
	r.add(s, known)
}

// makeRoom takes out those who have to go when the next one comes, and adds them to expelled.
func (r *Room) makeRoom(next *Stay, expelled []*Stay) []*Stay {
	for {
		oldest, n := r.oldestOfMost(next.source)
		lingers := n > r.limits.PerSource && oldest.state != waits && oldest.began && next.since.Sub(oldest.since) >= r.limits.Spare
		if r.inside < r.limits.Max && !lingers {
			return expelled
		}
		if last := oldest.group.stays[len(oldest.group.stays)-1]; !lingers && last.state == waits {
			oldest = last
		}
		r.remove(oldest)
		r.expelled++
		expelled = append(expelled, oldest)
	}
}

// oldestOfMost returns the oldest stranger of the source that has the most, and how many it
// has, together with the one that comes next. A known source is looked at where there is no other.
func (r *Room) oldestOfMost(next netip.Addr) (oldest *Stay, most int) {
	for source, g := range r.sources {
		n := len(g.stays)
		if source == next {
			n++
		}
		better := oldest == nil || oldest.group.known && !g.known
		same := oldest != nil && oldest.group.known == g.known
		if better || same && (n > most || n == most && g.stays[0].since.Before(oldest.since)) {
			oldest, most = g.stays[0], n
		}
	}
	return oldest, most
}

func (r *Room) remove(s *Stay) {
	s.over = true
	r.inside--
	if s.spared != nil {
		s.spared.Stop()
	}
	g := s.group
	i := slices.Index(g.stays, s)
	if g.stays = slices.Delete(g.stays, i, i+1); len(g.stays) == 0 {
		delete(r.sources, s.source)
	}
	if s.state != fresh {
		return
	}
	g.fresh--
	if i = slices.IndexFunc(g.stays, func(o *Stay) bool { return o.state == waits }); i >= 0 {
		g.stays[i].state, g.stays[i].since = fresh, time.Now()
		g.fresh++
		close(g.stays[i].place)
	}
}

// Turn waits until it is the stranger's turn to do what costs this host much, and lasts until done is
// called: before Leave. Who comes from a known source need not wait. The error is ctx's, ErrExpelled
// or ErrTurnedAway.
func (s *Stay) Turn(ctx context.Context) (done func(), err error) {
	s.room.mu.Lock()
	g, known := s.group, s.group.known
	s.room.mu.Unlock()
	if known {
		return func() {}, nil
	}
	select {
	case g.turns <- struct{}{}:
	case <-s.gone:
		return nil, ErrExpelled
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := s.keepPace(ctx); err != nil {
		<-g.turns
		return nil, err
	}
	return func() { <-g.turns }, nil
}

// keepPace waits for the turn among all sources. Those who wait here have a turn of their source: one
// source cannot have all places.
func (s *Stay) keepPace(ctx context.Context) error {
	r := s.room
	r.mu.Lock()
	wait, ok := r.pace.take(time.Now())
	if !ok {
		r.turnedAway++
	}
	r.mu.Unlock()
	if !ok {
		r.log.Warn(s.from, "closed a connection: too many wait for their turn to show who they are")
		return ErrTurnedAway
	}
	begins := time.NewTimer(wait)
	defer begins.Stop()
	select {
	case <-begins.C:
		return nil
	case <-s.gone:
		return ErrExpelled
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave gives the place back: the stranger is known now, or gone. It returns false if the
// stranger was expelled, or has left before.
func (s *Stay) Leave() bool {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if s.over {
		return false
	}
	s.room.remove(s)
	return true
}

// Stats returns the figures of the moment.
func (r *Room) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{Inside: r.inside, Expelled: r.expelled, Refused: r.refused.Load(), TurnedAway: r.turnedAway}
}
