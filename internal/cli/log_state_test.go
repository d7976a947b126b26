package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

// TestDumpOfState: a change of the cluster state between the entries of an epoch is
// shown, and is not taken for an error.
func TestDumpOfState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	log, err := seglog.Open(seglog.Options{FS: vfs.OS{}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	change := cluster.Change{ID: "1f", By: "ann@db1", Maintenance: &cluster.MaintenanceChange{On: true, Reason: "new disks"}}
	state, err := cluster.NewState([]cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 5}}).With(change)
	if err != nil {
		t.Fatal(err)
	}
	data, err := entry.EncodeState(1, cluster.StateChange{Change: change, State: state})
	if err != nil {
		t.Fatal(err)
	}
	for i, data := range [][]byte{
		entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Term: 1, Number: 1}),
		data,
		entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Term: 1, Number: 2}),
	} {
		index := uint64(i + 1)
		if err := log.Append([]seglog.Entry{{Index: index, Term: 1, Data: data}}, &seglog.HardState{Term: 1, Commit: index}); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := run(t, "log", "dump", "--dir", dir, "--from", "2", "--to", "2")
	if code != exitOK || !strings.Contains(out, "state") || !strings.Contains(out, "version 1 by ann@db1: maintenance on: new disks") {
		t.Errorf("dump: %d, %q, %q", code, out, errs)
	}
	code, out, errs = run(t, "log", "dump", "--dir", dir, "--from", "2", "--to", "2", "--json")
	if code != exitOK || !strings.Contains(out, `"kind":"state"`) || !strings.Contains(out, `"reason":"new disks"`) {
		t.Errorf("dump --json: %d, %q, %q", code, out, errs)
	}
	if code, out, errs := run(t, "log", "verify", "--dir", dir); code != exitOK {
		t.Errorf("verify: %d, %q, %q", code, out, errs)
	}
}
