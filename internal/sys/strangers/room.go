package strangers

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits are those of a Room.
type Limits struct {
	// Max bounds all strangers; at least 1.
	Max int
	// PerSource is how many of one source may stay for longer than Spare.
	PerSource int
	Spare     time.Duration
	// Allow is where strangers may come from; empty = from anywhere.
	Allow []netip.Prefix
}

// Stats count since the Room was made, but for Inside.
type Stats struct {
	// Inside is the number of strangers now.
	Inside int
	// Expelled had to make room for others, Refused came from where nobody may come from.
	Expelled, Refused uint64
}

// Room holds the strangers of one port.
type Room struct {
	limits Limits
	log    *Log

	refused atomic.Uint64

	mu sync.Mutex
	// sources has the strangers of each source, oldest first; none is empty.
	sources  map[netip.Addr][]*Stay
	inside   int
	expelled uint64
}

// Stay is one stranger's time in a Room.
type Stay struct {
	room   *Room
	source netip.Addr
	from   net.Addr
	since  time.Time
	expel  func()
	over   bool
}

// New returns an empty Room. It logs whom it expels.
func New(limits Limits, logger *slog.Logger) *Room {
	return &Room{limits: limits, log: NewLog(logger), sources: make(map[netip.Addr][]*Stay)}
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

// Enter takes a place for a connection from an address. expel is called, at most once, if the
// stranger has to make room for another; Leave returns false from then on. expel must not wait.
func (r *Room) Enter(from net.Addr, expel func()) *Stay {
	s := &Stay{room: r, source: Source(from), from: from, since: time.Now(), expel: expel}
	r.mu.Lock()
	expelled := r.makeRoom(s)
	r.sources[s.source] = append(r.sources[s.source], s)
	r.inside++
	r.mu.Unlock()
	for _, old := range expelled {
		old.expel()
		r.log.Warn(old.from, "closed a connection that had not logged in: too many of them", "age", s.since.Sub(old.since))
	}
	return s
}

// makeRoom takes out those who have to go when the next one comes.
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

// oldestOfMost returns the oldest stranger of the source that has the most, and how many it
// has, together with the one that comes next.
func (r *Room) oldestOfMost(next netip.Addr) (oldest *Stay, most int) {
	for source, stays := range r.sources {
		n := len(stays)
		if source == next {
			n++
		}
		if n > most || n == most && stays[0].since.Before(oldest.since) {
			oldest, most = stays[0], n
		}
	}
	return oldest, most
}

func (r *Room) remove(s *Stay) {
	s.over = true
	r.inside--
	stays := r.sources[s.source]
	i := slices.Index(stays, s)
	if stays = slices.Delete(stays, i, i+1); len(stays) == 0 {
		delete(r.sources, s.source)
		return
	}
	r.sources[s.source] = stays
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
	return Stats{Inside: r.inside, Expelled: r.expelled, Refused: r.refused.Load()}
}
