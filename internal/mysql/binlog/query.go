package binlog

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Query is a QUERY event: a statement, or a transaction's BEGIN or COMMIT.
type Query struct {
	// Schema is the default database; "" for none.
	Schema string
	// Text is the statement.
	Text string
	// ErrorCode is the error with which the statement ended at its origin; a replica expects it
	// to end with the same. 0 = none.
	ErrorCode uint16
}

// queryPostHeaderBytes is the length of a QUERY event's fixed part: thread id
// u32, execution time u32, length of schema u8, error code u16, length of the
// status variables u16. The variables, the schema, a NUL and the text follow.
const queryPostHeaderBytes = 13

// ParseQuery parses a QUERY event that has a checksum.
func ParseQuery(e Event) (Query, error) {
	q, err := parseQuery(e)
	if err != nil {
		return Query{}, fmt.Errorf("parse QUERY: %w", err)
	}
	return Query{Schema: string(q.schema), Text: string(q.text), ErrorCode: q.errorCode}, nil
}

// queryView is a Query that shares its bytes with the event.
type queryView struct {
	schema, text []byte
	errorCode    uint16
}

func parseQuery(e Event) (queryView, error) {
	body := e.Body()
	if e.Type() != TypeQuery || len(body) < queryPostHeaderBytes {
		return queryView{}, fmt.Errorf("%w: type %d, %d bytes", ErrMalformed, e.Type(), len(e))
	}
	schemaBytes := int(body[8])
	schemaAt := queryPostHeaderBytes + int(binary.LittleEndian.Uint16(body[11:]))
	if len(body) < schemaAt+schemaBytes+1 {
		return queryView{}, fmt.Errorf("%w: cut before the text", ErrMalformed)
	}
	return queryView{
		schema:    body[schemaAt : schemaAt+schemaBytes],
		text:      body[schemaAt+schemaBytes+1:],
		errorCode: binary.LittleEndian.Uint16(body[9:]),
	}, nil
}

// aclStatements are the statements that change accounts or privileges, by their
// first words.
func aclStatements() [][]string {
	return [][]string{
		{"GRANT"}, {"REVOKE"},
		{"CREATE", "USER"}, {"ALTER", "USER"}, {"DROP", "USER"}, {"RENAME", "USER"},
		{"CREATE", "ROLE"}, {"DROP", "ROLE"},
		{"SET", "PASSWORD"}, {"SET", "DEFAULT", "ROLE"},
		{"FLUSH", "PRIVILEGES"}, // Brings changes to the tables of mysql into force.
	}
}

// IsACLStatement reports whether a statement, as a QUERY event holds it, changes accounts or
// privileges. Comments and white space may stand before and between its first words. The
// content of a /*! comment counts as text, as it does for mysqld.
func IsACLStatement(query string) bool {
	// The longest row of aclStatements has three words.
	var words []string
	for len(words) < 3 {
		var word string
		if word, query = cutWord(query); word == "" {
			break
		}
		words = append(words, strings.ToUpper(word))
	}
	for _, row := range aclStatements() {
		if len(words) >= len(row) && strings.Join(words[:len(row)], " ") == strings.Join(row, " ") {
			return true
		}
	}
	return false
}

// cutWord returns the first word of SQL text ("" if there is none) and the text behind it.
func cutWord(s string) (word, rest string) {
	for s = skipBlank(s); strings.HasPrefix(s, "/*!"); s = skipBlank(s) {
		s = strings.TrimLeft(s[len("/*!"):], "0123456789")
	}
	end := 0
	for end < len(s) && isLetter(s[end]) {
		end++
	}
	return s[:end], s[end:]
}

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
}

// skipBlank cuts white space and comments from the beginning of s. Of a comment that starts
// with /*! it cuts only the end mark, when that is next.
func skipBlank(s string) string {
	for {
		s = strings.TrimLeft(s, " \t\r\n\v\f")
		var end string
		switch {
		case strings.HasPrefix(s, "#"), strings.HasPrefix(s, "--"):
			end = "\n"
		case strings.HasPrefix(s, "/*") && !strings.HasPrefix(s, "/*!"):
			s, end = s[len("/*"):], "*/"
		case strings.HasPrefix(s, "*/"):
			end = "*/"
		default:
			return s
		}
		_, s, _ = strings.Cut(s, end)
	}
}
