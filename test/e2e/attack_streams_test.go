package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// heldStreams has a member's key, takes all of this member's places for calls and copies at the others, and asks for
// more. It cannot take the places of other members: these still commit, also large transactions, and fail over.
func (f *attacked) heldStreams(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	thief, third := f.others(primary)[0], f.others(primary)[1]
	from := f.writeSecret(t, ctx, primary)
	marks := []mark{f.mark(t, primary), f.mark(t, third)}
	holding, release := context.WithCancel(ctx)
	var holders sync.WaitGroup
	defer holders.Wait()
	defer release()
	for _, to := range []int{primary, third} {
		for class, places := range map[byte]int{classCall: 8, classBulk: 4} {
			conf, says := f.member(t, thief), f.claimOf(t, thief).hello(class, f.claimOf(t, to).NodeID)
			for range places + 1 {
				holders.Go(func() { attackerAt(27, int(class)).holds(holding, f.PeerAddr(to), conf, says) })
			}
		}
	}
	f.underAttack(t, ctx, f.all(), func() {
		for _, m := range marks {
			for _, class := range []byte{classCall, classBulk} {
				f.logged(t, ctx, m, fmt.Sprintf(`msg="refused a stream: its peer has as many as it may" remote=%v:`, attackerAt(27, int(class))), corruptLinesMax)
			}
		}
		for _, of := range [][2]int{{primary, third}, {third, primary}} {
			if h := f.raid(t, ctx, attackerAt(28, of[0]+1), of[0], of[1], f.member(t, of[0]), from); h != everything {
				t.Errorf("%s gets %+v of %s", f.Name(of[0]), h, f.Name(of[1]))
			}
		}
		db := openDSN(t, f.DSN(third), nil)
		if _, err := db.ExecContext(ctx, "INSERT INTO "+secretTable+" (b) VALUES (REPEAT('x', 12 << 20))"); err != nil { // beside the log's entries
			t.Error(err)
		}
	})
	l := f.start(t, 4, thief, third)
	l.awaitAcks(t, ctx, 50)
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 50)
	f.heal(t, ctx)
	l.stop(t)
	f.check(t, ctx)
}

// stolenSeed has a member's key, takes the vote from that node, and copies data as a node that joins does: only as the
// account for copies, with the password of the newest plan, and until the node has its vote again.
func (f *attacked) stolenSeed(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	thief, to := f.others(primary)[0], f.claimOf(t, primary).NodeID
	hello, m := f.claimOf(t, thief).hello(classCall, to), f.mark(t, primary)
	f.underAttack(t, ctx, f.all(), func() {
		if done := attackerAt(10, 1).orders(t, ctx, f.PeerAddr(primary), f.member(t, thief), hello, "node.demote", fmt.Sprintf(`{"change":{"name":%q}}`, f.Name(thief))); done.Code != control.CodeOK {
			t.Fatalf("%+v", done)
		}
		f.logged(t, ctx, m, `msg="carried out what another node passed on" name=node.demote by=root@somewhere from=`+f.Name(thief), 1)
		f.awaitMember(t, ctx, f.Name(thief), cluster.KindLearner)
		var copying []net.Conn
		for _, of := range f.others(thief) {
			copying = append(copying, f.copiesAlone(t, ctx, thief, of))
		}
		if err := devcluster.Poll(ctx, "the node has caught up, and its vote", func(ctx context.Context) (bool, string, error) {
			out, err := f.quorate(t, ctx, primary, "node", "promote", f.Name(thief))
			return err == nil, out, nil
		}); err != nil {
			t.Fatal(err)
		}
		f.awaitMember(t, ctx, f.Name(thief), cluster.KindFull)
		for _, c := range copying {
			ends(t, c, "its node has a vote again")
		}
		for _, of := range f.others(thief) {
			if _, err := f.seedSession(t, ctx, thief, of, mysqld.CloneUser, "x"); err == nil || !strings.Contains(err.Error(), "only to a node that joins") {
				t.Errorf("%s lets a node with a vote copy: %v", f.Name(of), err)
			}
		}
	})
}

