package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// TestPartition cuts the connections between the agents, in every way that differs for
// Raft. Clients still reach every node, also the old primary.
func TestPartition(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, Network: true})
	f.think = busy
	for _, sc := range []struct {
		name string
		// cut cuts what connects the primary and its followers.
		cut func(primary int, followers []int)
		// deposes: another node has to take over.
		deposes bool
	}{
		{"PrimaryInMinority", func(p int, _ []int) { f.Isolate(p) }, true},
		{"PrimaryIsNotHeard", func(p int, o []int) { f.Cut(p, o[0]); f.Cut(p, o[1]) }, true},
		{"PrimaryIsDeaf", func(p int, o []int) { f.Cut(o[0], p); f.Cut(o[1], p) }, true},
		{"FollowerCutOff", func(_ int, o []int) { f.Isolate(o[0]) }, false},
		{"FollowerIsNotHeard", func(p int, o []int) { f.Cut(o[0], p); f.Cut(o[0], o[1]) }, false},
		{"FollowerIsDeaf", func(p int, o []int) { f.Cut(p, o[0]); f.Cut(o[1], o[0]) }, false},
		{"OneLink", func(p int, o []int) { f.Cut(p, o[0]); f.Cut(o[0], p) }, false},
	} {
		f.scenario(t, sc.name, func(t *testing.T, ctx context.Context) {
			t.Cleanup(f.MendAll)
			if sc.deposes {
				f.cutPrimary(t, ctx, sc.cut)
			} else {
				f.cutFollower(t, ctx, sc.cut)
			}
		})
	}
	f.scenario(t, "FollowerLeavesLocks", f.followerLeavesLocks)
	f.scenario(t, "FlappingLink", func(t *testing.T, ctx context.Context) { steady(t, func() string { return f.flap(t, ctx, false) }) })
	f.scenario(t, "FlappingPrimary", func(t *testing.T, ctx context.Context) { steady(t, func() string { return f.flap(t, ctx, true) }) })
}

// cutPrimary: the majority has a new primary. The old primary gives up, and neither
// acknowledges nor answers requests that came too late.
func (f *fixture) cutPrimary(t *testing.T, ctx context.Context, cut func(int, []int)) {
	primary := f.heal(t, ctx)
	before := f.dataIdentity(t, ctx)
	q := f.newQuestions(t, ctx, primary)
	l := f.start(t, 6)
	l.awaitAcks(t, ctx, 100)
	l.ResetGap()
	cut(primary, f.others(primary))
	stopAsking := q.start(ctx)
	next, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	opened := f.openedAt(t, next)
	l.awaitAcks(t, ctx, 100)
	gap := l.Gap()
	q.awaitSent(t, ctx, opened, 10)
	if err := f.WaitNode(ctx, primary, "no longer the primary", func(st status.Node) bool {
		return st.Role != status.RolePrimary && st.Role != status.RoleDemoting
	}); err != nil {
		t.Fatal(err)
	}
	f.MendAll()
	stopAsking()
	f.heal(t, ctx)
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	q.mustNotBeAnswered(t, before[primary].UUID, opened)
	f.check(t, ctx)
	f.mustNotBeRebuilt(t, ctx, before)
	t.Logf("write gap %v", gap.Round(time.Millisecond))
}

// cutFollower: the primary goes on in its term, during the cut and after it.
func (f *fixture) cutFollower(t *testing.T, ctx context.Context, cut func(int, []int)) {
	steady(t, func() string { return f.followerCut(t, ctx, cut) })
}

func (f *fixture) followerCut(t *testing.T, ctx context.Context, cut func(int, []int)) (wrong string) {
	primary := f.heal(t, ctx)
	followers := f.others(primary)
	term := f.status(t, ctx, primary).Term
	l := f.start(t, 6, primary)
	l.awaitAcks(t, ctx, 100)
	l.ResetGap()
	cut(primary, followers)
	f.awaitElectionTimeouts(t, ctx, l)
	f.MendAll()
	if err := f.WaitCaughtUp(ctx, followers[0], f.status(t, ctx, primary).LogCommit); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	gap := l.Gap()
	l.stop(t)
	if now := f.heal(t, ctx); now != primary || f.status(t, ctx, now).Term != term {
		wrong = fmt.Sprintf("the primary of term %d was %s, is %s", term, f.Name(primary), f.Name(now))
	}
	if s := l.Stats(); s.Reconnects != 0 || s.Unknown != 0 {
		wrong += fmt.Sprintf("; the clients noticed: %+v", s)
	}
	f.check(t, ctx)
	t.Logf("write gap %v", gap.Round(time.Millisecond))
	return wrong
}

