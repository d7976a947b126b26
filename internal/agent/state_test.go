package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// TestTooOld: a node whose quorate does not know all of the cluster state says so in its status.
func TestTooOld(t *testing.T) {
	a := &Agent{self: cluster.Member{ID: 1, Name: "a"}}
	openBoard(a)
	newer := &cluster.NewerError{What: "a cluster state of format", Has: 10, Newest: 9}
	for _, err := range []error{nil, consensus.ErrBroken, fmt.Errorf("%w: %w", consensus.ErrBroken, newer)} {
		a.noteNewer(err)
		if says := strings.Contains(a.board.Own().Reason, "upgrade quorate on this node"); says != errors.Is(err, newer) {
			t.Errorf("%v: %q", err, a.board.Own().Reason)
		}
	}
}

func stateMembers() []cluster.Member {
	return []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 5}, {ID: 2, Name: "b", Kind: cluster.KindFull, Weight: 5}}
}

// keeper is an agent that keeps the cluster state.
func keeper(t *testing.T, disk vfs.FS) *Agent {
	t.Helper()
	dir, quiet := datadir.New(disk, "."), slog.New(slog.DiscardHandler)
	a := &Agent{data: &dataDir{Locked: datadir.NewLocked(datadir.NewHome(dir, datadir.Identity{Format: datadir.FormatState, Log: true, State: true}, false))}, records: history.New(disk, ".", "a", quiet)}
	a.logger = quiet
	a.records.Open()
	if err := a.state.Load(a.data.Home, stateMembers(), 1); err != nil {
		t.Fatal(err)
	}
	return a
}

// outcome is a committed change of the state from, at index.
func outcome(t *testing.T, from cluster.State, index uint64, weight int) (consensus.StateOutcome, cluster.StatePoint) {
	t.Helper()
	c := cluster.Change{ID: "1", By: "ann@db1", Node: &cluster.NodeChange{Name: "b", Weight: &weight}}
	state, err := from.With(c)
	if err != nil {
		t.Fatal(err)
	}
	o := consensus.StateOutcome{Index: index, StateChange: cluster.StateChange{Change: c, State: state}}
	return o, cluster.StatePoint{State: state, Index: index, Through: index}
}

