package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/recovery"
)

// judged is what a look at the other nodes finds.
type judged struct {
	v   recovery.Verdict
	err error
}

func (j judged) Check(context.Context) (recovery.Verdict, error) { return j.v, j.err }

// TestRecoverLooksAgain: after the answer the other nodes are asked again, because a person may take
// hours, and nodes may be back meanwhile.
func TestRecoverLooksAgain(t *testing.T) {
	seen := recovery.Verdict{Situation: recovery.Situation{Cluster: "shop"}, Unknown: []string{"db1", "db3"}}
	back := seen
	back.Unknown, back.Objections = []string{"db3"}, []recovery.Objection{{Text: "there is nothing to recover", Final: true}}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		answer string
		now    judged
		want   string
		err    error
	}{
		"meant":             {"shop\n", judged{v: seen}, "", nil},
		"not meant":         {"\n", judged{v: seen}, "nothing was done", nil},
		"a node is back":    {"shop\n", judged{v: back}, "the situation has changed", nil},
		"it cannot be seen": {"shop\n", judged{err: broken}, "", broken},
	} {
		refused, err := ask(t.Context(), c.now, seen, strings.NewReader(c.answer), io.Discard)
		if !errors.Is(err, c.err) || (refused == "") != (c.want == "") || !strings.Contains(refused, c.want) {
			t.Errorf("%s: %q, %v", name, refused, err)
		}
	}
}

// TestRecoverText: a person sees who has what, what is lost, and what nobody can know.
func TestRecoverText(t *testing.T) {
	const uuid = "588d03dd-d479-40b0-b02d-efdf7e9bc2b8"
	silent := recovery.Finding{Name: "db3", Voter: true, Problem: "dial peer: i/o timeout"}
	v, err := recovery.Check(recovery.Situation{
		Cluster: "shop", Survivor: "db2", Mysqld: true, Voters: []string{"db1", "db2", "db3", "db4", "db5"},
		Fenced: "fenced by ann@db1",
		Log:    recovery.Log{First: 1, Last: 70, Term: 3, Commit: 68, GTIDs: uuid + ":1-71"},
		Nodes: []recovery.Finding{
			{Name: "db1", Voter: true, Reachable: true, Report: &recovery.Report{
				Node: "db1", Log: recovery.Log{First: 12, Last: 97, Term: 3, Commit: 95, GTIDs: uuid + ":1-98"},
			}},
			silent, {Name: "db4", Voter: true, Reachable: true, Problem: "node db4: this node's log is being healed"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `cluster shop, to go on with node db2 alone

NODE  LOG    TERM  COMMITTED  TRANSACTIONS                               NOT HERE
db2   1-70   3     68         588d03dd-d479-40b0-b02d-efdf7e9bc2b8:1-71  -
db1   12-97  3     95         588d03dd-d479-40b0-b02d-efdf7e9bc2b8:1-98  588d03dd-d479-40b0-b02d-efdf7e9bc2b8:72-98
db3   unreachable: dial peer: i/o timeout
db4   answers, and does not say: node db4: this node's log is being healed

transactions of db1 that node db2 lacks: 588d03dd-d479-40b0-b02d-efdf7e9bc2b8:72-98
transactions that only db3, db4 had are lost; which ones is not known (entries after 70; some may have been acknowledged)
make sure that these nodes are off: if one still runs, both sides take writes: db3, db4
the last 2 entries here are not known to be committed, and are kept: they may have been acknowledged
note: node db2 is fenced by ann@db1: there is no primary after the recovery until "quorate unfence db2"
against it: node db1 has a newer log: recover on that node
against it: node db4 answers, but does not say what it has: node db4: this node's log is being healed
`
	if diff := cmp.Diff(want, recoverText(v)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

// TestRecoverTextOfRefusal: the text claims nothing that no node has said. If a majority may run, it does
// not tell the person to switch these nodes off.
func TestRecoverTextOfRefusal(t *testing.T) {
	off := "make sure that these nodes are off"
	refuses := recovery.Finding{Name: "db1", Voter: true, Reachable: true, Refuses: true, Problem: "another data directory"}
	for _, c := range []struct {
		voters     []string
		has, lacks string
	}{
		{[]string{"db1", "db2", "db3", "db4", "db5"}, off + ": if one still runs, both sides take writes: db1, db3", "may run without"},
		{[]string{"db1", "db2", "db3"}, "against it: a majority of the 3 voters may run without", off},
	} {
		v, err := recovery.Check(recovery.Situation{Survivor: "db2", Mysqld: true, Voters: c.voters, Nodes: []recovery.Finding{refuses, {Name: "db3", Voter: true}}})
		if err != nil {
			t.Fatal(err)
		}
		text := recoverText(v)
		if !strings.Contains(text, c.has) || strings.Contains(text, c.lacks) || !strings.Contains(text, "\nno other node says what it has\n") || strings.Contains(text, "transactions of") {
			t.Errorf("%d voters:\n%s", len(c.voters), text)
		}
	}
}

// TestRecoverDryRunJSON: a dry run of recover has the fields of every dry run.
func TestRecoverDryRunJSON(t *testing.T) {
	for _, refused := range []string{"", "a majority answers"} {
		var out strings.Builder
		v := recovery.Verdict{Situation: recovery.Situation{Survivor: "db2", Fenced: "fenced by ann@db1"}}
		o := recoverOptions{asJSON: true, dryRun: true}
		err := o.print(recovered{Verdict: v, DryRun: true, Refused: refused, Notes: recoverNotes(v)}, &out)
		var got struct {
			Possible bool     `json:"possible"`
			Notes    []string `json:"notes"`
		}
		if bad := json.Unmarshal([]byte(out.String()), &got); bad != nil || (err == nil) != (refused == "") {
			t.Fatalf("%q: %v, %v: %s", refused, bad, err, out.String())
		}
		if got.Possible != (refused == "") || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "fenced by ann@db1") {
			t.Errorf("%q: %+v", refused, got)
		}
	}
}