// followerLeavesLocks: a client that came in through a follower has a row locked when that follower is cut off. Another
// client gets the row, although nothing says that the first connection is over, and the first client hears of it.
func (f *fixture) followerLeavesLocks(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	through := f.others(primary)[0]
	connect := func(i int) *sql.Conn {
		conn, err := openDSN(t, f.DSN(i), nil).Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	first, second := connect(through), connect(primary)
	defer func() { _, _ = first.Close(), second.Close() }()
	exec := func(c *sql.Conn, statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := c.ExecContext(ctx, s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	const update = "UPDATE hot SET n = n + 1"
	exec(second, "USE "+ledger.Database, "CREATE TABLE hot (id INT PRIMARY KEY, n INT)", "INSERT INTO hot VALUES (1, 1)", "SET innodb_lock_wait_timeout = 15")
	exec(first, "USE "+ledger.Database, "START TRANSACTION", update)
	f.Isolate(through)
	defer f.MendAll()
	exec(second, update)
	ctx2, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if _, err := first.ExecContext(ctx2, "COMMIT"); err == nil || ctx2.Err() != nil {
		t.Errorf("COMMIT of the client of the follower: %v", err)
	}
	exec(second, "DROP TABLE hot")
}

// electionTimeout is the product's default.
const electionTimeout = time.Second

// awaitElectionTimeouts lets writers work for as long as a follower without a
// leader needs to stand for election: up to two election timeouts.
func (f *fixture) awaitElectionTimeouts(t *testing.T, ctx context.Context, l *load) {
	t.Helper()
	for end := time.Now().Add(2 * electionTimeout); time.Now().Before(end); time.Sleep(awaited) {
		l.awaitAcks(t, ctx, 1)
	}
}

// Flaps of a link: cuts that are shorter than an election timeout, and longer.
const (
	flaps       = 6
	flapCutMin  = 300 * time.Millisecond
	flapCutStep = 280 * time.Millisecond
	flapOpen    = 500 * time.Millisecond
)

// flap cuts and mends again and again: the link between the primary and one
// follower, which must depose nobody, or all links of whoever is the primary,
// which costs one election for each cut at most.
func (f *fixture) flap(t *testing.T, ctx context.Context, all bool) (wrong string) {
	primary := f.heal(t, ctx)
	term := f.status(t, ctx, primary).Term
	l := f.start(t, 6)
	l.awaitAcks(t, ctx, 100)
	l.ResetGap()
	for n := range flaps {
		follower := f.others(primary)[0]
		if all {
			f.Isolate(primary)
		} else {
			f.Cut(primary, follower)
			f.Cut(follower, primary)
		}
		<-time.After(flapCutMin + time.Duration(n)*flapCutStep) // the fault itself lasts so long
		f.MendAll()
		<-time.After(flapOpen)
		if now, err := f.WaitPrimary(ctx); err != nil {
			t.Fatal(err)
		} else if all {
			primary = now
		}
	}
	now := f.heal(t, ctx)
	l.awaitAcks(t, ctx, 100)
	gap := l.Gap()
	l.stop(t)
	terms := f.status(t, ctx, now).Term - term
	switch {
	case !all && (terms != 0 || now != primary):
		wrong = fmt.Sprintf("a flapping link to one follower led to %d new terms; %s leads", terms, f.Name(now))
	case all && terms > flaps*2:
		wrong = fmt.Sprintf("%d cuts led to %d new terms", flaps, terms)
	}
	f.check(t, ctx)
	t.Logf("%d cuts, %d new terms, longest write gap %v", flaps, terms, gap.Round(time.Millisecond))
	return wrong
}