// TestAuditIsInNobodysWay: an audit log that cannot be written does not keep the cluster state from the disk, and so no
// entry from being purged. Its line comes later.
func TestAuditIsInNobodysWay(t *testing.T) {
	broken := true
	disk := vfs.Wrap(vfs.NewMem(), func(op vfs.Op, path string) error {
		if broken && op.Changes() && path == history.AuditFile {
			return errors.New("broken")
		}
		return nil
	})
	k := keeper(t, disk)
	first, p := outcome(t, k.state.Point().State, 5, 7)
	k.records.Committed(first)
	if err := k.writeState(p); err != nil || k.state.Point().Through != 5 {
		t.Fatalf("the state was held back: through %d, %v", k.state.Point().Through, err)
	}
	broken = false
	if err := k.writeState(p); err != nil {
		t.Fatal(err)
	}
	if lines, err := k.records.Audit.Newest(10); err != nil || len(lines) != 1 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

// TestStateIsKept: the state that was written is read again. Each change has one audit line, even if the change is
// replayed.
func TestStateIsKept(t *testing.T) {
	disk := vfs.NewMem()
	k := keeper(t, disk)
	if d := cmp.Diff(cluster.StatePoint{State: cluster.NewState(stateMembers())}, k.state.Point()); d != "" {
		t.Errorf("a new node (-want +got):\n%s", d)
	}
	first, p := outcome(t, k.state.Point().State, 5, 7)
	k.records.Committed(first)
	if err := k.writeState(p); err != nil {
		t.Fatal(err)
	}
	second, p2 := outcome(t, p.State, 8, 9)
	k.records.Committed(second)
	if err := k.records.WriteAudit(); err != nil { // and dies before it writes the state
		t.Fatal(err)
	}
	k = keeper(t, disk)
	if d := cmp.Diff(p, k.state.Point()); d != "" {
		t.Errorf("after a restart (-want +got):\n%s", d)
	}
	stale := second
	stale.Index, stale.Ignored = 9, consensus.ErrStale
	k.records.Committed(second)
	k.records.Committed(stale)
	unfit := second
	unfit.Index, unfit.Ignored = 10, consensus.ErrUnfit
	k.records.Committed(unfit)
	p2.Through = 10
	if err := k.writeState(p2); err != nil {
		t.Fatal(err)
	}
	k = keeper(t, disk)
	if d := cmp.Diff(p2, k.state.Point()); d != "" {
		t.Errorf("after another restart (-want +got):\n%s", d)
	}
	lines, err := k.records.Audit.Newest(10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%d %d %s: %s: %s", l.Index, l.Version, l.By, l.What, l.Result))
	}
	want := []string{
		"5 1 ann@db1: node b: weight 7: done", "8 2 ann@db1: node b: weight 9: done",
		"9 0 ann@db1: node b: weight 9: ignored: another change came first",
		"10 0 ann@db1: node b: weight 9: ignored: Raft cannot make this change of the members",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("audit (-want +got):\n%s", d)
	}
}

// TestStateOfVersion0: until a change is committed, the present configuration counts.
func TestStateOfVersion0(t *testing.T) {
	disk := vfs.NewMem()
	k := keeper(t, disk)
	if err := k.writeState(cluster.StatePoint{State: k.state.Point().State, Through: 12}); err != nil {
		t.Fatal(err)
	}
	var again datadir.State
	changed := stateMembers()
	changed[1].Weight = 9
	if err := again.Load(k.data.Home, changed, 1); err != nil {
		t.Fatal(err)
	}
	if p := again.Point(); p.Through != 12 || p.State.Members[1].Weight != 9 {
		t.Errorf("%+v", p)
	}
}

// TestStateRefuses: a state that may lack changes is not taken as the newest.
func TestStateRefuses(t *testing.T) {
	dir := datadir.New(vfs.OS{}, t.TempDir())
	load := func(had bool, first uint64) error {
		return new(datadir.State).Load(datadir.NewHome(dir, datadir.Identity{Log: true, State: had}, false), stateMembers(), first)
	}
	if err := load(true, 1); err != nil {
		t.Errorf("the file is gone, the log has everything: %v", err)
	}
	if err := load(false, 100); err != nil {
		t.Errorf("there never was a file: %v", err)
	}
	if err := load(true, 100); err == nil || !strings.Contains(err.Error(), "is gone, and the log begins only at entry 100") {
		t.Errorf("the file is gone, and what it may have lost: %v", err)
	}
	for text, want := range map[string]string{
		"{":                                      "is damaged",
		`{"format": 2}`:                          "format 2, this quorate reads up to 1",
		`{"format": 1, "state": {"version": 3}}`: "it has no members",
	} {
		if err := os.WriteFile(dir.Join(datadir.ClusterState), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := load(true, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestStateHoldsThePurgeBack: the next start looks in the log for what cluster.json does not cover, so those entries
// stay.
func TestStateHoldsThePurgeBack(t *testing.T) {
	a := &Agent{self: cluster.Member{Name: "a"}}
	openBoard(a)
	openBoard(a)
	in := replay.PurgeInput{
		Segments: []seglog.SegmentInfo{
			{FirstIndex: 1, LastIndex: 10, Bytes: 100, Sealed: true}, {FirstIndex: 11, LastIndex: 20, Bytes: 100, Sealed: true},
			{FirstIndex: 21, LastIndex: 30, Bytes: 100},
		},
		Marks: []uint64{30}, Now: time.Unix(0, 0),
	}
	for through, want := range map[uint64]uint64{9: 0, 10: 10, 15: 10, 20: 20, 30: 20} {
		if err := a.state.Load(datadir.NewHome(datadir.New(vfs.NewMem(), "."), datadir.Identity{}, false), nil, through+1); err != nil { // looked through up to there
			t.Fatal(err)
		}
		in.Needs = []replay.Need{a.StateNeed()}
		if p := replay.PlanPurge(in); p.UpTo != want {
			t.Errorf("known through %d: purged up to %d, want %d (%s)", through, p.UpTo, want, p.Blocked)
		}
	}
}
