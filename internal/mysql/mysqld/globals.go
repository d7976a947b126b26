package mysqld

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Error numbers of SET (share/messages_to_clients.txt).
const (
	errWrongType    = 1232 // ER_WRONG_TYPE_FOR_VAR
	errReadOnlyName = 1238 // ER_INCORRECT_GLOBAL_LOCAL_VAR
	errUnknownName  = 1193 // ER_UNKNOWN_SYSTEM_VARIABLE
	errWrongValue   = 1231 // ER_WRONG_VALUE_FOR_VAR
	// errTooManySessions is ER_CON_COUNT_ERROR: clients have all connections.
	errTooManySessions = 1040
	errNotPreparable   = 1295 // ER_UNSUPPORTED_PS
	errTooManyPrepared = 1461 // ER_MAX_PREPARED_STMT_COUNT_REACHED
)

// restoreTimeout bounds how long TryGlobals takes to put values back, also after its context
// has ended.
const restoreTimeout = 10 * time.Second

// notTried are variables whose SET starts work in the server that may take minutes. They cannot
// be put back at once: the second SET would meet the first (error 3166). So they are not set; it
// is only checked that the server would start with the value.
func notTried() []string { return []string{"innodb_buffer_pool_size", "innodb_redo_log_capacity"} }

// NeedsReloadTLS tells whether a running server uses a new value of the variable only after
// ReloadTLS.
func NeedsReloadTLS(name string) bool {
	return slices.Contains([]string{"tls_version", "tls_ciphersuites", "ssl_cipher", "ssl_session_cache_mode", "ssl_session_cache_timeout"}, name)
}

// NeedsReplicaStart tells whether a replica uses a new value of the variable only when
// replication starts again. Of the variables of sessions these are those that decide what a DDL
// stores and that no binlog event carries (Query_log_event's status variables,
// libs/mysql/binlog/event/statement_events.h): an applier has the global value of its start.
func NeedsReplicaStart(name string) bool {
	return slices.Contains([]string{"replica_parallel_workers", "replica_pending_jobs_size_max", "replica_net_timeout", "replica_compressed_protocol",
		"div_precision_increment", "default_week_format", "block_encryption_mode", "innodb_ft_enable_stopword", "innodb_ft_user_stopword_table"}, normalizeOption(name))
}

// ErrAtStart: the server takes the variable at its start only.
var ErrAtStart = errors.New("the server takes it at its start only")

// CheckGlobal judges a variable that will have one value on all nodes. Beside what CheckVariables
// refuses, it refuses variables of components, variables that are fixed when the data directory
// is made, and variables that name a place on a host.
func CheckGlobal(name, value string) error {
	if err := checkVariable(name, value); err != nil {
		return err
	}
	fixed := []string{"lower_case_table_names", "innodb_page_size", "innodb_undo_tablespaces", "innodb_data_file_path"}
	place := regexp.MustCompile(`(_dir|_dirs|_directory|_directories|_file|_filename|_file_path|_path|_tmpdir|_capath|_crlpath|ssl_ca|ssl_cert|ssl_key|ssl_crl)$`)
	switch {
	case strings.Contains(name, "."):
		return fmt.Errorf("%w: %s belongs to a component that some servers may lack: write loose_%s into [mysql.variables]", ErrConfig, name, name)
	case name == "time_zone" || name == "default_time_zone":
		return fmt.Errorf("%w: %s is fixed when mysqld starts: write default_time_zone into each node's [mysql.variables], as an offset such as +02:00", ErrConfig, name)
	case slices.Contains(fixed, name):
		return fmt.Errorf("%w: %s is fixed when a data directory is made", ErrConfig, name)
	case place.MatchString(name) && !strings.HasSuffix(name, "core_file"): // which is ON or OFF
		return fmt.Errorf("%w: %s names a place on a host, and is each node's own: write it into [mysql.variables]", ErrConfig, name)
	}
	return nil
}

// CheckGlobals judges the variables of set, which will have one value on all nodes, beside
// those of has. It checks each by CheckGlobal, and no two names may mean the same variable.
func CheckGlobals(set, has map[string]string) error {
	names := map[string]string{}
	for name := range has {
		names[normalizeOption(name)] = name
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if err := CheckGlobal(name, set[name]); err != nil {
			return err
		}
		n := normalizeOption(name)
		if other, is := names[n]; is && other != name {
			return fmt.Errorf("%w: %s and %s are one variable: set one of them, and unset the other", ErrConfig, other, name)
		}
		names[n] = name
	}
	return nil
}

