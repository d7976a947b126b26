package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestSource: a learner is fed by its source; while the source is away,
// by the leader. Nothing is lost, and while the source feeds it, the leader sends it no log.
func TestSource(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	s := &sourced{fixture: f}
	f.scenario(t, "Fed", s.fed)
	f.scenario(t, "SourceDies", s.sourceDies)
	f.scenario(t, "LostDisk", s.lostDisk)
	f.scenario(t, "Switchover", s.switchover)
	f.scenario(t, "Applied", s.applied)
	f.scenario(t, "Promoted", s.promoted)
}

// sourced is a cluster with a learner and its source.
type sourced struct {
	*fixture
	learner, source int
}

// metric returns one of a node's metrics, from its page.
func (f *fixture) metric(t *testing.T, ctx context.Context, i int, name string) float64 {
	t.Helper()
	for _, line := range f.page(t, ctx, i) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("node %s has no metric %s", f.Name(i), name)
	return 0
}

// awaitFedBy waits until the learner, and the leader, say who feeds it.
func (s *sourced) awaitFedBy(t *testing.T, ctx context.Context, leader int, by string) {
	t.Helper()
	began := time.Now()
	for _, i := range []int{s.learner, leader} {
		if err := devcluster.Poll(ctx, fmt.Sprintf("%s shows that %s is fed by %q", s.Name(i), s.Name(s.learner), by),
			func(ctx context.Context) (bool, string, error) {
				st, err := s.Status(ctx, i)
				if err != nil {
					return false, err.Error(), nil
				}
				for _, n := range st.Nodes {
					if n.Name == s.Name(s.learner) {
						return n.Reachable && n.FedBy == by, fmt.Sprintf("by %q: %s", n.FedBy, n.Reason), nil
					}
				}
				return false, "it is not there", nil
			}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s is fed by %q after %.1f s", s.Name(s.learner), by, time.Since(began).Seconds())
}

// awaitLearner waits until the learner has all that is committed now.
func (s *sourced) awaitLearner(t *testing.T, ctx context.Context, leader int) {
	t.Helper()
	if err := s.WaitCaughtUp(ctx, s.learner, s.status(t, ctx, leader).LogCommit); err != nil {
		t.Fatal(err)
	}
}

func (s *sourced) fed(t *testing.T, ctx context.Context) {
	primary := s.heal(t, ctx)
	s.source = (primary + 1) % 3
	i, err := s.Grow(cluster.KindLearner)
	if err != nil {
		t.Fatal(err)
	}
	s.learner = i
	s.refused(t, ctx, primary, []int{2}, "only a learner has a source", "node", "add", "x", "--peer", s.PeerAddr(i), "--key", string(s.Key(i)), "--source", s.Name(s.source))
	s.refused(t, ctx, primary, []int{2}, "only a learner has a source", "node", "set", s.Name(primary), "--source", s.Name(s.source))
	s.must(t, ctx, primary, "node", "add", s.Name(i), "--peer", s.PeerAddr(i), "--key", string(s.Key(i)), "--kind", "learner", "--source", s.Name(s.source))
	if err := s.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitReady(ctx, i); err != nil {
		t.Fatal(err)
	}
	s.awaitFedBy(t, ctx, primary, s.Name(s.source))
	load := s.start(t, 4, primary)
	load.awaitAcks(t, ctx, 50)
	sent := fmt.Sprintf("quorate_peer_sent_log_bytes_total{peer=%q}", s.Name(i))
	toFollower := fmt.Sprintf("quorate_peer_sent_log_bytes_total{peer=%q}", s.Name(s.source))
	before, beforeFollower := s.settledMetric(t, ctx, primary, sent), s.metric(t, ctx, primary, toFollower)
	load.awaitAcks(t, ctx, 200)
	s.writeLarge(t, ctx)
	s.awaitLearner(t, ctx, primary)
	after, afterFollower := s.metric(t, ctx, primary, sent), s.metric(t, ctx, primary, toFollower)
	t.Logf("the leader sent %.0f bytes of the log to the learner, %.0f to another follower", after-before, afterFollower-beforeFollower)
	if after-before > 1024 || afterFollower-beforeFollower < 50<<10 { // the connection says that it lives; 200 rows have 90 KB
		t.Errorf("the leader sent %.0f bytes of the log to the learner, %.0f to another follower", after-before, afterFollower-beforeFollower)
	}
	if out := s.must(t, ctx, primary, "status"); !strings.Contains(out, "fed by "+s.Name(s.source)) {
		t.Errorf("status: %s", out)
	}
	load.stop(t)
	s.checkAll(t, ctx)
}

// settledMetric returns a metric once it has not changed for some heartbeats: the
// leader looks once a second which learners it need not feed.
func (s *sourced) settledMetric(t *testing.T, ctx context.Context, i int, name string) float64 {
	t.Helper()
	last, same := -1.0, 0
	if err := devcluster.Poll(ctx, name+" stands still", func(ctx context.Context) (bool, string, error) {
		now := s.metric(t, ctx, i, name)
		if same++; now != last {
			last, same = now, 0
		}
		return same >= 10, fmt.Sprint(now), nil
	}); err != nil {
		t.Fatal(err)
	}
	return last
}

// checkAll compares all nodes, also the learner, with the history.
func (s *sourced) checkAll(t *testing.T, ctx context.Context) {
	t.Helper()
	primary := s.heal(t, ctx)
	s.awaitLearner(t, ctx, primary)
	s.check(t, ctx)
	s.checkNodes(t, ctx, s.learner)
	if err := devcluster.Poll(ctx, "all have the same transactions", func(ctx context.Context) (bool, string, error) {
		want := s.status(t, ctx, primary).GTIDExecuted
		for i := range s.Len() {
			if got := s.status(t, ctx, i).GTIDExecuted; got != want {
				return false, fmt.Sprintf("%s has %s, the primary %s", s.Name(i), got, want), nil
			}
		}
		return true, "", nil
	}); err != nil {
		t.Fatal(err)
	}
}

// sourceDies: the leader feeds the learner in place of the source, until the source is back.
func (s *sourced) sourceDies(t *testing.T, ctx context.Context) {
	primary := s.heal(t, ctx)
	s.awaitFedBy(t, ctx, primary, s.Name(s.source))
	load := s.start(t, 4, primary)
	load.awaitAcks(t, ctx, 50)
	if err := s.KillBoth(s.source); err != nil {
		t.Fatal(err)
	}
	s.awaitFedBy(t, ctx, primary, "")
	load.awaitAcks(t, ctx, 50)
	s.awaitLearner(t, ctx, primary)
	if err := s.Start(ctx, s.source); err != nil {
		t.Fatal(err)
	}
	s.awaitFedBy(t, ctx, primary, s.Name(s.source))
	load.awaitAcks(t, ctx, 50)
	// Then the learner itself dies, and goes on from where it was.
	if err := s.KillBoth(s.learner); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 100)
	if err := s.Start(ctx, s.learner); err != nil {
		t.Fatal(err)
	}
	s.awaitFedBy(t, ctx, primary, s.Name(s.source))
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	s.checkAll(t, ctx)
}

// lostDisk: a learner that was added later comes back with nothing, and is made again.
func (s *sourced) lostDisk(t *testing.T, ctx context.Context) {
	primary := s.heal(t, ctx)
	uuid := s.status(t, ctx, s.learner).ServerUUID
	load := s.start(t, 2, primary)
	if err := s.KillBoth(s.learner); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(s.DataDir(s.learner)); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx, s.learner); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitNode(ctx, s.learner, "rebuilt", func(n status.Node) bool {
		return n.Role == status.RoleReplica && n.ServerUUID != "" && n.ServerUUID != uuid
	}); err != nil {
		t.Fatal(err)
	}
	s.awaitFedBy(t, ctx, primary, s.Name(s.source))
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	s.checkAll(t, ctx)
}

