package agent

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/history"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/recovery"
	"github.com/quorate/quorate/internal/seglog"
	"github.com/quorate/quorate/internal/transport"
	"github.com/quorate/quorate/internal/vfs"
)

const (
	oldUUID = "11111111-1111-1111-1111-111111111111"
	newUUID = "22222222-2222-2222-2222-222222222222"
)

// recoverable is a data directory before a recovery, all of it on disk, and what the
// recovery makes of it.
func recoverable(t *testing.T) (*vfs.Mem, *recoveryRecord) {
	t.Helper()
	fs := vfs.NewMem()
	for _, dir := range []string{"data", filepath.Join("data", "mysql", "data")} {
		if err := fs.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range filesBefore() {
		f, err := fs.Create(filepath.Join("data", name))
		if err == nil {
			_, err = f.WriteAt([]byte(content), 0)
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close(), fs.SyncDir(filepath.Dir(filepath.Join("data", name))))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	state, err := cluster.NewState([]cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull}, {ID: 2, Name: "b", Kind: cluster.KindFull}}).
		Recover("a", cluster.KindFull, "new", "", cluster.Recovery{Cluster: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return fs, &recoveryRecord{
		Format: recoveryFormat, Identity: datadir.Identity{Format: 1, Node: "a", Instance: "new", Recovered: true},
		State:      datadir.StateRecord{Format: 1, StatePoint: cluster.StatePoint{State: state, Index: 7, Through: 7}},
		Audit:      cluster.AuditEntry{By: "somebody", What: "recover", Result: "done", Version: state.Version, Node: "a", Seq: 7},
		ServerUUID: newUUID, Durable: &datadir.MarkRecord{Index: 5, ServerUUID: newUUID},
	}
}

func filesBefore() map[string]string {
	return map[string]string{
		datadir.IdentityFile: `{"format":1,"instance":"old"}`, datadir.ClusterState: `{"format":1}`, datadir.Durable: `{"index":5,"server_uuid":"` + oldUUID + `"}`,
		datadir.Peers: `{"2":"pinned"}`, history.File: `{"what":"started"}` + "\n", history.AuditFile: `{"what":"of before"}` + "\n" + `{"what":"cut`,
		"mysql/data/auto.cnf": "[auto]\nserver-uuid=" + oldUUID + "\n",
	}
}

// look tells whether a directory is as before, or as the recovery makes it.
func look(t *testing.T, fs vfs.FS, r *recoveryRecord) (before, after bool, why string) {
	t.Helper()
	before, after = true, true
	want := map[string]any{datadir.IdentityFile: r.Identity, datadir.ClusterState: r.State, datadir.Durable: r.Durable, datadir.Peers: map[string]string{}}
	for name, content := range filesBefore() {
		got, err := datadir.ReadFile(fs, filepath.Join("data", name))
		if err != nil {
			t.Fatal(err)
		}
		isBefore, isAfter := string(got) == content, false
		switch name {
		case history.AuditFile:
			line, err := json.Marshal(r.Audit)
			if err != nil {
				t.Fatal(err)
			}
			isAfter = string(got) == content+"\n"+string(line)+"\n"
		case history.File:
			var line cluster.AuditEntry
			added, ok := strings.CutPrefix(string(got), content)
			isAfter = ok && json.Unmarshal([]byte(added), &line) == nil && line.Event != nil &&
				*line.Event == cluster.Event{Kind: cluster.EventRecovered, Why: "somebody: recover"}
		case "mysql/data/auto.cnf":
			isAfter = string(got) == strings.ReplaceAll(content, oldUUID, newUUID)
		default:
			b, err := json.Marshal(want[name])
			if err != nil {
				t.Fatal(err)
			}
			var compact bytes.Buffer
			isAfter = json.Compact(&compact, got) == nil && compact.String() == string(b)
		}
		if !isBefore || !isAfter {
			why += fmt.Sprintf("%s: before %t, after %t: %s\n", name, isBefore, isAfter, got)
		}
		before, after = before && isBefore, after && isAfter
	}
	return before, after, why
}

// TestRecoveryCrashes has the power go, or a call fail, at each step of a recovery:
// after the next start it was made, or it was not, whole.
func TestRecoveryCrashes(t *testing.T) {
	broken := errors.New("broken")
	made, not := 0, 0
	for n := int64(1); ; n++ {
		base, record := recoverable(t)
		fail := vfs.FailNth(n, broken, func(op vfs.Op, _ string) bool { return op.Changes() })
		err := record.carryOut(vfs.Wrap(base, fail), "data")
		if err == nil {
			if n < 10 {
				t.Fatalf("there are %d steps alone", n-1)
			}
			break
		}
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
		for seed := range uint64(16) {
			disk := base.CrashClone(seed)
			_, err := datadir.ReadFile(disk, filepath.Join("data", recoveryFile))
			began := err == nil
			if err != nil && !errors.Is(err, iofs.ErrNotExist) {
				t.Fatal(err)
			}
			// The next start may be interrupted as well.
			_ = interrupted(disk, n, broken)
			if _, err := finishRecovery(disk, "data"); err != nil {
				t.Fatalf("step %d, disk %d: %v", n, seed, err)
			}
			before, after, why := look(t, disk, record)
			switch {
			case after:
				made++
			case before && !began:
				not++
			default:
				t.Fatalf("step %d, disk %d: it was begun: %t, and is neither made nor not:\n%s", n, seed, began, why)
			}
			if _, err := disk.Stat(filepath.Join("data", recoveryFile)); !errors.Is(err, iofs.ErrNotExist) {
				t.Fatalf("step %d, disk %d: %s is still there: %v", n, seed, recoveryFile, err)
			}
		}
	}
	if made == 0 || not == 0 {
		t.Errorf("it was made %d times, and not %d times: the test has tested nothing", made, not)
	}
}

func interrupted(fs vfs.FS, n int64, broken error) error {
	_, err := finishRecovery(vfs.Wrap(fs, vfs.FailNth(n%7+1, broken, func(op vfs.Op, _ string) bool { return op.Changes() })), "data")
	return err
}

// TestRecoverySupersedes: a node believes that the cluster was recovered without it
// only where that is news.
func TestRecoverySupersedes(t *testing.T) {
	order := cluster.Recovery{Version: 1_000_000, Cluster: "x", Node: "b"}
	for _, tc := range []struct {
		name  string
		known uint64
		id    datadir.Identity
		fresh bool
		want  bool
	}{
		{name: "of before", known: 41, want: true},
		{name: "never changed", want: true},
		{name: "recovered itself", known: 1_000_000},
		{name: "joined since", known: 1_000_002},
		{name: "joins", id: datadir.Identity{Joining: true}},
		{name: "empty directory", fresh: true},
		{name: "first start of all", fresh: true, id: datadir.Identity{Log: true}, want: true},
		{name: "knows", known: 41, id: datadir.Identity{Superseded: &order}},
		{name: "knows of an earlier one", known: 41, id: datadir.Identity{Superseded: &cluster.Recovery{Version: 5}}, want: true},
	} {
		a := &Agent{data: &dataDir{Dir: datadir.New(vfs.NewMem(), "."), identity: tc.id, fresh: tc.fresh}}
		openBoard(a)
		a.board.SetState(cluster.State{Version: tc.known})
		if got := a.asSelf().Supersedes(order); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// TestRecoveredStateIsNotMadeUp: the log of a cluster that was recovered knows the
// members of before; what it is now is in cluster.json alone.
func TestRecoveredStateIsNotMadeUp(t *testing.T) {
	a := &Agent{data: &dataDir{Dir: datadir.New(vfs.OS{}, t.TempDir()), identity: datadir.Identity{State: true, Recovered: true}}}
	openBoard(a)
	if err := a.keptState(1); err == nil || !strings.Contains(err.Error(), "is gone, and says alone that the cluster was recovered") {
		t.Errorf("it starts without: %v", err)
	}
	a.data.identity.Recovered = false
	if err := a.keptState(1); err != nil {
		t.Error(err)
	}
}

// lastLogger is the data directory of a logger whose peers do not answer, with a log
// of one entry.
func lastLogger(t *testing.T) config.Config {
	t.Helper()
	cfg := testConfig(t, filepath.Join(t.TempDir(), "data"))
	cfg.MySQL.BaseDir = "/nonexistent"
	cfg.Members[0].Kind = cluster.KindLogger
	for i := 1; i < len(cfg.Members); i++ {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback(), "0"))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Members[i].Peer = l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	oneEntry(t, cfg)
	return cfg
}

// oneEntry makes the data directory of a node, with a log of one entry.
func oneEntry(t *testing.T, cfg config.Config) {
	t.Helper()
	a, err := New(cfg, slog.New(slog.DiscardHandler), "v")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.data.open(); err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(a.logOptions(false))
	if err == nil {
		err = log.Append([]seglog.Entry{{Index: 1, Term: 4}}, &seglog.HardState{Term: 4, Vote: 1})
	}
	if err == nil {
		err = errors.Join(a.data.hasLog(), log.Close(), a.data.close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// recoverTest recovers the node of a configuration.
func recoverTest(t *testing.T, cfg config.Config, accepted string) cluster.Recovery {
	t.Helper()
	r, err := OpenRecovery(cfg, slog.New(slog.DiscardHandler), "v")
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.Judge(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if why, err := v.Refusal(accepted); err != nil || why != "" {
		t.Fatalf("it is refused: %s, %v", why, err)
	}
	done, err := r.Do("somebody", v)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return done
}

// TestRecoverAgain: each recovery is later than all that the node knows of, so those
// of before believe the newest.
func TestRecoverAgain(t *testing.T) {
	cfg := lastLogger(t)
	first := recoverTest(t, cfg, "")
	if first.Version != 1_000_000 || len(first.Without) != 2 {
		t.Errorf("recovered: %+v", first)
	}
	a, err := New(cfg, slog.New(slog.DiscardHandler), "v")
	if err != nil {
		t.Fatal(err)
	}
	point, err := a.data.LastState()
	if err != nil || len(point.State.Members) != 1 || point.State.Members[0].Instance != a.data.identity.Instance || point.Index != 1 {
		t.Errorf("it keeps %+v, %v; its instance is %s", point, err, a.data.identity.Instance)
	}
	// Then another node of before was recovered, and told this one so.
	if err := a.data.superseded(cluster.Recovery{Version: 3_000_000, Cluster: "x", Node: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(a.data.Join(datadir.Fence), cluster.Fence{By: "ann@db1", Reason: "its disk"}); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRecovery(cfg, slog.New(slog.DiscardHandler), "v")
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.Judge(t.Context())
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(v.Fenced, "fenced by ann@db1 ") {
		t.Errorf("it says nothing of the fence: %q", v.Fenced)
	}
	if why, err := v.Refusal(""); err != nil || !strings.Contains(why, "was recovered on node b") {
		t.Errorf("it is not refused: %q, %v", why, err)
	}
	if again := recoverTest(t, cfg, "none"); again.Version != 4_000_000 {
		t.Errorf("recovered again: %+v", again)
	}
}

// TestRecoveryIsFinishedAtStart: what was begun is done before the node does anything.
func TestRecoveryIsFinishedAtStart(t *testing.T) {
	cfg := lastLogger(t)
	record := recoveryRecord{Format: recoveryFormat, Identity: datadir.Identity{Format: 1, Node: "a", Instance: "new"}}
	if err := datadir.Replace(vfs.OS{}, cfg.DataDir, recoveryFile, record); err != nil {
		t.Fatal(err)
	}
	d := &dataDir{Dir: datadir.New(vfs.OS{}, cfg.DataDir)}
	if err := d.takeLock(); err != nil {
		t.Fatal(err)
	}
	if found, err := FinishRecovery(cfg); err == nil || !found {
		t.Error("it is finished beside an agent")
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), cfg, slog.New(slog.DiscardHandler), "v"); err == nil {
		t.Error("a node of no cluster runs")
	}
	b, err := datadir.ReadFile(vfs.OS{}, filepath.Join(cfg.DataDir, datadir.IdentityFile))
	if err != nil || !strings.Contains(string(b), `"instance": "new"`) {
		t.Errorf("identity: %s, %v", b, err)
	}
	if found, err := FinishRecovery(cfg); err != nil || found {
		t.Errorf("again: %t, %v", found, err)
	}
}

// TestAskerTakesNoOtherDataDirectory: a node that came back empty under its old name
// elects nobody here, and does not count for a majority.
func TestAskerTakesNoOtherDataDirectory(t *testing.T) {
	known := transport.Identity{Node: 2, Instance: [16]byte{1}}
	h := asker{data: newDataDir("", cluster.Member{})}
	h.data.known.Load(membership.Known{2: hex.EncodeToString(known.Instance[:])}, nil)
	if err := h.CheckPeer(known); err != nil {
		t.Error(err)
	}
	if err := h.CheckPeer(transport.Identity{Node: 2, Instance: [16]byte{2}}); err == nil {
		t.Error("another data directory is taken for it")
	}
	if err := h.CheckPeer(transport.Identity{Node: 3, Instance: [16]byte{3}}); err != nil || h.data.known.Pinned(3) != "" {
		t.Errorf("a node that is not known: %v", err)
	}
}

// TestRecoverBesideWhoRefuses: a majority that answers is there, also if it does not talk
// to this node, which has the wrong data perhaps. Another cluster at the address of a
// voter is not that voter.
func TestRecoverBesideWhoRefuses(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		cfg := lastLogger(t)
		for _, m := range cfg.ClusterMembers()[1:] {
			id := transport.Identity{ClusterID: cfg.ClusterID(), ClusterName: cfg.Cluster, Node: m.ID, NodeName: m.Name, Instance: [16]byte{1}}
			if elsewhere {
				id.ClusterID++
			}
			self, h := cfg.Self(), &refuser{}
			h.code.Store(uint32(transport.CodePeer))
			answering := transport.New(transport.Config{Identity: id, Listen: m.Peer, Handler: h, Logger: slog.New(slog.DiscardHandler),
				Peers: []transport.Peer{{ID: self.ID, Name: self.Name, Addr: self.Peer}}})
			if err := answering.Listen(); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- answering.Answer(ctx) }()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
		}
		r, err := OpenRecovery(cfg, slog.New(slog.DiscardHandler), "v")
		if err != nil {
			t.Fatal(err)
		}
		v, err := r.Judge(t.Context())
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		why, err := v.Refusal(recovery.None)
		if err != nil || strings.Contains(why, "a majority of the 3 voters may run") == elsewhere || v.Nodes[0].Reachable == elsewhere {
			t.Errorf("elsewhere %t: refused with %q, %v: %+v", elsewhere, why, err, v.Nodes)
		}
	}
}

// TestRecoveryIsBehindAllLines: nodes that have copies of this node's lines take that of
// the recovery, too, also if it comes within the same second, or the clock was set back.
func TestRecoveryIsBehindAllLines(t *testing.T) {
	at := time.Unix(1000, 0).Add(300 * time.Millisecond).UTC()
	for _, c := range []struct {
		file string
		line time.Duration // when the newest line came, from the recovery on
		want uint64
	}{
		{history.AuditFile, -time.Second, uint64(at.UnixMicro())},
		{history.AuditFile, 0, uint64(at.UnixMicro()) + 1},
		{history.File, -200 * time.Millisecond, uint64(at.UnixMicro())},
		{history.File, time.Hour, uint64(at.Add(time.Hour).UnixMicro()) + 1},
	} {
		disk := vfs.NewMem()
		own := history.NewLog(disk, ".", c.file, "a")
		if err := errors.Join(own.Open(), own.Append(cluster.AuditEntry{At: at.Add(c.line), What: "left"})); err != nil {
			t.Fatal(err)
		}
		records := history.New(disk, ".", "a", slog.New(slog.DiscardHandler))
		if err := records.Open(); err != nil {
			t.Fatal(err)
		}
		seq := records.NextSeq(at)
		if seq != c.want {
			t.Errorf("%s, a line %v from it: number %d, want %d", c.file, c.line, seq, c.want)
		}
		line := cluster.AuditEntry{At: at, Node: "a", Seq: seq, What: "recover"}
		for range 2 { // what was interrupted is done again
			if err := appendLine(disk, ".", c.file, line); err != nil {
				t.Fatal(err)
			}
		}
		lines, err := own.Since(0)
		if err != nil || len(lines) != 2 {
			t.Fatalf("%+v, %v", lines, err)
		}
		copied := history.NewLog(vfs.NewMem(), ".", c.file, "b")
		for _, l := range lines { // one after the other, as they are copied
			if err := errors.Join(copied.Open(), copied.Append(l)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := copied.Newest(10); err != nil || len(got) != 2 {
			t.Errorf("%s, a line %v from it: the copy has %+v, %v", c.file, c.line, got, err)
		}
	}
}
