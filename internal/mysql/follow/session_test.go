package follow

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
)

// sessionQuery is a QUERY event of a session with character set 8 (latin1).
func sessionQuery(t *testing.T, schema, text string) binlog.SessionQuery {
	t.Helper()
	q, err := binlog.ParseSessionQuery(query(binlogtest.New("b"), []byte{4, 8, 0, 8, 0, 8, 0}, schema, text, 0))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestTimestampBehindRows: row events set the session's timestamp, so it is set again for the next
// statement.
func TestTimestampBehindRows(t *testing.T) {
	var s Session
	open := Step{Kind: Open, Query: sessionQuery(t, "", "BEGIN")}
	s.SQL(open)
	if ours := s.SQL(open); len(ours) != 1 {
		t.Errorf("%q, but nothing has changed", ours)
	}
	s.SQL(Step{Kind: Rows, Events: []byte("abc")})
	if ours := s.SQL(open); len(ours) != 2 || ours[0] != "SET @@SESSION.timestamp=239.000000" {
		t.Errorf("behind rows: %q", ours)
	}
}

// TestFormatOutsideOfTransactions: mysqld skips a BINLOG statement whose GTID exists already. It must not skip a
// FORMAT_DESCRIPTION.
func TestFormatOutsideOfTransactions(t *testing.T) {
	var s Session
	all := s.SQL(Step{Kind: Format, Events: []byte("abc")})
	if len(all) != 2 || all[0] != "SET @@SESSION.gtid_next='AUTOMATIC'" || all[1] != "BINLOG 'YWJj'" {
		t.Errorf("a file begins with %q", all)
	}
	if all := s.SQL(Step{Kind: Format, Events: []byte("abc")}); all != nil {
		t.Errorf("the same again: %q", all)
	}
	if ours := s.SQL(Step{Kind: Rows, Events: []byte("def")}); len(ours) != 1 || ours[0] != "BINLOG 'ZGVm'" {
		t.Errorf("rows have more than themselves: %q", ours)
	}
	if all := s.SQL(Step{Kind: Format, Events: []byte("xyz")}); len(all) != 2 || all[1] != "BINLOG 'eHl6'" {
		t.Errorf("the next file begins with %q", all)
	}
}

// TestUseInUTF8: the name of a schema is in UTF-8, whatever the character set of the transactions before.
func TestUseInUTF8(t *testing.T) {
	var s Session
	s.SQL(Step{Kind: Open, Query: sessionQuery(t, "", "BEGIN")})
	ours := s.SQL(Step{Kind: Statement, Query: sessionQuery(t, "bücher", "DROP TABLE t")})
	if len(ours) != 4 || ours[0] != "SET @@SESSION.character_set_client=utf8mb4" || ours[1] != "USE `bücher`" ||
		!strings.Contains(ours[2], "@@SESSION.character_set_client=8") || ours[3] != "DROP TABLE t" {
		t.Errorf("%q", ours)
	}
}
