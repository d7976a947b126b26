package follow

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
)

// table makes a TABLE_MAP event.
func table(w *binlogtest.Writer, id byte, schema string) []byte {
	return w.Event(binlog.TypeTableMap, append(append([]byte{id, 0, 0, 0, 0, 0, 0, 0, byte(len(schema))}, schema...), make([]byte, 8)...))
}

func rowsOf(w *binlogtest.Writer, id byte, ends bool) []byte {
	body := make([]byte, 12)
	if body[0] = id; ends {
		body[6] = 1
	}
	return w.Event(binlog.TypeWriteRows, body)
}

// TestOwn: changes to the schema of which each cluster has its own are left out. The rest of the transaction is not,
// and the transaction itself stays.
func TestOwn(t *testing.T) {
	updated := func(schemas ...string) []byte { // Q_UPDATED_DB_NAMES
		vars := []byte{12, byte(len(schemas))}
		for _, s := range schemas {
			vars = append(append(vars, s...), 0)
		}
		return vars
	}
	w := binlogtest.New("binlog.000001")
	xid := func() []byte { return w.Event(binlog.TypeXID, make([]byte, 8)) }
	events := slices.Concat([][]byte{w.FormatDescription(1)},
		tx(w, func() [][]byte {
			return [][]byte{w.Query("BEGIN"), table(w, 1, "own"), rowsOf(w, 1, true), xid()}
		}),
		tx(w, func() [][]byte { // a statement of both kinds of tables, which ends with either
			return [][]byte{w.Query("BEGIN"), table(w, 1, "own"), table(w, 2, "shop"), rowsOf(w, 1, false), rowsOf(w, 2, false), rowsOf(w, 1, true),
				table(w, 1, "shop"), table(w, 2, "own"), rowsOf(w, 2, false), rowsOf(w, 1, true), xid()}
		}),
		tx(w, func() [][]byte { return [][]byte{query(w, updated("own"), "", "DROP TABLE own.t", 0)} }),
		tx(w, func() [][]byte {
			return [][]byte{query(w, updated("own", "shop"), "", "RENAME TABLE own.t TO shop.t", 0)}
		}),
		tx(w, func() [][]byte { return [][]byte{query(w, nil, "own", "CREATE USER x", 0)} }),
		tx(w, func() [][]byte { return [][]byte{query(w, nil, "", "GRANT SELECT ON `own`.`t` TO x", 0)} }),
		tx(w, func() [][]byte { return [][]byte{query(w, nil, "", "REVOKE SELECT ON own.* FROM x", 0)} }),
		tx(w, func() [][]byte { // an account that is only near the schema
			return [][]byte{query(w, nil, "", "CREATE USER r COMMENT 'reads own'", 0)}
		}),
		tx(w, func() [][]byte { return [][]byte{query(w, nil, "", "DROP USER bob /* own */", 0)} }),
	)
	translator := Translator{Own: "own"}
	var said []string
	for _, e := range events {
		if err := translator.Feed(e, func(s Step) error {
			text := [...]string{"", "begin", "open", "rows", "statement", "commit", "left out", "format"}[s.Kind]
			for inner, err := range binlog.Events(s.Events) {
				if s.Kind != Rows {
					break
				}
				if err != nil || binlog.VerifyChecksum(inner) != nil {
					t.Errorf("an event of a step is damaged: %v", err)
				}
				if binlog.IsRowEvent(inner.Type()) {
					text += map[bool]string{true: " ends", false: " goes on"}[binlog.EndsStatement(inner)]
				}
			}
			if said = append(said, text); s.Own != (s.Kind == LeftOut) {
				t.Errorf("%s: own: %t", text, s.Own)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"format", "begin", "open", "commit", "begin", "open", "rows ends", "rows ends", "commit",
		"begin", "left out", "begin", "statement", "begin", "statement", "begin", "left out", "begin", "left out", "begin", "statement", "begin", "statement"}, said); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