// Own returns the value that a variable has among an operator's settings, whatever its spelling
// there, or else among quorate's defaults; false = it is the server's own default.
func Own(variables map[string]string, name string) (value string, operator, known bool) {
	for _, n := range slices.Sorted(maps.Keys(variables)) {
		if normalizeOption(n) == normalizeOption(name) {
			value, operator, known = variables[n], true, true
		}
	}
	for _, s := range defaultSettings() {
		if !known && normalizeOption(s.name) == normalizeOption(name) {
			value, known = s.value, true
		}
	}
	return value, operator, known
}

// literals returns the forms in which SET may want a value that is written as in an option
// file: a number (SET knows no suffixes such as K), and a text.
func literals(value string) (all []string) {
	units := map[byte]int{'K': 10, 'M': 20, 'G': 30, 'T': 40, 'P': 50, 'E': 60}
	switch {
	case regexp.MustCompile(`^-?\d+(\.\d+)?$`).MatchString(value):
		all = append(all, value)
	case regexp.MustCompile(`^\d+[KMGTPEkmgtpe]$`).MatchString(value):
		n, err := strconv.ParseUint(value[:len(value)-1], 10, 64)
		shift := units[strings.ToUpper(value)[len(value)-1]]
		if err == nil && bits.Len64(n)+shift <= 64 {
			all = append(all, strconv.FormatUint(n<<shift, 10))
		}
	}
	return append(all, "?")
}

// SetGlobal sets a variable in the running server; ErrAtStart if the server takes it at a start
// only. The server clips a value that is out of range, as it does at a start.
func (a *Admin) SetGlobal(ctx context.Context, name, value string) error {
	return a.whileIn(slices.Values([]string{name}), func() error { return setGlobal(ctx, a.db, name, value) })
}

// ResetGlobal sets a variable in the running server to the server's default.
func (a *Admin) ResetGlobal(ctx context.Context, name string) error {
	return a.whileIn(slices.Values([]string{name}), func() error {
		_, err := a.db.ExecContext(ctx, "SET GLOBAL "+name+" = DEFAULT")
		return refusedGlobal(name, "DEFAULT", err)
	})
}

// execer is a pool of sessions, or one of them.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func setGlobal(ctx context.Context, db execer, name, value string) (err error) {
	for _, literal := range literals(value) {
		var args []any
		if literal == "?" {
			args = []any{value}
		}
		_, err = db.ExecContext(ctx, "SET GLOBAL "+name+" = "+literal, args...)
		if server := (*mysql.MySQLError)(nil); !errors.As(err, &server) || server.Number != errWrongType {
			break
		}
	}
	return refusedGlobal(name, value, err)
}

// refusedGlobal turns the server's error into ErrAtStart or a *RefusedError.
func refusedGlobal(name, value string, err error) error {
	server := (*mysql.MySQLError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &server) && server.Number == errReadOnlyName:
		return fmt.Errorf("set %s: %w", name, ErrAtStart)
	case errors.As(err, &server):
		return &RefusedError{name, value, server.Message, server.Number}
	}
	return fmt.Errorf("set %s: %w", name, err)
}

// RefusedError says, in the server's words, why the server refuses a value.
type RefusedError struct {
	Name, Value, Why string
	// Number is the server's number of the error.
	Number uint16
}

// Error names the variable.
func (e *RefusedError) Error() string {
	if e.Value == "" {
		return e.Name + ": " + e.Why
	}
	return fmt.Sprintf("%s=%s: %s", e.Name, e.Value, e.Why)
}

// Final tells whether the server would always refuse the value. Other reasons may pass, such as
// a resize of the buffer pool that is under way.
func (e *RefusedError) Final() bool {
	return slices.Contains([]uint16{errUnknownName, errWrongValue, errWrongType}, e.Number)
}

// PutBackError says that the server may have kept values that it should only have tried.
type PutBackError struct {
	// Names are the variables, sorted.
	Names []string
	// Err says why.
	Err error
}

