package mysqlwire

import (
	"slices"
	"strconv"
	"strings"
)

// statementKind says who answers a reader's statement.
type statementKind int

const (
	// askMysqld: mysqld answers, and its answer is passed on unchanged.
	askMysqld statementKind = iota
	// The feed answers these: SHOW REPLICAS, SHOW BINARY LOG STATUS, SHOW BINARY LOGS.
	askReplicas
	askStatus
	askFiles
	// mysqld answers these, and its answer is edited: SHOW VARIABLES, SHOW GRANTS.
	askVariables
	askGrants
	// askNothing: the answer is OK, and nothing is done.
	askNothing
)

// executableVersionMax is the newest version in a comment such as /*!40101 … */ that every server here executes. A
// comment for a newer version is refused, because we do not know whether mysqld executes it.
const executableVersionMax = 80000

// wordsMax bounds the words of a statement: one takes 40 bytes, and may be one sign.
const wordsMax = 1 << 16

// word is a part of a statement: a name, number or variable in lower case; a quoted text; or a sign.
type word struct {
	text       string
	start, end int
	// inComment says that the word is in a comment that is executed.
	inComment bool
}

// statement is a text that a reader wants executed.
type statement struct {
	text  string
	words []word
	// foreign says that it has a comment for another version of MySQL.
	foreign bool
	// tooLong says that it has more than wordsMax words. It is cut there.
	tooLong bool
}

// parseStatement cuts a text into words. It knows only as much SQL as it takes to find their borders. It may see the
// end of a string in another place than mysqld does (sql_mode, character sets): that hides only words behind the
// string, never the first words.
func parseStatement(text string) statement {
	s := statement{text: text}
	inComment := false
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case strings.HasPrefix(rest, "/*!"):
			n := 3
			for n < min(len(rest), 9) && rest[n] >= '0' && rest[n] <= '9' {
				n++
			}
			version, err := strconv.Atoi(rest[3:n])
			s.foreign = s.foreign || inComment || err == nil && version > executableVersionMax
			inComment = true
			i += n
		case inComment && strings.HasPrefix(rest, "*/"):
			inComment = false
			i += 2
		case strings.HasPrefix(rest, "/*"):
			i += past(rest, 2, "*/")
		case rest[0] == '#', strings.HasPrefix(rest, "--") && (len(rest) == 2 || rest[2] <= ' '):
			i += past(rest, 1, "\n")
		case rest[0] <= ' ':
			i++
		case len(s.words) == wordsMax:
			s.tooLong = true
			return s
		default:
			n := wordBytes(rest)
			w := word{text: rest[:n], start: i, end: i + n, inComment: inComment}
			if !isQuote(rest[0]) {
				w.text = strings.ToLower(w.text)
			}
			s.words = append(s.words, w)
			i += n
		}
	}
	for len(s.words) > 0 && s.words[len(s.words)-1].text == ";" {
		s.words = s.words[:len(s.words)-1]
	}
	return s
}

// past returns the offset behind the first end at or behind offset from, or the length of text.
func past(text string, from int, end string) int {
	i := strings.Index(text[from:], end)
	if i < 0 {
		return len(text)
	}
	return from + i + len(end)
}

func isQuote(b byte) bool { return b == '\'' || b == '"' || b == '`' }

func wordBytes(text string) int {
	if isQuote(text[0]) {
		for i := 1; i < len(text); i++ {
			switch {
			case text[i] == '\\' && text[0] != '`':
				i++
			case text[i] == text[0]:
				return i + 1
			}
		}
		return len(text)
	}
	n := strings.IndexFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r >= 0x80 || strings.ContainsRune("_$@.", r))
	})
	switch {
	case n < 0:
		return len(text)
	case n == 0:
		return 1
	}
	return n
}

// is tells whether the statement begins with these words.
func (s statement) is(words ...string) bool {
	for i, w := range words {
		if i >= len(s.words) || s.words[i].text != w {
			return false
		}
	}
	return true
}

// has tells whether these words stand somewhere in the statement, one directly behind the
// other.
func (s statement) has(words ...string) bool {
	for i := range s.words {
		if (statement{words: s.words[i:]}).is(words...) {
			return true
		}
	}
	return false
}

func (s statement) word(i int) string {
	if i < len(s.words) {
		return s.words[i].text
	}
	return ""
}

// reads are the first words of statements that change nothing.
var reads = []string{
	"select", "show", "desc", "describe", "explain", "use", "with", "table", "values", "help", "checksum", "(",
	"begin", "start", "commit", "rollback", "savepoint", "release", "unlock",
}

// onlyReads is the error for a statement that is not executed.
func onlyReads(why string) *ServerError {
	return &ServerError{Code: 1290, State: "HY000", Message: "quorate's port for readers only reads: " + why}
}

