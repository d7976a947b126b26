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
	// errTooManySessions is what a login gets for the clients' sake: ER_CON_COUNT_ERROR.
	errTooManySessions = 1040
)

// restoreTimeout bounds how long TryGlobals takes to put things back, whatever became of its
// context.
const restoreTimeout = 10 * time.Second

// notTried are the variables of which the running server changes something for minutes once they
// are set, so that they cannot be put back: a second SET meets the first (error 3166). That the
// server would start with the value is all that is asked.
func notTried() []string { return []string{"innodb_buffer_pool_size", "innodb_redo_log_capacity"} }

// NeedsReloadTLS tells whether a running server takes a variable only by ReloadTLS.
func NeedsReloadTLS(name string) bool {
	return slices.Contains([]string{"tls_version", "tls_ciphersuites", "ssl_cipher", "ssl_session_cache_mode", "ssl_session_cache_timeout"}, name)
}

// NeedsReplicaStart tells whether a replica that runs takes a variable only when replication
// starts anew.
func NeedsReplicaStart(name string) bool {
	return slices.Contains([]string{"replica_parallel_workers", "replica_pending_jobs_size_max", "replica_net_timeout", "replica_compressed_protocol"},
		normalizeOption(name))
}

// ErrAtStart: the server takes a variable at its start only.
var ErrAtStart = errors.New("the server takes it at its start only")

// CheckGlobal judges a variable that is to have one value on all nodes. Beside what
// CheckVariables refuses that is what a running server may set and no option names, what is fixed
// in the data directory, and what is a place on each host.
func CheckGlobal(name, value string) error {
	if err := checkVariable(name, value); err != nil {
		return err
	}
	fixed := []string{"lower_case_table_names", "innodb_page_size", "innodb_undo_tablespaces", "innodb_data_file_path"}
	place := regexp.MustCompile(`(_dir|_dirs|_directory|_directories|_file|_filename|_file_path|_path|_tmpdir|_capath|_crlpath|ssl_ca|ssl_cert|ssl_key|ssl_crl)$`)
	switch {
	case strings.Contains(name, "."):
		return fmt.Errorf("%w: %s belongs to a component that some servers may lack: write loose_%s into [mysql.variables]", ErrConfig, name, name)
	case slices.Contains(fixed, name):
		return fmt.Errorf("%w: %s is fixed when a data directory is made", ErrConfig, name)
	case place.MatchString(name) && !strings.HasSuffix(name, "core_file"): // which is ON or OFF
		return fmt.Errorf("%w: %s names a place on a host, and is each node's own: write it into [mysql.variables]", ErrConfig, name)
	}
	return nil
}

// CheckGlobals judges variables that are to have one value on all nodes, beside those that have
// one: each by CheckGlobal, and no two of them may be names of one variable.
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

// literals are the forms in which SET may want a value that is written as in an option file: a
// number, of which SET knows no suffix, and a text.
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

// SetGlobal has the running server take a value; ErrAtStart if it does not. What is out of its
// range it clips, as it would at a start.
func (a *Admin) SetGlobal(ctx context.Context, name, value string) error {
	return setGlobal(ctx, a.db, name, value)
}

// ResetGlobal has the running server go back to its own default.
func (a *Admin) ResetGlobal(ctx context.Context, name string) error {
	_, err := a.db.ExecContext(ctx, "SET GLOBAL "+name+" = DEFAULT")
	return refusedGlobal(name, "DEFAULT", err)
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

// refusedGlobal makes ErrAtStart or a *RefusedError of what the server says.
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

// RefusedError says in the server's words why it does not take a value.
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

// Final tells whether the server refuses the value whenever it is asked. Anything else may pass,
// such as a resize of the buffer pool that is under way.
func (e *RefusedError) Final() bool {
	return slices.Contains([]uint16{errUnknownName, errWrongValue, errWrongType}, e.Number)
}

// PutBackError says that the server may have kept values that it was to try only.
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

// KnowGlobals has the running server say whether it has variables: the first that it has not is a
// *RefusedError. It sets nothing.
func (a *Admin) KnowGlobals(ctx context.Context, values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, err := getGlobal(ctx, a.db, name, values[name]); err != nil {
			return err
		}
	}
	return nil
}

// getGlobal reads a variable that is to have a value.
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

// ReloadTLS has new sessions go by the TLS variables and files that the server has now. If it
// cannot, it returns a *RefusedError that lists the variables in names; the server keeps its previous
// TLS settings.
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

// TryGlobals has the running server take values, has a new session open with them, and puts back
// what it had; a *PutBackError says that it could not. The first that the server refuses is a
// *RefusedError: also one that it would clip. atStart are those that it takes at its start only,
// made what it shows of a value otherwise than it was written. Of some it is only asked whether
// it has them.
func (a *Admin) TryGlobals(ctx context.Context, values map[string]string) (atStart []string, made map[string]string, err error) {
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
	// With it a value that is out of range is an error.
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
	// had are the values before of what may be set otherwise now.
	had  map[string]sql.NullString
	made map[string]string
}

// set tries one value, and whether a session can be opened with it.
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
	session, err := t.admin.connector.Connect(ctx)
	if err == nil {
		return session.Close()
	}
	if server := (*mysql.MySQLError)(nil); errors.As(err, &server) {
		if server.Number == errTooManySessions {
			return nil // because of the clients that are there
		}
		return &RefusedError{name, value, "with it quorate itself could not log in: " + server.Message, server.Number}
	}
	return fmt.Errorf("open a session with %s=%s: %w", name, value, err)
}

// reloadTLS has the server try the TLS variables, too.
func (t *trial) reloadTLS(ctx context.Context) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(t.had)), func(name string) bool { return !NeedsReloadTLS(name) })
	if len(names) == 0 {
		return nil
	}
	return reloadTLS(ctx, t.conn, names)
}

// putBack sets what was tried to what it was before.
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
