package mysqlwire

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Commands that readers' client libraries send and that change nothing here.
const (
	comInitDB          = 0x02
	comSetOption       = 0x1b
	comResetConnection = 0x1f
)

// table is a result: columns, and rows of text. A column whose name ends with numberMark gets
// the type of a whole number, so that clients do not take it for text.
type table struct {
	columns []string
	rows    [][]string
}

const (
	numberMark = "#"
	// columnsMax is more than any client asks for at once. It bounds the answer: each column may be as long
	// as a GTID set, and one command could name a million columns.
	columnsMax = 64
)

// serveReader answers the commands that a reader gets answered in another way than our own
// mysqld.
func (s *feedSession) serveReader(ctx context.Context, command []byte) (done, answered bool, err error) {
	if s.reader.SQL {
		if done, answered, err := s.serveSQL(ctx, command); answered {
			return done, true, err
		}
	}
	switch command[0] {
	case comInitDB, comSetOption, comResetConnection:
		return false, true, s.wire.write(okPayload())
	case comBinlogDump:
		request, err := parseFileDump(command)
		if err != nil {
			return true, true, err
		}
		return true, true, s.dump(ctx, request)
	case comQuery:
		result, ok, err := s.readerQuery(ctx, string(command[1:]))
		if e, isError := errors.AsType[*ServerError](err); isError {
			return false, true, s.wire.write(e.payload())
		}
		if err != nil || !ok {
			return false, err != nil, err
		}
		return false, true, s.wire.write(result.payloads()...)
	}
	return false, false, nil
}

// readerQuery answers what replicas, mysqlbinlog and tools that capture changes ask before they
// ask for a dump. Where ok is false, query has the answer, as for our own mysqld.
func (s *feedSession) readerQuery(ctx context.Context, text string) (result table, ok bool, err error) {
	text = strings.TrimRight(strings.TrimSpace(text), "; \t\r\n")
	if ask, ok := strings.CutPrefix(text, SiteQuery); ok && s.reader.Site && s.feed.cfg.Readers.Site != nil {
		return s.siteQuery(ctx, ask)
	}
	words := strings.Fields(strings.ToLower(text))
	switch joined := strings.Join(words, " "); joined {
	case "show master status", "show binary log status":
		result, err = s.showStatus(ctx)
		return result, true, err
	case "show binary logs", "show master logs":
		result, err = s.showFiles()
		return result, true, err
	case "show warnings":
		return table{columns: []string{"Level", "Code", "Message"}}, true, nil
	case "show replicas", "show slave hosts":
		return replicasTable(), true, nil
	case "commit", "rollback", "begin", "start transaction":
		return table{}, true, nil
	default:
		if rest, found := strings.CutPrefix(joined, "show "); found {
			rest = strings.TrimPrefix(strings.TrimPrefix(rest, "global "), "session ")
			if rest, found = strings.CutPrefix(rest, "variables"); found {
				return s.showVariables(strings.TrimSpace(rest)), true, nil
			}
		}
	}
	if len(words) > 1 && words[0] == "select" {
		return s.selectValues(strings.TrimSpace(text[len("select"):]))
	}
	if len(words) > 1 && words[0] == "set" {
		s.setPlain(strings.Join(words[1:], ""))
	}
	return table{}, false, nil
}

