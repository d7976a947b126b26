package seglog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// PrefetchBytesDefault is 5.3 MiB for each reader: at 1 GB/s the disk has 5 ms
	// to bring the next chunk.
	PrefetchBytesDefault = 64 << 20

	// readersMax bounds the readers that are read ahead for, and peersMax the places in the
	// log that raft's peers are: each has an equal share of the prefetch cache.
	readersMax = 8
	peersMax   = 4

	// chunkBytes is how much is read ahead at a time, of all streams: what a
	// commit may have to wait for on the way to the disk.
	chunkBytes = 256 << 10

	// pauseShare is how long reading ahead pauses after a chunk, in times of what
	// that took, where entries are appended without a break; the less of the time
	// that takes, the shorter. On two processors, reading about 100 MB/s so, commits
	// had nearly their median and two to four times their 99th percentile, at a
	// pause of four times and 300 MB/s three to six times (BenchmarkAppendReader).
	// pauseMax bounds it: a disk that stands still for a moment is no reason to
	// stand longer.
	pauseShare = 12
	pauseMax   = 20 * time.Millisecond

	// gainShare is how much faster than the log grows each reader is read ahead
	// for, at least, whatever that does to commits: or those who lag would never
	// come to its end, and nothing could be purged. The log's growth is taken over
	// gainWindow.
	gainShare  = 2
	gainWindow = 100 * time.Millisecond
)

// prefetch is the cache of what is read ahead for readers that lag: those that
// find the newest entries' cache beyond them, and go on where they stopped.
// Without Run it stays empty. Order of locks: Log.mu before its own.
type prefetch struct {
	// shareBytesMax bounds what a reader holds.
	shareBytesMax int64
	// wake has room for one: there may be something to read.
	wake chan struct{}
	// arrived has room for one: there is what somebody wanted.
	arrived chan struct{}

	// mu guards what follows, and what a Reader has.
	mu      sync.Mutex
	running bool
	// lagging are the readers that lag; of peers the one that was used last is behind
	// the others.
	lagging []*Reader
	// entries and misses count what was served from here and what readers read
	// themselves, read and wasted the bytes of entries read ahead, and of those
	// that nobody came for.
	entries, misses, read, wasted uint64
}

func newPrefetch(bytesMax int64) prefetch {
	return prefetch{shareBytesMax: bytesMax / (readersMax + peersMax), wake: make(chan struct{}, 1), arrived: make(chan struct{}, 1)}
}

// Reader reads the log, and mostly goes on where it stopped: then it is read ahead for
// where it lags. One goroutine uses it.
type Reader struct {
	log *Log
	// next is the index that it will ask for, ahead what was read from there on,
	// bytes what that costs.
	next  uint64
	ahead []Entry
	bytes int64
	// begun is set once it has read something, sequential once it has gone on where it
	// had stopped; failed once nothing could be read ahead: it finds out why by itself.
	begun, sequential, failed bool
	// peer: it stands for a peer of raft, which does not say for whom it reads. wanted is
	// set while that one comes again once there is something.
	peer, wanted bool
	// chunkBytes is the room that the next chunk needs: more than the constant
	// where entries are larger.
	chunkBytes int64
	// arriving is closed once the chunk that it waits for is here or will not come; nil
	// if it waits for none.
	arriving chan struct{}
}

// NewReader returns a reader, which its owner closes.
func (l *Log) NewReader() *Reader { return &Reader{log: l, chunkBytes: chunkBytes} }

// Entries is Log.Entries for one who goes on: where it lags it waits for its turn beside
// commits, and for what is read ahead.
func (r *Reader) Entries(lo, hi, bytesMax uint64) ([]Entry, error) {
	p := &r.log.prefetch
	p.mu.Lock()
	if r.next != lo {
		p.empty(r)
		r.next, r.begun, r.sequential = lo, false, false
	}
	p.mu.Unlock()
	return r.log.entries(&reading{lo: lo, hi: hi, bytesMax: min(bytesMax, ReadBytesMax), reader: r})
}

// Close frees what was read ahead. The reader may be used again, and closed again.
func (r *Reader) Close() {
	p := &r.log.prefetch
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(r)
}

// from is where the next chunk begins.
func (r *Reader) from() uint64 { return r.next + uint64(len(r.ahead)) }

// empty drops what was read ahead.
func (p *prefetch) empty(s *Reader) {
	p.wasted += uint64(s.bytes)
	s.ahead, s.bytes = nil, 0
}

// leave drops what was read ahead for a reader, for which nothing is any more.
func (p *prefetch) leave(s *Reader) {
	p.empty(s)
	p.release(s)
	s.begun, s.sequential, s.wanted, s.failed = false, false, false, false
	p.lagging = slices.DeleteFunc(p.lagging, func(other *Reader) bool { return other == s })
}

// release wakes the reader, which waits for its next chunk.
func (p *prefetch) release(s *Reader) {
	if s.arriving != nil {
		close(s.arriving)
		s.arriving = nil
	}
}

// reset drops everything: the log was truncated, or nobody reads ahead any more.
func (p *prefetch) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.lagging) > 0 {
		p.leave(p.lagging[0])
	}
}

