package seglog

import (
	"context"
	"sync"
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
	chunkBytes = 1 << 20
)

// prefetch is the cache of what is read ahead for readers that lag: those that
// find the newest entries' cache beyond them, and go on where they stopped.
// Without Run it stays empty. Order of locks: Log.mu before its own.
type prefetch struct {
	// streamBytesMax bounds what a stream holds.
	streamBytesMax int64
	// wake has room for one: there may be something to read.
	wake chan struct{}

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
	return prefetch{streamBytesMax: bytesMax / streamsMax, wake: make(chan struct{}, 1)}
}

// stream is one reader that lags, as far as it can be told from others: by the
// place where it will go on.
type stream struct {
	// next is the index that its reader will ask for, ahead what was read from
	// there on, bytes what that costs.
	next  uint64
	ahead []Entry
	bytes int64
	// sequential is set once its reader has gone on where it had stopped, and
	// nothing stands against reading ahead of it.
	sequential bool
	// reading is set while its reader reads from the file itself.
	reading bool
	// chunkBytes is the room that the next chunk needs: more than the constant
	// where entries are larger.
	chunkBytes int64
	// arriving is closed once the chunk that is being read is here; nil if none
	// is.
	arriving chan struct{}
}

func (s *stream) end() uint64 { return s.next + uint64(len(s.ahead)) }

// empty drops what was read ahead.
func (p *prefetch) empty(s *stream) {
	p.wasted += uint64(s.bytes)
	s.ahead, s.bytes = nil, 0
}

// reset drops everything: the log was truncated, or nobody reads ahead any more.
func (p *prefetch) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.streams {
		p.empty(s)
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
			copy(p.streams[i:], p.streams[i+1:])
			p.streams[len(p.streams)-1] = s
			return s
		}
	}
	return nil
}

// await waits for the chunk with r's next entry, if it is being read: reading
// it a second time would take as long. Else r's reader shall read for itself.
func (p *prefetch) await(r *reading) bool {
	p.mu.Lock()
	s := r.stream
	if s == nil || s.next != r.next() || s.arriving == nil {
		if s != nil {
			s.reading, r.once = true, s.sequential
		}
		p.mu.Unlock()
		return false
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
		if len(p.streams) == streamsMax {
			p.empty(p.streams[0])
			p.streams = append(p.streams[:0], p.streams[1:]...)
		}
		p.streams = append(p.streams, &stream{next: r.next(), chunkBytes: chunkBytes})
		return
	}
	s.reading = false
	if s.next != r.next() {
		p.empty(s)
		s.next = r.next()
	}
	s.sequential = len(r.entries) > 0
	if len(s.ahead) == 0 {
		s.chunkBytes = chunkBytes
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run reads ahead for readers that lag, until ctx ends. Without it they wait for
// the disk. It ends before Close is called.
func (l *Log) Run(ctx context.Context) error {
	p := &l.prefetch
	p.mu.Lock()
	p.running = true
	p.mu.Unlock()
	for ctx.Err() == nil {
		if l.readAhead() {
			continue
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		}
	}
	p.mu.Lock()
	p.running = false
	p.mu.Unlock()
	p.reset()
	return nil
}

// readAhead reads a chunk for one stream, and reports whether it did.
func (l *Log) readAhead() bool {
	s, r, from := l.nextChunk()
	if s == nil {
		return false
	}
	err := l.readRun(r, from)
	l.mu.RLock()
	defer l.mu.RUnlock()
	l.prefetch.put(s, r, err == nil && r.generation == l.generation)
	return true
}

// nextChunk returns a stream that has room for a chunk, and how to read that;
// nil if there is none. The one that holds least comes first.
func (l *Log) nextChunk() (*stream, *reading, *segment) {
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
	var s *stream
	for _, c := range p.streams {
		if c.sequential && !c.reading && c.bytes+c.chunkBytes <= p.streamBytesMax &&
			c.end() >= l.segments[0].first && c.end() < until && (s == nil || c.bytes < s.bytes) {
			s = c
		}
	}
	if s == nil {
		return nil, nil, nil
	}
	s.arriving = make(chan struct{})
	from := *l.segments[l.find(s.end())]
	return s, &reading{lo: s.end(), hi: until, bytesMax: chunkBytes, generation: l.generation, once: true}, &from
}

// put hands the chunk that r has read to its stream, unless that has no place
// for it any more, or it is not valid: then the reader will find out itself.
func (p *prefetch) put(s *stream, r *reading, valid bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(s.arriving)
	s.arriving = nil
	bytes := int64(0)
	for i := range r.entries {
		bytes += cost(&r.entries[i])
	}
	p.read += uint64(bytes)
	s.chunkBytes = max(chunkBytes, bytes)
	s.sequential = s.sequential && valid
	if !valid || s.bytes+bytes > p.streamBytesMax || r.lo != s.end() || !p.has(s) {
		p.wasted += uint64(bytes)
		return
	}
	s.ahead, s.bytes = append(s.ahead, r.entries...), s.bytes+bytes
}

func (p *prefetch) has(s *stream) bool {
	for _, other := range p.streams {
		if other == s {
			return true
		}
	}
	return false
}
