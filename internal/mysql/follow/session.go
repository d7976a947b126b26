package follow

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/mysql/binlog"
)

// undefinedCommit is the original_commit_timestamp for "not known" (UNDEFINED_COMMIT_TIMESTAMP).
const undefinedCommit = 36028797018963968

// Session makes the SQL for steps, for one session of the server. The zero value is a new
// session.
type Session struct {
	// schema and settings are the session's default schema and variables, as far as they were
	// set here.
	schema   string
	settings map[string]string
	// format is the FORMAT_DESCRIPTION that the session knows.
	format string
}

// SQL returns the statements to execute for a step. The last of them may be the source's: the server must not take it as
// several.
func (s *Session) SQL(step Step) []string {
	switch step.Kind {
	case Format:
		if s.format == string(step.Events) {
			return nil
		}
		s.format = string(step.Events)
		// It must not be in a transaction: with a GTID that exists already, the server would skip it
		// silently.
		return []string{"SET @@SESSION.gtid_next='AUTOMATIC'", binlogStatement(step.Events)}
	case Begin:
		commit := step.Info.OriginalCommit
		if commit == 0 {
			commit = undefinedCommit
		}
		return []string{fmt.Sprintf("SET @@SESSION.gtid_next='%v',@@SESSION.original_commit_timestamp=%d", step.Info.GTID, commit)}
	case Open:
		return append(s.set(step.Query), "BEGIN")
	case Rows:
		delete(s.settings, "timestamp") // each row event has set its own timestamp
		return []string{binlogStatement(step.Events)}
	case Commit:
		return []string{"COMMIT"}
	case LeftOut:
		return []string{"BEGIN", "COMMIT"}
	case Statement:
		return append(s.statement(step.Query), step.Query.Text)
	}
	return nil
}

// binlogStatement returns the statement by which the server applies events.
func binlogStatement(events []byte) string {
	const begin, end = "BINLOG '", "'"
	var b strings.Builder
	b.Grow(len(begin) + base64.StdEncoding.EncodedLen(len(events)) + len(end))
	b.WriteString(begin)
	e := base64.NewEncoder(base64.StdEncoding, &b)
	_, _ = e.Write(events) // a Builder has no errors
	_ = e.Close()
	b.WriteString(end)
	return b.String()
}

// statement returns what must be executed before the text of a statement.
func (s *Session) statement(q binlog.SessionQuery) (ours []string) {
	if q.Schema != "" && q.Schema != s.schema && q.Flags&binlog.FlagSuppressUse == 0 {
		// The name is in UTF-8, whatever character set the statements before had.
		ours = append(ours, "SET @@SESSION.character_set_client=utf8mb4", "USE "+binlog.QuoteName(q.Schema))
		s.schema = q.Schema
		delete(s.settings, "character_set_client")
		delete(s.settings, "collation_database") // USE sets it
	}
	ours = append(ours, s.set(q)...)
	if isSchemaStatement(q.Text) {
		s.schema = "" // it may be gone, or have changed
	}
	return ours
}

// isSchemaStatement tells whether a statement may change databases: the default one may be among
// them.
func isSchemaStatement(text string) bool {
	upper := strings.ToUpper(text)
	return strings.Contains(upper, "DATABASE") || strings.Contains(upper, "SCHEMA")
}

// set returns the SET statement for the session variables that differ.
func (s *Session) set(q binlog.SessionQuery) []string {
	if s.settings == nil {
		s.settings = map[string]string{}
	}
	all := q.Settings[:len(q.Settings):len(q.Settings)]
	all = append(all, binlog.Setting{Name: "timestamp", Value: q.Timestamp})
	if q.Flags&binlog.FlagThreadSpecific != 0 { // the statement is about temporary tables of its connection
		all = append(all, binlog.Setting{Name: "pseudo_thread_id", Value: strconv.FormatUint(uint64(q.Thread), 10)})
	}
	var set []string
	for _, v := range all {
		if has, ok := s.settings[v.Name]; !ok || has != v.Value {
			s.settings[v.Name] = v.Value
			set = append(set, "@@SESSION."+v.Name+"="+v.Value)
		}
	}
	if len(set) == 0 {
		return nil
	}
	return []string{"SET " + strings.Join(set, ",")}
}
