package follow

import (
	"regexp"
	"strings"

	"github.com/quorate/quorate/internal/mysql/binlog"
)

// Patterns of statements. The server writes the definers (append_definer in sql/sql_show.cc), with any sql_mode.
const (
	name        = "(?:`(?:[^`]|``)*`" + `|"(?:[^"]|"")*"|'(?:[^']|'')*'|[\w$.%-]+)`
	definer     = `DEFINER\s*=\s*` + name + `\s*@\s*` + name + `\s+`
	withDefiner = `(?is)^(?:CREATE|ALTER)\s+(?:OR\s+REPLACE\s+)?(?:ALGORITHM\s*=\s*\w+\s+)?` + definer
	routine     = `(?is)^CREATE\s+(?:` + definer + `)?(?:PROCEDURE|FUNCTION|LIBRARY)\s`
	currentUser = `(?i)\bCURRENT_USER\b`
)

// asInvoker makes the step of a statement. mysqld executes it here as the account of the session, where an applier
// would execute it as the account that the event names: asInvoker makes up for the difference, or refuses.
func (t *Translator) asInvoker(q binlog.SessionQuery) (Step, error) {
	is := func(what string) bool { return regexp.MustCompile(what).MatchString(q.Text) }
	// The server writes the definer into each CREATE that can have one. CURRENT_USER in a body means the account that
	// runs it, as at the source.
	if q.Invoker != (binlog.Account{}) && is(currentUser) && !is(withDefiner) {
		return Step{}, t.unsupported("is a statement about CURRENT_USER, who is somebody else here")
	}
	step := Step{Kind: Statement, Query: q, Routine: q.Invoker.User != "" && is(routine)}
	first, behind := binlog.CutKeyword(q.Text)
	if second, _ := binlog.CutKeyword(behind); strings.EqualFold(first, "ALTER") && strings.EqualFold(second, "EVENT") {
		account := q.Invoker.String()
		if q.Invoker.User == "" || !ascii(account) {
			return Step{}, t.unsupported("is an ALTER EVENT without a DEFINER, and it is not certain whose the event is from then on")
		}
		step.Query.Text = q.Text[:len(q.Text)-len(behind)] + " DEFINER = " + account + behind
	}
	return step, nil
}

// ascii tells whether a text has the same bytes in each character set that a client may have.
func ascii(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > '~' || r < ' ' })
}
