package mysqld

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/rows"
)

// EventsSchema has the table events, which says which events of the scheduler must run on a
// primary. A replica's server does not keep that (EventElsewhere), but the table is replicated
// like any other.
const EventsSchema = "quorate"

// EventsMax is how many events quorate can manage.
const EventsMax = 1000

// EventStatus is whether the scheduler runs an event.
type EventStatus string

// The three states of an event. A replica gives each event EventElsewhere, whatever its state
// on the primary: REPLICA_SIDE_DISABLED, before 8.2 SLAVESIDE_DISABLED.
const (
	EventEnabled   EventStatus = "ENABLED"
	EventDisabled  EventStatus = "DISABLED"
	EventElsewhere EventStatus = "ELSEWHERE"
)

// EventName names an event.
type EventName struct{ Schema, Name string }

func (n EventName) String() string { return n.Schema + "." + n.Name }

// EventRow is a row of EventsSchema's table: the status of an event since Altered, in seconds since 1970.
// The time of the last change is replicated with the change, so events of the same name and time on two
// servers are the same event.
type EventRow struct {
	EventName
	Status  EventStatus
	Altered uint64
}

// Event is an event of the server's scheduler.
type Event struct {
	EventRow
	// Definer is USER@HOST.
	Definer string
	// Charset and Collation are those of its author's session. The server reads its statements by
	// them.
	Charset, Collation string
	// Once says that it runs at one time only, Due that this time is past. Ended says that it
	// does not run any more.
	Once, Due, Ended bool
}

// EventsLook is what LookAtEvents finds on a server.
type EventsLook struct {
	// Now is the server's clock, in seconds since 1970.
	Now    uint64
	Events []Event
	Rows   []EventRow
}

// LookAtEvents reads the events and the table. It fails where there are more than EventsMax.
func (a *Admin) LookAtEvents(ctx context.Context) (l EventsLook, err error) {
	if err := a.query1(ctx, "time", "SELECT UNIX_TIMESTAMP()", nil, &l.Now); err != nil {
		return l, err
	}
	// The server shows the times of an event in the time zone of the event. If that zone is not known, a
	// time counts as past.
	const now = "CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', time_zone)"
	l.Events, err = rows.All(ctx, a.db, func(e *Event) []any {
		return []any{&e.Schema, &e.Name, &e.Status, &e.Altered, &e.Definer, &e.Charset, &e.Collation, &e.Once, &e.Due, &e.Ended}
	}, `SELECT event_schema, event_name, IF(status LIKE '%SIDE%', 'ELSEWHERE', status),
			CAST(UNIX_TIMESTAMP(last_altered) AS UNSIGNED), definer, character_set_client, collation_connection, execute_at IS NOT NULL,
			COALESCE(execute_at <= `+now+`, execute_at IS NOT NULL), COALESCE(ends <= `+now+`, ends IS NOT NULL)
		FROM information_schema.events WHERE event_schema NOT IN ('mysql', 'sys') ORDER BY 1, 2 LIMIT ?`, EventsMax+1)
	if err == nil && len(l.Events) > EventsMax {
		err = fmt.Errorf("there are more than %d", EventsMax)
	}
	if err != nil {
		return l, fmt.Errorf("read events: %w", err)
	}
	if l.Rows, err = a.recordedEvents(ctx); err != nil {
		return l, fmt.Errorf("read %s.events: %w", EventsSchema, err)
	}
	return l, nil
}

// recordedEvents reads the table of events. Others may put a view in its place, whose functions a read would run with
// all privileges, outside of the binlog. So the table is locked first, which runs nothing, and only a table is read.
func (a *Admin) recordedEvents(ctx context.Context) (all []EventRow, err error) {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(ctx, "LOCK TABLES "+EventsSchema+".events READ")
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && (e.Number == errNoSuchTable || e.Number == errBadDB) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if _, unlock := conn.ExecContext(context.WithoutCancel(ctx), "UNLOCK TABLES"); unlock != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // its end unlocks
		}
	}()
	var kind string
	if err := conn.QueryRowContext(ctx, "SELECT table_type FROM information_schema.tables WHERE table_schema = ? AND table_name = 'events'", EventsSchema).Scan(&kind); err != nil {
		return nil, err
	}
	if kind != "BASE TABLE" {
		return nil, fmt.Errorf("it is a %s of somebody: DROP VIEW %s.events", strings.ToLower(kind), EventsSchema)
	}
	return rows.All(ctx, conn, func(r *EventRow) []any { return []any{&r.Schema, &r.Name, &r.Status, &r.Altered} },
		"SELECT event_schema, event_name, status, altered FROM "+EventsSchema+".events LIMIT ?", 2*EventsMax)
}

// SetEvents gives events a status on this server alone: it is not in the binlog. Everything else about an event
// stays, also its definer and the time of its last change. SetEvents goes on after an event that cannot be set, and
// returns these events in not.
func (p *Process) SetEvents(ctx context.Context, events []Event) (not map[EventName]error, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	conn, err := p.Admin().db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open session that sets events: %w", err)
	}
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // not back into the pool: its time and timeout were changed
		_ = conn.Close()
	}()
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout=2"); err != nil {
		return nil, fmt.Errorf("bound the wait for locks: %w", err)
	}
	not = map[EventName]error{}
	for _, e := range events {
		if err := e.set(ctx, conn, p.server.cfg.Installation.Version); err != nil {
			not[e.EventName] = fmt.Errorf("set event %v: %w", e.EventName, err)
		}
	}
	return not, nil
}