// copiesAlone fails the test unless a member's data can be read only by the account for copies, with the password of one
// plan. It returns an open connection.
func (f *attacked) copiesAlone(t *testing.T, ctx context.Context, thief, of int) net.Conn {
	t.Helper()
	plan := func() (password string) {
		a := attackerAt(10, 2).orders(t, ctx, f.PeerAddr(of), f.member(t, thief), f.claimOf(t, thief).hello(classCall, f.claimOf(t, of).NodeID), "seed.plan", `{}`)
		var offer struct{ Data struct{ Password string } }
		if err := json.Unmarshal(a.Result, &offer); err != nil || offer.Data.Password == "" {
			t.Fatalf("%s has no plan: %+v, %v", f.Name(of), a, err)
		}
		return offer.Data.Password
	}
	password, m := plan(), f.mark(t, of)
	app, _ := f.Application()
	for user, guess := range map[string]string{"root": password, "dba": password, app: password, mysqld.AdminUser: password, mysqld.TapUser: password, mysqld.CloneUser: "a guess"} {
		if _, err := f.seedSession(t, ctx, thief, of, user, guess); !isRefused(err) {
			t.Errorf("%s at %s: %v", user, f.Name(of), err)
		}
	}
	f.logged(t, ctx, m, `msg="seed a node" node=`+f.Name(thief), 6)
	session := func(password string) net.Conn {
		c, err := f.seedSession(t, ctx, thief, of, mysqld.CloneUser, password)
		if err != nil {
			t.Fatalf("the account that copies, at %s: %v", f.Name(of), err)
		}
		return c
	}
	first := session(password)
	if _, err := first.Write(append([]byte{7, 0, 0, 0, 3}, "KILL 1"...)); err != nil {
		t.Error(err)
	}
	ends(t, first, "a statement")
	f.logged(t, ctx, m, "a command that copies nothing", 1)
	first = session(password)
	next := plan()
	ends(t, first, "another plan was told")
	if _, err := f.seedSession(t, ctx, thief, of, mysqld.CloneUser, password); !isRefused(err) {
		t.Errorf("the password of before, at %s: %v", f.Name(of), err)
	}
	return session(next)
}

// seedSession logs in to a member's mysqld through its agent, as a node that joins does.
func (f *attacked) seedSession(t *testing.T, ctx context.Context, thief, of int, user, password string) (opened net.Conn, err error) {
	t.Helper()
	hello := f.claimOf(t, thief).hello(classCall, f.claimOf(t, of).NodeID)
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Logger = user, password, &mysql.NopLogger{}
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn := attackerAt(10, 3).welcomed(t, ctx, f.PeerAddr(of), f.member(t, thief), hello)
		if conn == nil {
			return nil, errors.New("the member is refused")
		}
		err := control.WriteRequest(conn, control.Request{Name: "seed.data", By: "root@somewhere", Args: json.RawMessage(`{}`)})
		var answer control.Answer
		if err == nil {
			answer, err = control.ReadAnswer(conn)
		}
		if err = errors.Join(err, answer.Err(), conn.SetDeadline(time.Time{})); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		t.Cleanup(func() { _ = conn.Close() })
		opened = conn
		return conn, nil
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	_, err = connector.Connect(ctx)
	return opened, err
}

// isRefused tells whether an error means that a login was refused.
func isRefused(err error) bool {
	server, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && server.Number == 1045
}

// ends fails the test unless a connection ends and nothing is read before.
func ends(t *testing.T, c net.Conn, why string) {
	t.Helper()
	err := c.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, readErr := c.Read(make([]byte, 1))
	if err != nil || n > 0 || errors.Is(readErr, os.ErrDeadlineExceeded) {
		t.Errorf("a copy's connection goes on: %s (%d bytes, %v)", why, n, readErr)
	}
}
