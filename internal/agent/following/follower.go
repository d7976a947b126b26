package following

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/follow"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

const (
	// sessionsMax is how many transactions run at the same time: each waits for a majority.
	sessionsMax = 8
	// stepsMax is how many steps wait for a session.
	stepsMax = 4
	// alone is how many transactions run one after the other after a conflict.
	alone = 1000
)

// Error numbers of the server (share/messages_to_clients.txt).
const (
	errLockWaitTimeout = 1205 // ER_LOCK_WAIT_TIMEOUT
	errLockDeadlock    = 1213 // ER_LOCK_DEADLOCK
)

// Stream is a source's binlog, as mysqlwire.Foreign reads it.
type Stream interface {
	Next() (binlog.Event, error)
	Close() error
}

// Config is what a Follower needs.
type Config struct {
	// Dial reads the source from behind what is there.
	Dial func(ctx context.Context, executed *gtid.Set) (Stream, error)
	// Executed says what the local mysqld has.
	Executed func(ctx context.Context) (*gtid.Set, error)
	// Sessions are sessions of an account with all privileges.
	Sessions *sql.DB
	// Withheld is that of follow.Translator.
	Withheld func(q binlog.Query) bool
	// Own is a schema that each cluster has for itself; "" = there is none.
	Own    string
	Logger *slog.Logger
}

// Progress is how far a Follower is.
type Progress struct {
	// Transactions is how many were written, LeftOut how many of them without their statements.
	Transactions, LeftOut uint64
	// Committed is when the newest of them was committed at the source; zero = there was none.
	Committed time.Time
}

// Follower follows one source.
type Follower struct {
	cfg Config

	mu       sync.Mutex
	progress Progress
	// serial is how many transactions are to run one after the other.
	serial int
}

// New makes a Follower.
func New(cfg Config) *Follower { return &Follower{cfg: cfg} }

// Progress says how far it is.
func (f *Follower) Progress() Progress {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.progress
}

// Run follows until ctx ends or something fails, and may be called again. When reading ends, transactions that came
// whole are completed. A conflict of two transactions is an error, too: the next Run runs them one after the other.
func (f *Follower) Run(ctx, reading context.Context) error {
	executed, err := f.cfg.Executed(ctx)
	if err != nil {
		return err
	}
	source, err := f.cfg.Dial(ctx, executed)
	if err != nil {
		return err
	}
	closing := func() { _ = source.Close() }
	defer closing()
	group, running := errgroup.WithContext(ctx)
	defer context.AfterFunc(running, closing)()
	defer context.AfterFunc(reading, closing)() // reading outlives many streams, and must not hold them
	c := &coordinator{follower: f, serial: f.takeSerial(), done: make(chan *session, sessionsMax)}
	for range sessionsMax {
		s := &session{follower: f, steps: make(chan follow.Step, stepsMax)}
		c.free = append(c.free, s)
		group.Go(func() error { return s.run(running, c.done) })
	}
	group.Go(func() error { return c.read(running, source) })
	err = group.Wait()
	left := c.serial // what was not used is kept for the next Run
	if ctx.Err() != nil {
		err = ctx.Err()
	} else if Conflict(err) {
		left = alone
	}
	f.mu.Lock()
	f.serial = left
	f.mu.Unlock()
	return err
}

// Conflict tells whether two transactions were in each other's way.
func Conflict(err error) bool {
	server, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && (server.Number == errLockDeadlock || server.Number == errLockWaitTimeout)
}

func (f *Follower) takeSerial() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.serial
	f.serial = 0
	return n
}

// coordinator gives each transaction a session, once it may begin.
type coordinator struct {
	follower *Follower
	clock    follow.Clock
	serial   int
	format   follow.Step
	free     []*session
	// now has the transaction that is being read; nil = none is.
	now  *session
	done chan *session
}

func (c *coordinator) read(ctx context.Context, source Stream) error {
	t := follow.Translator{Withheld: c.follower.cfg.Withheld, Own: c.follower.cfg.Own}
	for {
		e, err := source.Next()
		if err == nil {
			err = t.Feed(e, func(s follow.Step) error { return c.take(ctx, s) })
		}
		if err != nil {
			// Transactions that came whole are written first: most errors are the source's, and come again next time.
			if wait := c.idle(ctx); wait != nil {
				return wait
			}
			return err
		}
	}
}

