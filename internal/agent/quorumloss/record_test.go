package quorumloss

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/log/vfs/vfstest"
)

const (
	oldUUID = "11111111-1111-1111-1111-111111111111"
	newUUID = "22222222-2222-2222-2222-222222222222"
)

// recoverable is a data directory before a recovery, all of it on disk, and what the
// recovery makes of it.
func recoverable(t *testing.T) (*vfs.Mem, *Record) {
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
	return fs, &Record{
		Format: Format, Identity: datadir.Identity{Format: 1, Node: "a", Instance: "new"}.AsMember(true),
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

// look tells whether a directory is as before, or is as the recovery makes it.
func look(t *testing.T, fs vfs.FS, r *Record) (before, after bool, why string) {
	t.Helper()
	before, after = true, true
	want := map[string]any{datadir.IdentityFile: r.Identity, datadir.ClusterState: r.State, datadir.Durable: r.Durable, datadir.Peers: map[string]string{}}
	for name, content := range filesBefore() {
		got, err := vfs.ReadFile(fs, filepath.Join("data", name))
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

// TestRecoveryCrashes has the power go, or a call fail, at each step of a recovery. After the next start the recovery
// was made in full, or not at all.
func TestRecoveryCrashes(t *testing.T) {
	made, not := 0, 0
	var record *Record
	disk := func() (base *vfs.Mem) {
		base, record = recoverable(t)
		return base
	}
	operations := vfstest.Interruptions(t, disk, func(fs vfs.FS) error { return record.Make(fs, "data") }, func(t *testing.T, disk *vfs.Mem) {
		_, err := vfs.ReadFile(disk, filepath.Join("data", File))
		began := err == nil
		if err != nil && !errors.Is(err, iofs.ErrNotExist) {
			t.Fatal(err)
		}
		_ = Finish(vfstest.Failing(disk, (made+not)%7+1), "data") // the next start may be interrupted as well
		if err := Finish(disk, "data"); err != nil {
			t.Fatal(err)
		}
		before, after, why := look(t, disk, record)
		switch {
		case after:
			made++
		case before && !began:
			not++
		default:
			t.Fatalf("it was begun: %t, and is neither made nor not:\n%s", began, why)
		}
		if _, err := disk.Stat(filepath.Join("data", File)); !errors.Is(err, iofs.ErrNotExist) {
			t.Fatalf("%s is still there: %v", File, err)
		}
	})
	if operations < 9 {
		t.Fatalf("there are %d operations alone", operations)
	}
	if made == 0 || not == 0 {
		t.Errorf("it was made %d times, and not %d times: the test has tested nothing", made, not)
	}
}

// TestRecoveryIsBehindAllLines: a node that has copies of this node's lines also takes the line of the recovery, even
// if that line comes within the same second, or the clock was set back.
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
		records.Open()
		seq := records.NextSeq(at)
		if seq != c.want {
			t.Errorf("%s, a line %v from it: number %d, want %d", c.file, c.line, seq, c.want)
		}
		line := cluster.AuditEntry{At: at, Node: "a", Seq: seq, What: "recover"}
		for range 2 { // a step that was interrupted is done again
			if err := appendLine(disk, ".", c.file, line); err != nil {
				t.Fatal(err)
			}
		}
		lines, err := own.Since(0)
		if err != nil || len(lines) != 2 {
			t.Fatalf("%+v, %v", lines, err)
		}
		copied := history.NewLog(vfs.NewMem(), ".", c.file, "b")
		for _, l := range lines { // as they are copied: in turn
			if err := errors.Join(copied.Open(), copied.Append(l)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := copied.Newest(10); err != nil || len(got) != 2 {
			t.Errorf("%s, a line %v from it: the copy has %+v, %v", c.file, c.line, got, err)
		}
	}
}
