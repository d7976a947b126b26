package datadir

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
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
	mem := vfs.NewMem()
	path := New(mem, ".")
	var d Mark
	if err := d.Load(path); err != nil {
		t.Fatal(err)
	}
	if m := d.Of(""); m != (replay.Mark{}) {
		t.Fatalf("fresh: %+v", m)
	}
	for _, step := range []struct{ advance, want uint64 }{{5, 5}, {4, 5}, {9, 9}} {
		if err := d.Advance("uuid-1", testMark(t, step.advance)); err != nil {
			t.Fatal(err)
		}
		var again Mark
		if err := again.Load(path); err != nil {
			t.Fatal(err)
		}
		for _, uuid := range []string{"uuid-1", ""} {
			if diff := cmp.Diff(testMark(t, step.want), again.Of(uuid)); diff != "" {
				t.Errorf("after %d, of %q (-want +got):\n%s", step.advance, uuid, diff)
			}
		}
		if m := again.Of("uuid-2"); m != (replay.Mark{}) {
			t.Errorf("a new data directory has the old one's mark: %+v", m)
		}
	}
	if err := d.Advance("uuid-2", testMark(t, 3)); err != nil {
		t.Fatal(err)
	}
	if got := d.Of("uuid-2").Index; got != 3 {
		t.Errorf("the new data directory's mark is %d", got)
	}
	write(t, mem, Durable, "{")
	if err := d.Load(path); err == nil || !strings.Contains(err.Error(), "is damaged: remove it") {
		t.Errorf("damaged: %v", err)
	}
}

// TestMarkOfAnotherDataDirectory: a mysqld whose data directory is gone has no
// mark, from the start of the agent on.
func TestMarkOfAnotherDataDirectory(t *testing.T) {
	const uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	mem := vfs.NewMem()
	mark := replay.Mark{Index: 7, Witness: gtid.GTID{UUID: gtid.UUID{1}, N: 7}}
	d := &Mark{dir: New(mem, ".")}
	if err := d.Advance(uuid, mark); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		auto string
		want replay.Mark
	}{{"[auto]\nserver-uuid=" + uuid + "\n", mark}, {"[auto]\nserver-uuid=another\n", replay.Mark{}}, {"", replay.Mark{}}} {
		if c.auto != "" {
			write(t, mem, "auto.cnf", c.auto)
		} else if err := mem.Remove("auto.cnf"); err != nil {
			t.Fatal(err)
		}
		var again Mark
		if err := again.Load(d.dir); err != nil {
			t.Fatal(err)
		}
		if err := again.Check("auto.cnf"); err != nil {
			t.Fatal(err)
		}
		if got := again.Of(""); got != c.want {
			t.Errorf("auto.cnf %q: mark %+v, want %+v", c.auto, got, c.want)
		}
	}
}