// take gives a step to the session that has its transaction.
func (c *coordinator) take(ctx context.Context, step follow.Step) error {
	if inside := step.Kind != follow.Begin && step.Kind != follow.Format; inside != (c.now != nil) {
		return fmt.Errorf("%w: a step of kind %d while a transaction is open: %t", binlog.ErrMalformed, step.Kind, c.now != nil)
	}
	switch step.Kind {
	case follow.Format:
		if err := c.idle(ctx); err != nil {
			return err
		}
		c.clock, c.format = follow.Clock{}, step // the numbers begin again in each file
		return nil
	case follow.Begin:
		for len(c.free) == 0 || !c.clock.May(step.Info) || c.serial > 0 && !c.clock.Idle() {
			if err := c.await(ctx); err != nil {
				return err
			}
		}
		if c.serial > 0 {
			c.serial--
		}
		last := len(c.free) - 1
		c.now, c.free = c.free[last], c.free[:last]
		c.now.info = step.Info
		c.clock.Begin(step.Info)
		if err := c.now.send(ctx, c.format); err != nil {
			return err
		}
	}
	s := c.now
	if step.Ends {
		c.now = nil
	}
	return s.send(ctx, step)
}

// await waits until a session has ended its transaction.
func (c *coordinator) await(ctx context.Context) error {
	select {
	case s := <-c.done:
		c.clock.End(s.info)
		c.free = append(c.free, s)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idle waits until every transaction has ended, except the one that is being read.
func (c *coordinator) idle(ctx context.Context) error {
	busy := 0
	if c.now != nil {
		busy = 1
	}
	for len(c.free)+busy < sessionsMax {
		if err := c.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// session writes one transaction at a time.
type session struct {
	follower *Follower
	steps    chan follow.Step
	// info is of the transaction that it has. Only the coordinator uses it.
	info binlog.GTIDInfo
}

func (s *session) send(ctx context.Context, step follow.Step) error {
	select {
	case s.steps <- step:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) run(ctx context.Context, done chan<- *session) error {
	conn, err := s.follower.cfg.Sessions.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	defer func() { _ = conn.Close() }()
	w := writer{conn: conn}
	for {
		var step follow.Step
		select {
		case step = <-s.steps:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := w.step(ctx, step); err != nil {
			return err
		}
		if step.Ends {
			s.follower.wrote(step, w.info)
			done <- s
		}
	}
}

// wrote notes a transaction that is committed.
func (f *Follower) wrote(step follow.Step, info binlog.GTIDInfo) {
	f.mu.Lock()
	f.progress.Transactions++
	if info.ImmediateCommit != 0 {
		f.progress.Committed = time.UnixMicro(int64(info.ImmediateCommit))
	}
	left := step.Kind == follow.LeftOut && !step.Own
	if left {
		f.progress.LeftOut++
	}
	f.mu.Unlock()
	if step.Routine {
		f.cfg.Logger.Warn("an account has made a routine at the source, and may execute and alter it there: here it may not, unless another grant allows it",
			"gtid", info.GTID.String(), "account", step.Query.Invoker.String(), "do", "GRANT EXECUTE, ALTER ROUTINE ON the routine to it, after the cutover")
	}
	if left { // the text may hold a password's hash
		f.cfg.Logger.Warn("a statement of the source is left out: it grants what is withheld here", "gtid", info.GTID.String())
	}
}

// writer executes steps in one session of mysqld.
type writer struct {
	conn    *sql.Conn
	session follow.Session
	info    binlog.GTIDInfo
}

func (w *writer) step(ctx context.Context, step follow.Step) error {
	if step.Kind == follow.Begin {
		w.info = step.Info
	}
	for _, text := range w.session.SQL(step) {
		if _, err := w.conn.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("write transaction %v: %w", w.info.GTID, err)
		}
	}
	return nil
}
