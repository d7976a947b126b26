package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	backOffMin = 50 * time.Millisecond
	backOffMax = time.Second
)

// ErrStopped is returned when Run is not under way, or has ended meanwhile.
var ErrStopped = errors.New("bulk: stopped")

// Stages is what this package needs of the log. Its methods may be called by any
// goroutine.
type Stages interface {
	// CreateStage begins a stage. It fails if there is one with this id.
	CreateStage(id entry.StageID) (StageWriter, error)
	// HasStage says whether a stage is complete and fsynced, or in the log.
	HasStage(id entry.StageID) bool
	// OpenStage opens a stage for reading, also one that still grows.
	OpenStage(id entry.StageID) (StageReader, error)
}

// StageWriter takes the bytes of one stage; it is used by one goroutine at a
// time. After Abort its other methods return errors.
type StageWriter interface {
	io.Writer
	// Finish verifies length and CRC32C, and returns when all is fsynced.
	Finish(bytes uint64, crc uint32) error
	// Abort removes the stage. It does nothing after a Finish that succeeded.
	Abort() error
}

// StageReader reads one stage. Behind what there is ReadAt returns io.EOF, and
// another error once the stage is aborted.
type StageReader interface {
	io.ReaderAt
	// Bytes is how many can be read now, and whether these are all.
	Bytes() (n int64, complete bool)
	Close() error
}

// Entries is the committed log, as a peer's repair asks for it.
type Entries interface {
	// Open returns a reader for one copy, which closes it.
	Open() Reader
	// Tail asks a majority first, so that what it returns was true after the call.
	Tail(ctx context.Context) (Tail, error)
}

// Reader reads the committed log.
type Reader interface {
	// ReadCommitted returns committed entries from index on, at least one and at
	// most bytesMax bytes of them unless the first is larger; ok=false when index
	// is not committed yet. It returns seglog.ErrCompacted for a purged one.
	ReadCommitted(index, bytesMax uint64) (found []seglog.Entry, ok bool, err error)
	Close()
}

// Tail is a node's view of its own log.
type Tail struct {
	Term uint64
	// Leading: the node leads in Term, and Commit covers everything that was
	// committed anywhere before it was asked.
	Leading             bool
	First, Last, Commit uint64
}

// Config is what a Bulk is built from. All fields are required, but Outgoing, Learners and Source.
type Config struct {
	Self cluster.NodeID
	// Voters are counted for a majority; this node is one of them. While a change of
	// the voters is not complete, so are the Outgoing ones, for one of their own.
	Voters, Outgoing []cluster.NodeID
	// Learners get the stages, too.
	Learners []cluster.NodeID
	// Dial opens a bulk stream to a peer: its Serve gets the other end.
	Dial func(ctx context.Context, id cluster.NodeID) (Conn, error)
	// Tasks runs what has no caller, and is how all here waits.
	Tasks   clock.Tasks
	Stages  Stages
	Entries Entries
	// Leads tells whether a node leads in a term, as this node knows it: only such a one
	// may push a stage of that term. nil: nobody may.
	Leads func(id cluster.NodeID, term uint64) bool
	// Source feeds learners; nil: this node feeds nobody.
	Source Source
	// ChunkBytesMax bounds what travels in a frame; 0 means 256 KiB, which is also the limit.
	ChunkBytesMax int
	Logger        *slog.Logger
}

// Bulk copies stages and entries from and to the peers. Its methods may be
// called by any goroutine.
type Bulk struct {
	cfg Config

	mu sync.Mutex
	// lanes has the peers to whom something is being pushed, each with a channel that is
	// closed at its end.
	lanes map[cluster.NodeID]chan struct{}
	// voters, and outgoing, are counted for a majority; peers are all but this node,
	// voters first. They are replaced, never changed.
	voters, outgoing, peers []cluster.NodeID
	// runs: Run is under way, and workers have joined. idle is closed once Run ends (ending)
	// and none of them is left.
	runs, ending bool
	workers      map[*worker]struct{}
	idle         chan struct{}
	// receiving has the stages that are being received, each with a channel that
	// is closed at its end.
	receiving map[entry.StageID]chan struct{}
	wants     map[entry.StageID]*want
	// uploads are those that are not closed.
	uploads map[*Upload]struct{}
	// noRoom is the last stage for which this node's disk had no room; nil if it
	// has some again.
	noRoom *noRoom
	// The warnings of full disks: a peer's, those that keep a stage from a
	// majority, and this node's own; and of copies that fail otherwise, and keep a stage
	// from a majority.
	peerFull, majorityFull, ownFull, majorityFails seldom
	// lastServed is the last failure of Serve that was logged for people: a peer
	// that tries again each second is worth one line.
	lastServed string

	counters counters
}

// New returns a Bulk that has started nothing.
func New(cfg Config) *Bulk {
	if cfg.ChunkBytesMax == 0 {
		cfg.ChunkBytesMax = chunkBytes
	}
	b := &Bulk{
		cfg: cfg, lanes: map[cluster.NodeID]chan struct{}{}, workers: map[*worker]struct{}{}, idle: make(chan struct{}),
		receiving: map[entry.StageID]chan struct{}{}, wants: map[entry.StageID]*want{}, uploads: map[*Upload]struct{}{},
	}
	b.SetMembers(cfg.Voters, cfg.Outgoing, cfg.Learners)
	return b
}

