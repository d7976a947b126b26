package mysqlwire

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// committer stands for Raft: it takes a tap's batches and commits them at once
// or when told.
type committer struct {
	tap  *Tap
	done chan error

	mu      sync.Mutex
	hold    bool
	batches []Batch
}

func runTap(t *testing.T, m *testMysqld, exclude *gtid.Set) *committer {
	t.Helper()
	return runTapWith(t, m, func(cfg *TapConfig) { cfg.Exclude = exclude })
}

func runTapWith(t *testing.T, m *testMysqld, change func(*TapConfig)) *committer {
	t.Helper()
	cfg := m.tapConfig(nil)
	change(&cfg)
	tap, err := ConnectTap(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := &committer{tap: tap, done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { c.done <- tap.Run(ctx, c.propose) }()
	t.Cleanup(func() {
		cancel()
		if err := <-c.done; err == nil {
			t.Error("Run returned nil")
		}
	})
	return c
}

func (c *committer) propose(_ context.Context, b Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches = append(c.batches, b)
	if !c.hold {
		c.tap.Ack(b.Number)
	}
	return nil
}

func (c *committer) setHold(hold bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = hold
	if n := len(c.batches); !hold && n > 0 {
		c.tap.Ack(c.batches[n-1].Number)
	}
}

func (c *committer) received() []Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batches[:len(c.batches):len(c.batches)]
}

func (c *committer) gtids() *gtid.Set {
	set := &gtid.Set{}
	for _, b := range c.received() {
		for _, id := range b.GTIDs {
			set.Add(id)
		}
	}
	return set
}

// stop ends the tap and waits for it.
func (c *committer) stop(t *testing.T) {
	t.Helper()
	c.tap.Close()
	if err := <-c.done; !errors.Is(err, ErrTapClosed) {
		t.Fatalf("closed tap ended with %v", err)
	}
	c.done <- context.Canceled // for the cleanup
}

// checkBatches verifies what every consumer of batches relies on.
func checkBatches(t *testing.T, batches []Batch, term uint64) {
	t.Helper()
	for i, b := range batches {
		h, body, err := entry.Parse(b.Data)
		if err != nil {
			t.Fatal(err)
		}
		want := entry.Header{Kind: h.Kind, Count: uint32(len(b.GTIDs)), Term: term, Number: uint64(i + 1)}
		if diff := cmp.Diff(want, h); diff != "" || b.Number != h.Number || b.Bytes != len(body) {
			t.Fatalf("batch %d: number %d, %d bytes; header (-want +got):\n%s", i, b.Number, b.Bytes, diff)
		}
		if h.Kind == entry.KindRotate {
			if _, err := binlog.ParseFormatDescription(body); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var got []gtid.GTID
		for transaction, err := range binlog.Transactions(body) {
			if err != nil {
				t.Fatalf("batch %d: %v", b.Number, err)
			}
			got = append(got, transaction.GTID)
		}
		if diff := cmp.Diff(b.GTIDs, got); diff != "" {
			t.Fatalf("batch %d: GTIDs (-batch +body):\n%s", b.Number, diff)
		}
	}
}

func TestTapHoldsCommitsOfMysqld(t *testing.T) {
	m := startMysqld(t, 1, sourceOptions()...)
	m.createTapUser(t)
	var checked atomic.Pointer[binlog.Query]
	c := runTapWith(t, m, func(cfg *TapConfig) { cfg.CheckAccounts = func(q binlog.Query) error { checked.Store(&q); return nil } })
	if c.tap.File() != "q0000000001.000001" {
		t.Errorf("stream starts in %q", c.tap.File())
	}
	m.exec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)", "CREATE USER app@'%'")
	before := c.received()
	if q := checked.Load(); q == nil || !strings.HasPrefix(q.Text, "CREATE USER") {
		t.Errorf("checked: %v", q)
	}

	// Commits wait for the acknowledgement, and reach the tap before it.
	const sessions = 8
	c.setHold(true)
	var committed atomic.Int32
	var writers sync.WaitGroup
	for i := range sessions {
		writers.Go(func() {
			if _, err := m.db.Exec("INSERT INTO d.t VALUES (?, 'x')", i); err != nil {
				t.Error(err)
			}
			committed.Add(1)
		})
	}
	sum := uint64(len(c.gtidsOf(before)) + sessions)
	waitUntil(t, "all transactions at the tap", func() bool { return c.gtids().Count() == sum })
	waitUntil(t, "a session that waits", func() bool {
		return m.status(t, "SHOW STATUS LIKE 'Rpl_semi_sync_source_wait_sessions'")["Value"] != "0"
	})
	if n := committed.Load(); n != 0 {
		t.Fatalf("%d sessions were answered without an acknowledgement", n)
	}
	c.setHold(false)
	writers.Wait()

	// A rotation, a transaction beyond one protocol packet, and mysqld's own
	// view of it all.
	m.exec(t, "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (100, REPEAT('x', 20000000))", "XA START 'x'",
		"INSERT INTO d.t VALUES (101, 'xa')", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
	checkBatches(t, c.received(), 3)
	if got, want := c.gtids(), m.executed(t); !got.Equal(want) {
		t.Errorf("tap has %v, mysqld %v", got, want)
	}
	var rotations int
	for _, b := range c.received() {
		if entry.Kind(b.Data[0]) == entry.KindRotate {
			rotations++
		}
	}
	if rotations != 1 {
		t.Errorf("%d rotations, want 1", rotations)
	}
	end := m.status(t, "SHOW BINARY LOG STATUS")
	last := c.received()[len(c.received())-1].End
	if last.String() != end["File"]+":"+end["Position"] {
		t.Errorf("tap ends at %v, mysqld at %v", last, end)
	}
	status := m.status(t, "SHOW STATUS LIKE 'Rpl_semi_sync_source_no_tx'")
	if status["Value"] != "0" {
		t.Errorf("%s transactions went without an acknowledgement", status["Value"])
	}
}

func (c *committer) gtidsOf(batches []Batch) []gtid.GTID {
	var ids []gtid.GTID
	for _, b := range batches {
		ids = append(ids, b.GTIDs...)
	}
	return ids
}

// A transaction waits while the tap is gone. If it is committed in Raft, the next tap
// acknowledges its end without seeing it; else it is sent again.
func TestTapReconnectsToMysqld(t *testing.T) {
	m := startMysqld(t, 1, sourceOptions()...)
	m.createTapUser(t)
	c := runTap(t, m, nil)
	m.exec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
	known := c.gtids()

	insert := func(id int) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := m.db.Exec("INSERT INTO d.t VALUES (?)", id)
			done <- err
		}()
		return done
	}
	c.setHold(true)
	first := insert(1)
	waitUntil(t, "the insert at the tap", func() bool { return c.gtids().Count() == known.Count()+1 })
	c.stop(t)

	// Not committed: sent again, and still waiting.
	again := runTap(t, m, known)
	again.setHold(true)
	waitUntil(t, "the insert at the second tap", func() bool { return again.gtids().Count() == 1 })
	waitUntil(t, "three heartbeats", func() bool { return again.tap.Stats().Heartbeats >= 3 })
	select {
	case err := <-first:
		t.Fatalf("answered on the strength of a heartbeat: %v", err)
	default:
	}
	// The source reports what it skipped, mostly once for all of it.
	if n, most := again.tap.Stats().AcksSent, uint64(known.Count()); n > most {
		t.Fatalf("%d acknowledgements, %d transactions were skipped", n, most)
	}
	again.stop(t)

	// Committed meanwhile: skipped by the source, acknowledged by position.
	known.Union(again.gtids())
	third := runTap(t, m, known)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if n := third.gtids().Count(); n != 0 {
		t.Errorf("%d excluded transactions were sent", n)
	}
	if err := <-insert(2); err != nil {
		t.Fatal(err)
	}
}

func TestTapErrorsOfMysqld(t *testing.T) {
	m := startMysqld(t, 1, "--log-bin=q0000000001")
	m.createTapUser(t)
	cfg := m.tapConfig(nil)
	if tap, err := ConnectTap(t.Context(), cfg); !errors.Is(err, ErrNotSemiSync) {
		t.Errorf("without the plugin: %v, %v", tap, err)
	}
	foreign, err := gtid.ParseSet(m.text(t, "SELECT @@server_uuid") + ":1-5")
	if err != nil {
		t.Fatal(err)
	}
	_, err = ConnectTap(t.Context(), m.tapConfig(foreign))
	if e, ok := errors.AsType[*ServerError](err); !ok || e.Code != 1236 {
		t.Errorf("more GTIDs than the source: %v", err)
	}
	cfg.Password = "wrong"
	_, err = ConnectTap(t.Context(), cfg)
	if e, ok := errors.AsType[*ServerError](err); !ok || e.Code != 1045 || !strings.Contains(e.Message, "tap") {
		t.Errorf("wrong password: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ConnectTap(ctx, m.tapConfig(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
