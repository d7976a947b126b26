package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/seglog"
	"github.com/quorate/quorate/internal/vfs"
)

func stateMembers() []cluster.Member {
	return []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 5}, {ID: 2, Name: "b", Kind: cluster.KindFull, Weight: 5}}
}

func keeper(t *testing.T, dir string, had bool, first uint64) *stateKeeper {
	t.Helper()
	k := newStateKeeper()
	if err := k.Load(datadir.New(vfs.OS{}, dir), stateMembers(), had, first); err != nil {
		t.Fatal(err)
	}
	if err := k.audit.open(filepath.Join(dir, auditFile), "a"); err != nil {
		t.Fatal(err)
	}
	return k
}

// outcome is a committed change that made the state of point.
func outcome(t *testing.T, from cluster.State, index uint64, weight int) (consensus.StateOutcome, cluster.StatePoint) {
	t.Helper()
	c := cluster.Change{ID: "1", By: "ann@db1", Node: &cluster.NodeChange{Name: "b", Weight: &weight}}
	state, err := from.With(c)
	if err != nil {
		t.Fatal(err)
	}
	o := consensus.StateOutcome{Index: index, StateChange: cluster.StateChange{Change: c, State: state}, Applied: true}
	return o, cluster.StatePoint{State: state, Index: index, Through: index}
}

// TestStateIsKept: what was written comes back, with one audit line for each
// change, also where a change is replayed.
func TestStateIsKept(t *testing.T) {
	dir := t.TempDir()
	k := keeper(t, dir, false, 1)
	if d := cmp.Diff(cluster.StatePoint{State: cluster.NewState(stateMembers())}, k.Point()); d != "" {
		t.Errorf("a new node (-want +got):\n%s", d)
	}
	first, p := outcome(t, k.Point().State, 5, 7)
	k.committed(first)
	if _, err := k.write(p); err != nil {
		t.Fatal(err)
	}
	second, p2 := outcome(t, p.State, 8, 9)
	k.committed(second)
	if err := k.audit.append(k.outcomes...); err != nil { // and dies before it writes the state
		t.Fatal(err)
	}
	k = keeper(t, dir, true, 1)
	if d := cmp.Diff(p, k.Point()); d != "" {
		t.Errorf("after a restart (-want +got):\n%s", d)
	}
	stale := second
	stale.Index, stale.Applied = 9, false
	k.committed(second)
	k.committed(stale)
	p2.Through = 9
	if _, err := k.write(p2); err != nil {
		t.Fatal(err)
	}
	k = keeper(t, dir, true, 1)
	if d := cmp.Diff(p2, k.Point()); d != "" {
		t.Errorf("after another restart (-want +got):\n%s", d)
	}
	lines, err := k.audit.newest(10)
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
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("audit (-want +got):\n%s", d)
	}
}

// TestStateOfVersion0: until a change was committed the configuration counts, as
// it is now.
func TestStateOfVersion0(t *testing.T) {
	dir := t.TempDir()
	k := keeper(t, dir, false, 1)
	if _, err := k.write(cluster.StatePoint{State: k.Point().State, Through: 12}); err != nil {
		t.Fatal(err)
	}
	k = newStateKeeper()
	changed := stateMembers()
	changed[1].Weight = 9
	if err := k.Load(datadir.New(vfs.OS{}, dir), changed, true, 1); err != nil {
		t.Fatal(err)
	}
	if p := k.Point(); p.Through != 12 || p.State.Members[1].Weight != 9 {
		t.Errorf("%+v", p)
	}
}

