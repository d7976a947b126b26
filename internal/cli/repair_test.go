package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
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
	for _, f := range []settingsFlags{{}, {retainMax: "much"}} {
		if got, err := f.change(); err == nil {
			t.Errorf("%+v: %v", f, got)
		}
	}
	for _, flag := range []string{"--durability", "--reseed", "--errant", "--peer-security", "--router", "--events"} {
		if code, _, said := run(t, "cluster", "set", flag, "most"); code != exitUsage || !strings.Contains(said, flag+" must be one of ") {
			t.Errorf("%s most: exit code %d: %s", flag, code, said)
		}
	}
}
