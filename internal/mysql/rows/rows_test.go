package rows

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var errGone = errors.New("the server has gone away")

// result is a server that answers each statement with some rows, and then the error ends.
type result struct {
	rows [][]driver.Value
	ends error
	n    int
}

func (r *result) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r *result) Driver() driver.Driver                        { return nil }
func (r *result) Prepare(string) (driver.Stmt, error)          { return r, nil }
func (r *result) Begin() (driver.Tx, error)                    { return nil, errGone }
func (r *result) Close() error                                 { return nil }
func (r *result) NumInput() int                                { return 0 }
func (r *result) Exec([]driver.Value) (driver.Result, error)   { return nil, errGone }
func (r *result) Query([]driver.Value) (driver.Rows, error)    { r.n = 0; return r, nil }
func (r *result) Columns() []string                            { return []string{"name", "value"} }

func (r *result) Next(into []driver.Value) error {
	if r.n == len(r.rows) {
		return r.ends
	}
	copy(into, r.rows[r.n])
	r.n++
	return nil
}

// TestRows: the functions return all rows or an error. For no rows, All returns nil, and Map an
// empty map that can be written to.
func TestRows(t *testing.T) {
	for name, c := range map[string]struct {
		rows [][]driver.Value
		ends error
		want map[string]string
		fail bool
	}{
		"two":             {[][]driver.Value{{"a", "1"}, {"b", "2"}}, io.EOF, map[string]string{"a": "1", "b": "2"}, false},
		"none":            {nil, io.EOF, map[string]string{}, false},
		"NULL":            {[][]driver.Value{{"a", nil}}, io.EOF, nil, true},
		"broken off":      {[][]driver.Value{{"a", "1"}}, errGone, nil, true},
		"broken at first": {nil, errGone, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			db := sql.OpenDB(&result{rows: c.rows, ends: c.ends})
			defer func() { _ = db.Close() }()
			got, err := Map[string](t.Context(), db, "SELECT")
			if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.fail {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			n, err := Count(t.Context(), db, "SELECT")
			if broken := c.ends != io.EOF; (err != nil) != broken || !broken && n != len(c.rows) {
				t.Errorf("%d rows are counted, %v", n, err)
			}
			all, err := All(t.Context(), db, func(v *[2]any) []any { return []any{&v[0], &v[1]} }, "SELECT")
			if broken := c.ends != io.EOF; (err != nil) != broken || !broken && (len(all) != len(c.rows) || len(c.rows) == 0 && all != nil) {
				t.Errorf("%v, %v", all, err)
			}
		})
	}
}
