package mysqlwire

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
)

// TestFedReplicaHoldsPrefix: a replica of a feed, with several workers, is killed again and again. Whenever it
// starts, it holds a prefix of the log: engine commits follow log order. At the end it has everything. The log is the
// binlog of a server without semi-sync, so this runs also where there are no plugins.
func TestFedReplicaHoldsPrefix(t *testing.T) {
	source := startPlain(t, "source", "server_id=1")
	const writers, each = 4, 300
	source.exec(t, "CREATE USER rep@'%' IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO rep@'%'", "CREATE DATABASE d")
	var eg errgroup.Group
	for w := range writers {
		eg.Go(func() error {
			if _, err := source.db.ExecContext(t.Context(), fmt.Sprintf("CREATE TABLE d.t%d (id INT PRIMARY KEY, v INT)", w)); err != nil {
				return err
			}
			for i := range each {
				if _, err := source.db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO d.t%d VALUES (%d, %d)", w, i, i*w)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := eg.Wait(); err != nil {
		t.Fatal(err)
	}
	log, order := source.log(t)
	feed := startFeed(t, log, source.text(t, "SELECT @@version"), false)
	replica := startPlain(t, "replica", "server_id=2", "log_replica_updates=OFF", "replicate_same_server_id=ON", "relay_log_recovery=ON", "skip_replica_start=ON",
		"replica_parallel_workers=4", "replica_preserve_commit_order=ON", "innodb_flush_log_at_trx_commit=2", "sync_binlog=0", "sync_relay_log=0")
	replica.replicateFrom(t, feed, "feed's secret")
	held := 0
	for kills := 0; held < len(order); {
		atLeast := min(held+1+rand.IntN(len(order)/4), len(order))
		waitUntil(t, fmt.Sprintf("the replica has %d transactions", atLeast), func() bool {
			if complaint := replica.replicaErrors(t); complaint != "" {
				t.Fatal(complaint)
			}
			return replica.executed(t).Count() >= uint64(atLeast)
		})
		if err := replica.Kill(); err != nil {
			t.Fatal(err)
		}
		kills++
		if err := replica.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		executed := replica.executed(t)
		held = int(executed.Count())
		if held > len(order) || !setOf(order[:held]).Equal(executed) {
			t.Fatalf("killed %d times it has %d transactions, and they are no prefix of the log: %v", kills, held, executed)
		}
		replica.exec(t, "START REPLICA")
		t.Logf("killed %d times, it has the first %d of %d transactions", kills, held, len(order))
	}
	for w := range writers {
		sum := fmt.Sprintf("SELECT CONCAT(COUNT(*), ' ', SUM(id), ' ', SUM(v)) FROM d.t%d", w)
		if got, want := replica.text(t, sum), source.text(t, sum); got != want {
			t.Errorf("t%d: the replica has %s, the source %s", w, got, want)
		}
	}
}

// plain is a server without quorate, which can be killed and started again.
type plain struct {
	*mysqldtest.Plain
	testMysqld
	port string
}

func startPlain(t *testing.T, name string, options ...string) *plain {
	t.Helper()
	in := findMySQL(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := mysqldtest.NewPlain(in, filepath.Join(t.TempDir(), name), append(options, "port="+port, "bind_address=127.0.0.1")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(-1) // none outlives the server
	t.Cleanup(func() { _ = db.Close() })
	return &plain{p, testMysqld{db: db}, port}
}

// log reads the server's whole binlog, and returns it with its transactions in their order.
func (p *plain) log(t *testing.T) (*testLog, []gtid.GTID) {
	t.Helper()
	want := p.executed(t)
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	f, err := DialForeign(ctx, ForeignConfig{Addr: "127.0.0.1:" + p.port, User: "rep", Password: "x", ServerID: 77,
		ReplicaUUID: "77777777-0000-0000-0000-000000000001", HeartbeatPeriod: time.Second, Exclude: &gtid.Set{}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var format, events []byte
	for {
		e, err := f.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch e.Type() {
		case binlog.TypeFormatDescription:
			format = bytes.Clone(e)
		case binlog.TypeRotate, binlog.TypePreviousGTIDs:
		case binlog.TypeHeartbeat: // it has sent all
			var order []gtid.GTID
			log := newTestLog(Piece{FormatDescription: format})
			for transaction, err := range binlog.Transactions(events) {
				if err != nil {
					t.Fatal(err)
				}
				order = append(order, transaction.GTID)
				log.append(Piece{Events: transaction.Raw})
			}
			if got := setOf(order); !got.Equal(want) {
				t.Fatalf("the binlog has %v, want %v", got, want)
			}
			return log, order
		default:
			events = append(events, e...)
		}
	}
}

// setOf is the set of some transactions.
func setOf(all []gtid.GTID) *gtid.Set {
	var s gtid.Set
	for _, id := range all {
		s.Add(id)
	}
	return &s
}
