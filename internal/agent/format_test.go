package agent

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
)

// TestFirstChangeRaisesTheFormat: until the cluster state is changed an older quorate
// may run over the data directory again, and not after.
func TestFirstChangeRaisesTheFormat(t *testing.T) {
	dir := t.TempDir()
	d, err := prepareDataDir(testConfig(t, filepath.Join(dir, "data")))
	if err == nil {
		err = d.open()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	a := &Agent{data: d, records: history.New(vfs.OS{}, d.Path(), "a", slog.New(slog.DiscardHandler))}
	a.records.Open()
	if err := errors.Join(d.HasLog(), a.state.Load(d.Home, nil, 1)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		version uint64
		want    int
	}{{0, datadir.FormatFirst}, {1, datadir.FormatState}, {2, datadir.FormatState}} {
		p := cluster.StatePoint{State: cluster.State{Version: c.version}, Index: 10 + c.version, Through: 10 + c.version}
		if err := a.writeState(p); err != nil {
			t.Fatal(err)
		}
		again, err := prepareDataDir(testConfig(t, filepath.Join(dir, "data")))
		if err != nil || again.Own().Format != c.want {
			t.Errorf("version %d of the state: %v, format %d", c.version, err, again.Own().Format)
		}
	}
}
