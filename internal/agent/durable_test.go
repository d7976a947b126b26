package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/replay"
)

func testMark(t *testing.T, index uint64) replay.Mark {
	t.Helper()
	witness, err := gtid.ParseGTID("3e11fa47-71ca-11e1-9e33-c80aa9429562:7")
	if err != nil {
		t.Fatal(err)
	}
	witness.N = index + 1000
	return replay.Mark{Index: index, Witness: witness}
}

// TestDurableMark: it survives the agent, never goes back, and belongs to one
// mysqld data directory.
func TestDurableMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), durableFile)
	var d durableMark
	if err := d.load(path); err != nil {
		t.Fatal(err)
	}
	if m := d.of(""); m != (replay.Mark{}) {
		t.Fatalf("fresh: %+v", m)
	}
	for _, step := range []struct{ advance, want uint64 }{{5, 5}, {4, 5}, {9, 9}} {
		if err := d.advance("uuid-1", testMark(t, step.advance)); err != nil {
			t.Fatal(err)
		}
		var again durableMark
		if err := again.load(path); err != nil {
			t.Fatal(err)
		}
		for _, uuid := range []string{"uuid-1", ""} {
			if diff := cmp.Diff(testMark(t, step.want), again.of(uuid)); diff != "" {
				t.Errorf("after %d, of %q (-want +got):\n%s", step.advance, uuid, diff)
			}
		}
		if m := again.of("uuid-2"); m != (replay.Mark{}) {
			t.Errorf("a new data directory has the old one's mark: %+v", m)
		}
	}
	if err := d.advance("uuid-2", testMark(t, 3)); err != nil {
		t.Fatal(err)
	}
	if got := d.of("uuid-2").Index; got != 3 {
		t.Errorf("the new data directory's mark is %d", got)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.load(path); err == nil || !strings.Contains(err.Error(), "is damaged: remove it") {
		t.Errorf("damaged: %v", err)
	}
}

// TestMarkOfAnotherDataDirectory: a mysqld whose data directory is gone has no
// mark, from the start of the agent on.
func TestMarkOfAnotherDataDirectory(t *testing.T) {
	const uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	dir := t.TempDir()
	mark := replay.Mark{Index: 7, Witness: gtid.GTID{UUID: gtid.UUID{1}, N: 7}}
	d := &durableMark{path: filepath.Join(dir, durableFile)}
	if err := d.advance(uuid, mark); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		auto string
		want replay.Mark
	}{{"[auto]\nserver-uuid=" + uuid + "\n", mark}, {"[auto]\nserver-uuid=another\n", replay.Mark{}}, {"", replay.Mark{}}} {
		auto := filepath.Join(dir, "auto.cnf")
		if err := os.WriteFile(auto, []byte(c.auto), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.auto == "" {
			if err := os.Remove(auto); err != nil {
				t.Fatal(err)
			}
		}
		var again durableMark
		if err := again.load(d.path); err != nil {
			t.Fatal(err)
		}
		if err := again.check(dir); err != nil {
			t.Fatal(err)
		}
		if got := again.of(""); got != c.want {
			t.Errorf("auto.cnf %q: mark %+v, want %+v", c.auto, got, c.want)
		}
	}
}