// SetMembers makes these the nodes, of which more than half of the voters are a
// majority, and of the outgoing ones, too. A stage that is under way is counted by
// them from now on, and goes to those who are new.
func (b *Bulk) SetMembers(voters, outgoing, learners []cluster.NodeID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.voters, b.outgoing, b.peers = slices.Clone(voters), slices.Clone(outgoing), nil
	for _, id := range slices.Concat(voters, outgoing, learners) {
		if id == b.cfg.Self || slices.Contains(b.peers, id) {
			continue
		}
		b.peers = append(b.peers, id)
	}
	for u := range b.uploads {
		u.setMembers(b.voters, b.outgoing, b.peers)
	}
}

// allPeers returns all other nodes, voters first.
func (b *Bulk) allPeers() []cluster.NodeID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peers
}

// Run lets copies be made until ctx ends, and returns nil after the last of them
// has ended and every Upload was closed. It can run once.
func (b *Bulk) Run(ctx context.Context) error {
	b.mu.Lock()
	b.runs = true
	b.mu.Unlock()
	_ = b.until(ctx, nil)
	b.stop()
	_ = b.until(context.Background(), b.idle)
	return nil
}

// stop ends the workers: start and join refuse from here on.
func (b *Bulk) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs, b.ending = false, true
	for w := range b.workers {
		w.cancel(ErrStopped)
	}
	if len(b.workers) == 0 {
		close(b.idle)
	}
}

// until waits until done is closed. It returns the cause if ctx ends before.
func (b *Bulk) until(ctx context.Context, done <-chan struct{}) error {
	for {
		select {
		case <-done:
			return nil
		default:
		}
		if err := b.cfg.Tasks.Wait(ctx, 0, done); err != nil {
			return err
		}
	}
}

// start runs f, whose context is ctx until Run ends. It returns false, and does
// nothing, while Run is not under way.
func (b *Bulk) start(ctx context.Context, f func(context.Context)) bool {
	ctx, leave, ok := b.join(ctx)
	if ok {
		b.cfg.Tasks.Go(func() {
			defer leave()
			f(ctx)
		})
	}
	return ok
}

// worker is one of those that Run waits for.
type worker struct{ cancel context.CancelCauseFunc }

// join makes the caller one of the workers that Run waits for, until it calls
// leave. The context that it returns ends with ctx, and with Run.
func (b *Bulk) join(ctx context.Context) (joined context.Context, leave func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.runs {
		return nil, nil, false
	}
	joined, cancel := context.WithCancelCause(ctx)
	w := &worker{cancel}
	b.workers[w] = struct{}{}
	return joined, func() {
		cancel(context.Canceled)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.workers, w)
		if b.ending && len(b.workers) == 0 {
			close(b.idle)
		}
	}, true
}

// claim makes the caller the only one that receives stage id, until it calls
// release. If somebody else does, release is nil, and busy is closed when that
// one is done.
func (b *Bulk) claim(id entry.StageID) (release func(), busy <-chan struct{}) {
	return claim(&b.mu, b.receiving, id)
}

// claim makes the caller the only holder of a key.
func claim[K comparable](mu *sync.Mutex, held map[K]chan struct{}, key K) (release func(), busy <-chan struct{}) {
	mu.Lock()
	defer mu.Unlock()
	if busy := held[key]; busy != nil {
		return nil, busy
	}
	done := make(chan struct{})
	held[key] = done
	return func() {
		mu.Lock()
		defer mu.Unlock()
		delete(held, key)
		close(done)
	}, nil
}

// open dials a peer and asks. The stream is closed when ctx ends, and by hangUp.
func (b *Bulk) open(ctx context.Context, id cluster.NodeID, t frameType, payload []byte) (s *stream, hangUp func(), err error) {
	conn, err := b.cfg.Dial(ctx, id)
	if err != nil {
		return nil, nil, fmt.Errorf("dial node %d: %w", id, err)
	}
	s = b.newStream(conn)
	stop := conn.EndWith(ctx)
	hangUp = func() {
		stop()
		_ = conn.Close()
	}
	if err := s.send(t, payload); err != nil {
		hangUp()
		return nil, nil, err
	}
	return s, hangUp, nil
}

// logServed logs why Serve failed.
func (b *Bulk) logServed(from cluster.NodeID, t frameType, err error) {
	b.mu.Lock()
	repeated := b.lastServed == err.Error()
	b.lastServed = err.Error()
	b.mu.Unlock()
	level := slog.LevelWarn
	if repeated {
		level = slog.LevelDebug
	}
	b.cfg.Logger.Log(context.Background(), level, "bulk stream from peer failed", "node", uint64(from), "type", uint8(t), "err", err)
}

// logFailure logs the first failure of something that is tried again for people,
// the others for those who look closely.
func (b *Bulk) logFailure(failures int, msg string, args ...any) {
	level := slog.LevelDebug
	if failures == 0 {
		level = slog.LevelWarn
	}
	b.cfg.Logger.Log(context.Background(), level, msg, args...)
}
