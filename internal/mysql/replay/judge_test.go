package replay

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

func rowsOnly(uint64) change { return change{kind: rowChange} }

// TestLogThatStartsTooLate: trace A4. The log starts at 101, mysqld has 1-50:
// 51-100 are not declared done, whatever else is true.
func TestLogThatStartsTooLate(t *testing.T) {
	counts := make([]int, 120)
	for i := range counts {
		counts[i] = 1
	}
	does := func(n uint64) change {
		if n > 40 && n <= 110 {
			return change{kind: noOp} // not even if they were no-ops: nobody can check
		}
		return change{kind: rowChange}
	}
	log := buildLog(counts, does).purged(100)
	first := log.FirstIndex()
	if first < 95 || first > 101 {
		t.Fatalf("the log starts at %d", first)
	}
	for _, c := range []struct {
		name    string
		durable Mark
		refused string
		done    uint64
	}{
		{"no mark", Mark{}, "the log starts at entry", 0},
		{"mark below the log", Mark{first - 2, gtid.GTID{N: 40}}, "the log starts at entry", 0},
		{"an older copy", Mark{first - 1, gtid.GTID{N: 111}}, "behind its durable mark", 0},
		{"mark", Mark{first - 1, gtid.GTID{N: 40}}, "", first - 1 - 40},
	} {
		executed := upTo(40)
		v, err := Judge(log, upTo(120), executed, c.durable)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(v.Refused, c.refused) || (c.refused == "") != (v.Refused == "") {
			t.Errorf("%s: refused %q", c.name, v.Refused)
		}
		if v.Done.Count() != c.done {
			t.Errorf("%s: declared done: %s", c.name, v.Done)
		}
		p, err := FindPrefix(log, executed, c.durable)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewCursor(log, p); (err == nil) != (c.refused == "") {
			t.Errorf("%s: gone %s, cursor %v", c.name, p.Gone, err)
		}
	}
}

func TestJudgeRefuses(t *testing.T) {
	log := buildLog([]int{2, 2, 2}, rowsOnly)
	for _, c := range []struct {
		name      string
		committed uint64
		executed  *gtid.Set
		durable   Mark
		want      string
		errant    *gtid.Set
	}{
		{"healthy", 6, upTo(5), Mark{2, gtid.GTID{N: 4}}, "", &gtid.Set{}},
		{"empty", 6, upTo(0), Mark{}, "", &gtid.Set{}},
		{"errant", 4, upTo(6), Mark{}, "never committed: 00000000-0000-0000-0000-000000000000:5-6", numbers(5, 6)},
		{"errant and behind", 6, numbers(1, 9), Mark{2, gtid.GTID{N: 4}}, "never committed", numbers(9)},
		{"behind", 6, upTo(3), Mark{2, gtid.GTID{N: 4}}, "behind its durable mark", &gtid.Set{}},
		{"broken", 6, numbers(1, 3), Mark{}, "lacks transactions with rows", &gtid.Set{}},
	} {
		v, err := Judge(log, upTo(c.committed), c.executed, c.durable)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(v.Refused, c.want) || (c.want == "") != (v.Refused == "") || !v.Errant.Equal(c.errant) {
			t.Errorf("%s: %q, errant %s", c.name, v.Refused, v.Errant)
		}
		if sets := JudgeSets(upTo(c.committed), c.executed, c.durable); c.name != "broken" && sets.Refused != v.Refused {
			t.Errorf("%s: by the sets alone %q", c.name, sets.Refused)
		}
	}
}
