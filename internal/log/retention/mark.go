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

// markTimeout bounds one attempt: a disk that takes longer has other troubles.
const markTimeout = 30 * time.Second

// ErrEnded says that a mysqld ended while it was asked.
var ErrEnded = errors.New("mysqld has ended")

// Mysqld is a server that runs and was judged.
type Mysqld interface {
	ServerUUID() string
	// FlushExecuted makes what the server has executed durable, and returns it. xa: XA transactions are part of
	// it. ErrEnded: the server has ended meanwhile.
	FlushExecuted(ctx context.Context) (executed *gtid.Set, xa bool, err error)
}

// Marks keeps the durable mark: see datadir.Mark.
type Marks interface {
	Of(serverUUID string) replay.Mark
	Advance(serverUUID string, m replay.Mark) error
}

// MarkerConfig is what a Marker needs. Fields are required unless it is said otherwise.
type MarkerConfig struct {
	// Mysqld returns the present server; nil = no server runs, or it was not judged yet.
	Mysqld func() Mysqld
	// Applied is how far in the log the server was when it was asked last.
	Applied   func() uint64
	Marks     Marks
	Committed *consensus.Committed
	// Read calls f with the committed log.
	Read   func(f func(log replay.CommittedLog) error) error
	Every  time.Duration
	Clock  clock.Clock
	Logger *slog.Logger
	// Prepared is given the XA transactions that are prepared, at each look; nil: not needed.
	Prepared func(ctx context.Context, m Mysqld, open []replay.PreparedXA) error
	// Also is called at the end of each look; nil: not needed.
	Also func(ctx context.Context, m Mysqld)
}

// Marker takes durable marks of the node's mysqld, as long as mysqld applies something. It waits for a disk.
type Marker struct {
	cfg MarkerConfig
	// usedXA: mysqld has seen XA transactions since the agent started. Before that, the log is not searched for
	// them.
	usedXA atomic.Bool
	// prepared follows the XA transactions of the log for the mysqld serverUUID.
	prepared   *replay.Prepared
	serverUUID string
	// tried is Applied at the last attempt that did not fail.
	tried uint64
}

// NewMarker returns a Marker that has taken no mark yet.
func NewMarker(cfg MarkerConfig) *Marker { return &Marker{cfg: cfg} }

// UsesXA says that mysqld has seen XA transactions. Any goroutine may call it.
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
	if applied := m.cfg.Applied(); applied != 0 && applied != m.tried {
		err := m.take(ctx, server, applied)
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

// take asks mysqld what it has executed, makes that durable, and notes the durable mark: how far in the log
// that goes. The mark is looked for at applied, which was known before mysqld was asked: while it flushes, it goes on,
// and what is known of it then is newer than its answer. If it was killed in between, its answer lacks the witness.
func (m *Marker) take(ctx context.Context, server Mysqld, applied uint64) error {
	executed, xa, err := server.FlushExecuted(ctx)
	if err != nil {
		return err
	}
	if xa {
		m.usedXA.Store(true)
	}
	uuid := server.ServerUUID()
	held := replay.Held{Index: applied, Executed: executed}
	m.beginXA(uuid)
	var mark replay.Mark
	found := false
	err = m.cfg.Read(func(log replay.CommittedLog) (err error) {
		if m.prepared != nil {
			if err := m.readXA(ctx, log, min(applied, m.cfg.Committed.Mark().Index)); err != nil {
				return err
			}
		}
		if mark, found, err = replay.NewMark(log, held, m.prepared); err != nil {
			return fmt.Errorf("find mysqld's durable mark in the log: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !found {
		m.cfg.Logger.Info("no durable mark was taken: near what mysqld has applied, the log has no transaction that proves it", "applied", applied)
		return nil
	}
	return m.cfg.Marks.Advance(uuid, mark)
}

// beginXA begins to follow the log's XA transactions from a mysqld's durable mark on, once mysqld has seen XA
// transactions.
func (m *Marker) beginXA(serverUUID string) {
	if m.usedXA.Load() && (m.prepared == nil || m.serverUUID != serverUUID) {
		m.prepared, m.serverUUID = replay.NewPrepared(m.cfg.Marks.Of(serverUUID).Index+1), serverUUID
	}
}

// readXA reads the log up to an index. If ctx ends, the next call goes on from there.
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

// followXA follows the log's XA transactions as far as mysqld has applied, and no further: a transaction that
// ends after that point would have to be kept.
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
