package binlog

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Flags of a QUERY event. FlagSuppressUse: its schema must not be made the default schema before
// its statement, as for CREATE DATABASE (LOG_EVENT_SUPPRESS_USE_F). FlagThreadSpecific: it is
// about the temporary tables of a connection (LOG_EVENT_THREAD_SPECIFIC_F).
const (
	FlagSuppressUse    uint16 = 0x8
	FlagThreadSpecific uint16 = 0x4
)

// Setting is a session variable and its value as SQL text.
type Setting struct{ Name, Value string }

// Account is an account of a server.
type Account struct{ User, Host string }

// String returns the account as SQL text that is valid in any sql_mode.
func (a Account) String() string {
	return QuoteName(a.User) + "@" + QuoteName(a.Host)
}

// QuoteName returns a name as SQL text.
func QuoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// CutKeyword returns the first word of a statement ("" if there is none) and the text behind it. Comments may stand
// before the word. The content of a /*! comment counts as text, as it does for mysqld.
func CutKeyword(text string) (word, rest string) { return cutWord(text) }

// SessionQuery is a QUERY event with the session in which it ran.
type SessionQuery struct {
	Query
	// Thread is the id of its connection.
	Thread uint32
	// Flags are the flags of the event. Timestamp is when the statement began, in seconds since
	// 1970, as SQL text.
	Flags     uint16
	Timestamp string
	// Settings always have the same names in the same order, except names that an event may lack
	// because its server does not have them.
	Settings []Setting
	// Invoker is the account that executed the statement at its origin. An event has it only where the effect of the
	// statement depends on it (Q_INVOKER); an applier takes it as the current user. The zero value = the event does
	// not say.
	Invoker Account
	// Updated are the schemas that the statement has changed, as far as its event names them (Q_UPDATED_DB_NAMES).
	Updated []string
	// Unknown is the first status variable that this package does not know; 0 = there is none. Variables
	// behind it are not in Settings.
	Unknown byte
}

// Status variables of a QUERY event (Query_event_vars in libs/mysql/binlog/event/statement_events.h).
const (
	queryFlags2               = 0
	querySQLMode              = 1
	queryAutoIncrement        = 3
	queryCharset              = 4
	queryTimeZone             = 5
	queryCatalog              = 6
	queryLcTimeNames          = 7
	queryCharsetDatabase      = 8
	queryTableMapForUpdate    = 9
	queryMasterDataWritten    = 10
	queryInvoker              = 11
	queryUpdatedSchemas       = 12
	queryMicroseconds         = 13
	queryExplicitDefaults     = 16
	queryDDLXID               = 17
	queryDefaultCollation     = 18
	queryRequirePrimaryKey    = 19
	queryDefaultEncryption    = 20
	queryNewest               = queryDefaultEncryption
	updatedSchemasNotNamed    = 254 // OVER_MAX_DBS_IN_EVENT_MTS
	flags2AutoIsNull          = 1 << 14
	flags2NoForeignKeyChecks  = 1 << 26
	flags2RelaxedUniqueChecks = 1 << 27
)

// ParseSessionQuery parses a QUERY event that has a checksum.
func ParseSessionQuery(e Event) (SessionQuery, error) {
	view, err := parseQuery(e)
	if err != nil {
		return SessionQuery{}, fmt.Errorf("parse QUERY: %w", err)
	}
	body := e.Body()
	q := SessionQuery{
		Query:  Query{Schema: string(view.schema), Text: string(view.text), ErrorCode: view.errorCode},
		Thread: binary.LittleEndian.Uint32(body), Flags: e.Flags(),
	}
	// Where an event lacks a variable, the default holds (Query_log_event::do_apply_event).
	v := sessionVariables{increment: 1, offset: 1}
	vars := body[queryPostHeaderBytes : queryPostHeaderBytes+int(binary.LittleEndian.Uint16(body[11:]))]
	for len(vars) > 0 {
		if vars[0] > queryNewest { // variables come in order: those behind it are unknown, too
			q.Unknown = vars[0]
			break
		}
		if vars, err = v.take(vars); err != nil {
			return SessionQuery{}, fmt.Errorf("parse QUERY: %w", err)
		}
	}
	q.Timestamp = fmt.Sprintf("%d.%06d", e.Timestamp(), v.micros)
	q.Settings, q.Invoker, q.Updated = v.settings(), v.invoker, v.updated
	return q, nil
}