// set runs ALTER EVENT. The event would get the session's time and character set, so the session first takes those of
// the event. A name may have letters that this set lacks, and in swe7 there is no backtick: such an event is not enabled.
// It can be kept from running, as one of utf8mb4.
func (e Event) set(ctx context.Context, conn *sql.Conn, v install.Version) error {
	if _, err := conn.ExecContext(ctx, "SET NAMES utf8mb4"); err != nil { // the event before may have failed half-way
		return err
	}
	charset, text := binlog.QuoteName(e.Charset), e.alter(v)
	var alter, back string // the statement in the character set of the event, and from there again in ours
	if err := conn.QueryRowContext(ctx, "SELECT CAST(CONVERT(? USING "+charset+") AS BINARY), CONVERT(CONVERT(? USING "+charset+") USING utf8mb4)", text, text).Scan(&alter, &back); err != nil {
		return err
	}
	switch {
	case back == text:
	case e.Status == EventEnabled:
		return fmt.Errorf("its character set %s has no such text: %s", e.Charset, text)
	default:
		charset, alter = "utf8mb4", text
	}
	for _, statement := range []string{
		fmt.Sprintf("SET TIMESTAMP=%d, character_set_client=%s, collation_connection=%s", e.Altered, charset, binlog.QuoteName(e.Collation)),
		alter,
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// alter returns the statement that gives the event its status. It names the definer: without that, our account
// would become the definer.
func (e Event) alter(v install.Version) string {
	status := "ENABLE"
	switch {
	case e.Status == EventDisabled:
		status = "DISABLE"
	case e.Status == EventElsewhere && v.AtLeast(8, 4, 0):
		status = "DISABLE ON REPLICA"
	case e.Status == EventElsewhere:
		status = "DISABLE ON SLAVE"
	}
	user, host := e.Definer, ""
	if at := strings.LastIndexByte(e.Definer, '@'); at >= 0 {
		user, host = e.Definer[:at], e.Definer[at+1:]
	}
	return fmt.Sprintf("ALTER DEFINER=%s@%s EVENT %s.%s %s", binlog.QuoteName(user), binlog.QuoteName(host), binlog.QuoteName(e.Schema), binlog.QuoteName(e.Name), status)
}

// RecordEvents writes rows to the table, and removes the rows of the events in forget. It is a transaction
// in the log, like one of a client.
func (p *Process) RecordEvents(ctx context.Context, rows []EventRow, forget []EventName) error {
	if len(rows) == 0 && len(forget) == 0 {
		return nil
	}
	db, err := p.OpenOwnSchemas()
	if err != nil {
		return fmt.Errorf("open session that records events: %w", err)
	}
	defer func() { _ = db.Close() }()
	if err := recordEvents(ctx, db, rows, forget); err != nil {
		return fmt.Errorf("record events in %s.events: %w", EventsSchema, err)
	}
	return nil
}

func recordEvents(ctx context.Context, db *sql.DB, rows []EventRow, forget []EventName) error {
	if len(rows) > 0 { // else the table exists: it has the row that is removed
		const name = "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
		var tables int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '"+EventsSchema+"' AND table_name = 'events'").Scan(&tables)
		if err == nil && tables == 0 { // so that the log has it only once
			_, err = db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+EventsSchema)
			if err == nil {
				_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+EventsSchema+".events (event_schema "+name+", event_name "+name+
					", status VARCHAR(16) NOT NULL, altered BIGINT UNSIGNED NOT NULL, PRIMARY KEY (event_schema, event_name))"+
					" ENGINE=InnoDB COMMENT='kept by quorate: which events run on the primary'")
			}
		}
		if err != nil {
			return err
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	for _, r := range rows {
		if _, err := tx.ExecContext(ctx, "REPLACE INTO "+EventsSchema+".events VALUES (?, ?, ?, ?)", r.Schema, r.Name, r.Status, r.Altered); err != nil {
			return err
		}
	}
	for _, n := range forget {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+EventsSchema+".events WHERE event_schema = ? AND event_name = ?", n.Schema, n.Name); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// SetScheduler switches the server's event scheduler on or off. While clients are shut out, switching on returns
// ErrShutOut.
func (a *Admin) SetScheduler(ctx context.Context, on bool) error {
	a.doors.Lock()
	defer a.doors.Unlock()
	if on && a.shutOut {
		return fmt.Errorf("set event_scheduler: %w", ErrShutOut)
	}
	return a.setScheduler(ctx, on)
}

func (a *Admin) setScheduler(ctx context.Context, on bool) error {
	value := "OFF"
	if on {
		value = "ON"
	}
	return a.exec(ctx, "set event_scheduler", "SET GLOBAL event_scheduler = "+value)
}
