package bulk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/raft/frame"
	"github.com/quorate/quorate/internal/sys/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nodeA cluster.NodeID = iota + 1
	nodeB
	nodeC
)

var (
	errLinkDown = errors.New("link is down")
	errDisk     = errors.New("disk error")
	errFull     = fmt.Errorf("write stage: %w", seglog.ErrFull)
	id1         = entry.StageID{Term: 7, Number: 1}
	id2         = entry.StageID{Term: 7, Number: 2}
	id3         = entry.StageID{Term: 7, Number: 3}
)

// fakeStages is a log's stages, in memory.
type fakeStages struct {
	// onCreate, onWrite and onFinish, if set, are called first, and their error
	// makes the operation fail. spoil, if set, changes what is read.
	onCreate func(id entry.StageID) error
	onWrite  func(id entry.StageID) error
	onFinish func(id entry.StageID) error
	spoil    func(p []byte, off int64)
	// onOpen and onRead, if set, are called first, and their error makes the operation fail.
	onOpen func() error
	onRead func(off int64) error

	mu     sync.Mutex
	stages map[entry.StageID]*fakeStage
	opened int
}

type fakeStage struct {
	all      *fakeStages
	id       entry.StageID
	data     []byte
	complete bool
	gone     bool
}

func (f *fakeStages) CreateStage(id entry.StageID) (StageWriter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stages[id] != nil {
		return nil, errors.New("stage exists")
	}
	if f.onCreate != nil {
		if err := f.onCreate(id); err != nil {
			return nil, err
		}
	}
	s := &fakeStage{all: f, id: id}
	f.stages[id] = s
	return s, nil
}

func (f *fakeStages) HasStage(id entry.StageID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stages[id]
	return s != nil && s.complete
}

func (f *fakeStages) OpenStage(id entry.StageID) (StageReader, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stages[id] == nil {
		return nil, errors.New("no such stage")
	}
	if f.onOpen != nil {
		if err := f.onOpen(); err != nil {
			return nil, err
		}
	}
	f.opened++
	return &fakeReader{f.stages[id]}, nil
}

// heal takes onCreate, onWrite and onFinish away. It may be called while the stages are in use.
func (f *fakeStages) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onCreate, f.onWrite, f.onFinish = nil, nil, nil
}

// fill makes the disk full: in every stage the first n writes succeed, and the
// later ones fail. With n < 0 no stage can be created.
func (f *fakeStages) fill(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n < 0 {
		f.onCreate = func(entry.StageID) error { return errFull }
		return
	}
	writes := 0
	f.onCreate = func(entry.StageID) error {
		writes = 0
		return nil
	}
	f.onWrite = func(entry.StageID) error {
		if writes++; writes > n {
			return errFull
		}
		return nil
	}
}

// get returns the data of a stage, which may be incomplete. ok is false if there is no such stage.
func (f *fakeStages) get(id entry.StageID) (data []byte, complete, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.stages[id]; s != nil {
		return bytes.Clone(s.data), s.complete, true
	}
	return nil, false, false
}

// drop removes a stage.
func (f *fakeStages) drop(id entry.StageID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.stages, id)
}

// put makes a complete stage of data.
func (f *fakeStages) put(id entry.StageID, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stages[id] = &fakeStage{all: f, id: id, data: data, complete: true}
}

