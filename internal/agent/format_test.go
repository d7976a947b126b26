package agent

import (
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/datadir"
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
	defer d.close()
	k := newStateKeeper()
	if err := k.Load(d.Dir, nil, false, 1); err != nil {
		t.Fatal(err)
	}
	k.changed = d.hasChanges
	if err := k.audit.open(d.Join(auditFile), "a"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		version uint64
		want    int
	}{{0, datadir.FormatFirst}, {1, datadir.FormatState}, {2, datadir.FormatState}} {
		p := cluster.StatePoint{State: cluster.State{Version: c.version}, Index: 10 + c.version, Through: 10 + c.version}
		if _, err := k.write(p); err != nil {
			t.Fatal(err)
		}
		again, err := prepareDataDir(testConfig(t, filepath.Join(dir, "data")))
		if err != nil || again.identity.Format != c.want {
			t.Errorf("version %d of the state: %v, format %d", c.version, err, again.identity.Format)
		}
	}
}
