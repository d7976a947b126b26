package seglog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// PrefetchBytesDefault gives each reader 5.3 MiB: at 1 GB/s the disk has 5 ms to bring the next chunk.
	PrefetchBytesDefault = 64 << 20

	// readersMax bounds the readers for which entries are read ahead, and peersMax the places in the log at
	// which raft's peers are. Each has an equal share of the prefetch cache.
	readersMax = 8
	peersMax   = 4

	// chunkBytes is how much is read ahead at a time, for all readers together. It is what a commit may have to
	// wait for at the disk.
	chunkBytes = 256 << 10

	// pauseShare is how long reading ahead pauses after a chunk, in multiples of the time that the chunk took,
	// if entries are appended without a break. If appends take less of the time, the pause is shorter. On two
	// processors, with about 100 MB/s read in this way, commits had nearly their usual median and two to four
	// times their usual 99th percentile. With a pause of four times, and 300 MB/s, that was three to six times
	// (BenchmarkAppendReader). pauseMax bounds the pause: a disk that stands still for a moment is no reason
	// for a longer one.
	pauseShare = 12
	pauseMax   = 20 * time.Millisecond

	// gainShare is how much faster than the log grows each reader is read ahead for, at least, whatever that
	// costs commits. Else readers that lag would never reach the end of the log, and nothing could be purged.
	// The log's growth is measured over gainWindow.
	gainShare  = 2
	gainWindow = 100 * time.Millisecond
)

// prefetch is the cache of what is read ahead for readers that lag: readers that need entries before those in
// the newest entries' cache, and go on where they stopped. Without Run it stays empty. Order of locks: Log.mu
// before prefetch.mu.
type prefetch struct {
	// shareBytesMax bounds what is held for one reader.
	shareBytesMax int64
	// wake has room for one value: there may be something to read.
	wake chan struct{}
	// arrived has room for one value: something has arrived that a peer wanted.
	arrived chan struct{}

	// mu guards the fields below, and those of each Reader.
	mu      sync.Mutex
	running bool
	// lagging are the readers that lag. Among the peers, the one that was used last is the last in it.
	lagging []*Reader
	// entries counts entries that were served from here, misses entries that readers read themselves. read
	// counts the bytes of entries that were read ahead, wasted those that no reader took.
	entries, misses, read, wasted uint64
}

func newPrefetch(bytesMax int64) prefetch {
	return prefetch{shareBytesMax: bytesMax / (readersMax + peersMax), wake: make(chan struct{}, 1), arrived: make(chan struct{}, 1)}
}

// Reader reads the log. If it lags and goes on where it stopped, entries are read ahead for it. One goroutine
// uses it.
type Reader struct {
	log *Log
	// next is the index for which it will ask. ahead are the entries that were read from there on, bytes is
	// what they cost.
	next  uint64
	ahead []Entry
	bytes int64
	// begun is set once it has read something, sequential once it has gone on where it had stopped. failed is
	// set once nothing could be read ahead: the reader will read for itself and find out why.
	begun, sequential, failed bool
	// peer: it stands for a peer of raft, which does not say for whom it reads. wanted is set while that peer
	// will ask again once something has arrived.
	peer, wanted bool
	// chunkBytes is the room that the next chunk needs: more than the constant chunkBytes if entries are
	// larger.
	chunkBytes int64
	// arriving is closed once the chunk for which the reader waits is here, or will not come; nil if the reader
	// does not wait.
	arriving chan struct{}
}

// NewReader returns a reader. Its owner has to close it.
func (l *Log) NewReader() *Reader { return &Reader{log: l, chunkBytes: chunkBytes} }

// Entries is Log.Entries for a reader that goes on where it stopped. If the reader lags, it waits for its turn
// beside commits, and for what is read ahead.
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

// Close drops what was read ahead. The reader may be used again, and closed again.
func (r *Reader) Close() {
	p := &r.log.prefetch
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(r)
}

// from returns where the next chunk begins.
func (r *Reader) from() uint64 { return r.next + uint64(len(r.ahead)) }

// empty drops what was read ahead for a reader.
func (p *prefetch) empty(s *Reader) {
	p.wasted += uint64(s.bytes)
	s.ahead, s.bytes = nil, 0
}

// leave drops what was read ahead for a reader, and ends reading ahead for it.
func (p *prefetch) leave(s *Reader) {
	p.empty(s)
	p.release(s)
	s.begun, s.sequential, s.wanted, s.failed = false, false, false, false
	p.lagging = slices.DeleteFunc(p.lagging, func(other *Reader) bool { return other == s })
}

