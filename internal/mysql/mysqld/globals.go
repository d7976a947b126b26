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
)

// restoreTimeout bounds how long TryGlobals takes to put things back, whatever became of its
// context.
const restoreTimeout = 10 * time.Second

// ErrAtStart: the server takes a variable at its start only.
var ErrAtStart = errors.New("the server takes it at its start only")

// CheckGlobal judges a variable that is to have one value on all nodes. Beside what
// CheckVariables refuses that is what a running server may set and no option names, what is fixed
// in the data directory, and what is a place on each host.
func CheckGlobal(name, value string) error {
	if err := checkVariable(name, value); err != nil {
		return err
	}
	fixed := []string{"lower_case_table_names", "innodb_page_size", "innodb_undo_tablespaces"}
	place := regexp.MustCompile(`(_dir|_directory|_directories|_file|_file_path|_path|_tmpdir|_capath|_crlpath|ssl_ca|ssl_cert|ssl_key|ssl_crl)$`)
	switch {
	case strings.Contains(name, "."):
		return fmt.Errorf("%w: %s is of a component, which a server may not have: write loose_%s into [mysql.variables]", ErrConfig, name, name)
	case slices.Contains(fixed, name):
		return fmt.Errorf("%w: %s is fixed when a data directory is made", ErrConfig, name)
	case place.MatchString(name):
		return fmt.Errorf("%w: %s names a place on a host, and is each node's own: write it into [mysql.variables]", ErrConfig, name)
	}
	return nil
}

// Own returns the value that a variable has among an operator's settings, whatever its spelling
// there, or else among quorate's defaults; false = it is the server's own default.
func Own(variables map[string]string, name string) (value string, operator, known bool) {
	for _, n := range sortedKeys(variables) {
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
		return &RefusedError{name, value, server.Message}
	}
	return fmt.Errorf("set %s: %w", name, err)
}

// RefusedError says in the server's words why it does not take a value.
type RefusedError struct{ Name, Value, Why string }

// Error names the variable.
func (e *RefusedError) Error() string { return fmt.Sprintf("%s=%s: %s", e.Name, e.Value, e.Why) }

// TryGlobals has the running server take values, and puts back what it had. The first that it
// refuses is a *RefusedError: also one that it would clip. atStart are those that it takes at
// its start only, made what it shows of a value otherwise than it was written.
func (a *Admin) TryGlobals(ctx context.Context, values map[string]string) (atStart []string, made map[string]string, err error) {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("open session that tries variables: %w", err)
	}
	had := map[string]sql.NullString{}
	defer func() { err = errors.Join(err, putBack(ctx, conn, had), conn.Close()) }()
	// With it a value that is out of range is an error.
	if _, err := conn.ExecContext(ctx, "SET SESSION sql_mode = 'STRICT_ALL_TABLES'"); err != nil {
		return nil, nil, fmt.Errorf("try variables: %w", err)
	}
	made = map[string]string{}
	for _, name := range sortedKeys(values) {
		var before, after sql.NullString
		if err := conn.QueryRowContext(ctx, "SELECT @@GLOBAL."+name).Scan(&before); err != nil {
			return nil, nil, refusedGlobal(name, values[name], err)
		}
		had[name] = before
		switch err := setGlobal(ctx, conn, name, values[name]); {
		case errors.Is(err, ErrAtStart):
			delete(had, name)
			atStart = append(atStart, name)
			continue
		case err != nil:
			delete(had, name)
			return nil, nil, err
		}
		if err := conn.QueryRowContext(ctx, "SELECT @@GLOBAL."+name).Scan(&after); err != nil {
			return nil, nil, refusedGlobal(name, values[name], err)
		}
		if !isValue(after, values[name]) && !isValue(after, literals(values[name])[0]) {
			made[name] = after.String
		}
	}
	return atStart, made, nil
}

// putBack sets what a session has tried to what it was before.
func putBack(ctx context.Context, conn *sql.Conn, had map[string]sql.NullString) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	var errs []error
	if _, err := conn.ExecContext(ctx, "SET SESSION sql_mode = ''"); err != nil {
		errs = append(errs, err)
	}
	names := slices.Sorted(maps.Keys(had))
	for _, name := range slices.Backward(names) {
		var err error
		if had[name].Valid {
			err = setGlobal(ctx, conn, name, had[name].String)
		} else {
			_, err = conn.ExecContext(ctx, "SET GLOBAL "+name+" = DEFAULT")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("put %s back: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
