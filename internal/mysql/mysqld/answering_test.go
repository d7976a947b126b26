package mysqld

import (
	"context"
	"database/sql"
	"io"
	"log"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// TestAnswering: a session over TCP counts from the arrival of its statement until the answer
// is written. An idle session does not count, nor does a session over the socket.
func TestAnswering(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	open(t, p)
	if err := p.Admin().exec(ctx(t), "make account", "CREATE USER far@'%' IDENTIFIED BY 'Far-away-1'"); err != nil {
		t.Fatal(err)
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net = "far", "Far-away-1", "tcp"
	cfg.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.cfg.Port))
	cfg.Logger = log.New(io.Discard, "", 0)
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	far := sql.OpenDB(connector)
	t.Cleanup(func() { _ = far.Close() })
	mustExec(t, far, "DO 1")
	waiting := func(c context.Context) (n int, err error) {
		err = p.Admin().query1(c, "waiting", "SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_state = 'User lock'", nil, &n)
		return n, err
	}
	await := func(what string, count func(context.Context) (int, error), want int) {
		t.Helper()
		for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
			got, err := count(ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if got == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d sessions, want %d", what, got, want)
			}
		}
	}
	await("one that is idle", p.Admin().Answering, 0)
	holder := dbaSession(t, s)
	mustExec(t, holder, "SELECT GET_LOCK('held', 0)")
	done := make(chan error, 2)
	for _, waiter := range []*sql.DB{far, dbaSession(t, s)} { // the other one over the socket
		go func() {
			_, err := waiter.ExecContext(ctx(t), "SELECT GET_LOCK('held', 60), RELEASE_LOCK('held')")
			done <- err
		}()
	}
	await("sessions that wait", waiting, 2)
	await("one that is in a statement", p.Admin().Answering, 1)
	mustExec(t, holder, "SELECT RELEASE_LOCK('held')")
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	await("one that has its answer", p.Admin().Answering, 0)
}