// Error names the variables.
func (e *PutBackError) Error() string {
	return fmt.Sprintf("put back what was tried of %s: %v", strings.Join(e.Names, ", "), e.Err)
}

// KnowGlobals checks that the running server has all these variables. It returns a *RefusedError
// for the first that is missing. It sets nothing.
func (a *Admin) KnowGlobals(ctx context.Context, values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, err := getGlobal(ctx, a.db, name, values[name]); err != nil {
			return err
		}
	}
	return nil
}

// getGlobal reads a variable; value, which it is meant to get, is for the error only.
func getGlobal(ctx context.Context, db querier, name, value string) (now sql.NullString, err error) {
	err = db.QueryRowContext(ctx, "SELECT @@GLOBAL."+name).Scan(&now)
	if server := (*mysql.MySQLError)(nil); errors.As(err, &server) {
		return now, &RefusedError{name, value, server.Message, server.Number}
	}
	if err != nil {
		return now, fmt.Errorf("read %s: %w", name, err)
	}
	return now, nil
}

// ReloadTLS makes new sessions use the TLS variables and files that the server has now. If it cannot,
// it returns a *RefusedError that lists the variables in names; the server keeps its previous TLS
// settings.
func (a *Admin) ReloadTLS(ctx context.Context, names []string) error {
	return reloadTLS(ctx, a.db, names)
}

func reloadTLS(ctx context.Context, db execer, names []string) error {
	_, err := db.ExecContext(ctx, "ALTER INSTANCE RELOAD TLS")
	if server := (*mysql.MySQLError)(nil); errors.As(err, &server) {
		return &RefusedError{strings.Join(names, ", "), "", "TLS goes on as before: " + server.Message, server.Number}
	}
	if err != nil {
		return fmt.Errorf("reload TLS: %w", err)
	}
	return nil
}

// TryGlobals sets values in the running server, opens a new session with them, and puts the old
// values back; a *PutBackError says that it could not. It returns a *RefusedError for the first
// value that the server refuses or would clip. atStart has the variables that the server takes
// at its start only. made has, by name, the values that the server shows in another form than
// they were written. For the variables of notTried it only checks that the server has them.
func (a *Admin) TryGlobals(ctx context.Context, values map[string]string) (atStart []string, made map[string]string, err error) {
	err = a.whileIn(maps.Keys(values), func() (err error) {
		atStart, made, err = a.tryGlobals(ctx, values)
		return err
	})
	return atStart, made, err
}

func (a *Admin) tryGlobals(ctx context.Context, values map[string]string) (atStart []string, made map[string]string, err error) {
	if err := a.KnowGlobals(ctx, values); err != nil {
		return nil, nil, err
	}
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("open session that tries variables: %w", err)
	}
	try := trial{admin: a, conn: conn, had: map[string]sql.NullString{}, made: map[string]string{}}
	defer func() {
		err = errors.Join(err, try.putBack(ctx), conn.Close())
	}()
	// In this mode a value that is out of range is an error.
	if _, err := conn.ExecContext(ctx, "SET SESSION sql_mode = 'STRICT_ALL_TABLES'"); err != nil {
		return nil, nil, fmt.Errorf("try variables: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains(notTried(), name) {
			continue
		}
		switch err := try.set(ctx, name, values[name]); {
		case errors.Is(err, ErrAtStart):
			atStart = append(atStart, name)
		case err != nil:
			return nil, nil, err
		}
	}
	return atStart, try.made, try.reloadTLS(ctx)
}

// trial is one run of TryGlobals.
type trial struct {
	admin *Admin
	conn  *sql.Conn
	// had has the earlier values of the variables that may have been changed.
	had  map[string]sql.NullString
	made map[string]string
}

