package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// routedTable has a row for each write of a routedClient, with the server that took it.
const routedTable = ledger.Database + ".routed"

// routedClient writes through one port, one row after the other, and reads its own newest row in the same session. Where
// the session ends it opens another one.
type routedClient struct {
	name   string
	writer int
	db     *sql.DB
	cancel context.CancelFunc
	ended  chan struct{}

	mu   sync.Mutex
	acks []routedAck
	// missed are own writes that a later read of the same session did not see.
	missed []string
	// elsewhere counts reads that were answered by another server than the one that took the write.
	elsewhere int
	lastErr   error
}

// routedAck is a write with its OK.
type routedAck struct {
	n            int
	server       string
	began, ended time.Time
}

func (r *routed) writerAt(t *testing.T, name, addr string, writer int) *routedClient {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	db := r.open(t, addr)
	db.SetMaxIdleConns(-1) // a session that has failed is not used again
	c := &routedClient{name: name, writer: writer, db: db, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.run(ctx)
	}()
	t.Cleanup(c.stop)
	return c
}

func (c *routedClient) stop() {
	c.cancel()
	<-c.ended
}

func (c *routedClient) run(ctx context.Context) {
	pause := time.NewTicker(awaited)
	defer pause.Stop()
	for n := 1; ctx.Err() == nil; {
		err := c.session(ctx, pause.C, &n)
		c.mu.Lock()
		c.lastErr = err
		c.mu.Unlock()
		<-pause.C
	}
}

// session writes and reads until something fails, with a pause after each read. A write without an OK may be there: its number is not used again.
func (c *routedClient) session(ctx context.Context, pause <-chan time.Time, n *int) error {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// Router keeps a session that begins with a write where it has logged in, which may be a replica.
	if _, err := conn.ExecContext(ctx, "SELECT 1"); err != nil {
		return err
	}
	for {
		began, number := time.Now(), *n
		*n++
		if _, err := conn.ExecContext(ctx, "INSERT INTO "+routedTable+" VALUES (?, ?, @@GLOBAL.server_uuid, @@SESSION.session_track_gtids)", c.writer, number); err != nil {
			return err
		}
		ended := time.Now()
		var wrote, reads string
		var newest int
		err := conn.QueryRowContext(ctx, "SELECT n, server, @@GLOBAL.server_uuid FROM "+routedTable+" WHERE writer = ? ORDER BY n DESC LIMIT 1", c.writer).
			Scan(&newest, &wrote, &reads)
		c.mu.Lock()
		ack := routedAck{n: number, began: began, ended: ended}
		if err == nil {
			if newest == number { // else wrote belongs to an older row
				ack.server = wrote
			} else {
				c.missed = append(c.missed, fmt.Sprintf("%s wrote row %d, and read %d on %s", c.name, number, newest, reads))
			}
			if wrote != reads {
				c.elsewhere++
			}
		}
		c.acks = append(c.acks, ack)
		c.mu.Unlock()
		if err != nil {
			return err
		}
		<-pause
	}
}

// count is how many OKs the client has had so far.
func (c *routedClient) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acks)
}

// gap is the longest time without an OK.
func (c *routedClient) gap() (longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 1; i < len(c.acks); i++ {
		longest = max(longest, c.acks[i].ended.Sub(c.acks[i-1].ended))
	}
	return longest
}

// servers are those that took writes so far.
func (c *routedClient) servers() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.acks {
		if a.server != "" && !slices.Contains(all, a.server) {
			all = append(all, a.server)
		}
	}
	return all
}

