package seglog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// PrefetchBytesDefault is 8 MiB for each of the readers told apart: at
	// 1 GB/s the disk has 8 ms to bring the next chunk.
	PrefetchBytesDefault = 64 << 20

	// streamsMax bounds the readers that are told apart, so that each may have
	// an equal share of the prefetch cache: six peers, the feed and a repair.
	streamsMax = 8

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
	// streamBytesMax bounds what a stream holds.
	streamBytesMax int64
	// wake has room for one: there may be something to read.
	wake chan struct{}
	// arrived has room for one: there is what somebody wanted.
	arrived chan struct{}

	// mu guards what follows.
	mu      sync.Mutex
	running bool
	// streams has the one that was used last at its end.
	streams []*stream
	// entries and misses count what was served from here and what readers read
	// themselves, read and wasted the bytes of entries read ahead, and of those
	// that nobody came for.
	entries, misses, read, wasted uint64
}

func newPrefetch(bytesMax int64) prefetch {
	return prefetch{streamBytesMax: bytesMax / streamsMax, wake: make(chan struct{}, 1), arrived: make(chan struct{}, 1)}
}

// stream is one reader that lags, as far as it can be told from others: by the
// place where it will go on.
type stream struct {
	// next is the index that its reader will ask for, ahead what was read from
	// there on, bytes what that costs.
	next  uint64
	ahead []Entry
	bytes int64
	// begun is set once its reader has got something from it, sequential once that
	// has gone on where it had stopped, and nothing stands against reading ahead.
	begun, sequential bool
	// reading is set while its reader reads from the file itself.
	reading bool
	// wanted is set while its reader comes again once there is something, failed
	// once nothing could be read ahead for it: it finds out why by itself.
	wanted, failed bool
	// chunkBytes is the room that the next chunk needs: more than the constant
	// where entries are larger.
	chunkBytes int64
	// arriving is closed once the chunk that somebody waits for, or that is being
	// read, is here or will not come; nil if there is none. fetching is set while
	// it is being read.
	arriving chan struct{}
	fetching bool
}

// from is where the next chunk begins.
func (s *stream) from() uint64 { return s.next + uint64(len(s.ahead)) }

// empty drops what was read ahead.
func (p *prefetch) empty(s *stream) {
	p.wasted += uint64(s.bytes)
	s.ahead, s.bytes = nil, 0
}

// end drops what was read ahead, and lets go of who waits for more.
func (p *prefetch) end(s *stream) {
	p.empty(s)
	if s.arriving != nil && !s.fetching {
		p.release(s)
	}
}

// release wakes those who wait for the next chunk.
func (p *prefetch) release(s *stream) {
	close(s.arriving)
	s.arriving, s.fetching = nil, false
}

// reset drops everything: the log was truncated, or nobody reads ahead any more.
func (p *prefetch) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.streams {
		p.end(s)
	}
	p.streams = nil
}

// take adds to r what was read ahead from its next index up to, but without,
// index.
func (p *prefetch) take(r *reading, index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.stream == nil {
		r.stream = p.find(r.next())
	}
	s := r.stream
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

// find returns the stream whose reader goes on at index; nil if there is none.
func (p *prefetch) find(index uint64) *stream {
	for i, s := range p.streams {
		if s.next == index && !s.reading {
			p.streams = append(slices.Delete(p.streams, i, i+1), s)
			return s
		}
	}
	return nil
}

// want has the chunk with r's next entry read ahead, and reports whether it will
// be. Where it will not, because it could not be read, is too large, or too many
// wait for theirs, r's reader shall read for itself.
func (p *prefetch) want(r *reading) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return false
	}
	s := r.stream
	if s == nil || s.next != r.next() || !p.has(s) {
		s = &stream{next: r.next(), chunkBytes: chunkBytes, wanted: true}
		if !p.track(s) {
			return false
		}
	}
	if s.failed || s.reading || s.chunkBytes > p.streamBytesMax {
		return false
	}
	s.wanted = true
	if len(s.ahead) > 0 { // meanwhile
		notify(p.arrived)
	}
	notify(p.wake)
	return true
}

