package binlog

import (
	"encoding/binary"
	"errors"
	"testing"
)

// TestParseSessionQueryInvoker: it returns who executed a statement at its origin, if the event has
// that.
func TestParseSessionQueryInvoker(t *testing.T) {
	parse := func(vars ...byte) (SessionQuery, error) {
		body := make([]byte, queryPostHeaderBytes)
		binary.LittleEndian.PutUint16(body[11:], uint16(len(vars)))
		return ParseSessionQuery(event(TypeQuery, append(append(append(body, vars...), 0), "ALTER EVENT e ENABLE"...)...))
	}
	for name, c := range map[string]struct {
		vars []byte
		want Account
		sql  string
	}{
		"none":      {nil, Account{}, "``@``"},
		"an owner":  {[]byte{queryInvoker, 3, 'a', '`', 'n', 1, '%', queryMicroseconds, 1, 0, 0}, Account{"a`n", "%"}, "`a``n`@`%`"},
		"anonymous": {[]byte{queryInvoker, 0, 2, 'd', 'b'}, Account{"", "db"}, "``@`db`"},
	} {
		q, err := parse(c.vars...)
		if err != nil || q.Invoker != c.want || q.Invoker.String() != c.sql || q.Text != "ALTER EVENT e ENABLE" {
			t.Errorf("%s: %+v (%s) for %q, %v", name, q.Invoker, q.Invoker, q.Text, err)
		}
	}
	for _, cut := range [][]byte{{queryInvoker}, {queryInvoker, 1}, {queryInvoker, 1, 'a'}, {queryInvoker, 1, 'a', 2, 'b'}} {
		if _, err := parse(cut...); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v is taken: %v", cut, err)
		}
	}
}