func awaitOKs(t *testing.T, ctx context.Context, more int, clients ...*routedClient) {
	t.Helper()
	for _, c := range clients {
		want := c.count() + more
		if err := devcluster.Poll(ctx, c.name+" has its OKs", func(context.Context) (bool, string, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.acks) >= want, fmt.Sprintf("%d of %d, %v", len(c.acks), want, c.lastErr), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// nextWriter numbers the clients of all scenarios.
func (r *routed) nextWriter() int {
	r.writers++
	return int(r.writers)
}

// underLoad runs clients at quorate's own port and at Router's ports for writes, and calls do meanwhile. It returns the
// clients once each of them has OKs again.
func (r *routed) underLoad(t *testing.T, ctx context.Context, own int, do func()) {
	t.Helper()
	clients := []*routedClient{
		r.writerAt(t, "quorate's own port", r.RouterAddr(own), r.nextWriter()),
		r.writerAt(t, "Router's rw port", r.router.RW, r.nextWriter()),
		r.writerAt(t, "Router's split port", r.router.Split, r.nextWriter()),
	}
	awaitOKs(t, ctx, 30, clients...)
	do()
	awaitOKs(t, ctx, 30, clients...)
	for _, c := range clients {
		c.stop()
	}
	for _, c := range clients {
		t.Logf("%-20s no OK for %v at most; %d OKs, %d reads by another server than the write", c.name, c.gap().Round(time.Millisecond), len(c.acks), c.elsewhere)
		if len(c.missed) > 0 {
			t.Errorf("%d own writes were missed: %s", len(c.missed), c.missed[0])
		}
	}
	for i, bound := range map[int]time.Duration{1: 3 * routedLimit, 2: 4 * time.Second} {
		over := clients[i].gap() - clients[0].gap()
		t.Logf("%s: %v over quorate's own, bound %v", clients[i].name, over.Round(time.Millisecond), bound)
		if over > bound {
			t.Errorf("%s was without an OK for %v more than quorate's own, want at most %v", clients[i].name, over, bound)
		}
	}
	r.elsewhere += clients[2].elsewhere
	r.mustBeTracked(t, ctx, clients[2])
	mustBeOnePrimary(t, clients)
	r.mustHaveAll(t, ctx, clients)
}

// mustBeTracked fails the test if the server did not tell Router the GTID of a write: then Router cannot wait for it.
func (r *routed) mustBeTracked(t *testing.T, ctx context.Context, c *routedClient) {
	t.Helper()
	primary, err := r.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var all, without int
	err = r.local(t, primary).QueryRowContext(ctx, "SELECT COUNT(*), COUNT(IF(tracks = 'OWN_GTID', NULL, 1)) FROM "+routedTable+" WHERE writer = ?", c.writer).Scan(&all, &without)
	if err != nil || all == 0 || without > 0 {
		t.Errorf("%s: %d of %d writes without session_track_gtids, %v", c.name, without, all, err)
	}
}

// mustBeOnePrimary fails the test if a former primary took a write that began after its successor had taken one.
func mustBeOnePrimary(t *testing.T, clients []*routedClient) {
	t.Helper()
	var all []routedAck
	for _, c := range clients {
		for _, a := range c.acks {
			if a.server != "" {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, func(a, b routedAck) int { return a.ended.Compare(b.ended) })
	var order []string
	firstOK := map[string]time.Time{}
	for _, a := range all {
		if _, ok := firstOK[a.server]; !ok {
			firstOK[a.server] = a.ended
			order = append(order, a.server)
		}
	}
	for _, a := range all {
		if later := slices.Index(order, a.server) + 1; later < len(order) && a.began.After(firstOK[order[later]]) {
			t.Fatalf("server %s took a write that began at %v; server %s had taken one by %v", a.server, a.began, order[later], firstOK[order[later]])
		}
	}
	if len(order) > 0 {
		t.Logf("servers that took writes, in their order: %s", strings.Join(order, ", "))
	}
}

// mustHaveAll fails the test if a write with an OK is not at the primary.
func (r *routed) mustHaveAll(t *testing.T, ctx context.Context, clients []*routedClient) {
	t.Helper()
	primary, err := r.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	db := r.local(t, primary)
	for _, c := range clients {
		rows, err := db.QueryContext(ctx, "SELECT n FROM "+routedTable+" WHERE writer = ?", c.writer)
		if err != nil {
			t.Fatal(err)
		}
		has := map[int]bool{}
		for rows.Next() {
			var n int
			if err := rows.Scan(&n); err != nil {
				t.Fatal(err)
			}
			has[n] = true
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		for _, a := range c.acks {
			if !has[a.n] {
				t.Fatalf("%s: row %d had its OK, and is lost", c.name, a.n)
			}
		}
	}
}
