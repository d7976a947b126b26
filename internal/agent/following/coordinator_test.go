package following

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/follow"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// recorder is a server that notes what is executed.
type recorder struct {
	mu       sync.Mutex
	executed []string
	fails    func(text string) error
}

func (r *recorder) Connect(context.Context) (driver.Conn, error) { return recorderConn{r}, nil }
func (r *recorder) Driver() driver.Driver                        { return nil }

type recorderConn struct{ r *recorder }

func (recorderConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (recorderConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (recorderConn) Close() error                        { return nil }
func (c recorderConn) ExecContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.executed = append(c.r.executed, text)
	if c.r.fails != nil {
		return nil, c.r.fails(text)
	}
	return driver.ResultNoRows, nil
}

var errBroken = errors.New("the connection is broken")

// events is a Stream that breaks behind its last event.
type events struct{ left [][]byte }

func (e *events) Next() (binlog.Event, error) {
	if len(e.left) == 0 {
		return nil, errBroken
	}
	next := e.left[0]
	e.left = e.left[1:]
	return next, nil
}

func (e *events) Close() error { return nil }

// recorded makes a Follower that reads events, once for each Run, and whose server is r.
func recorded(t *testing.T, r *recorder, logger *slog.Logger, runs ...[][]byte) *Follower {
	t.Helper()
	db := sql.OpenDB(r)
	t.Cleanup(func() { _ = db.Close() })
	return New(Config{
		Dial: func(context.Context, *gtid.Set) (Stream, error) {
			next := runs[0]
			runs = runs[1:]
			return &events{next}, nil
		},
		Executed: func(context.Context) (*gtid.Set, error) { return gtid.ParseSet("") },
		Sessions: db, Logger: logger,
	})
}

// TestSerialIsGivenBack: after a conflict, transactions run one after the other. How many still have to is not lost
// with a connection.
func TestSerialIsGivenBack(t *testing.T) {
	w := binlogtest.New("b")
	file := [][]byte{w.FormatDescription(1)}
	one := append(file[:1:1], w.Statement("DROP TABLE conflict")...)
	two := append(append(file[:1:1], w.Statement("DROP TABLE a")...), w.Statement("DROP TABLE b")...)
	r := &recorder{fails: func(text string) error {
		if strings.HasSuffix(text, "conflict") {
			return &mysql.MySQLError{Number: errLockDeadlock}
		}
		return nil
	}}
	f := recorded(t, r, slog.New(slog.DiscardHandler), one, two, file)
	if err := f.Run(t.Context(), t.Context()); !Conflict(err) || f.serial != alone {
		t.Errorf("%v, then %d one by one", err, f.serial)
	}
	for range 2 { // the second has nothing to write
		if err := f.Run(t.Context(), t.Context()); !errors.Is(err, errBroken) || f.serial != alone-2 {
			t.Errorf("%v, then %d one by one, want %d", err, f.serial, alone-2)
		}
	}
}

// TestStreamIsGivenBack: conflicts end a stream each, and the following goes on. Nothing holds a stream that has ended.
func TestStreamIsGivenBack(t *testing.T) {
	w := binlogtest.New("b")
	conflict := append([][]byte{w.FormatDescription(1)}, w.Statement("DROP TABLE conflict")...)
	r := &recorder{fails: func(string) error { return &mysql.MySQLError{Number: errLockDeadlock} }}
	f := recorded(t, r, slog.New(slog.DiscardHandler), conflict, conflict, conflict)
	dial, streams := f.cfg.Dial, []weak.Pointer[events]{}
	f.cfg.Dial = func(ctx context.Context, executed *gtid.Set) (Stream, error) {
		stream, err := dial(ctx, executed)
		streams = append(streams, weak.Make(stream.(*events)))
		return stream, err
	}
	reading, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 3 {
		if err := f.Run(t.Context(), reading); !Conflict(err) {
			t.Fatal(err)
		}
	}
	for began := time.Now(); slices.ContainsFunc(streams, func(p weak.Pointer[events]) bool { return p.Value() != nil }); runtime.GC() {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the streams that have ended are held")
		}
	}
}

// endless is a Stream without an event, until it is closed.
type endless chan struct{}

