package member

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// TestTimingsAreChecked: a node whose heartbeat is too long for another's election timeout says so, and the role
// machine is told that it could get no lease beside older agents.
func TestTimingsAreChecked(t *testing.T) {
	members := []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull}, {ID: 2, Name: "b", Kind: cluster.KindFull}, {ID: 3, Name: "c", Kind: cluster.KindFull}}
	own := status.Node{ID: 1, Name: "a", Kind: cluster.KindFull, Reachable: true, Heartbeat: 100 * time.Millisecond, ElectionTimeout: time.Second}
	table := board.New(board.Config{Self: own, State: cluster.NewState(members), Known: membership.New(membership.Config{}), Now: time.Now})
	var m Member
	m.Init(Config{
		Self: members[0], Board: table, Clock: clock.Machine{}, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Slot:  primary.SlotConfig{Clients: clients{}, Clock: clock.Machine{}},
		Inbox: primary.InboxConfig{Clock: clock.Machine{}, Pick: rand.IntN},
	})
	hear := func(timeout time.Duration) (in role.Peers) {
		t.Helper()
		for _, other := range members[1:] {
			table.PeerUp(other.ID, true)
			if err := table.Received(other.ID, status.Node{ID: other.ID, Name: other.Name, Kind: other.Kind, Role: status.RoleReplica,
				AgentVersion: "0.1", Heartbeat: timeout / 10, ElectionTimeout: timeout}); err != nil {
				t.Fatal(err)
			}
		}
		m.checkTimings(table.Own(), &in)
		table.SetRole(status.RoleReplica, "")
		return in
	}
	if in := hear(time.Second); in.NoLease != "" || table.Own().Reason != "" {
		t.Errorf("equal settings: %q, %q", in.NoLease, table.Own().Reason)
	}
	hear(300 * time.Millisecond)
	if got := table.Own().Reason; !strings.Contains(got, "raft.heartbeat 100ms is too long for node") {
		t.Errorf("a short election timeout of the others: %q", got)
	}
	if in := hear(0); !strings.Contains(in.NoLease, "runs quorate 0.1") || table.Own().Reason != "" {
		t.Errorf("agents of before: %q, %q", in.NoLease, table.Own().Reason)
	}
}

// TestHealingNodeSaysWhatItNeeds: a node whose log is being healed needs from the others what its log lacks, not
// everything from the first entry on.
func TestHealingNodeSaysWhatItNeeds(t *testing.T) {
	log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log", Logger: slog.New(slog.DiscardHandler), Begin: &seglog.Begin{First: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	var entries []seglog.Entry
	for i := range uint64(4) {
		entries = append(entries, seglog.Entry{Index: 1000 + i, Term: 3, Data: bytes.Repeat([]byte("x"), 10)})
	}
	if err := log.Append(entries, &seglog.HardState{Term: 3, Commit: 1002}); err != nil {
		t.Fatal(err)
	}
	s := status.Node{ID: 2, Name: "b", Kind: cluster.KindFull, Role: status.RoleStarting, Mysqld: status.MysqldStopped}
	CompleteHealing(&s, log, replay.Mark{Index: 1001})
	if s.LogState != status.LogRepairing || s.LogFirst != 1000 || s.LogLast != 1003 || s.LogCommit != 1002 {
		t.Errorf("it says that its log is %q, from %d up to %d, committed up to %d", s.LogState, s.LogFirst, s.LogLast, s.LogCommit)
	}
	needs, marks := replay.Needs([]status.Node{s})
	if needs[0].From != 1000 || marks[0] != 1001 {
		t.Errorf("it needs the log from %d on, and holds %d; want 1000, and 1001", needs[0].From, marks[0])
	}
}