func (s *fakeStage) Write(p []byte) (int, error) {
	s.all.mu.Lock()
	f := s.all.onWrite
	s.all.mu.Unlock()
	if f != nil {
		if err := f(s.id); err != nil {
			return 0, err
		}
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.gone {
		return 0, errors.New("stage is gone")
	}
	s.data = append(s.data, p...)
	return len(p), nil
}

func (s *fakeStage) Finish(n uint64, crc uint32) error {
	s.all.mu.Lock()
	f := s.all.onFinish
	s.all.mu.Unlock()
	if f != nil {
		if err := f(s.id); err != nil {
			return err
		}
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.gone {
		return errors.New("stage is gone")
	}
	if got := sumOf(s.data); got != (trailer{n, crc}) {
		return fmt.Errorf("stage has %+v, want %+v", got, trailer{n, crc})
	}
	s.complete = true
	return nil
}

func (s *fakeStage) Abort() error {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if !s.complete && !s.gone {
		delete(s.all.stages, s.id)
		s.gone = true
	}
	return nil
}

type fakeReader struct{ s *fakeStage }

func (r *fakeReader) ReadAt(p []byte, off int64) (int, error) {
	r.s.all.mu.Lock()
	defer r.s.all.mu.Unlock()
	if r.s.gone {
		return 0, errors.New("stage is gone")
	}
	if off >= int64(len(r.s.data)) {
		return 0, io.EOF
	}
	if r.s.all.onRead != nil {
		if err := r.s.all.onRead(off); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.s.data[off:])
	if r.s.all.spoil != nil {
		r.s.all.spoil(p[:n], off)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (r *fakeReader) Bytes() (int64, bool) {
	r.s.all.mu.Lock()
	defer r.s.all.mu.Unlock()
	return int64(len(r.s.data)), r.s.complete
}

func (r *fakeReader) Close() error {
	r.s.all.mu.Lock()
	defer r.s.all.mu.Unlock()
	r.s.all.opened--
	return nil
}

// fakeEntries is a committed log that begins at first.
type fakeEntries struct {
	first   uint64
	entries []seglog.Entry
	tail    func(ctx context.Context) (Tail, error)
}

func (f *fakeEntries) Open() Reader { return f }

func (f *fakeEntries) Close() {}

func (f *fakeEntries) ReadCommitted(index, bytesMax uint64) ([]seglog.Entry, bool, error) {
	if index < f.first {
		return nil, false, fmt.Errorf("%w: index %d", seglog.ErrCompacted, index)
	}
	var found []seglog.Entry
	n := uint64(0)
	for i := index - f.first; i < uint64(len(f.entries)); i++ {
		if n += uint64(len(f.entries[i].Data)); n > bytesMax && len(found) > 0 {
			break
		}
		found = append(found, f.entries[i])
	}
	return found, len(found) > 0, nil
}

func (f *fakeEntries) Tail(ctx context.Context) (Tail, error) { return f.tail(ctx) }

// testNode is a Bulk under test.
type testNode struct {
	*Bulk
	stages  *fakeStages
	entries *fakeEntries
	// stop ends Run and waits for it.
	stop func()
	// wrap, if set, gets the dialler's end of each stream to this node.
	wrap func(net.Conn) net.Conn
	// down refuses dials to this node. dials are the times of all dials.
	mu    sync.Mutex
	down  bool
	dials []time.Duration
}

func (n *testNode) setDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
}

// dialled returns the times of all dials to this node. It may be called while more are made.
func (n *testNode) dialled() []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.dials)
}

// world is a cluster of testNodes.
type world struct {
	nodes   map[cluster.NodeID]*testNode
	serving sync.WaitGroup
	began   time.Time
}

// newWorld returns a world of running nodes: so many voters, from node 1 on, and after them the learners.
func newWorld(t testing.TB, voters, learners int) *world {
	t.Helper()
	w := &world{nodes: map[cluster.NodeID]*testNode{}, began: time.Now()}
	cfg := Config{Logger: discard(), Tasks: clock.Machine{}, Leads: func(cluster.NodeID, uint64) bool { return true }}
	for i := range voters + learners {
		if id := cluster.NodeID(i + 1); i < voters {
			cfg.Voters = append(cfg.Voters, id)
		} else {
			cfg.Learners = append(cfg.Learners, id)
		}
	}
	for i := range voters + learners {
		self := cluster.NodeID(i + 1)
		n := &testNode{stages: &fakeStages{stages: map[entry.StageID]*fakeStage{}}, entries: &fakeEntries{first: 1}}
		cfg.Self, cfg.Stages, cfg.Entries = self, n.stages, n.entries
		cfg.Dial = func(ctx context.Context, to cluster.NodeID) (Conn, error) {
			conn, err := w.dial(self, to)
			return NetConn(conn), err
		}
		n.Bulk = New(cfg)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- n.Run(ctx) }()
		n.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		w.nodes[self] = n
	}
	t.Cleanup(w.close)
	for _, n := range w.nodes {
		for !n.running() {
			time.Sleep(time.Millisecond)
		}
	}
	return w
}

func (b *Bulk) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// close ends all nodes; what they opened must be closed then.
func (w *world) close() {
	for _, n := range w.nodes {
		n.stop()
	}
	w.serving.Wait()
}

func (w *world) dial(from, to cluster.NodeID) (net.Conn, error) {
	n := w.nodes[to]
	n.mu.Lock()
	n.dials = append(n.dials, time.Since(w.began))
	down := n.down
	n.mu.Unlock()
	if down {
		return nil, errLinkDown
	}
	near, far := net.Pipe()
	w.serving.Go(func() { n.Serve(context.Background(), from, NetConn(far)) })
	if n.wrap != nil {
		near = n.wrap(near)
	}
	return near, nil
}

// cutConn closes itself once so many bytes were written to it.
type cutConn struct {
	net.Conn
	bytes int
}

func (c *cutConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p[:min(len(p), c.bytes)])
	if c.bytes -= n; err == nil && n < len(p) {
		_ = c.Conn.Close()
		err = errLinkDown
	}
	return n, err
}

// first returns a function that wraps only the first connection.
func first(wrap func(net.Conn) net.Conn) func(net.Conn) net.Conn {
	done := false
	return func(c net.Conn) net.Conn {
		if done {
			return c
		}
		done = true
		return wrap(c)
	}
}

// content returns n bytes that differ from place to place, so that a misplaced part is seen.
func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16)*7
	}
	return b
}

func sumOf(b []byte) trailer {
	return trailer{uint64(len(b)), uint32(frame.CRC(0).Add(b))}
}

func staged(id entry.StageID, data []byte) entry.Staged {
	s := sumOf(data)
	return entry.Staged{ID: id, Bytes: s.bytes, CRC: s.crc}
}

// uploaded writes data as stage id of node n and finishes it.
func uploaded(t testing.TB, n *testNode, id entry.StageID, data []byte) *Upload {
	t.Helper()
	u, err := n.Upload(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	for p := data; len(p) > 0; {
		k := min(len(p), 100_000)
		if _, err := u.Write(p[:k]); err != nil {
			t.Fatal(err)
		}
		p = p[k:]
	}
	sum := sumOf(data)
	if err := u.Finish(sum.bytes, sum.crc); err != nil {
		t.Fatal(err)
	}
	return u
}

// holds fails unless the node holds exactly this stage.
func (n *testNode) holds(t testing.TB, id entry.StageID, want []byte) {
	t.Helper()
	got, complete, ok := n.stages.get(id)
	if !ok || !complete || !bytes.Equal(got, want) {
		t.Fatalf("node %d: stage %v there %v, complete %v, %d bytes of %d", n.cfg.Self, id, ok, complete, len(got), len(want))
	}
}

// lacks fails if the node has anything of the stage.
func (n *testNode) lacks(t testing.TB, id entry.StageID) {
	t.Helper()
	if got, complete, ok := n.stages.get(id); ok {
		t.Fatalf("node %d has %d bytes of stage %v, complete %v", n.cfg.Self, len(got), id, complete)
	}
}

// bubble runs f on virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
