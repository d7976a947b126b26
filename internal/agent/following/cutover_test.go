package following

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestCutoverLooksForXA: a prepared XA transaction calls a cutover off before the source is closed. It was seen, and
// the source was closed for 30 s until the following had stopped at it.
func TestCutoverLooksForXA(t *testing.T) {
	server := newServer(t, "source")
	server.do(t, append(followAccount(), "GRANT XA_RECOVER_ADMIN ON *.* TO fol@'127.0.0.1'")...)
	f := followOf(t, server)
	u, s := newUndoing(t, f, nil)
	source, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	server.do(t, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
	c := &cutover{Service: s, follow: f, source: source, version: u.State().Version, args: cluster.CutoverRequest{Within: time.Minute, Force: true}}
	if err := c.mayBegin(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.do(t, "XA START 'x'", "INSERT INTO d.t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'")
	_, err = c.run(t.Context(), "ann")
	if err == nil || !strings.Contains(err.Error(), "nothing was done: XA COMMIT writes even at a server that is closed for writes") {
		t.Errorf("the cutover says %v", err)
	}
	if got := server.readOnly(t); u.State().Closing != nil || strings.Contains(got, "1") {
		t.Errorf("the source is %s, noted is %+v", got, u.State().Closing)
	}
}

// TestCutoverDoesNotWaitForEver: once the following has stopped at a transaction that can never be carried over, a cutover
// does not wait until its limit: the source is closed meanwhile.
func TestCutoverDoesNotWaitForEver(t *testing.T) {
	u, s := newUndoing(t, cluster.Follow{Source: "db0:3306", User: "fol", PasswordFile: "/x"}, nil)
	c := &cutover{Service: s, version: u.State().Version}
	c.set(func(st *cluster.FollowStatus) { st.Error, c.stopped = "is an XA transaction", true })
	if err := c.await(t.Context(), &gtid.Set{}); err == nil || !strings.Contains(err.Error(), "does not follow: is an XA transaction") {
		t.Errorf("the wait ended with %v", err)
	}
}
