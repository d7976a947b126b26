package following

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// endedPoll is the pause between two looks whether a session at the source is gone.
	endedPoll = 50 * time.Millisecond
	// holdIdleMax is how long the source lets a Hold wait for its next statement: longer than a cutover takes.
	holdIdleMax = 10 * time.Minute
	// errNoSuchThread is ER_NO_SUCH_THREAD.
	errNoSuchThread = 1094
)

// Hold is the only session at a source that may close and open it: it has a lock there (GET_LOCK).
type Hold struct{ conn *sql.Conn }

// Hold takes the lock of a name, and ends the session that has it. By then that session has done what it was about to do, or never does.
func (s *Source) Hold(ctx context.Context, name string) (*Hold, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("hold the source: %w", err)
	}
	h := &Hold{conn}
	if err := lock(ctx, conn, name); err != nil {
		h.Close()
		return nil, fmt.Errorf("hold the source: %w", err)
	}
	return h, nil
}

// lock takes the lock in a session.
func lock(ctx context.Context, conn *sql.Conn, name string) error {
	if _, err := conn.ExecContext(ctx, "SET SESSION wait_timeout = ?", int64(holdIdleMax.Seconds())); err != nil {
		return err
	}
	for {
		var got, owner sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", name).Scan(&got); err != nil {
			return err
		}
		if got.Int64 == 1 {
			return nil
		}
		if err := conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", name).Scan(&owner); err != nil {
			return err
		}
		if owner.Valid {
			if err := endSession(ctx, conn, owner.Int64); err != nil {
				return err
			}
		}
		if err := clock.Sleep(ctx, clock.Machine{}, endedPoll); err != nil {
			return err
		}
	}
}

// MayHold returns an error if the source does not let the account lock: some kinds of server and proxy do not.
func (s *Source) MayHold(ctx context.Context) error {
	var got, released sql.NullInt64
	err := s.db.QueryRowContext(ctx, "SELECT GET_LOCK('quorate probe', 1), RELEASE_LOCK('quorate probe')").Scan(&got, &released)
	if err != nil {
		return fmt.Errorf("lock at the source: %w: close it yourself, and say --source-closed", err)
	}
	return nil
}

// endSession ends a session at the source, from another session of the same server, and waits until it is gone.
func endSession(ctx context.Context, conn *sql.Conn, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for {
		_, err := conn.ExecContext(ctx, "KILL ?", id)
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == errNoSuchThread {
			return nil
		}
		if err == nil {
			err = clock.Sleep(ctx, clock.Machine{}, endedPoll)
		}
		if err != nil {
			return fmt.Errorf("end the session that holds it: %w", err)
		}
	}
}

// Close ends the session, and with it the lock: a session in the pool would keep the lock.
func (h *Hold) Close() {
	_ = h.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = h.conn.Close()
}

// Shut closes the source for writes, and waits until no commit is under way, for as long as ctx lets it.
func (h *Hold) Shut(ctx context.Context, was cluster.Closing) error {
	g, err := gateOf(ctx, h.conn, was.ServerUUID)
	if why := g.setSince(was); err == nil && why != "" && g.closed(was) {
		err = errors.New(why)
	}
	if err != nil {
		return err
	}
	wait := time.Minute
	if end, ok := ctx.Deadline(); ok {
		wait = time.Until(end)
	}
	_, err = h.conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = ?", max(1, int64(math.Floor(wait.Seconds()))))
	if err == nil {
		_, err = h.conn.ExecContext(ctx, "SET GLOBAL super_read_only = ON")
	}
	if err != nil {
		return fmt.Errorf("close the source for writes: %w", err)
	}
	return nil
}

// KeepShut has a source that Shut has closed stay so when it restarts. OpenAgain undoes it.
func (h *Hold) KeepShut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var loaded bool
	err := h.conn.QueryRowContext(ctx, "SELECT @@GLOBAL.persisted_globals_load").Scan(&loaded)
	if err == nil && !loaded {
		err = errors.New("its persisted_globals_load is OFF")
	}
	if err == nil {
		_, err = h.conn.ExecContext(ctx, "SET PERSIST super_read_only = ON")
	}
	if err != nil {
		return fmt.Errorf("keep the source closed over its restart: %w", err)
	}
	return nil
}

// OpenAgain undoes Shut and KeepShut, at the server that was closed. It returns a *leftError if somebody else wants
// that closed.
func (h *Hold) OpenAgain(ctx context.Context, was cluster.Closing) error {
	g, err := gateOf(ctx, h.conn, was.ServerUUID)
	if err != nil {
		return err
	}
	if g.closed(was) { // else it was not closed yet, or somebody has opened it
		if err := h.maySomebodyWant(ctx, g, was); err != nil {
			return err
		}
		set := "SET GLOBAL super_read_only = OFF"
		if !was.ReadOnly {
			set += ", GLOBAL read_only = OFF"
		}
		if _, err := h.conn.ExecContext(ctx, set); err != nil {
			return fmt.Errorf("open the source for writes again (%s): %w", set, err)
		}
	}
	if !g.kept(was) {
		return nil
	}
	set := "RESET PERSIST IF EXISTS super_read_only"
	if was.Persisted != "" {
		set = "SET PERSIST super_read_only = " + was.Persisted
	}
	if _, err := h.conn.ExecContext(ctx, set); err != nil {
		return fmt.Errorf("have the source open after its restart, too (%s): %w", set, err)
	}
	return nil
}

// maySomebodyWant returns a *leftError if others have closed the source since, or if it applies what another server
// has.
func (h *Hold) maySomebodyWant(ctx context.Context, g gate, was cluster.Closing) error {
	why, err := applies(ctx, h.conn)
	if since := g.setSince(was); since != "" {
		why, err = since, nil
	}
	if err != nil || why == "" {
		return err
	}
	if g.kept(was) {
		why += "; super_read_only is persisted ON there"
	}
	return &leftError{why}
}