// TestStateRefuses: a state that may lack changes is not taken for the newest.
func TestStateRefuses(t *testing.T) {
	dir := datadir.New(vfs.OS{}, t.TempDir())
	if err := newStateKeeper().Load(dir, stateMembers(), true, 1); err != nil {
		t.Errorf("the file is gone, the log has everything: %v", err)
	}
	if err := newStateKeeper().Load(dir, stateMembers(), false, 100); err != nil {
		t.Errorf("there never was a file: %v", err)
	}
	if err := newStateKeeper().Load(dir, stateMembers(), true, 100); err == nil || !strings.Contains(err.Error(), "is gone, and the log begins at entry 100") {
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
		if err := newStateKeeper().Load(dir, stateMembers(), true, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestStateHoldsThePurgeBack: what cluster.json does not cover is looked for in
// the log at the next start, so it stays.
func TestStateHoldsThePurgeBack(t *testing.T) {
	a := &Agent{state: newStateKeeper(), self: cluster.Member{Name: "a"}}
	openBoard(a)
	in := replay.PurgeInput{
		Segments: []seglog.SegmentInfo{
			{FirstIndex: 1, LastIndex: 10, Bytes: 100, Sealed: true}, {FirstIndex: 11, LastIndex: 20, Bytes: 100, Sealed: true},
			{FirstIndex: 21, LastIndex: 30, Bytes: 100},
		},
		Marks: []uint64{30}, Now: time.Unix(0, 0),
	}
	for through, want := range map[uint64]uint64{9: 0, 10: 10, 15: 10, 20: 20, 30: 20} {
		if err := a.state.Load(datadir.New(vfs.NewMem(), "."), nil, false, through+1); err != nil { // looked through up to there
			t.Fatal(err)
		}
		in.Needs = []replay.Need{a.stateNeed()}
		if p := replay.PlanPurge(in); p.UpTo != want {
			t.Errorf("known through %d: purged up to %d, want %d (%s)", through, p.UpTo, want, p.Blocked)
		}
	}
}

// TestAuditLogIsBounded: old lines go, a line that a crash has cut does not take
// the next one with it.
func TestAuditLogIsBounded(t *testing.T) {
	var a auditLog
	path := filepath.Join(t.TempDir(), auditFile)
	if err := a.open(path, "a"); err != nil {
		t.Fatal(err)
	}
	line := cluster.AuditEntry{What: strings.Repeat("x", 10_000), Result: "done"}
	const n = 3 * auditBytesMax / 10_000
	for i := range n {
		line.By = fmt.Sprint(i)
		if err := a.append(line); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{path, path + auditOldSuffix} {
		if info, err := os.Stat(p); err != nil || info.Size() > auditBytesMax {
			t.Errorf("%s: %v, %v", filepath.Base(p), info.Size(), err)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"by":"cut`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	line.By = "after"
	if err := a.append(line); err != nil {
		t.Fatal(err)
	}
	lines, err := a.newest(2)
	if err != nil || len(lines) != 2 || lines[0].By != fmt.Sprint(n-1) || lines[1].By != "after" {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

// TestAuditIsTriedAgain: lines that could not be written wait for the next time.
func TestAuditIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	k := keeper(t, dir, false, 1)
	o, p := outcome(t, k.Point().State, 5, 7)
	k.committed(o)
	k.audit.path = filepath.Join(dir, "missing", auditFile)
	if _, err := k.write(p); err == nil {
		t.Fatal("it was written")
	}
	if k.Point().Index != 0 {
		t.Error("the state is kept before its line")
	}
	k.audit.path = filepath.Join(dir, auditFile)
	if _, err := k.write(p); err != nil {
		t.Fatal(err)
	}
	if lines, err := k.audit.newest(10); err != nil || len(lines) != 1 || k.Point().Index != 5 {
		t.Errorf("%d lines, %v, %+v", len(lines), err, k.Point())
	}
}

func TestControlRefuses(t *testing.T) {
	a := &Agent{self: cluster.Member{Name: "a"}, version: "v1"}
	openBoard(a)
	for want, r := range map[string]control.Request{
		`node a (quorate v1) knows no request "x"`: {Name: "x", By: "ann@db1"},
		"does not say in a line who asks":          {Name: "audit"},
		"the request does not say in a line":       {Name: "audit", By: "ann\n@db1"},
		"takes no part in the cluster":             {Name: "audit", By: "ann@db1"},
	} {
		if answer := a.control(t.Context(), r); answer.Code == control.CodeOK || !strings.Contains(answer.Error, want) {
			t.Errorf("%+v: %+v, want %q", r, answer, want)
		}
	}
}

// TestOldNodesHoldChangesBack: an agent that knows no cluster state would end at
// the entry of a change.
func TestOldNodesHoldChangesBack(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	a := &Agent{cfg: cfg, self: cfg.Self()}
	openBoard(a)
	peer := cfg.ClusterMembers()[1]
	for _, c := range []struct {
		version *uint64
		want    string
	}{{nil, "node b runs quorate v1"}, {new(uint64), ""}} {
		s, want := cluster.NodeStatus{ID: peer.ID, Name: "b", Role: cluster.RoleReplica, AgentVersion: "v1", StateVersion: c.version}, c.want
		if err := a.board.Received(peer.ID, s); err != nil {
			t.Fatal(err)
		}
		err := a.allKnowState()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("state version %v: %v, want %q", c.version, err, want)
		}
	}
}

// TestHistoryIsInNobodysWay: a history that cannot be written keeps neither the cluster
// state nor the audit log from the disk, and no line is written twice; its lines are
// there as soon as it can.
func TestHistoryIsInNobodysWay(t *testing.T) {
	dir := t.TempDir()
	k := keeper(t, dir, false, 1)
	path := filepath.Join(dir, historyFile)
	if err := os.Mkdir(path, 0o700); err != nil { // no file can be written there
		t.Fatal(err)
	}
	if err := k.history.open(path, "a"); err == nil {
		t.Fatal("a directory is read as a history")
	}
	o, p := outcome(t, k.Point().State, 5, 7)
	k.committed(o)
	k.note(cluster.AuditEntry{At: time.Now(), What: "elected", Event: &cluster.Event{Kind: cluster.EventLed, Term: 3}})
	for range 3 {
		if _, err := k.write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := k.writeHistory(); err == nil {
			t.Fatal("a history was written into a directory")
		}
	}
	if got := k.Point(); got.Index != 5 {
		t.Errorf("the state is kept up to entry %d", got.Index)
	}
	if lines, err := k.audit.newest(10); err != nil || len(lines) != 1 {
		t.Errorf("audit log: %+v, %v", lines, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if some, err := k.writeHistory(); err != nil || !some {
		t.Errorf("%t, %v", some, err)
	}
	if lines, err := k.history.newest(10); err != nil || len(lines) != 1 || lines[0].Event.Term != 3 {
		t.Errorf("history: %+v, %v", lines, err)
	}
}

// TestStatusWaitsForNoDisk: how far the log of lines goes is told while its disk hangs.
func TestStatusWaitsForNoDisk(t *testing.T) {
	a := openAudit(t, filepath.Join(t.TempDir(), historyFile), "a")
	a.files.Lock() // a write that does not come back
	defer a.files.Unlock()
	told := make(chan uint64, 1)
	go func() { told <- a.seqOf("a") }()
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the disk")
	}
}
