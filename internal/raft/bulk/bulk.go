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

// Stages is what this package needs of the log. Its methods may be called by any goroutine.
type Stages interface {
	// CreateStage begins a stage. It fails if a stage with this id exists.
	CreateStage(id entry.StageID) (StageWriter, error)
	// HasStage tells whether a stage is complete and fsynced, or in the log.
	HasStage(id entry.StageID) bool
	// OpenStage opens a stage for reading, even while it still grows.
	OpenStage(id entry.StageID) (StageReader, error)
}

// StageWriter takes the bytes of one stage; it is used by one goroutine at a
// time. After Abort its other methods return errors.
type StageWriter interface {
	io.Writer
	// Finish verifies length and CRC32C, and returns when everything is fsynced.
	Finish(bytes uint64, crc uint32) error
	// Abort removes the stage. It does nothing after a Finish that succeeded.
	Abort() error
}

// StageReader reads one stage. ReadAt returns io.EOF behind the bytes that there are, and another error once
// the stage is aborted.
type StageReader interface {
	io.ReaderAt
	// Bytes returns how many bytes can be read now, and whether these are all.
	Bytes() (n int64, complete bool)
	Close() error
}

// Entries is the committed log, for a peer that repairs its own log.
type Entries interface {
	// Open returns a reader for one copy. The copy closes it.
	Open() Reader
	// Tail asks a majority first. So what it returns was true after the call began.
	Tail(ctx context.Context) (Tail, error)
}

// Reader reads the committed log.
type Reader interface {
	// ReadCommitted returns committed entries from index on: at least one, and at most bytesMax bytes of them
	// unless the first is larger. ok=false means that index is not committed yet. For a purged index it returns
	// seglog.ErrCompacted.
	ReadCommitted(index, bytesMax uint64) (found []seglog.Entry, ok bool, err error)
	Close()
}

// Tail is what a node knows of its own log.
type Tail struct {
	Term uint64
	// Leading: the node leads in Term, and Commit covers everything that was committed anywhere before the node
	// was asked.
	Leading             bool
	First, Last, Commit uint64
}

// Config is what a Bulk is built from. All fields are required, but Outgoing, Learners and Source.
type Config struct {
	Self cluster.NodeID
	// Voters are counted for a majority; this node is one of them. While a change of the voters is not
	// complete, a majority of Outgoing, the old voters, is needed as well.
	Voters, Outgoing []cluster.NodeID
	// Learners get the stages, too.
	Learners []cluster.NodeID
	// Dial opens a bulk stream to a peer: its Serve gets the other end.
	Dial func(ctx context.Context, id cluster.NodeID) (Conn, error)
	// Tasks runs goroutines that have no caller. All waiting in this package goes by it.
	Tasks   clock.Tasks
	Stages  Stages
	Entries Entries
	// Leads tells whether a node leads in a term, as far as this node knows. Only that node may push a stage of
	// that term. nil: no node may push.
	Leads func(id cluster.NodeID, term uint64) bool
	// Source feeds learners; nil: this node feeds no learner.
	Source Source
	// ChunkBytesMax bounds the part of a copy in one frame; 0 means 256 KiB, which is also the limit.
	ChunkBytesMax int
	Logger        *slog.Logger
}

// Bulk copies stages and entries from and to the peers. Its methods may be
// called by any goroutine.
type Bulk struct {
	cfg Config

	mu sync.Mutex
	// lanes has the peers to which something is being pushed. Each has a channel that is closed when that ends.
	lanes map[cluster.NodeID]chan struct{}
	// voters and outgoing are counted for a majority. peers are all nodes but this one, voters first. These
	// slices are replaced, never changed.
	voters, outgoing, peers []cluster.NodeID
	// runs: Run is under way, and workers have joined. idle is closed once Run ends (ending) and no worker is
	// left.
	runs, ending bool
	workers      map[*worker]struct{}
	idle         chan struct{}
	// receiving has the stages that are being received. Each has a channel that is closed when that ends.
	receiving map[entry.StageID]chan struct{}
	wants     map[entry.StageID]*want
	// uploads are the Uploads that are not closed.
	uploads map[*Upload]struct{}
	// noRoom is the last stage for which this node's disk had no room; nil once the disk has room again.
	noRoom *noRoom
	// The kinds of warnings: a peer's disk is full; full disks keep a stage from a majority; this node's own
	// disk is full; copies that fail for another reason keep a stage from a majority.
	peerFull, majorityFull, ownFull, majorityFails seldom
	// lastServed is the last failure of Serve that was logged as a warning. A peer that tries again each second
	// gets one warning.
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

// SetMembers sets the nodes. A majority is more than half of the voters and, if there are outgoing voters, more
// than half of these, too. A stage that is under way is counted by them from now on, and goes to the new ones
// among them.
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

// Run lets copies be made until ctx ends. It returns nil after the last of them has ended and every Upload was
// closed. It can run once.
func (b *Bulk) Run(ctx context.Context) error {
	b.mu.Lock()
	b.runs = true
	b.mu.Unlock()
	_ = b.until(ctx, nil)
	b.stop()
	_ = b.until(context.Background(), b.idle)
	return nil
}

// stop ends the workers. From here on start and join refuse new ones.
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

// start runs f in a goroutine. f's context ends with ctx, and with Run. While Run is not under way, start does
// nothing and returns false.
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

// worker is a goroutine for which Run waits.
type worker struct{ cancel context.CancelCauseFunc }

// join makes the caller one of the workers for which Run waits, until it calls leave. The context that it
// returns ends with ctx, and with Run.
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

// claim makes the caller the only one that receives stage id, until it calls release. If another goroutine
// receives it, release is nil, and busy is closed when that goroutine is done.
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

// open dials a peer and sends the request. The stream is closed when ctx ends, and by hangUp.
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

// logFailure logs the first failure of something that is tried again as a warning, and the later ones for
// debugging.
func (b *Bulk) logFailure(failures int, msg string, args ...any) {
	level := slog.LevelDebug
	if failures == 0 {
		level = slog.LevelWarn
	}
	b.cfg.Logger.Log(context.Background(), level, msg, args...)
}
