package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

func TestSettingsFlags(t *testing.T) {
	got, err := (&settingsFlags{durability: "all", reseed: "manual", errant: "rebuild", retainMax: "2GiB"}).change()
	want := cluster.SettingsChange{Durability: new(cluster.DurabilityAll), Reseed: new(cluster.ReseedManual),
		Errant: new(cluster.ErrantRebuild), RetainBytesMax: new(int64(2 << 30))}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := (&settingsFlags{retainMax: "off"}).change(); err != nil || *got.RetainBytesMax != 0 {
		t.Errorf("off: %v, %v", got, err)
	}
	for _, f := range []settingsFlags{{}, {durability: "most"}, {reseed: "no"}, {errant: "drop"}, {retainMax: "much"}} {
		if got, err := f.change(); err == nil {
			t.Errorf("%+v: %v", f, got)
		}
	}
}

// TestStatusSaysWhatIsNotTheRule: settings that are the default need no line.
func TestStatusSaysWhatIsNotTheRule(t *testing.T) {
	st := status.Cluster{Reseed: cluster.ReseedAuto, Errant: cluster.ErrantKeep}
	if got := repairLine(st); got != "" {
		t.Errorf("the rule: %q", got)
	}
	st = status.Cluster{Reseed: cluster.ReseedManual, Errant: cluster.ErrantRebuild, RetainBytesMax: 3 << 30}
	if got, want := repairLine(st), "reseed manual, errant rebuild, retain-max 3GiB\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	st.Nodes = []status.Node{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}
	for by, want := range map[string]string{"b": "fed by b", "": "fed by the leader, not by its source b"} {
		if got := sourceReason(st, status.Node{Source: "b", FedBy: by, Leader: 1}); got != want {
			t.Errorf("fed by %q: %q, want %q", by, got, want)
		}
	}
	if got := sourceReason(st, status.Node{Source: "b", Leader: 2}); got != "fed by b" {
		t.Errorf("its source leads: %q", got)
	}
}