// release wakes a reader that waits for its next chunk.
func (p *prefetch) release(s *Reader) {
	if s.arriving != nil {
		close(s.arriving)
		s.arriving = nil
	}
}

// reset drops everything: the log was truncated, or Run has ended.
func (p *prefetch) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.lagging) > 0 {
		p.leave(p.lagging[0])
	}
}

// take adds to r what was read ahead from its next index up to, but without, index.
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

// want makes Run read the chunk with r's next entry ahead for a peer. It returns false if that will not happen,
// because the chunk could not be read or is too large. Then the caller has to read it at once.
func (p *prefetch) want(r *reading) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return false
	}
	s := r.reader
	if s == nil || s.next != r.next() || !p.has(s) {
		s = &Reader{next: r.next(), chunkBytes: chunkBytes, peer: true, wanted: true}
		// All peers wait for theirs. This one will ask again, too, when a chunk has come.
		if !p.track(s) {
			return chunkBytes <= p.shareBytesMax
		}
	}
	if s.failed || s.chunkBytes > p.shareBytesMax {
		s.wanted, r.reader = false, s
		return false
	}
	s.wanted = true
	if len(s.ahead) > 0 { // it has come meanwhile
		notify(p.arrived)
	}
	notify(p.wake)
	return true
}

// track adds a peer. If there is no free place, the peer that was not used for the longest time makes room. A
// peer that waits for its first chunk does not: many peers would push each other out and get nothing.
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

// notify puts a value into a channel that has room for one, unless a value is there.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await waits for the chunk with r's next entry, if it will be read ahead: a reader that lags waits for its
// turn beside commits. It returns false if r's reader has to read for itself.
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
	if len(s.ahead) > 0 { // it has come meanwhile
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

// join makes entries be read ahead for a reader, if there is a place. A reader that finds no place reads for
// itself.
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

// Run reads ahead for readers that lag, until ctx ends. Without it they read for themselves. The more of the
// time entries are being appended, the longer it pauses after each chunk, so that commits find the disk and a
// processor free. It must end before Close is called.
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

// pace is what reading ahead knows of the log's appends.
type pace struct {
	// at is when the last chunk was read, busy the total time in appends up to then.
	at   time.Time
	busy time.Duration
	// growth is the log's growth in bytes per second. The next measurement counts from since, at which the log
	// had grown by bytes.
	growth float64
	since  time.Time
	bytes  int64
}

func newPace(l *Log) *pace {
	now := time.Now()
	return &pace{at: now, busy: l.busy.total(), since: now, bytes: l.grown.Load()}
}

// after returns the pause after a chunk that was begun at begin. readers is the number of readers that lag.
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

// pauseAfter returns how long reading ahead pauses after a chunk that took the time took. Appends were under
// way for busy of the time since, which has passed since the chunk before. growth is the log's growth in bytes
// per second, times the number of readers.
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

// busyClock adds up how long calls of Append take. One goroutine starts and stops it, any goroutine may read
// it. begun holds the time of day, in nanoseconds, at which the present call began; 0 between calls. If the
// clock jumps, only one pause is wrong.
type busyClock struct{ begun, sum atomic.Int64 }

func (c *busyClock) start() { c.begun.Store(time.Now().UnixNano()) }

func (c *busyClock) stop() {
	c.sum.Add(time.Now().UnixNano() - c.begun.Swap(0))
}

// total returns the time in calls, the present one included.
func (c *busyClock) total() time.Duration {
	sum := c.sum.Load()
	if begun := c.begun.Load(); begun != 0 {
		sum += time.Now().UnixNano() - begun
	}
	return time.Duration(sum)
}

// readAhead reads a chunk for one reader. It returns how many readers there were to read for; 0 = none.
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

// nextChunk returns a reader that has room for a chunk, how to read that chunk, and how many such readers there
// are; nil if there is none. The reader that holds least comes first.
func (l *Log) nextChunk() (s *Reader, r *reading, segment *segment, readers int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	p := &l.prefetch
	p.mu.Lock()
	defer p.mu.Unlock()
	// Entries in the cache are not read ahead.
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

// put gives the chunk that r has read to its reader, unless the reader has no place for it any more, or the
// chunk is not valid: then the reader will find that out itself.
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
