package binlog

import (
	"regexp"
	"slices"
	"strings"
)

// aclToken is a comment, or a token of a statement: a string or name in quotes, a word, or another character. The marks
// of a /*! comment count as a comment: its content counts as text, as it does for mysqld.
var aclToken = regexp.MustCompile("(?s)(?:/\\*!\\d*|/\\*.*?\\*/|\\*/|#[^\n]*|--[ \t\r\n\v\f][^\n]*)|" + "'(?:[^'\\\\]|\\\\.|'')*'|\"(?:[^\"\\\\]|\\\\.|\"\")*\"|`(?:[^`]|``)*`|[\\w$\\x{80}-\\x{10FFFF}]+|\\S")

// AccountTokens returns the tokens of a statement on accounts, without comments.
func AccountTokens(text string) []string {
	return slices.DeleteFunc(aclToken.FindAllString(text, -1), func(s string) bool {
		return strings.HasPrefix(s, "/*") || s == "*/" || s[0] == '#' || strings.HasPrefix(s, "--")
	})
}

// TokenName is what a token names.
func TokenName(token string) string {
	if quote := token[:1]; strings.Contains("'\"`", quote) && len(token) > 1 {
		return strings.ReplaceAll(token[1:len(token)-1], quote+quote, quote)
	}
	return token
}

// PartsOfGrant are the parts of a GRANT or REVOKE, given as its tokens: privileges or roles, the object (nil with roles),
// and the rest, from TO or FROM on.
func PartsOfGrant(tokens []string) (given, object, rest []string) {
	end := slices.IndexFunc(tokens, func(s string) bool { return strings.EqualFold(s, "TO") || strings.EqualFold(s, "FROM") })
	if end < 0 {
		end = len(tokens)
	}
	on := slices.IndexFunc(tokens[:end], func(s string) bool { return strings.EqualFold(s, "ON") })
	if on < 0 {
		return tokens[1:end], nil, tokens[end:]
	}
	return tokens[1:on], tokens[on+1 : end : end], tokens[end:]
}

// GrantedOn returns the schema of whose objects a GRANT or REVOKE speaks; "" if it is about all schemas, or roles, and for
// any other statement. schema is the default database.
func GrantedOn(text, schema string) string {
	tokens := AccountTokens(text)
	if len(tokens) == 0 || !strings.EqualFold(tokens[0], "GRANT") && !strings.EqualFold(tokens[0], "REVOKE") {
		return ""
	}
	given, object, _ := PartsOfGrant(tokens)
	kinds := []string{"TABLE", "FUNCTION", "PROCEDURE", "LIBRARY"}
	if len(object) > 1 && object[1] != "." && slices.Contains(kinds, strings.ToUpper(object[0])) {
		object = object[1:]
	}
	switch {
	case len(object) == 3 && object[0] != "*":
		return strings.ReplaceAll(TokenName(object[0]), `\_`, "_") // the name is a pattern
	case len(object) == 1 && len(given) > 0 && !strings.EqualFold(given[0], "PROXY"):
		return schema
	}
	return ""
}