// siteQuery answers a request of another site.
func (s *feedSession) siteQuery(ctx context.Context, ask string) (table, bool, error) {
	request, err := base64.StdEncoding.DecodeString(ask)
	if err != nil {
		return table{}, false, &ServerError{Code: 1064, State: "42000", Message: "this is no request of a site"}
	}
	if err := s.conn.SetDeadline(time.Now().Add(SiteTimeout + handshakeTimeout)); err != nil {
		return table{}, false, fmt.Errorf("set deadline: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, SiteTimeout)
	defer cancel()
	answer := s.feed.cfg.Readers.Site(limited, s.reader.User, s.conn.RemoteAddr(), request)
	return table{columns: []string{"answer"}, rows: [][]string{{string(answer)}}}, true, nil
}

// setPlain looks for the user variable by which a reader asks for decompression.
func (s *feedSession) setPlain(assignments string) {
	for assignment := range strings.SplitSeq(assignments, ",") {
		name, value, _ := strings.Cut(strings.ReplaceAll(assignment, ":=", "="), "=")
		if name == "@quorate_decompress" {
			s.plain = value == "1" || value == "on" || value == "true"
		}
	}
}

func (s *feedSession) showStatus(ctx context.Context) (table, error) {
	// Ask before the position is read: then a reader that begins behind either of the two
	// misses nothing.
	executed, _ := s.feed.cfg.Readers.Source.GTIDs()
	file, offset, err := s.position(ctx)
	return statusTable(file, offset, executed), err
}

func statusTable(file string, offset uint64, executed *gtid.Set) table {
	return table{
		columns: []string{"File", "Position" + numberMark, "Binlog_Do_DB", "Binlog_Ignore_DB", "Executed_Gtid_Set"},
		rows:    [][]string{{file, strconv.FormatUint(offset, 10), "", "", executed.String()}},
	}
}

// replicasTable has no rows: a reader is not told of other readers.
func replicasTable() table {
	return table{columns: []string{"Server_Id", "Host", "Port", "Source_Id", "Replica_UUID"}}
}

func (s *feedSession) showFiles() (table, error) {
	t := table{columns: []string{"Log_name", "File_size" + numberMark, "Encrypted"}}
	files, err := s.feed.cfg.Readers.Source.Files()
	for _, f := range files {
		t.rows = append(t.rows, []string{fileName(s.plain, f.Index), strconv.FormatInt(f.Bytes, 10), "No"})
	}
	return t, err
}

// variable is a server variable that a reader may ask for.
type variable struct {
	name, value string
	isFlag      bool // with the value ON
}

// variables are the server variables that readers look at. They describe the log as a binlog,
// which is the same on every node.
func (s *feedSession) variables() []variable {
	executed, purged := s.feed.cfg.Readers.Source.GTIDs()
	cfg := &s.feed.cfg
	return []variable{
		{"binlog_checksum", "CRC32", false},
		{"binlog_format", "ROW", false},
		{"binlog_gtid_simple_recovery", "ON", true},
		{"enforce_gtid_consistency", "ON", false},
		{"gtid_executed", executed.String(), false},
		{"gtid_mode", "ON", false},
		{"gtid_purged", purged.String(), false},
		{"log_bin", "ON", true},
		{"read_only", "ON", true},
		{"server_id", strconv.FormatUint(uint64(cfg.ServerID), 10), false},
		{"server_uuid", cfg.ServerUUID(), false},
		{"super_read_only", "ON", true},
		{"version", cfg.ServerVersion(), false},
		{"version_comment", "quorate", false},
	}
}

// showVariables answers SHOW VARIABLES with nothing, LIKE 'pattern' or WHERE
// variable_name = 'name' behind it; condition is in lower case. A name that is
// not known gives no row, as with a real server.
func (s *feedSession) showVariables(condition string) table {
	pattern := "*"
	if from := strings.IndexByte(condition, '\''); from >= 0 {
		name, _, _ := strings.Cut(condition[from+1:], "'")
		// SQL's wildcards. "_" stays a plain character, as in most names.
		pattern = strings.NewReplacer("%", "*", "\\_", "_").Replace(name)
	}
	t := table{columns: []string{"Variable_name", "Value"}}
	for _, v := range s.variables() {
		if ok, err := path.Match(pattern, v.name); ok && err == nil {
			t.rows = append(t.rows, []string{v.name, v.value})
		}
	}
	return t
}

// selectValues answers SELECT of one or more known expressions. If it does not know one of
// them, it returns false, and query answers.
func (s *feedSession) selectValues(expressions string) (table, bool, error) {
	t := table{rows: [][]string{nil}}
	for expression := range strings.SplitSeq(expressions, ",") {
		if len(t.columns) == columnsMax {
			return table{}, false, &ServerError{Code: 1117, State: "HY000", Message: "Too many columns"}
		}
		expression = strings.TrimSpace(expression)
		value, ok := s.value(expression)
		if !ok {
			value, ok = s.readerValue(expression)
		}
		if !ok {
			return table{}, false, nil // query returns the error
		}
		t.columns, t.rows[0] = append(t.columns, expression), append(t.rows[0], value)
	}
	return t, true, nil
}

// readerValue evaluates the variables that only readers ask for, and the "1" of the SELECT 1
// that connection pools send.
func (s *feedSession) readerValue(expression string) (string, bool) {
	name := strings.ToLower(expression)
	if name == "1" {
		return "1", true
	}
	for _, scope := range []string{"@@global.", "@@session.", "@@"} {
		rest, ok := strings.CutPrefix(name, scope)
		if !ok {
			continue
		}
		all := s.variables()
		i := slices.IndexFunc(all, func(v variable) bool { return v.name == rest })
		if i < 0 {
			return "", false
		}
		if all[i].isFlag {
			return "1", true // SELECT shows ON as a number
		}
		return all[i].value, true
	}
	return "", false
}

const (
	// columnTypeFromEnd is where a column's definition has its type: before flags
	// u16, decimals u8 and two zeros.
	columnTypeFromEnd = 6
	typeLongLong      = 0x08
)

// payloads returns a text result set, or OK without columns.
func (t table) payloads() [][]byte {
	if len(t.columns) == 0 {
		return [][]byte{okPayload()}
	}
	out := [][]byte{{byte(len(t.columns))}}
	for _, column := range t.columns {
		name, number := strings.CutSuffix(column, numberMark)
		definition := oneRow(name, "")[1]
		if number {
			definition[len(definition)-columnTypeFromEnd] = typeLongLong
		}
		out = append(out, definition)
	}
	out = append(out, eofPayload())
	for _, row := range t.rows {
		var payload []byte
		for _, value := range row {
			payload = appendString(payload, value)
		}
		out = append(out, payload)
	}
	return append(out, eofPayload())
}

// appendString appends a length-encoded string of any length.
func appendString(dst []byte, s string) []byte {
	return append(binlog.AppendNetInt(dst, uint64(len(s))), s...)
}