// take adds to r what was read ahead from its next index up to, but without,
// index.
func (p *prefetch) take(r *reading, index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.memory {
		r.reader = p.peerAt(r.next())
	}
	s := r.reader
	if s == nil || s.next != r.next() {
		return
	}
	n := 0
	for ; n < len(s.ahead) && s.next < min(r.hi, index) && r.fits(uint64(len(s.ahead[n].Data))); n++ {
		r.add(s.ahead[n])
		s.next, s.bytes = s.next+1, s.bytes-cost(&s.ahead[n])
		s.ahead[n] = Entry{}
	}
	s.ahead = s.ahead[n:]
	p.entries += uint64(n)
}

// peerAt returns the peer that goes on at index; nil if there is none.
func (p *prefetch) peerAt(index uint64) *Reader {
	for i, s := range p.lagging {
		if s.peer && s.next == index {
			p.lagging = append(slices.Delete(p.lagging, i, i+1), s)
			return s
		}
	}
	return nil
}

// want has the chunk with r's next entry read ahead for a peer, and reports whether
// it will be. Where it will not, because it could not be read or is too large, it shall be
// read at once.
func (p *prefetch) want(r *reading) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return false
	}
	s := r.reader
	if s == nil || s.next != r.next() || !p.has(s) {
		s = &Reader{next: r.next(), chunkBytes: chunkBytes, peer: true, wanted: true}
		if !p.track(s) { // all wait for theirs: this one asks again, too, when one has come
			return chunkBytes <= p.shareBytesMax
		}
	}
	if s.failed || s.chunkBytes > p.shareBytesMax {
		s.wanted, r.reader = false, s
		return false
	}
	s.wanted = true
	if len(s.ahead) > 0 { // meanwhile
		notify(p.arrived)
	}
	notify(p.wake)
	return true
}

// track adds a peer, in the place of the one that was used least lately; but not of
// one that waits for its first chunk: so many would take each other's place and get
// nothing.
func (p *prefetch) track(s *Reader) bool {
	peers := 0
	var oldest *Reader
	for _, other := range p.lagging {
		if other.peer {
			peers++
			if oldest == nil && !other.wanted {
				oldest = other
			}
		}
	}
	if peers == peersMax {
		if oldest == nil {
			return false
		}
		p.leave(oldest)
	}
	p.lagging = append(p.lagging, s)
	return true
}

// notify puts a value into a channel that has room for one, unless it is there.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await waits for the chunk with r's next entry, if it is to be read ahead: who
// lags waits for its turn beside commits. Else r's reader shall read for itself.
func (p *prefetch) await(r *reading) bool {
	s := r.reader
	if s == nil || r.memory {
		return false
	}
	p.mu.Lock()
	if s.next != r.next() || !s.sequential {
		p.mu.Unlock()
		return false
	}
	r.once = true
	if !p.running || s.failed || s.chunkBytes > p.shareBytesMax {
		p.mu.Unlock()
		return false
	}
	if len(s.ahead) > 0 { // meanwhile
		p.mu.Unlock()
		return true
	}
	if s.arriving == nil {
		s.arriving = make(chan struct{})
		notify(p.wake)
	}
	arriving := s.arriving
	p.mu.Unlock()
	<-arriving
	return true
}

// served notes where r's reader will go on.
func (p *prefetch) served(r *reading) {
	s := r.reader
	if s == nil && r.fromFile == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.misses += uint64(r.fromFile)
	if s == nil || !p.running {
		return
	}
	if s.next != r.next() {
		p.empty(s)
		s.next = r.next()
	}
	if r.recent {
		p.leave(s) // it does not lag
		return
	}
	if r.fromFile > 0 {
		s.failed = false
		p.join(s)
	}
	s.sequential = s.begun && len(r.entries) > 0 && p.has(s)
	s.begun = true
	if len(s.ahead) == 0 {
		s.chunkBytes = chunkBytes
	}
	notify(p.wake)
}

// join has a reader read ahead for, if there is a place: who lags beside so many others
// reads for itself.
func (p *prefetch) join(s *Reader) {
	readers := 0
	for _, other := range p.lagging {
		if !other.peer {
			readers++
		}
	}
	if !s.peer && readers < readersMax && !p.has(s) {
		p.lagging = append(p.lagging, s)
	}
}