type sessionVariables struct {
	flags2                         uint32
	sqlMode                        uint64
	increment, offset              uint16
	client, connection, server     uint16
	timeZone                       string
	lcTimeNames, database, utf8mb4 uint16
	micros                         uint32
	invoker                        Account
	updated                        []string
	// nil where the event does not say.
	explicitDefaults, requirePrimaryKey, encryption *byte
}

// take reads one status variable, and returns the bytes behind it.
func (v *sessionVariables) take(b []byte) (rest []byte, err error) {
	code, b := b[0], b[1:]
	n, err := queryVariableBytes(code, b)
	if err == nil && len(b) < n {
		err = fmt.Errorf("%w: cut in status variable %d", ErrMalformed, code)
	}
	if err != nil {
		return nil, err
	}
	value := b[:n]
	u16 := func(at int) uint16 { return binary.LittleEndian.Uint16(value[at:]) }
	switch code {
	case queryFlags2:
		v.flags2 = binary.LittleEndian.Uint32(value)
	case querySQLMode:
		v.sqlMode = binary.LittleEndian.Uint64(value)
	case queryAutoIncrement:
		v.increment, v.offset = u16(0), u16(2)
	case queryCharset:
		v.client, v.connection, v.server = u16(0), u16(2), u16(4)
	case queryTimeZone:
		v.timeZone = string(value[1:])
	case queryLcTimeNames:
		v.lcTimeNames = u16(0)
	case queryCharsetDatabase:
		v.database = u16(0)
	case queryInvoker:
		host := 1 + int(value[0])
		v.invoker = Account{User: string(value[1:host]), Host: string(value[host+1:])}
	case queryUpdatedSchemas:
		if names := string(value[1:]); names != "" {
			v.updated = strings.Split(strings.TrimSuffix(names, "\x00"), "\x00")
		}
	case queryMicroseconds:
		v.micros = uint32(value[0]) | uint32(value[1])<<8 | uint32(value[2])<<16
	case queryExplicitDefaults:
		v.explicitDefaults = &value[0]
	case queryDefaultCollation:
		v.utf8mb4 = u16(0)
	case queryRequirePrimaryKey:
		v.requirePrimaryKey = &value[0]
	case queryDefaultEncryption:
		v.encryption = &value[0]
	}
	return b[n:], nil
}

// queryVariableBytes returns the length of the status variable value that begins at b.
func queryVariableBytes(code byte, b []byte) (int, error) {
	switch code {
	case queryFlags2, queryAutoIncrement, queryMasterDataWritten:
		return 4, nil
	case querySQLMode, queryTableMapForUpdate, queryDDLXID:
		return 8, nil
	case queryCharset:
		return 6, nil
	case queryLcTimeNames, queryCharsetDatabase, queryDefaultCollation:
		return 2, nil
	case queryMicroseconds:
		return 3, nil
	case queryExplicitDefaults, queryRequirePrimaryKey, queryDefaultEncryption:
		return 1, nil
	}
	if len(b) == 0 {
		return 0, fmt.Errorf("%w: cut in status variable %d", ErrMalformed, code)
	}
	switch code {
	case queryTimeZone, queryCatalog:
		return 1 + int(b[0]), nil
	case queryInvoker: // user, host
		host := 1 + int(b[0])
		if len(b) <= host {
			return 0, fmt.Errorf("%w: cut in status variable %d", ErrMalformed, code)
		}
		return host + 1 + int(b[host]), nil
	case queryUpdatedSchemas: // a count, and names that each end with a NUL
		n, left := 1, int(b[0])
		for left > 0 && left != updatedSchemasNotNamed {
			for n < len(b) && b[n] != 0 {
				n++
			}
			n, left = n+1, left-1
		}
		return n, nil
	}
	return 0, fmt.Errorf("%w: unknown status variable %d", ErrMalformed, code)
}

