package follow

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/mysql/binlog"
)

// undefinedCommit is original_commit_timestamp where it is not known (UNDEFINED_COMMIT_TIMESTAMP).
const undefinedCommit = 36028797018963968

// Session makes the SQL of steps, for one session of the server. The zero value is a new session.
type Session struct {
	// schema and settings are those of the session now, as far as it was told.
	schema   string
	settings map[string]string
	// format is the FORMAT_DESCRIPTION that the session knows, current the one that row events have.
	format, current string
}

// SQL returns what is to be executed for a step. Texts of a source's statements are alone in theirs; all others
// may be joined with "; ".
func (s *Session) SQL(step Step) (ours []string, text string) {
	switch step.Kind {
	case Format:
		s.current = string(step.Events)
	case Begin:
		commit := step.Info.OriginalCommit
		if commit == 0 {
			commit = undefinedCommit
		}
		ours = append(ours, fmt.Sprintf("SET @@SESSION.gtid_next='%v',@@SESSION.original_commit_timestamp=%d", step.Info.GTID, commit))
	case Open:
		ours = append(s.set(step.Query), "BEGIN")
	case Rows:
		events := step.Events
		if s.format != s.current {
			events = append([]byte(s.current), events...)
			s.format = s.current
		}
		ours = append(ours, "BINLOG '"+base64.StdEncoding.EncodeToString(events)+"'")
	case Commit:
		ours = append(ours, "COMMIT")
	case LeftOut:
		ours = append(ours, "BEGIN", "COMMIT")
	case Statement:
		return s.statement(step.Query), step.Query.Text
	}
	return ours, ""
}

// statement is what comes before the text of a statement.
func (s *Session) statement(q binlog.SessionQuery) (ours []string) {
	if q.Schema != "" && q.Schema != s.schema && q.Flags&binlog.FlagSuppressUse == 0 {
		ours = append(ours, "USE `"+strings.ReplaceAll(q.Schema, "`", "``")+"`")
		s.schema = q.Schema
		delete(s.settings, "collation_database") // USE sets it
	}
	ours = append(ours, s.set(q)...)
	if isSchemaStatement(q.Text) {
		s.schema = "" // it may be gone, or other than it was
	}
	return ours
}

// isSchemaStatement tells whether a statement changes databases: the default one may be among them.
func isSchemaStatement(text string) bool {
	upper := strings.ToUpper(text)
	return strings.Contains(upper, "DATABASE") || strings.Contains(upper, "SCHEMA")
}

// set sets what differs of the session's variables.
func (s *Session) set(q binlog.SessionQuery) []string {
	if s.settings == nil {
		s.settings = map[string]string{}
	}
	all := q.Settings[:len(q.Settings):len(q.Settings)]
	all = append(all, binlog.Setting{Name: "timestamp", Value: q.Timestamp})
	if q.Flags&binlog.FlagThreadSpecific != 0 { // it is about temporary tables of its connection
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
