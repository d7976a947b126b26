package prepared

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// alarm is how long an XA transaction may be prepared before the status names it.
const alarm = time.Minute

// Config is what a Watch works with.
type Config struct {
	// AgeMax is how long an XA transaction may be prepared; 0 = for ever.
	AgeMax time.Duration
	// Serving tells whether this node is the primary, and its writes are open.
	Serving func() bool
	// Note takes what was rolled back, for the audit log.
	Note   func(what string)
	Logger *slog.Logger
}

// Watch knows which XA transactions are prepared. Each holds back the durable marks,
// and with them the purge of all logs. Make one with New.
type Watch struct {
	Config
	rolledBack atomic.Int64

	mu   sync.Mutex
	open []watchedXA // the oldest first
	// failed says why an overdue transaction could not be rolled back; "" = no failure.
	failed string
}

// New returns a Watch that knows of none.
func New(c Config) *Watch { return &Watch{Config: c} }

// watchedXA is an XA transaction that is prepared.
type watchedXA struct {
	replay.PreparedXA
	// seen is when this agent saw it first, by its monotonic clock: the clock behind At may be
	// wrong.
	seen time.Time
}

func (x watchedXA) age(now time.Time) time.Duration {
	return max(0, now.Sub(x.At)).Truncate(time.Second)
}

// overdue tells whether it has been prepared for too long, both by its own time and since this
// agent saw it first; ageMax 0 = it never is.
func (x watchedXA) overdue(now time.Time, ageMax time.Duration) bool {
	return ageMax > 0 && x.age(now) > ageMax && now.Sub(x.seen) >= ageMax
}

// note takes the XA transactions that are prepared now.
func (w *Watch) note(open []replay.PreparedXA, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[replay.PreparedXA]time.Time{}
	for _, x := range w.open {
		seen[x.PreparedXA] = x.seen
	}
	w.open = w.open[:0]
	for _, x := range open {
		at, ok := seen[x]
		if !ok {
			at = now
		}
		w.open = append(w.open, watchedXA{x, at})
	}
}

// allOverdue returns the XA transactions that have been prepared for too long.
func (w *Watch) allOverdue(now time.Time) (all []replay.PreparedXA) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.open {
		if x.overdue(now, w.AgeMax) {
			all = append(all, x.PreparedXA)
		}
	}
	return all
}

// Count is how many XA transactions were prepared at the last look.
func (w *Watch) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open)
}

// Why says which XA transactions hold the purge back; "" = none has done so for long.
func (w *Watch) Why(now time.Time) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) == 0 || w.open[0].age(now) < alarm {
		return ""
	}
	x := w.open[0]
	text := fmt.Sprintf("XA transaction %s is prepared since %s (%s): no log can be purged from entry %d on",
		xidText(x.XID), units.Time(x.At), units.Duration(x.age(now)), x.Index)
	if len(w.open) > 1 {
		text += fmt.Sprintf(", %d more are prepared", len(w.open)-1)
	}
	if w.failed != "" {
		return text + "; it cannot be rolled back: " + w.failed
	}
	if w.AgeMax > 0 {
		text += fmt.Sprintf("; the primary rolls it back after %s", units.Duration(w.AgeMax))
	}
	return text
}

// setFailed notes why a transaction could not be rolled back, and tells whether that is new.
func (w *Watch) setFailed(text string) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	news = w.failed != text
	w.failed = text
	return news
}

// xidText is an XID as XA statements write it.
func xidText(x binlog.XID) string {
	parts := []string{xidPart(x.GTRID)}
	if x.BQUAL != "" {
		parts = append(parts, xidPart(x.BQUAL))
	}
	return strings.Join(parts, ",")
}

func xidPart(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) || r == '\'' || r == '\\' }) {
		return fmt.Sprintf("X'%x'", s)
	}
	return "'" + s + "'"
}

// Roller rolls a prepared XA transaction back; the error is mysqld.ErrNoXA if it is not there. It is mysqld.
type Roller interface {
	RollbackXA(ctx context.Context, gtrid, bqual string) error
}

// Look notes which XA transactions are prepared. On the primary it rolls back those that have
// been prepared for too long.
func (w *Watch) Look(ctx context.Context, server Roller, open []replay.PreparedXA) {
	now := time.Now()
	w.note(open, now)
	failed := ""
	for _, x := range w.allOverdue(now) {
		if !w.Serving() { // XA ROLLBACK is not refused by a read-only server
			break
		}
		if err := w.rollBack(ctx, server, x); err != nil {
			failed = err.Error()
		}
	}
	if news := w.setFailed(failed); news && failed != "" {
		w.Logger.Warn("a prepared XA transaction cannot be rolled back", "error", failed)
	}
}

func (w *Watch) rollBack(ctx context.Context, server Roller, x replay.PreparedXA) error {
	what := fmt.Sprintf("XA ROLLBACK %s: prepared since %s, for longer than mysql.xa_prepared_max_age (%s)",
		xidText(x.XID), units.Time(x.At), units.Duration(w.AgeMax))
	err := server.RollbackXA(ctx, x.XID.GTRID, x.XID.BQUAL)
	if errors.Is(err, mysqld.ErrNoXA) {
		return nil // its end is about to be committed
	}
	if err == nil {
		w.rolledBack.Add(1)
		w.Logger.Warn(what)
		w.Note(what)
	}
	return err
}

// Metrics are about the prepared XA transactions, as far as the log was read.
func (w *Watch) Metrics(now time.Time) []metrics.Sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := 0.0
	if len(w.open) > 0 {
		oldest = w.open[0].age(now).Seconds()
	}
	return []metrics.Sample{
		metrics.Of("quorate_xa_prepared", len(w.open)),
		metrics.Of("quorate_xa_prepared_age_seconds", oldest),
		metrics.Of("quorate_xa_rolled_back_total", w.rolledBack.Load()),
	}
}