// Run reads ahead for readers that lag, until ctx ends; without it they read for
// themselves. The more of the time entries are appended, the longer it pauses
// after each chunk, so that commits find the disk and a processor free. It ends
// before Close is called.
func (l *Log) Run(ctx context.Context) error {
	p := &l.prefetch
	p.mu.Lock()
	p.running = true
	p.mu.Unlock()
	pause := time.NewTimer(0)
	defer pause.Stop()
	pace := newPace(l)
	for ctx.Err() == nil {
		begin := time.Now()
		readers := l.readAhead()
		if readers == 0 {
			select {
			case <-ctx.Done():
			case <-p.wake:
			}
			continue
		}
		pause.Reset(pace.after(l, begin, readers))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
	p.mu.Lock()
	p.running = false
	p.mu.Unlock()
	p.reset()
	return nil
}

// pace is what reading ahead has seen of the log's appends.
type pace struct {
	// at is when the last chunk was read, busy the time in appends until then.
	at   time.Time
	busy time.Duration
	// The log's growth, in bytes per second, and since when the next is counted,
	// from how many bytes on.
	growth float64
	since  time.Time
	bytes  int64
}

func newPace(l *Log) *pace {
	now := time.Now()
	return &pace{at: now, busy: l.busy.total(), since: now, bytes: l.grown.Load()}
}

// after returns the pause after a chunk that was begun at begin, one of so many
// readers'.
func (p *pace) after(l *Log, begin time.Time, readers int) time.Duration {
	now, busy, bytes := time.Now(), l.busy.total(), l.grown.Load()
	if d := now.Sub(p.since); d >= gainWindow {
		p.growth = float64(bytes-p.bytes) / d.Seconds()
		p.since, p.bytes = now, bytes
	}
	pause := pauseAfter(now.Sub(begin), busy-p.busy, now.Sub(p.at), p.growth*float64(readers))
	p.at, p.busy = now, busy
	return pause
}

// pauseAfter is how long reading ahead pauses after a chunk that took so long,
// where appends were under way for busy of the time since the chunk before, and
// the log grows by growth bytes per second, times the number of readers.
func pauseAfter(took, busy, since time.Duration, growth float64) time.Duration {
	if since <= 0 || busy <= 0 {
		return 0
	}
	share := pauseShare * min(1, float64(busy)/float64(since))
	pause := min(time.Duration(share*float64(took)), pauseMax)
	if growth > 0 {
		apart := time.Duration(chunkBytes / (gainShare * growth) * float64(time.Second))
		pause = min(pause, max(0, apart-took))
	}
	return pause
}

// busyClock adds up how long calls of Append take. One goroutine starts and stops
// it, any may read it. begun holds the time of day, in nanoseconds, at which the
// present call began, 0 between calls: a jump of the clock costs a pause.
type busyClock struct{ begun, sum atomic.Int64 }

func (c *busyClock) start() { c.begun.Store(time.Now().UnixNano()) }

func (c *busyClock) stop() {
	c.sum.Add(time.Now().UnixNano() - c.begun.Swap(0))
}

// total is the time in calls so far, the present one among them.
func (c *busyClock) total() time.Duration {
	sum := c.sum.Load()
	if begun := c.begun.Load(); begun != 0 {
		sum += time.Now().UnixNano() - begun
	}
	return time.Duration(sum)
}

// readAhead reads a chunk for one reader, and returns how many there are to read
// for; 0 = none.
func (l *Log) readAhead() (readers int) {
	s, r, from, readers := l.nextChunk()
	if s == nil {
		return 0
	}
	err := l.readRun(r, from)
	l.mu.RLock()
	defer l.mu.RUnlock()
	l.prefetch.put(s, r, err == nil && r.generation == l.generation)
	return readers
}

// nextChunk returns a reader that has room for a chunk, how to read that, and how
// many such readers there are; nil if there is none. The one that holds least
// comes first.
func (l *Log) nextChunk() (s *Reader, r *reading, segment *segment, readers int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	p := &l.prefetch
	p.mu.Lock()
	defer p.mu.Unlock()
	// What the cache has is not read ahead.
	until, ok := l.cache.from()
	if !ok {
		until = l.segments[len(l.segments)-1].last() + 1
	}
	for _, c := range p.lagging {
		if c.from() < l.segments[0].first || c.from() >= until { // purged, or in the cache
			p.release(c)
			if c.wanted {
				c.wanted = false
				notify(p.arrived)
			}
			continue
		}
		if (c.sequential || c.wanted) && !c.failed && c.bytes+c.chunkBytes <= p.shareBytesMax {
			readers++
			if s == nil || c.bytes < s.bytes {
				s = c
			}
		}
	}
	if s == nil {
		return nil, nil, nil, 0
	}
	from := *l.segments[l.find(s.from())]
	return s, &reading{lo: s.from(), hi: until, bytesMax: chunkBytes, generation: l.generation, once: true}, &from, readers
}

// put hands the chunk that r has read to its reader, unless that has no place
// for it any more, or it is not valid: then the reader will find out itself.
func (p *prefetch) put(s *Reader, r *reading, valid bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bytes := int64(0)
	for i := range r.entries {
		bytes += cost(&r.entries[i])
	}
	p.read += uint64(bytes)
	if !p.has(s) || r.lo != s.from() {
		p.wasted += uint64(bytes)
		return
	}
	p.release(s)
	s.chunkBytes = max(chunkBytes, bytes)
	s.failed = !valid
	if s.wanted {
		s.wanted = false
		notify(p.arrived)
	}
	if !valid || s.bytes+bytes > p.shareBytesMax {
		p.wasted += uint64(bytes)
		return
	}
	s.ahead, s.bytes = append(s.ahead, r.entries...), s.bytes+bytes
}

func (p *prefetch) has(s *Reader) bool { return slices.Contains(p.lagging, s) }
