package agent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

// epochSlot holds the epoch of which this node is the primary: there is at
// most one, and with its tap ends all acknowledging.
type epochSlot struct {
	mu  sync.Mutex
	cur *epoch

	proposeSeconds, ackSeconds prometheus.Histogram
}

func newEpochSlot() *epochSlot {
	seconds := prometheus.ExponentialBuckets(50e-6, 1.25, 62) // 50 µs … 50 s
	return &epochSlot{
		proposeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "quorate_tap_propose_seconds",
			Help: "From a batch's first byte at the tap to its place in the proposal queue.", Buckets: seconds}),
		ackSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "quorate_tap_ack_seconds",
			Help: "From a batch's first byte at the tap to its ACK, the agents' share of a commit.", Buckets: seconds}),
	}
}

func (s *epochSlot) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.proposeSeconds, s.ackSeconds}
}

// timedBatchesMax bounds the batches whose ACK is timed at once.
const timedBatchesMax = 4096

type timedBatch struct {
	number     uint64
	receivedAt time.Time
}

// epoch is one tenure of the local mysqld as primary. What it decides is guarded by the
// slot's lock.
type epoch struct {
	primary.Epoch
	tap    *mysqlwire.Tap
	cancel context.CancelFunc
	// run is the tap's goroutine. It begins once the epoch is open in the log:
	// nothing can be proposed before.
	run func()

	uploads bulk.Uploads

	mu    sync.Mutex
	timed []timedBatch // in order of number
}

// time notes when a batch came; once, though it may be tried to be proposed twice.
func (e *epoch) time(b mysqlwire.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.timed); n > 0 && e.timed[n-1].number == b.Number {
		return
	}
	if len(e.timed) < timedBatchesMax {
		e.timed = append(e.timed, timedBatch{b.Number, b.ReceivedAt})
	}
}

func (e *epoch) acked(number uint64, seconds prometheus.Histogram) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for n < len(e.timed) && e.timed[n].number <= number {
		seconds.Observe(time.Since(e.timed[n].receivedAt).Seconds())
		n++
	}
	e.timed = append(e.timed[:0], e.timed[n:]...)
}

func (s *epochSlot) set(e *epoch) {
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cur = e
}

// close ends the epoch: its tap is closed when close returns, so nothing is
// acknowledged after it.
func (s *epochSlot) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil {
		return
	}
	s.cur.cancel() // first: the tap's end is then no doubt about mysqld
	s.cur.tap.Close()
	s.cur = nil
}

// get returns the epoch of a term, or nil.
func (s *epochSlot) get(term uint64) *epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.rules().Of(term) {
		return nil
	}
	return s.cur
}

// rules is what decides about the epoch, or nil. s.mu is held.
func (s *epochSlot) rules() *primary.Epoch {
	if s.cur == nil {
		return nil
	}
	return &s.cur.Epoch
}

func (s *epochSlot) incarnation(term uint64) (uint64, bool) {
	if e := s.get(term); e != nil {
		return e.Incarnation, true
	}
	return 0, false
}

// stats returns the tap's counters while there is one.
func (s *epochSlot) stats() (mysqlwire.TapStats, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil {
		return mysqlwire.TapStats{}, false
	}
	return s.cur.tap.Stats(), true
}

// OpenTap connects the tap of a new epoch and checks that mysqld waits for it
// and for nobody else.
func (a steps) OpenTap(ctx context.Context, term uint64) error {
	p := a.currentProcess()
	if p == nil {
		return primary.ErrNoMysqld
	}
	tapCtx, cancel := context.WithCancel(a.ctx)
	e := &epoch{Epoch: primary.Epoch{Term: term, Incarnation: p.Incarnation()}, cancel: cancel}
	tap, err := mysqlwire.ConnectTap(ctx, mysqlwire.TapConfig{
		Socket: a.server.Socket(), User: mysqld.TapUser, Password: a.secrets.Tap,
		ServerID: a.serverID(serverIDOfTap), ReplicaUUID: a.derivedUUID(uuidOfTap),
		HeartbeatPeriod: a.cfg.Raft.ElectionTimeout, Exclude: a.committedGTIDs(),
		EntryBytesMax: entryBytesMax, Term: term, Logger: a.logger,
		StageBytesMin: uint64(a.cfg.Log.StageSizeMin),
		OpenStage: func(ctx context.Context, id entry.StageID) (mysqlwire.StageWriter, error) {
			return e.uploads.Open(ctx, a.bulk, id)
		},
		ProposeNow: func(b mysqlwire.Batch) bool { return a.proposeNow(e, b) },
	})
	if err != nil {
		cancel()
		return err
	}
	e.tap = tap
	e.run = func() { a.runTap(tapCtx, e) }
	a.epoch.set(e)
	if r := a.node.Role(); ctx.Err() != nil || !r.Leading || r.Term != term {
		a.epoch.close() // the promotion ended while the tap connected
		return fmt.Errorf("the promotion in term %d ended", term)
	}
	return primary.AwaitTap(ctx, localServer{p.Admin(), p, a.Agent}.SemiSyncStatus, clock.Machine{})
}

