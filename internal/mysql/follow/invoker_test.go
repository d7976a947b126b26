package follow

import (
	"errors"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
)

// TestInvoker: a statement is executed as an applier would execute it, for the account that the event names; or it is refused.
func TestInvoker(t *testing.T) {
	const as, somebody, uncertain = "`ann`@`%`", "CURRENT_USER, who is somebody else here", "it is not certain whose the event is"
	ann := []byte{11, 3, 'a', 'n', 'n', 1, '%'}
	for _, c := range []struct {
		vars       []byte
		text, want string
		routine    bool
		err        string
	}{
		{ann, "ALTER EVENT e ENABLE", "ALTER DEFINER = " + as + " EVENT e ENABLE", false, ""},
		{ann, "/* EVENT */ alter # DEFINER\n\tevent e DO SELECT 1", "/* EVENT */ alter DEFINER = " + as + " # DEFINER\n\tevent e DO SELECT 1", false, ""},
		{ann, "/*!50106 ALTER EVENT e ENABLE */", "/*!50106 ALTER DEFINER = " + as + " EVENT e ENABLE */", false, ""},
		{ann, "ALTER/*!50106 EVENT e ENABLE */", "ALTER DEFINER = " + as + "/*!50106 EVENT e ENABLE */", false, ""},
		{ann, "ALTER DEFINER = bob@h EVENT e ENABLE", "ALTER DEFINER = bob@h EVENT e ENABLE", false, ""},
		{ann, "ALTER /*!50117 DEFINER = bob@h */ EVENT e ENABLE", "ALTER /*!50117 DEFINER = bob@h */ EVENT e ENABLE", false, ""},
		{nil, "ALTER TABLE event ADD a INT", "ALTER TABLE event ADD a INT", false, ""},
		{nil, "ALTER EVENT e ENABLE", "", false, uncertain},
		{[]byte{11, 0, 1, '%'}, "ALTER EVENT e ENABLE", "", false, uncertain},
		{[]byte{11, 2, 0xc3, 0xbc, 1, '%'}, "ALTER EVENT e ENABLE", "", false, uncertain}, // in which character set?
		{ann, "ALTER DEFINER = CURRENT_USER EVENT e ENABLE", "", false, somebody},
		{ann, "ALTER USER current_user() IDENTIFIED BY 'x'", "", false, somebody},
		{nil, "CREATE TABLE t (a VARCHAR(9) DEFAULT (CURRENT_USER()))", "CREATE TABLE t (a VARCHAR(9) DEFAULT (CURRENT_USER()))", false, ""},
		{ann, "GRANT SELECT ON a.the_current_user TO x", "GRANT SELECT ON a.the_current_user TO x", false, ""},
		{ann, "CREATE DEFINER=`a``n`@`%` TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = CURRENT_USER()",
			"CREATE DEFINER=`a``n`@`%` TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = CURRENT_USER()", false, ""},
		{ann, "CREATE ALGORITHM=UNDEFINED DEFINER=\"ann\"@\"%\" SQL SECURITY INVOKER VIEW v AS SELECT CURRENT_USER()",
			"CREATE ALGORITHM=UNDEFINED DEFINER=\"ann\"@\"%\" SQL SECURITY INVOKER VIEW v AS SELECT CURRENT_USER()", false, ""},
		{ann, "CREATE DEFINER=`ann`@`%` PROCEDURE `p`() SELECT 1", "CREATE DEFINER=`ann`@`%` PROCEDURE `p`() SELECT 1", true, ""},
		{ann, "CREATE DEFINER=`ann`@`%` FUNCTION `p`() RETURNS TEXT RETURN CURRENT_USER()", "CREATE DEFINER=`ann`@`%` FUNCTION `p`() RETURNS TEXT RETURN CURRENT_USER()", true, ""},
		{nil, "CREATE DEFINER=`ann`@`%` PROCEDURE `p`() SELECT 1", "CREATE DEFINER=`ann`@`%` PROCEDURE `p`() SELECT 1", false, ""},
	} {
		w := binlogtest.New("b")
		translator, got := Translator{}, Step{}
		var err error
		for _, e := range tx(w, func() [][]byte { return [][]byte{query(w, c.vars, "", c.text, 0)} }) {
			err = translator.Feed(e, func(s Step) error { got = s; return nil })
		}
		if c.err != "" {
			if unsupported, ok := errors.AsType[*UnsupportedError](err); !ok || !strings.Contains(unsupported.What, c.err) {
				t.Errorf("%s: %v, want %q", c.text, err, c.err)
			}
			continue
		}
		if err != nil || got.Kind != Statement || got.Query.Text != c.want || got.Routine != c.routine || !got.Ends {
			t.Errorf("%s: %v\n%q (a routine: %t), want\n%q", c.text, err, got.Query.Text, got.Routine, c.want)
		}
	}
}

// payload makes a transaction that is one TRANSACTION_PAYLOAD, not compressed, with these events.
func payload(w *binlogtest.Writer, events ...[]byte) [][]byte {
	var inside []byte
	for _, e := range events {
		inside = append(inside, e[:len(e)-binlog.ChecksumBytes]...)
		inside[len(inside)-len(e)+binlog.ChecksumBytes+9] -= binlog.ChecksumBytes // the length; each is short
	}
	head := []byte{2, 3, 252, 255, 0, 1, 3, 252, byte(len(inside)), byte(len(inside) >> 8), 0}
	return tx(w, func() [][]byte {
		return [][]byte{w.Event(binlog.TypeTransactionPayload, append(append([]byte{}, head...), inside...))}
	})
}

// TestPayloadEnds: a compressed transaction must have an end, and nothing behind it.
func TestPayloadEnds(t *testing.T) {
	w := binlogtest.New("b")
	begin, xid, drop := w.Query("BEGIN"), w.Event(binlog.TypeXID, make([]byte, 8)), w.Query("DROP TABLE t")
	maps, row := w.Event(binlog.TypeTableMap, make([]byte, 20)), rows(w, binlog.TypeWriteRows, true, 0)
	half := rows(w, binlog.TypeWriteRows, false, 0)
	for name, c := range map[string]struct {
		events [][]byte
		want   string
	}{
		"whole":            {[][]byte{begin, maps, row, xid}, ""},
		"two":              {[][]byte{begin, xid, begin, xid}, "behind its end"},
		"a statement more": {[][]byte{begin, maps, row, xid, drop}, "behind its end"},
		"no end":           {[][]byte{begin, maps, row}, "it has no end"},
		"nothing":          {nil, "it has no end"},
		"no begin":         {[][]byte{xid}, "without a BEGIN"},
		"half a statement": {[][]byte{begin, maps, half, xid}, "within a statement"},
	} {
		w := binlogtest.New("b")
		got, err := steps(t, nil, append(payload(w, c.events...), w.Statement("DROP TABLE u")...)...)
		if c.want == "" && err == nil && strings.Join(got, "|") == "begin 1|open|rows 19 30!|commit.|begin 2|statement DROP TABLE u." {
			continue
		}
		if c.want == "" || !errors.Is(err, binlog.ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// TestFormatWithinTransaction: a file that begins within a transaction is an error.
func TestFormatWithinTransaction(t *testing.T) {
	w := binlogtest.New("b")
	if got, err := steps(t, nil, w.Statement("DROP TABLE t")[0], w.FormatDescription(1)); !errors.Is(err, binlog.ErrStream) {
		t.Errorf("%q, %v", got, err)
	}
}
