package mysqld

import (
	"regexp"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/mysql/binlog"
)

// bypassStatic and bypassDynamic are the privileges with which a session can avoid or fake the ACK, or turn off what
// the guard checks. grantWrites are those by which the grant tables can be written, or lose their content, which
// gives every privilege. ScanGrants finds them in the grant tables, Bypasses in a statement.
const (
	bypassDynamic = `'REPLICATION_SLAVE_ADMIN', 'GROUP_REPLICATION_ADMIN', 'GROUP_REPLICATION_STREAM', 'REPLICATION_APPLIER',
	'SYSTEM_VARIABLES_ADMIN', 'SESSION_VARIABLES_ADMIN', 'PERSIST_RO_VARIABLES_ADMIN', 'BINLOG_ADMIN', 'CLONE_ADMIN',
	'SYSTEM_USER', 'INNODB_REDO_LOG_ENABLE', 'TRANSACTION_GTID_TAG'`
	grantWrites = "INSERT UPDATE DELETE DROP ALTER CREATE"
)

// bypassStatic returns each privilege with its column of mysql.user.
func bypassStatic() map[string]string {
	return map[string]string{"REPLICATION SLAVE": "repl_slave_priv", "SUPER": "super_priv", "SHUTDOWN": "shutdown_priv", "RELOAD": "reload_priv"}
}

// aclToken is a comment, or a token of a statement: a string or name in quotes, a word, or another character. The marks
// of a /*! comment count as a comment: its content counts as text, as it does for mysqld.
var aclToken = regexp.MustCompile("(?s)(?:/\\*!\\d*|/\\*.*?\\*/|\\*/|#[^\n]*|--[ \t\r\n\v\f][^\n]*)|" + "'(?:[^'\\\\]|\\\\.|'')*'|\"(?:[^\"\\\\]|\\\\.|\"\")*\"|`(?:[^`]|``)*`|[\\w$\\x{80}-\\x{10FFFF}]+|\\S")

// aclTokens returns the tokens of a statement, without comments.
func aclTokens(text string) []string {
	return slices.DeleteFunc(aclToken.FindAllString(text, -1), func(s string) bool {
		return strings.HasPrefix(s, "/*") || s == "*/" || s[0] == '#' || strings.HasPrefix(s, "--")
	})
}

// nameOf is what a token names.
func nameOf(token string) string {
	if quote := token[:1]; strings.Contains("'\"`", quote) && len(token) > 1 {
		return strings.ReplaceAll(token[1:len(token)-1], quote+quote, quote)
	}
	return token
}

// Bypasses tells whether a statement, as a QUERY event holds it, may give an account what ScanGrants looks for, or
// takes it away. It may be true of a statement that only looks like that. At another site (atSite) the grant tables
// are guarded as here: there a GRANT AS an account does not give more than that account has.
func Bypasses(q binlog.Query, atSite bool) bool {
	tokens := aclTokens(q.Text)
	is := func(i int, word string) bool { return i < len(tokens) && strings.EqualFold(tokens[i], word) }
	switch {
	case is(0, "GRANT"), is(0, "REVOKE"):
		end := slices.IndexFunc(tokens, func(s string) bool { return strings.EqualFold(s, "TO") || strings.EqualFold(s, "FROM") })
		if end < 0 {
			end = len(tokens)
		}
		on := slices.IndexFunc(tokens[:end], func(s string) bool { return strings.EqualFold(s, "ON") })
		if on < 0 {
			return namesReserved(tokens[:end]) // as a role
		}
		restricted := atSite && slices.ContainsFunc(tokens[end:], func(s string) bool { return strings.EqualFold(s, "AS") })
		return bypassOn(privilegesOf(tokens[1:on]), tokens[on+1:end], q.Schema, restricted)
	case (is(0, "CREATE") || is(0, "RENAME")) && is(1, "USER"): // also with a DEFAULT ROLE
		return namesReserved(tokens)
	case is(0, "ALTER") && is(1, "USER"):
		return namesReserved(tokens) && slices.ContainsFunc(tokens, func(s string) bool { return strings.EqualFold(s, "UNLOCK") })
	}
	return false
}

// privilegesOf are the privileges of a list, in upper case and without columns.
func privilegesOf(tokens []string) (all []string) {
	var words []string
	depth := 0
	for _, s := range append(slices.Clone(tokens), ",") {
		switch {
		case s == "(":
			depth++
		case s == ")":
			depth--
		case depth > 0:
		case s == ",":
			all, words = append(all, strings.Join(words, " ")), nil
		default:
			words = append(words, strings.ToUpper(nameOf(s)))
		}
	}
	return all
}

// bypassOn tells whether one of the privileges bypasses the ACK if it is given on an object. restricted says that
// what is given everywhere is not given on the schema mysql.
func bypassOn(privileges, object []string, schema string, restricted bool) bool {
	everywhere := slices.Equal(object, []string{"*", ".", "*"})
	if len(object) > 0 && strings.EqualFold(object[0], "TABLE") {
		object = object[1:]
	}
	if len(object) == 3 && object[1] == "." {
		schema = nameOf(object[0])
	}
	writes := strings.Fields(grantWrites)
	return slices.ContainsFunc(privileges, func(p string) bool {
		p = strings.TrimPrefix(p, "IF EXISTS ")
		first, _, _ := strings.Cut(p, " ")
		switch {
		case everywhere && slices.Contains(writes, p):
			return !restricted
		case everywhere:
			return first == "ALL" || bypassStatic()[p] != "" || strings.Contains(bypassDynamic, "'"+p+"'")
		}
		return strings.EqualFold(schema, "mysql") && (first == "ALL" || slices.Contains(writes, first))
	})
}

// namesReserved tells whether one of reservedUsers is named.
func namesReserved(tokens []string) bool {
	for i, s := range tokens {
		if i+2 < len(tokens) && tokens[i+1] == "@" && strings.EqualFold(nameOf(tokens[i+2]), "localhost") && strings.Contains(reservedUsers, "'"+nameOf(s)+"'") {
			return true
		}
	}
	return false
}
