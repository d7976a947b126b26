package mysqld

import (
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

// Bypasses tells whether a statement, as a QUERY event holds it, may give an account what ScanGrants looks for, or
// takes it away. It may be true of a statement that only looks like that. At another site (atSite) the grant tables
// are guarded as here: there a GRANT AS an account does not give more than that account has.
func Bypasses(q binlog.Query, atSite bool) bool {
	tokens := binlog.AccountTokens(q.Text)
	is := func(i int, word string) bool { return i < len(tokens) && strings.EqualFold(tokens[i], word) }
	switch {
	case is(0, "GRANT"), is(0, "REVOKE"):
		given, object, to := binlog.PartsOfGrant(tokens)
		if object == nil {
			return namesReserved(given) // as a role
		}
		restricted := atSite && slices.ContainsFunc(to, func(s string) bool { return strings.EqualFold(s, "AS") })
		return bypassOn(privilegesOf(given), object, q.Schema, restricted)
	case (is(0, "CREATE") || is(0, "RENAME")) && is(1, "USER"): // also with a DEFAULT ROLE
		return namesReserved(tokens)
	case is(0, "ALTER") && is(1, "USER"):
		return namesReserved(tokens) && slices.ContainsFunc(tokens, func(s string) bool { return strings.EqualFold(s, "UNLOCK") })
	}
	return false
}

// Attaches tells whether a statement lets an account attach as a replica, whose ACKs would release commits that no log
// has. What else Bypasses finds is left to the scan: dba may GRANT INSERT ON *.*, which does not include the schema
// mysql then. Only the list of privileges counts: names, comments and strings may hold any words.
func Attaches(q binlog.Query) bool {
	tokens := binlog.AccountTokens(q.Text)
	if len(tokens) == 0 || !strings.EqualFold(tokens[0], "GRANT") {
		return false
	}
	given, object, _ := binlog.PartsOfGrant(tokens)
	attaching := []string{"ALL", "ALL PRIVILEGES", "SUPER", "REPLICATION SLAVE", "REPLICATION_SLAVE_ADMIN", "GROUP_REPLICATION_ADMIN"}
	return slices.Equal(object, everything()) && slices.ContainsFunc(privilegesOf(given), func(p string) bool { return slices.Contains(attaching, p) })
}

// everything is what a GRANT names that holds for all schemas.
func everything() []string { return []string{"*", ".", "*"} }

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
			words = append(words, strings.ToUpper(binlog.TokenName(s)))
		}
	}
	return all
}

// bypassOn tells whether one of the privileges bypasses the ACK if it is given on an object. restricted says that
// what is given everywhere is not given on the schema mysql.
func bypassOn(privileges, object []string, schema string, restricted bool) bool {
	everywhere := slices.Equal(object, everything())
	if len(object) > 0 && strings.EqualFold(object[0], "TABLE") {
		object = object[1:]
	}
	if len(object) == 3 && object[1] == "." {
		schema = binlog.TokenName(object[0])
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
		if i+2 < len(tokens) && tokens[i+1] == "@" && strings.EqualFold(binlog.TokenName(tokens[i+2]), "localhost") && strings.Contains(reservedUsers, "'"+binlog.TokenName(s)+"'") {
			return true
		}
	}
	return false
}