// proposeNow proposes a batch from the tap's reader: one that is not looked at, and has
// nothing to wait for.
func (a *Agent) proposeNow(e *epoch, b mysqlwire.Batch) bool {
	if b.ACL || b.Staged != nil {
		return false
	}
	e.time(b)
	if !a.lagBound.TryPass(uint64(b.Bytes), func() bool { return a.node.TryPropose(b.Data) }) {
		return false
	}
	a.epoch.proposeSeconds.Observe(time.Since(b.ReceivedAt).Seconds())
	a.node.Work() // not under the lag bound's lock: it may write to the log
	return true
}

// runTap proposes what the tap brings and proposeNow did not. Its end, unless we ended it,
// is a doubt about mysqld: sessions wait there and nobody listens.
func (a *Agent) runTap(ctx context.Context, e *epoch) {
	defer e.uploads.Close() // not where the epoch is closed, which must not wait for a disk
	err := e.tap.Run(ctx, func(ctx context.Context, b mysqlwire.Batch) error {
		if b.ACL {
			if err := checkGrantStatements(b); err != nil {
				return err
			}
		}
		e.time(b)
		if err := a.lagBound.Wait(ctx, uint64(b.Bytes)); err != nil {
			return err
		}
		err := e.uploads.Propose(b.Staged, func() error { return a.node.Propose(ctx, b.Data) })
		a.epoch.proposeSeconds.Observe(time.Since(b.ReceivedAt).Seconds())
		return err
	})
	if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		if errors.Is(err, seglog.ErrFull) {
			a.logger.Error("the log's disk has no room for a large transaction: it is abandoned with this mysqld, without an OK", "error", err)
		}
		reason := fmt.Sprintf("the tap ended: %v", err)
		if errors.Is(err, mysqlwire.ErrTapClosed) {
			reason = "mysqld ended, or it closed the tap's connection"
		}
		a.inbox.Doubt(e.Incarnation, reason)
	}
}

// grantsDump matches a GRANT that lets an account attach as a replica, whose
// ACKs would release commits that no log has.
var grantsDump = regexp.MustCompile(`(?is)\bGRANT\b.*(\bREPLICATION\s+SLAVE\b|\bREPLICATION_SLAVE_ADMIN\b|\bGROUP_REPLICATION_ADMIN\b|\bSUPER\b|\bALL(\s+PRIVILEGES)?\s+ON\s+\*\s*\.\s*\*)`)

// errForeignGrant fences before the statement is acknowledged: mysqld is
// killed while it waits and the statement is gone.
var errForeignGrant = errors.New("an account was being granted the right to attach as a replica")

// checkGrantStatements looks at the account statements of a batch before it is
// proposed.
func checkGrantStatements(b mysqlwire.Batch) error {
	_, body, err := entry.Parse(b.Data)
	if err != nil {
		return err
	}
	for ev, err := range binlog.Events(body) {
		if err != nil {
			return err
		}
		if ev.Type() != binlog.TypeQuery {
			continue
		}
		q, err := binlog.ParseQuery(ev)
		if err != nil {
			return err
		}
		if binlog.IsACLStatement(q.Text) && grantsDump.MatchString(q.Text) {
			return fmt.Errorf("%w: its replica could acknowledge what no log holds; a CDC reader attaches to the feed instead", errForeignGrant)
		}
	}
	return nil
}

// CommitEpoch opens the epoch in the log.
func (a steps) CommitEpoch(ctx context.Context, term uint64) error {
	e := a.epoch.get(term)
	if e == nil {
		return fmt.Errorf("open epoch %d: its tap is gone", term)
	}
	own := a.board.Own()
	err := primary.Open(ctx, entry.Epoch{
		Term: term, Primary: a.self.Name, ServerUUID: parseUUID(own.ServerUUID),
		ServerVersion: own.ServerVersion, FormatDescription: e.tap.FormatDescription(),
	}, a.node.Propose, a.node.Committed().EpochChanged, clock.Machine{})
	if err != nil {
		return err
	}
	a.work.Go(e.run)
	return nil
}
