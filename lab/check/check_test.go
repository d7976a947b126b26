package check

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/lab/workload"
)

func TestCompare(t *testing.T) {
	ledger := workload.Timeline{
		{ID: 3, Outcome: workload.Unknown, Node: "a"},
		{ID: 1, Outcome: workload.Acknowledged, Node: "a", At: 10, Latency: 4},
		{ID: 2, Outcome: workload.Acknowledged, Node: "a", At: 20, Latency: 3},
		{ID: 4, Outcome: workload.Failed, Node: "b", Err: "error 1290"},
	}
	server := func(name string, ids ...int64) Content {
		return Content{Name: name, IDs: ids, Sums: map[string]int64{"sbtest1": 7, "probe": int64(len(ids))}}
	}
	other := server("b", 1, 2)
	other.Sums["sbtest1"] = 8
	lacks := server("b", 1, 2)
	delete(lacks.Sums, "sbtest1")
	content := server("b", 1, 2) // the same rows with other contents
	content.Sums["probe"] = 99
	for _, tc := range []struct {
		name    string
		servers []Content
		want    Verdict
		says    string
	}{
		{"whole", []Content{server("a", 1, 2), server("b", 1, 2)}, Verdict{}, ""},
		{"unknown is there", []Content{server("a", 1, 2, 3), server("b", 1, 2, 3)}, Verdict{UnknownThere: 1}, ""},
		{"lost everywhere", []Content{server("a", 1), server("b", 1)}, Verdict{Lost: 1, LostSince: 23}, "row 2 was acknowledged by a and is not on a, b"},
		{"lost where clients write", []Content{server("b", 1), server("a", 1, 2)}, Verdict{Lost: 1, LostSince: 23, Diverged: 1}, "row 2 was acknowledged"},
		{"more are lost", []Content{server("b")}, Verdict{Lost: 2, LostSince: 14}, "row 1 was acknowledged"},
		{"a replica lacks it", []Content{server("a", 1, 2), server("b", 1)}, Verdict{Diverged: 1}, "row 2 (acknowledged) is on a and not on b"},
		{"unknown on one", []Content{server("a", 1, 2), server("b", 1, 2, 3)}, Verdict{Diverged: 1}, "row 3 (unknown) is on b and not on a"},
		{"refused and there", []Content{server("a", 1, 2, 4), server("b", 1, 2, 4)}, Verdict{Diverged: 1}, "row 4 was refused by b"},
		{"other contents", []Content{server("a", 1, 2), other}, Verdict{Diverged: 1}, "table sbtest1 differs"},
		{"other contents of the probe", []Content{server("a", 1, 2), content}, Verdict{Diverged: 1}, "table probe differs"},
		{"no table", []Content{server("a", 1, 2), lacks}, Verdict{Diverged: 1}, "table sbtest1 differs"},
		{"nobody left", nil, Verdict{Lost: 2}, "no server is left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.want.Acknowledged, tc.want.Unknown, tc.want.Failed = 2, 1, 1
			got := Compare(ledger, tc.servers)
			said := strings.Join(got.Examples, "\n")
			got.Examples = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if !strings.Contains(said, tc.says) || (said == "") != (tc.says == "") {
				t.Errorf("examples %q, want %q", said, tc.says)
			}
		})
	}
}