// track adds a stream, in the place of the one that was used least lately; but
// not of one whose reader waits for its first chunk: so many would take each
// other's place and get nothing.
func (p *prefetch) track(s *stream) bool {
	if len(p.streams) == streamsMax {
		if p.streams[0].wanted && s.wanted {
			return false
		}
		p.end(p.streams[0])
		p.streams = slices.Delete(p.streams, 0, 1)
	}
	p.streams = append(p.streams, s)
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
	p.mu.Lock()
	s := r.stream
	if s == nil || s.next != r.next() || !p.has(s) || s.reading {
		p.mu.Unlock()
		return false
	}
	r.once = s.sequential
	if r.now || !p.running || !s.sequential || s.failed || s.chunkBytes > p.streamBytesMax {
		s.reading, s.failed = true, false
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

// served notes where r's reader will go on. fromFile is how many entries it read
// for itself.
func (p *prefetch) served(r *reading) {
	if r.stream == nil && r.fromFile == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.misses += uint64(r.fromFile)
	if !p.running {
		return
	}
	s := r.stream
	if s == nil {
		p.track(&stream{next: r.next(), chunkBytes: chunkBytes, begun: true})
		return
	}
	s.reading = false
	if s.next != r.next() {
		p.empty(s)
		s.next = r.next()
	}
	s.sequential = s.begun && len(r.entries) > 0
	s.begun = true
	if !s.sequential && s.arriving != nil && !s.fetching {
		p.release(s) // nothing is read ahead for those who wait for it
	}
	if len(s.ahead) == 0 {
		s.chunkBytes = chunkBytes
	}
	notify(p.wake)
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
		streams := l.readAhead()
		if streams == 0 {
			select {
			case <-ctx.Done():
			case <-p.wake:
			}
			continue
		}
		pause.Reset(pace.after(l, begin, streams))
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
func (p *pace) after(l *Log, begin time.Time, streams int) time.Duration {
	now, busy, bytes := time.Now(), l.busy.total(), l.grown.Load()
	if d := now.Sub(p.since); d >= gainWindow {
		p.growth = float64(bytes-p.bytes) / d.Seconds()
		p.since, p.bytes = now, bytes
	}
	pause := pauseAfter(now.Sub(begin), busy-p.busy, now.Sub(p.at), p.growth*float64(streams))
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

// readAhead reads a chunk for one stream, and returns how many there are to read
// for; 0 = none.
func (l *Log) readAhead() (streams int) {
	s, r, from, streams := l.nextChunk()
	if s == nil {
		return 0
	}
	err := l.readRun(r, from)
	l.mu.RLock()
	defer l.mu.RUnlock()
	l.prefetch.put(s, r, err == nil && r.generation == l.generation)
	return streams
}

// nextChunk returns a stream that has room for a chunk, how to read that, and how
// many such streams there are; nil if there is none. The one that holds least
// comes first.
func (l *Log) nextChunk() (s *stream, r *reading, segment *segment, streams int) {
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
	for _, c := range p.streams {
		there := c.from() >= l.segments[0].first && c.from() < until
		if !there && c.arriving != nil { // purged meanwhile
			c.failed = true
			p.release(c)
		}
		if there && (c.sequential || c.wanted) && !c.reading && !c.failed && c.bytes+c.chunkBytes <= p.streamBytesMax {
			streams++
			if s == nil || c.bytes < s.bytes {
				s = c
			}
		}
	}
	if s == nil {
		return nil, nil, nil, 0
	}
	if s.arriving == nil {
		s.arriving = make(chan struct{})
	}
	s.fetching = true
	from := *l.segments[l.find(s.from())]
	return s, &reading{lo: s.from(), hi: until, bytesMax: chunkBytes, generation: l.generation, once: true}, &from, streams
}

// put hands the chunk that r has read to its stream, unless that has no place
// for it any more, or it is not valid: then the reader will find out itself.
func (p *prefetch) put(s *stream, r *reading, valid bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(s)
	bytes := int64(0)
	for i := range r.entries {
		bytes += cost(&r.entries[i])
	}
	p.read += uint64(bytes)
	s.chunkBytes = max(chunkBytes, bytes)
	s.failed = !valid
	if s.wanted {
		s.wanted = false
		notify(p.arrived)
	}
	if !valid || s.bytes+bytes > p.streamBytesMax || r.lo != s.from() || !p.has(s) {
		p.wasted += uint64(bytes)
		return
	}
	s.ahead, s.bytes = append(s.ahead, r.entries...), s.bytes+bytes
}

func (p *prefetch) has(s *stream) bool { return slices.Contains(p.streams, s) }
