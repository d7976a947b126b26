package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// markTimeout bounds one try: a disk that takes longer has other troubles.
const markTimeout = 30 * time.Second

// ErrEnded says that a mysqld has ended while it was asked.
var ErrEnded = errors.New("mysqld has ended")

// Mysqld is a server that runs, and was judged.
type Mysqld interface {
	ServerUUID() string
	// FlushExecuted returns what the server has executed, and whether XA transactions were
	// among that, and has then made it durable. ErrEnded: the server has ended meanwhile.
	FlushExecuted(ctx context.Context) (executed *gtid.Set, xa bool, err error)
}

// Marks keeps the durable mark: see datadir.Mark.
type Marks interface {
	Of(serverUUID string) replay.Mark
	Advance(serverUUID string, m replay.Mark) error
}

// MarkerConfig is what a Marker needs. Fields are required unless it is said otherwise.
type MarkerConfig struct {
	// Mysqld is the server of now; nil = none runs, or it was not judged so far.
	Mysqld func() Mysqld
	// Applied is how far in the log it was when it was asked last.
	Applied   func() uint64
	Marks     Marks
	Committed *consensus.Committed
	Lag       *consensus.LagTracker
	// Read calls f with the committed log.
	Read   func(f func(log replay.CommittedLog) error) error
	Every  time.Duration
	Clock  clock.Clock
	Now    func() time.Time
	Logger *slog.Logger
	// Prepared takes the XA transactions that are prepared, at each look; nil: not asked for.
	Prepared func(ctx context.Context, m Mysqld, open []replay.PreparedXA) error
	// Also is called at each look, last; nil: not asked for.
	Also func(ctx context.Context, m Mysqld)
}

// Marker takes the durable marks of the node's mysqld, as long as it applies something. It
// waits for a disk.
type Marker struct {
	cfg MarkerConfig
	// usedXA: mysqld has seen XA transactions since the agent started. Until then the log is
	// not read for them.
	usedXA atomic.Bool
	// prepared follows the XA transactions of the log for the mysqld serverUUID.
	prepared   *replay.Prepared
	serverUUID string
	// tried is what mysqld had at the last try that had an answer.
	tried uint64
}

// NewMarker returns one that has taken no mark so far.
func NewMarker(cfg MarkerConfig) *Marker { return &Marker{cfg: cfg} }

// UsesXA says that mysqld has seen XA transactions. Everybody may call it.
func (m *Marker) UsesXA() { m.usedXA.Store(true) }

// Run takes marks at intervals, until ctx ends.
func (m *Marker) Run(ctx context.Context) error {
	for m.cfg.Clock.Wait(ctx, m.cfg.Every, nil) == nil {
		if server := m.cfg.Mysqld(); server != nil {
			m.look(ctx, server)
		}
	}
	return nil
}

func (m *Marker) look(ctx context.Context, server Mysqld) {
	ctx, cancel := m.cfg.Clock.WithTimeout(ctx, markTimeout)
	defer cancel()
	if applied := m.cfg.Applied(); applied != m.tried {
		err := m.take(ctx, server)
		switch {
		case err == nil:
			m.tried = applied
		case !errors.Is(err, ErrEnded):
			m.cfg.Logger.Warn("take a durable mark", "error", err)
		}
	}
	if err := m.followXA(ctx, server); err != nil {
		m.cfg.Logger.Warn("watch prepared XA transactions", "error", err)
	}
	if m.cfg.Also != nil {
		m.cfg.Also(ctx, server)
	}
}

// take asks mysqld what it has, makes that durable, and notes how far into the log it goes.
func (m *Marker) take(ctx context.Context, server Mysqld) error {
	executed, xa, err := server.FlushExecuted(ctx)
	if err != nil {
		return err
	}
	if xa {
		m.usedXA.Store(true)
	}
	uuid := server.ServerUUID()
	held := replay.Held{Index: m.cfg.Lag.Executed(executed, m.cfg.Now()).Applied, Executed: executed}
	m.beginXA(uuid)
	var mark replay.Mark
	found := false
	err = m.cfg.Read(func(log replay.CommittedLog) (err error) {
		if m.prepared != nil {
			if err := m.readXA(ctx, log, min(held.Index, m.cfg.Committed.Mark().Index)); err != nil {
				return err
			}
		}
		if mark, found, err = replay.NewMark(log, held, m.prepared); err != nil {
			return fmt.Errorf("find mysqld's durable mark in the log: %w", err)
		}
		return nil
	})
	if err != nil || !found {
		return err
	}
	return m.cfg.Marks.Advance(uuid, mark)
}

// beginXA has the log's XA transactions followed behind a mysqld's durable mark, once it
// has seen some.
func (m *Marker) beginXA(serverUUID string) {
	if m.usedXA.Load() && (m.prepared == nil || m.serverUUID != serverUUID) {
		m.prepared, m.serverUUID = replay.NewPrepared(m.cfg.Marks.Of(serverUUID).Index+1), serverUUID
	}
}

// readXA looks at the log up to an index, and goes on there the next time where ctx ends.
func (m *Marker) readXA(ctx context.Context, log replay.CommittedLog, through uint64) error {
	for {
		done, err := m.prepared.ReadSome(log, through)
		if done || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("look for XA transactions: %w", err)
		}
	}
}

// followXA follows the log's XA transactions as far as mysqld is, and no further: what has
// its end beyond that would have to be kept.
func (m *Marker) followXA(ctx context.Context, server Mysqld) error {
	if m.prepared == nil {
		return nil
	}
	applied := min(m.cfg.Applied(), m.cfg.Committed.Mark().Index)
	if err := m.cfg.Read(func(log replay.CommittedLog) error { return m.readXA(ctx, log, applied) }); err != nil {
		return err
	}
	m.prepared.Forget(applied)
	if m.cfg.Prepared == nil {
		return nil
	}
	return m.cfg.Prepared(ctx, server, m.prepared.Open())
}
