package mysqlwire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

const feedUUID = "00000000-0000-0000-0000-0000000000fe"

// startFeed runs a feed on a free loopback port.
func startFeed(t *testing.T, source Source, version string, wrap bool) *Feed {
	t.Helper()
	return startLimitedFeed(t, source, version, wrap, nil)
}

func startLimitedFeed(t *testing.T, source Source, version string, wrap bool, workers func(context.Context) int) *Feed {
	t.Helper()
	feed, err := NewFeed(FeedConfig{
		Listen: "127.0.0.1:0", User: "feed", Password: "feed's secret", ServerID: 4000000002,
		ServerUUID:    func() string { return feedUUID },
		ServerVersion: func() string { return version },
		Source:        source, Workers: workers, Logger: testLogger(), WrapPayloads: wrap,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := feed.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- feed.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("feed ended with %v", err)
		}
	})
	return feed
}

func (m *testMysqld) replicateFrom(t *testing.T, feed *Feed, password string) {
	t.Helper()
	m.exec(t, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='feed', "+
		"SOURCE_PASSWORD='%s', SOURCE_SSL=0, SOURCE_AUTO_POSITION=1, REQUIRE_ROW_FORMAT=1, GTID_ONLY=1, "+
		"SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=1000, SOURCE_HEARTBEAT_PERIOD=0.1",
		feed.Addr().(*net.TCPAddr).Port, strings.ReplaceAll(password, "'", "''")), "START REPLICA")
}

// replicaErrors returns what a replica complains about, or "".
func (m *testMysqld) replicaErrors(t *testing.T) string {
	t.Helper()
	s := m.status(t, "SHOW REPLICA STATUS")
	if s["Last_IO_Error"] == "" && s["Last_SQL_Error"] == "" {
		return ""
	}
	return fmt.Sprintf("I/O thread: %s; applier: %s", s["Last_IO_Error"], s["Last_SQL_Error"])
}

func (m *testMysqld) waitApplied(t *testing.T, source *testMysqld) {
	t.Helper()
	want := source.executed(t)
	waitUntil(t, "the replica applies "+want.String(), func() bool {
		if complaint := m.replicaErrors(t); complaint != "" {
			t.Fatal(complaint)
		}
		return m.executed(t).Equal(want)
	})
}

func replicaOptions() []string {
	return []string{
		"--log-bin=r0000000001", "--log-replica-updates=OFF", "--replicate-same-server-id=1",
		"--relay-log-recovery=ON", "--skip-replica-start",
	}
}

// A real mysqld replicates what a real mysqld wrote, by way of tap and feed:
// rows, DDL, XA, events beyond one packet, a rotation, and idle times.
func TestFeedServesMysqld(t *testing.T) {
	source := startMysqld(t, 1, append(sourceOptions(), "--binlog-transaction-compression=OFF")...)
	source.createTapUser(t)
	c := runTap(t, source, nil)
	source.exec(t,
		"CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT)",
		"INSERT INTO d.t (v) VALUES ('one'), ('two')",
		"UPDATE d.t SET v = CONCAT(v, '!')",
		"FLUSH BINARY LOGS",
		"XA START 'x'", "INSERT INTO d.t (v) VALUES ('xa')", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'",
		"INSERT INTO d.t (v) VALUES (REPEAT('x', 20000000))",
		"BEGIN", "INSERT INTO d.t (v) VALUES ('a')", "SAVEPOINT s", "INSERT INTO d.t (v) VALUES ('b')",
		"ROLLBACK TO s", "COMMIT",
		"SET binlog_transaction_compression=ON", "INSERT INTO d.t (v) VALUES (REPEAT('y', 50000))")
	recorded, executed := len(c.received()), source.executed(t)

	for _, wrap := range []bool{false, true} {
		t.Run(fmt.Sprintf("wrap=%v", wrap), func(t *testing.T) {
			log := newTestLog(Piece{FormatDescription: c.tap.FormatDescription()})
			for _, b := range c.received()[:recorded] {
				log.appendBatch(b)
			}
			// With wrap, the feed allows two transactions at a time, and the replica has more
			// workers.
			workers := func(context.Context) int { return map[bool]int{true: 2}[wrap] }
			feed := startLimitedFeed(t, log, source.text(t, "SELECT @@version"), wrap, workers)
			// The same server id as the source's: a restarted primary gets its
			// own transactions back.
			replica := startMysqld(t, 1, replicaOptions()...)
			replica.replicateFrom(t, feed, "feed's secret")
			waitUntil(t, "heartbeats", func() bool { return feed.Stats().Heartbeats >= 3 })

			// It goes on from where it was, with heartbeats before and after. Not in the middle
			// of a transaction: mysqld 9.7.4 crashes (std::bad_alloc in
			// Gtid_specification::to_string) when a worker logs that it rolls back half of a
			// transaction.
			waitUntil(t, "what was recorded is applied", func() bool { return replica.executed(t).Equal(executed) })
			replica.exec(t, "STOP REPLICA IO_THREAD")
			waitUntil(t, "the end of the dump", func() bool { return feed.Stats().Dumps == 0 })
			replica.exec(t, "START REPLICA")
			source.exec(t, fmt.Sprintf("INSERT INTO d.t (v) VALUES ('later %v')", wrap))
			all := c.received()
			for _, b := range all[len(log.pieces)-1:] {
				log.appendBatch(b)
			}
			replica.waitApplied(t, source)
			now := feed.Stats().Heartbeats
			waitUntil(t, "more heartbeats", func() bool { return feed.Stats().Heartbeats >= now+3 })
			if complaint := replica.replicaErrors(t); complaint != "" {
				t.Fatal(complaint)
			}
			const sum = "SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(v)), ' ', SUM(id)) FROM d.t"
			if got, want := replica.text(t, sum), source.text(t, sum); got != want {
				t.Errorf("replica has %s, source %s", got, want)
			}
			if got := replica.status(t, "SHOW REPLICA STATUS")["Source_UUID"]; got != feedUUID {
				t.Errorf("replica sees source %s", got)
			}
			starts, closed := log.counts()
			if starts != 2 || closed != 1 {
				t.Errorf("%d dumps begun, %d ended; want 2 and 1", starts, closed)
			}
		})
	}
}

func TestFeedRefusesMysqld(t *testing.T) {
	log := newTestLog()
	feed := startFeed(t, log, "9.7.4", false)
	replica := startMysqld(t, 2, replicaOptions()...)
	replica.replicateFrom(t, feed, "wrong")
	waitUntil(t, "access denied", func() bool {
		return strings.Contains(replica.replicaErrors(t), "Access denied")
	})
	log.change(func() { log.startErr = &ServerError{Code: 1236, State: "HY000", Message: "rebuild this node"} })
	replica.exec(t, "STOP REPLICA")
	replica.replicateFrom(t, feed, "feed's secret")
	waitUntil(t, "the source's own error", func() bool {
		s := replica.status(t, "SHOW REPLICA STATUS")
		return s["Replica_IO_Running"] == "No" && strings.Contains(s["Last_IO_Error"], "rebuild this node")
	})
}
