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
	// ErrExpelled: the connection had to make room for another.
	ErrExpelled = errors.New("too many connections have not logged in")
	// ErrTurnedAway: as many connections as may already wait for their turn.
	ErrTurnedAway = errors.New("too many connections wait for their turn")
)

// Limits are the bounds of a Room.
type Limits struct {
	// Max bounds all strangers; at least 1.
	Max int
	// PerSource is how many strangers of one source may stay for longer than Spare.
	PerSource int
	Spare     time.Duration
	// Known tells whether a source is known, because clients from there have logged in: its strangers are
	// expelled last, and need no turn. nil = no source is known.
	Known func(source netip.Addr) bool
	// Turns is how many strangers of one unknown source have a turn (Stay.Turn) at a time.
	Turns int
	// TurnEvery is the time from one turn to the next, of all unknown sources together. TurnsWaiting is how many
	// strangers may wait for that turn, beside those that Turns holds back; further ones are turned away.
	// TurnEvery 0 = no bound.
	TurnEvery    time.Duration
	TurnsWaiting int
	// Allow has the networks from which strangers may come; empty = from anywhere.
	Allow []netip.Prefix
}

// Stats are counted since the Room was made, except Inside.
type Stats struct {
	// Inside is the number of strangers now.
	Inside int
	// Expelled strangers had to make room for others. Refused ones came from an address outside of Limits.Allow.
	// TurnedAway ones found too many strangers that waited for a turn.
	Expelled, Refused, TurnedAway uint64
}

// Room holds the strangers of one port.
type Room struct {
	limits Limits
	log    *Log

	refused atomic.Uint64

	mu sync.Mutex
	// sources has the sources of the strangers that are inside.
	sources              map[netip.Addr]*group
	inside               int
	pace                 pace
	expelled, turnedAway uint64
}

// group is the strangers of one source, oldest first.
type group struct {
	stays []*Stay
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
	since  time.Time
	expel  func()
	over   bool
}

// New returns an empty Room. It logs the strangers that it expels.
func New(limits Limits, logger *slog.Logger) *Room {
	return &Room{
		limits: limits, log: NewLog(logger), sources: make(map[netip.Addr]*group),
		pace: pace{every: limits.TurnEvery, waiting: limits.TurnsWaiting},
	}
}

// Log is the Log for further lines about this port's strangers.
func (r *Room) Log() *Log { return r.log }

// Allows tells whether a connection may come from an address. If not, it counts the connection as refused.
func (r *Room) Allows(from net.Addr) bool {
	if Allowed(r.limits.Allow, from) {
		return true
	}
	r.refused.Add(1)
	return false
}

// Enter takes a place for a connection from an address. expel is called, at most once, if the
// stranger has to make room for another; Leave returns false from then on. expel must not wait.
func (r *Room) Enter(from net.Addr, expel func()) *Stay {
	s := &Stay{room: r, source: Source(from), from: from, expel: expel, gone: make(chan struct{})}
	known := r.limits.Known != nil && r.limits.Known(s.source)
	r.mu.Lock()
	s.since = time.Now() // under the lock: the first one of a source is its oldest
	expelled := r.makeRoom(s)
	s.group = r.sources[s.source]
	if s.group == nil {
		s.group = &group{turns: make(chan struct{}, r.limits.Turns)}
		r.sources[s.source] = s.group
	}
	s.group.known = known
	s.group.stays = append(s.group.stays, s)
	r.inside++
	r.mu.Unlock()
	for _, old := range expelled {
		close(old.gone)
		old.expel()
		r.log.Warn(old.from, "closed a connection that had not logged in: too many of them", "age", s.since.Sub(old.since))
	}
	return s
}

// makeRoom takes out the strangers that must go when the next one comes, and returns them.
func (r *Room) makeRoom(next *Stay) (expelled []*Stay) {
	for {
		oldest, n := r.oldestOfMost(next.source)
		lingers := n > r.limits.PerSource && next.since.Sub(oldest.since) >= r.limits.Spare
		if r.inside < r.limits.Max && !lingers {
			return expelled
		}
		r.remove(oldest)
		r.expelled++
		expelled = append(expelled, oldest)
	}
}

// oldestOfMost returns the oldest stranger of the source with the most strangers, and the number of them. The
// stranger that comes next is counted. Known sources count only if there are no others.
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
	i := slices.Index(s.group.stays, s)
	if s.group.stays = slices.Delete(s.group.stays, i, i+1); len(s.group.stays) == 0 {
		delete(r.sources, s.source)
	}
}

// Turn waits for the stranger's turn to do work that costs this host much. The turn lasts until done is
// called, which must be before Leave. A stranger from a known source does not wait. The error is that of ctx,
// ErrExpelled or ErrTurnedAway.
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

// keepPace waits for the turn among all sources. A stranger that waits here already has a turn of its source, so
// a single source cannot take all places.
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
