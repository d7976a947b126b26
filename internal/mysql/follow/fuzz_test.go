package follow

import (
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
)

// FuzzTranslator: whatever a source sends, there is no panic, and the steps are complete. A transaction begins before
// its other steps, and ends once. Each piece of rows has events with checksums, and the last of them ends a
// statement. A session can make SQL of every step.
func FuzzTranslator(f *testing.F) {
	w := binlogtest.New("binlog.000001")
	start := binlogtest.Join(w.FormatDescription(byte(binlog.ChecksumCRC32)))
	for _, events := range [][][]byte{
		w.Statement("DROP TABLE t"), w.Rows(100),
		tx(w, func() [][]byte {
			return [][]byte{w.Query("BEGIN"), w.Event(binlog.TypeTableMap, make([]byte, 20)), rows(w, binlog.TypeWriteRows, false, 0), rows(w, binlog.TypeUpdateRows, true, 0), w.Query("COMMIT")}
		}),
		tx(w, func() [][]byte { return [][]byte{w.Event(binlog.TypeTransactionPayload, make([]byte, 30))} }),
		payload(w, w.Query("BEGIN"), w.Event(binlog.TypeTableMap, make([]byte, 20)), rows(w, binlog.TypeWriteRows, true, 0), w.Event(binlog.TypeXID, make([]byte, 8))),
		append(payload(w, w.Query("BEGIN")), w.Statement("DROP TABLE t")...),
		payload(w, w.Query("BEGIN"), w.Query("COMMIT"), w.Query("DROP TABLE t")),
		tx(w, func() [][]byte { return [][]byte{query(w, []byte{11, 1, 'a', 1, 'b'}, "d", "ALTER EVENT e ENABLE", 0)} }),
	} {
		f.Add(append(append([]byte{}, start...), binlogtest.Join(events...)...))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		translator, session, open := Translator{}, Session{}, false
		for e, err := range binlog.Events(stream) {
			if err != nil {
				return
			}
			if _, err := binlog.ParseEvent(e); err != nil {
				return
			}
			if len(e) >= binlog.HeaderBytes+4 {
				binlog.PutChecksum(e) // else nothing gets further
			}
			if err := translator.Feed(e, func(s Step) error {
				if s.Kind != Format && open == (s.Kind == Begin) {
					t.Errorf("step %d while a transaction is open: %t", s.Kind, open)
				}
				open = s.Kind != Format && !s.Ends || s.Kind == Format && open
				if s.Kind == Rows {
					wholeRows(t, s.Events)
				}
				session.SQL(s)
				return nil
			}); err != nil {
				return
			}
			if e.Type() == binlog.TypeTransactionPayload && open {
				t.Error("a compressed transaction has no end")
			}
		}
	})
}

func wholeRows(t *testing.T, events []byte) {
	t.Helper()
	ends := false
	for e, err := range binlog.Events(events) {
		if err != nil || binlog.VerifyChecksum(e) != nil {
			t.Errorf("a piece of rows is damaged: %v", err)
			return
		}
		ends = binlog.IsRowEvent(e.Type()) && binlog.EndsStatement(e)
	}
	if !ends {
		t.Error("a piece of rows does not end a statement")
	}
}