func (v *sessionVariables) settings() []Setting {
	number := func(n uint16) string { return strconv.Itoa(int(n)) }
	flag := func(off uint32) string {
		if v.flags2&off != 0 {
			return "0"
		}
		return "1"
	}
	all := []Setting{
		{"foreign_key_checks", flag(flags2NoForeignKeyChecks)},
		{"unique_checks", flag(flags2RelaxedUniqueChecks)},
		{"sql_auto_is_null", number(uint16(v.flags2 & flags2AutoIsNull >> 14))},
		{"sql_mode", strconv.FormatUint(v.sqlMode, 10)},
		{"auto_increment_increment", number(v.increment)},
		{"auto_increment_offset", number(v.offset)},
		{"lc_time_names", number(v.lcTimeNames)},
	}
	if v.database != 0 {
		all = append(all, Setting{"collation_database", number(v.database)})
	} else {
		all = append(all, Setting{"collation_database", "DEFAULT"})
	}
	if v.client != 0 {
		all = append(all, Setting{"character_set_client", number(v.client)},
			Setting{"collation_connection", number(v.connection)}, Setting{"collation_server", number(v.server)})
	}
	if v.timeZone != "" {
		all = append(all, Setting{"time_zone", "'" + strings.ReplaceAll(v.timeZone, "'", "''") + "'"})
	}
	if v.utf8mb4 != 0 {
		all = append(all, Setting{"default_collation_for_utf8mb4", number(v.utf8mb4)})
	}
	for _, s := range []struct {
		name  string
		value *byte
	}{
		{"explicit_defaults_for_timestamp", v.explicitDefaults}, {"sql_require_primary_key", v.requirePrimaryKey},
		{"default_table_encryption", v.encryption},
	} {
		if s.value != nil {
			all = append(all, Setting{s.name, strconv.Itoa(int(*s.value))})
		}
	}
	return all
}

// stmtEnd is the flag of the row event that is the last of its statement (STMT_END_F). The
// flags are at rowsFlagsAt of the body, behind the table's id.
const (
	stmtEnd     = 1
	rowsFlagsAt = 6
)

// EndsStatement tells whether a row event is the last of its statement.
func EndsStatement(e Event) bool {
	body := e.Body()
	return len(body) > rowsFlagsAt && body[rowsFlagsAt]&stmtEnd != 0
}

// EndStatement makes a row event the last of its statement, in place.
func EndStatement(e Event) {
	if len(e.Body()) > rowsFlagsAt {
		e[HeaderBytes+rowsFlagsAt] |= stmtEnd
		PutChecksum(e)
	}
}

// tableIDBytes is the length of a table's id, with which TABLE_MAP and row events begin.
const tableIDBytes = 6

// TableMap is the table to which a TABLE_MAP event gives a number.
type TableMap struct {
	Table  uint64
	Schema string
}

// ParseTableMap parses the beginning of a TABLE_MAP event that has a checksum.
func ParseTableMap(e Event) (TableMap, error) {
	const schemaAt = tableIDBytes + 2 // behind flags
	body := e.Body()
	if e.Type() != TypeTableMap || len(body) <= schemaAt || len(body) < schemaAt+1+int(body[schemaAt]) {
		return TableMap{}, fmt.Errorf("parse TABLE_MAP: %w: type %d, %d bytes", ErrMalformed, e.Type(), len(e))
	}
	return TableMap{tableID(body), string(body[schemaAt+1 : schemaAt+1+int(body[schemaAt])])}, nil
}

// RowsTable returns the table of a row event, by the number of its TABLE_MAP; 0 = the event is
// too short.
func RowsTable(e Event) uint64 {
	body := e.Body()
	if len(body) < tableIDBytes {
		return 0
	}
	return tableID(body)
}

func tableID(body []byte) uint64 {
	var id [8]byte
	copy(id[:], body[:tableIDBytes])
	return binary.LittleEndian.Uint64(id[:])
}

// WithChecksum appends to dst an event from inside a TRANSACTION_PAYLOAD, and gives it a
// checksum.
func WithChecksum(dst []byte, e Event) []byte {
	start := len(dst)
	return endEvent(append(dst, e...), start)
}