// classify decides who answers the statement. The account's privileges and the read-only session keep a reader from
// changing data. It keeps a reader from undoing read-only, and from statements that do harm although mysqld lets
// them pass (FLUSH TABLES on a replica waits for ever).
func (s statement) classify() (statementKind, error) {
	if s.tooLong {
		return 0, errTooLong()
	}
	if s.foreign {
		return 0, onlyReads("a comment of the statement is for another version of MySQL")
	}
	if len(s.words) == 0 {
		return askMysqld, nil
	}
	for _, w := range s.words {
		if name, _ := variableName(w.text); strings.HasPrefix(name, "rpl_semi_sync_") {
			// A replica with semi-sync would believe that this port, too, puts two bytes in front of each event.
			return 0, &ServerError{Code: 1193, State: "HY000", Message: "Unknown system variable '" + name + "'"}
		}
	}
	if all := slices.IndexFunc(s.words, func(w word) bool { return !w.inComment }) < 0; s.words[0].inComment && !all {
		return 0, onlyReads("the statement begins in a comment")
	}
	switch first := s.word(0); {
	case first == "set":
		return s.classifySet()
	case first == "flush":
		return askMysqld, s.checkFlush()
	case first == "lock":
		if s.has("write") {
			return 0, onlyReads("LOCK TABLES … READ")
		}
		return askMysqld, nil
	case first == "start" && s.has("read", "write"), first == "with" && (s.has("delete") || s.has("update")):
		return 0, onlyReads("this writes")
	case first == "show":
		return s.classifyShow(), nil
	case slices.Contains(reads, first):
		return askMysqld, nil
	}
	return 0, onlyReads("SELECT, SHOW, and what it takes to read a snapshot")
}

func (s statement) classifySet() (statementKind, error) {
	// Search the whole text, not the words: a string may hide words.
	lower := strings.ToLower(s.text)
	switch {
	case strings.Contains(lower, "read_only"):
		return 0, onlyReads("its sessions are read-only")
	case s.is("set", "session", "transaction", "read", "write"), s.is("set", "transaction", "read", "write"):
		return askNothing, nil // pools send it on new connections; a write after it gets an error
	case s.has("read", "write"),
		slices.Contains([]string{"global", "persist", "persist_only", "password", "default", "resource"}, s.word(1)),
		strings.HasPrefix(s.word(1), "@@global."), strings.HasPrefix(s.word(1), "@@persist"):
		return 0, onlyReads("SET of a session's variables")
	}
	return askMysqld, nil
}

func (s statement) checkFlush() error {
	local := s.word(1) == "local" || s.word(1) == "no_write_to_binlog"
	tables := s.word(1)
	if local {
		tables = s.word(2)
	}
	switch {
	case tables != "tables" && tables != "table":
	case local, s.has("with", "read", "lock"), s.has("for", "export"):
		return nil
	}
	return onlyReads("FLUSH TABLES … WITH READ LOCK, or FLUSH LOCAL TABLES")
}

func (s statement) classifyShow() statementKind {
	switch {
	case s.is("show", "master", "status"), s.is("show", "binary", "log", "status"):
		return askStatus
	case s.is("show", "master", "logs"), s.is("show", "binary", "logs"):
		return askFiles
	case s.is("show", "replicas"), s.is("show", "slave", "hosts"):
		return askReplicas
	case s.is("show", "grants"):
		return askGrants
	}
	scoped := slices.Contains([]string{"global", "session", "local"}, s.word(1))
	if s.word(1) == "variables" || scoped && s.word(2) == "variables" {
		return askVariables
	}
	return askMysqld
}

// locks tells whether the statement locks tables, and unlocks whether it releases them.
func (s statement) locks() bool {
	return s.is("lock") || s.is("flush") && (s.has("with", "read", "lock") || s.has("for", "export"))
}

func (s statement) unlocks() bool { return s.is("unlock") }

// with returns the text with the values of variables in place of their names. A value may be long, so a text has
// columnsMax of them at most.
func (s statement) with(values map[string]string) (string, error) {
	var out strings.Builder
	at, replaced := 0, 0
	for _, w := range s.words {
		name, ok := variableName(w.text)
		value, ok2 := values[name]
		if !ok || !ok2 {
			continue
		}
		if replaced++; replaced > columnsMax {
			return "", errTooLong()
		}
		out.WriteString(s.text[at:w.start])
		out.WriteString(value)
		at = w.end
	}
	out.WriteString(s.text[at:])
	return out.String(), nil
}

// variableName returns the name of a server variable without its scope.
func variableName(expression string) (string, bool) {
	for _, scope := range []string{"@@global.", "@@session.", "@@local.", "@@"} {
		if name, ok := strings.CutPrefix(strings.ToLower(expression), scope); ok {
			return name, true
		}
	}
	return "", false
}