// switchover: as the leader the source feeds the learner like any other; and the dead
// leader's log goes on through the source.
func (s *sourced) switchover(t *testing.T, ctx context.Context) {
	primary := s.heal(t, ctx)
	load := s.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	s.must(t, ctx, primary, "switchover", "--to", s.Name(s.source), "--max-pause", "10s")
	s.awaitFedBy(t, ctx, s.source, "")
	load.awaitAcks(t, ctx, 50)
	s.awaitLearner(t, ctx, s.source)
	if err := s.KillBoth(s.source); err != nil {
		t.Fatal(err)
	}
	next, err := s.WaitPrimary(ctx, s.source)
	if err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	s.heal(t, ctx)
	s.awaitFedBy(t, ctx, next, s.Name(s.source))
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	s.checkAll(t, ctx)
}

// applied: no client reads a row on the learner that cannot be read on its source.
func (s *sourced) applied(t *testing.T, ctx context.Context) {
	primary := s.heal(t, ctx)
	if primary == s.source {
		t.Fatal("the source leads")
	}
	s.must(t, ctx, primary, "node", "set", s.Name(s.learner), "--source-applied")
	s.awaitFedBy(t, ctx, primary, s.Name(s.source))
	if err := devcluster.Poll(ctx, "the source has applied what the learner has", func(ctx context.Context) (bool, string, error) {
		has, applied := s.status(t, ctx, s.learner).LogCommit, s.status(t, ctx, s.source).Applied
		return applied >= has, fmt.Sprintf("%d of %d", applied, has), nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin(t, s.source).ExecContext(ctx, "STOP REPLICA SQL_THREAD"); err != nil {
		t.Fatal(err)
	}
	before := s.status(t, ctx, s.source).Applied
	load := s.start(t, 2, primary)
	load.awaitAcks(t, ctx, 50)
	behind := false
	for range 20 { // the source's agent starts the applier again within two seconds
		learner, source := s.status(t, ctx, s.learner).LogCommit, s.status(t, ctx, s.source)
		behind = behind || source.LogCommit > source.Applied
		if learner > source.Applied {
			t.Fatalf("the learner has entry %d, its source has applied %d of %d", learner, source.Applied, source.LogCommit)
		}
	}
	load.stop(t)
	s.awaitLearner(t, ctx, primary)
	if now := s.status(t, ctx, s.source).Applied; now <= before || !behind {
		t.Errorf("the source has applied %d, had %d, was behind %t: the test has tested nothing", now, before, behind)
	}
	s.checkAll(t, ctx)
}

// promoted: a node with a vote is fed by the leader.
func (s *sourced) promoted(t *testing.T, ctx context.Context) {
	primary := s.heal(t, ctx)
	s.awaitFedBy(t, ctx, primary, s.Name(s.source))
	load := s.start(t, 2, primary)
	load.awaitAcks(t, ctx, 50)
	s.must(t, ctx, primary, "node", "promote", s.Name(s.learner))
	s.awaitMember(t, ctx, s.Name(s.learner), cluster.KindFull)
	s.awaitFedBy(t, ctx, primary, "")
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	s.checkAll(t, ctx)
}