func (e endless) Next() (binlog.Event, error) {
	<-e
	return nil, errBroken
}

func (e endless) Close() error {
	select {
	case e <- struct{}{}:
	default:
	}
	return nil
}

// TestReadingEnds: the end of reading ends a stream that waits for its source.
func TestReadingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := recorded(t, &recorder{}, slog.New(slog.DiscardHandler))
		f.cfg.Dial = func(context.Context, *gtid.Set) (Stream, error) { return make(endless), nil }
		reading, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Run(t.Context(), reading); !errors.Is(err, errBroken) || reading.Err() == nil {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestFormatBeforeTransactions: a session gets the FORMAT_DESCRIPTION of a file before the GTID of its first
// transaction.
func TestFormatBeforeTransactions(t *testing.T) {
	w, r := binlogtest.New("b"), &recorder{}
	file, ends := [][]byte{w.FormatDescription(1)}, []byte{6: 1, 9: 0}
	f := recorded(t, r, slog.New(slog.DiscardHandler), append(file, w.Transaction(func() [][]byte {
		return [][]byte{w.Query("BEGIN"), w.Event(binlog.TypeTableMap, make([]byte, 20)), w.Event(binlog.TypeWriteRows, ends), w.Event(binlog.TypeXID, make([]byte, 8))}
	})...))
	if err := f.Run(t.Context(), t.Context()); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	want := []string{"SET @@SESSION.gtid_next='AUTOMATIC'", "BINLOG '", "SET @@SESSION.gtid_next='" + binlogtest.GTID(1).String() + "'", "SET ", "BEGIN", "BINLOG '", "COMMIT"}
	for i, text := range want {
		if len(r.executed) != len(want) || !strings.HasPrefix(r.executed[i], text) {
			t.Fatalf("%.100q, want %q", r.executed, want)
		}
	}
}

// TestRoutineIsTold: the log names the account that has made a routine at the source: it has no privileges on it
// here.
func TestRoutineIsTold(t *testing.T) {
	w, r := binlogtest.New("b"), &recorder{}
	const text = "CREATE DEFINER=`ann`@`%` PROCEDURE `p`() SELECT 1"
	body := make([]byte, 13)
	vars := "\x0b\x03ann\x01%"
	body[11] = byte(len(vars))
	body = append(append(append(body, vars...), 0), text...)
	var logged strings.Builder
	f := recorded(t, r, slog.New(slog.NewTextHandler(&logged, nil)),
		append([][]byte{w.FormatDescription(1)}, w.Transaction(func() [][]byte { return [][]byte{w.Event(binlog.TypeQuery, body)} })...))
	if err := f.Run(t.Context(), t.Context()); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if got := logged.String(); !strings.Contains(got, "account=`ann`@`%`") || !strings.Contains(got, binlogtest.GTID(1).String()) || strings.Count(got, "\n") != 1 {
		t.Errorf("the log says %q", got)
	}
	if last := len(r.executed) - 1; last < 0 || r.executed[last] != text {
		t.Errorf("%q", r.executed)
	}
}

// TestStepsOutOfOrder: a step without a transaction, and a transaction within another one, are errors.
func TestStepsOutOfOrder(t *testing.T) {
	begin := follow.Step{Kind: follow.Begin, Info: binlog.GTIDInfo{GTID: binlogtest.GTID(1)}}
	for name, steps := range map[string][]follow.Step{
		"no transaction":        {{Kind: follow.Commit, Ends: true}},
		"behind its end":        {begin, {Kind: follow.Statement, Ends: true}, {Kind: follow.Rows}},
		"within another one":    {begin, {Kind: follow.Open}, begin},
		"a file begins therein": {begin, {Kind: follow.Format}},
	} {
		c := &coordinator{follower: New(Config{}), done: make(chan *session, sessionsMax)}
		for range sessionsMax {
			c.free = append(c.free, &session{steps: make(chan follow.Step, stepsMax)})
		}
		for i, step := range steps {
			err := c.take(t.Context(), step)
			if last := i == len(steps)-1; last != errors.Is(err, binlog.ErrMalformed) || !last && err != nil {
				t.Errorf("%s: step %d: %v", name, i, err)
			}
		}
	}
}
