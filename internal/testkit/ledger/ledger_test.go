package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestID(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		writer, seq := rapid.Uint32Max(1<<31-1).Draw(t, "writer"), rapid.Uint32().Draw(t, "seq")
		id := MakeID(writer, seq)
		if id < 0 || id.Writer() != writer || id.Seq() != seq {
			t.Fatalf("MakeID(%d, %d) = %d, read back as %v", writer, seq, int64(id), id)
		}
		p := id.Payload()
		if len(p) < payloadBytesMin || len(p) > payloadBytesMax || !bytes.Equal(p, id.Payload()) {
			t.Fatalf("payload of %v has %d bytes or changes", id, len(p))
		}
		if bytes.Equal(p, MakeID(writer, seq+1).Payload()) {
			t.Fatalf("payload of %v is that of the next row", id)
		}
	})
}

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want Outcome
	}{
		{nil, Acknowledged},
		{driver.ErrBadConn, Failed},
		{fmt.Errorf("exec: %w", driver.ErrBadConn), Failed},
		{mysql.ErrInvalidConn, Unknown},
		{errors.New("unexpected EOF"), Unknown},
		{context.DeadlineExceeded, Unknown},
		{fmt.Errorf("exec: %w", &mysql.MySQLError{Number: 1290}), Failed},
	} {
		if got := OutcomeOf(tc.err); got != tc.want {
			t.Errorf("OutcomeOf(%v) = %v, want %v", tc.err, got, tc.want)
		}
	}
	// These codes rule a commit out, and no other one: not 1053, 1180, 1317, 3100 or 3101 (rulesOutCommit says why).
	failed := []uint16{1047, 1049, 1062, 1142, 1146, 1197, 1205, 1213, 1290, 1792}
	for n := range uint16(math.MaxUint16) {
		want := Unknown
		if slices.Contains(failed, n) {
			want = Failed
		}
		if got := OutcomeOf(&mysql.MySQLError{Number: n}); got != want {
			t.Errorf("error %d is %v, want %v", n, got, want)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint16]bool{1045: true, 1062: true, 1146: true, 1213: false, 1290: false, 1317: false} {
		if err := classify(&mysql.MySQLError{Number: n}); permanent(err) != want {
			t.Errorf("error %d is permanent: %v, want %v", n, !want, want)
		}
	}
}

func TestGapMeter(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var g gapMeter
	g.ack(at(0))
	g.ack(at(50))
	g.ack(at(40)) // taken earlier, noted later
	g.ack(at(60))
	check := func(step string, now, wantMs int) {
		t.Helper()
		if got, want := g.read(at(now)), time.Duration(wantMs)*time.Millisecond; got != want {
			t.Errorf("%s: gap %v, want %v", step, got, want)
		}
	}
	check("steady", 65, 50)
	g.reset()
	check("after a reset", 70, 10)
	check("nothing comes", 900, 840)
	g.ack(at(1000))
	check("the interval that holds the reset counts whole", 1001, 940)
	g.ack(at(1010))
	check("a shorter one changes nothing", 1011, 940)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{},
		{Writers: 1},
		{DSNs: []string{"u:p@tcp(127.0.0.1:1)/"}},
		{Writers: 1, DSNs: []string{"no slash"}},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("New(%+v) succeeded", cfg)
		}
	}
}

// server stands for one that answers each statement with err.
type server struct{ err error }

func (s server) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s server) Driver() driver.Driver                        { return nil }
func (s server) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (s server) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (s server) Close() error                                 { return nil }
func (s server) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, s.err
}

// TestReadOnlyPort: a writer leaves a port that leads to a closed server, which answers well and for ever. Each writer of TestSites
// once stayed at the site that follows.
func TestReadOnlyPort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := New(Config{Writers: 1, Pause: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			DSNs: []string{"u:p@tcp(127.0.0.1:1)/", "u:p@tcp(127.0.0.1:2)/"}})
		if err != nil {
			t.Fatal(err)
		}
		w.closePools()
		w.pools = []*sql.DB{sql.OpenDB(server{&mysql.MySQLError{Number: errReadOnly}}), sql.OpenDB(server{})}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if s := w.Stats(); s.Acknowledged < 10 || s.Reconnects != 1 {
			t.Errorf("a writer at a closed port: %+v", s)
		}
	})
}