// set tries one value, and tries to open a session with it.
func (t *trial) set(ctx context.Context, name, value string) error {
	before, err := getGlobal(ctx, t.conn, name, value)
	if err != nil {
		return err
	}
	t.had[name] = before
	if err := setGlobal(ctx, t.conn, name, value); err != nil {
		if _, refused := errors.AsType[*RefusedError](err); refused || errors.Is(err, ErrAtStart) {
			delete(t.had, name)
		}
		return err
	}
	after, err := getGlobal(ctx, t.conn, name, value)
	if err != nil {
		return err
	}
	if !isValue(after, value) && !isValue(after, literals(value)[0]) {
		t.made[name] = after.String
	}
	if normalizeOption(name) == "init_connect" {
		if err := t.initConnect(ctx, name, value); err != nil {
			return err
		}
	}
	session, err := t.admin.connector.Connect(ctx)
	if err == nil {
		return session.Close()
	}
	if server := (*mysql.MySQLError)(nil); errors.As(err, &server) {
		if server.Number == errTooManySessions {
			return nil // because of clients, not of the value
		}
		return &RefusedError{name, value, "with it quorate itself could not log in: " + server.Message, server.Number}
	}
	return fmt.Errorf("open a session with %s=%s: %w", name, value, err)
}

// initConnect tries the statements of init_connect in a session of its own: a client whose init_connect fails loses its
// connection, and quorate's own sessions do not run it. It lets the server prepare each statement, and executes those
// that can only set variables of the session. So an error that shows only in a client's session, such as a missing
// privilege, is not found.
func (t *trial) initConnect(ctx context.Context, name, value string) error {
	db := sql.OpenDB(t.admin.connector)
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open session that tries %s: %w", name, err)
	}
	defer func() { _ = conn.Close() }()
	statement, first := "", error(nil)
	// A semicolon may also stand in a text or a comment. Then the statement does not parse before the next one.
	for part := range strings.SplitSeq(value, ";") {
		statement += part
		if strings.TrimSpace(statement) == "" {
			statement = ""
			continue
		}
		err := tryStatement(ctx, conn, strings.TrimSpace(statement))
		if err == nil {
			statement, first = "", nil
			continue
		}
		if first == nil {
			first = err
		}
		statement += ";"
	}
	if server := (*mysql.MySQLError)(nil); errors.As(first, &server) {
		return &RefusedError{name, value, "with it clients could not connect: " + server.Message, server.Number}
	}
	if first != nil {
		return fmt.Errorf("try %s: %w", name, first)
	}
	return nil
}

// tryStatement prepares a statement, and executes it if it sets nothing but variables of the session.
func tryStatement(ctx context.Context, conn *sql.Conn, statement string) error {
	_, err := conn.ExecContext(ctx, "PREPARE quorate_try FROM ?", statement)
	server := (*mysql.MySQLError)(nil)
	if errors.As(err, &server) && (server.Number == errNotPreparable || server.Number == errTooManyPrepared) {
		err = nil
	}
	if onlySets := regexp.MustCompile(`(?i)^SET\s`); err != nil || !onlySets.MatchString(statement) {
		return err
	}
	if more := regexp.MustCompile(`(?i)[(]|/[*]|\b(GLOBAL|PERSIST|PERSIST_ONLY|PASSWORD|ROLE|RESOURCE)\b`); more.MatchString(statement) {
		return nil
	}
	_, err = conn.ExecContext(ctx, statement)
	return err
}

// reloadTLS makes the server try the TLS variables that were set.
func (t *trial) reloadTLS(ctx context.Context) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(t.had)), func(name string) bool { return !NeedsReloadTLS(name) })
	if len(names) == 0 {
		return nil
	}
	return reloadTLS(ctx, t.conn, names)
}

// putBack gives the variables that were tried their earlier values.
func (t *trial) putBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	if _, err := t.conn.ExecContext(ctx, "SET SESSION sql_mode = ''"); err != nil && len(t.had) > 0 {
		return &PutBackError{slices.Sorted(maps.Keys(t.had)), err}
	}
	var failed []string
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(t.had)) {
		var err error
		if t.had[name].Valid {
			err = setGlobal(ctx, t.conn, name, t.had[name].String)
		} else {
			_, err = t.conn.ExecContext(ctx, "SET GLOBAL "+name+" = DEFAULT")
		}
		if err != nil {
			failed, errs = append(failed, name), append(errs, err)
		}
	}
	if err := t.reloadTLS(ctx); err != nil {
		errs = append(errs, err)
		for name := range t.had {
			if NeedsReloadTLS(name) {
				failed = append(failed, name)
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	slices.Sort(failed)
	return &PutBackError{slices.Compact(failed), errors.Join(errs...)}
}
