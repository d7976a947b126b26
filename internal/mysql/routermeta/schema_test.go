package routermeta

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestImpatient: only a port that splits, waits for own writes, and waits too short counts, by what Router 9.7.4 says of itself.
func TestImpatient(t *testing.T) {
	const rw = `"bootstrap_rw": {"protocol": "classic", "wait_for_my_writes": true, "wait_for_my_writes_timeout": 2}`
	split := func(wait bool, timeout string) string {
		return fmt.Sprintf(`{%s, "bootstrap_rw_split": {"access_mode": "auto", "wait_for_my_writes": %t, "wait_for_my_writes_timeout": %s}}`, rw, wait, timeout)
	}
	for endpoints, want := range map[string]bool{
		split(true, "2"): true, split(true, "0"): true, split(true, "30"): false, split(true, "60"): false,
		split(false, "2"): false, split(true, `"2"`): false, "{" + rw + "}": false, "{}": false, "": false, "[]": false,
	} {
		if got := impatient([]byte(endpoints), 30*time.Second); got != want {
			t.Errorf("%s: %t, want %t", endpoints, got, want)
		}
	}
}

// TestStatements: an update says what has changed, and nothing of a member that stays as it is.
func TestStatements(t *testing.T) {
	a := Instance{Name: "a", UUID: "ua", Address: "a:1", Primary: true}
	b := Instance{Name: "b", UUID: "ub", Address: "b:1"}
	c := Instance{Name: "c", UUID: "uc", Address: "c:1", Hidden: true}
	d := Instance{Name: "d", UUID: "ud", Address: "d:1"}
	demoted, promoted := a, b
	demoted.Primary, promoted.Primary = false, true
	for _, tc := range []struct {
		name        string
		found, next Metadata
		want        []string
	}{
		{"first", Metadata{}, Metadata{"id", "shop", 1000, []Instance{a, b}}, []string{
			"INSERT instances [id a ua a:1 true false]", "INSERT instances [id b ub b:1 false false]"}},
		{"moved", Metadata{"id", "shop", 1000, []Instance{a, b, c}}, Metadata{"id", "shop", 2000, []Instance{demoted, promoted, c}}, []string{
			"UPDATE instances [id ua a:1 false false a]", "UPDATE instances [id ub b:1 true false b]"}},
		{"grown", Metadata{"id", "shop", 1, []Instance{a, b}}, Metadata{"id", "shop", 2, []Instance{a, d}}, []string{
			"DELETE instances [b]", "INSERT instances [id d ud d:1 false false]"}},
		{"off", Metadata{"id", "shop", 1, []Instance{a}}, Metadata{"id", "shop", 2, nil}, []string{"DELETE instances [a]"}},
		{"another cluster", Metadata{"old", "shop", 1, []Instance{a}}, Metadata{"id", "shop", 2, []Instance{a}}, []string{
			"UPDATE instances [id ua a:1 true false a]"}},
	} {
		all := statements(tc.found, tc.next)
		want := append([]string{"DELETE clusters [id]", fmt.Sprintf("INSERT clusters [id shop %d]", tc.next.View)}, tc.want...)
		var got []string
		for _, s := range all {
			verb, rest, _ := strings.Cut(s.text, " ")
			table := strings.FieldsFunc(rest[strings.Index(rest, Name)+len(Name)+1:], func(r rune) bool { return r == ' ' })[0]
			got = append(got, fmt.Sprintf("%s %s %v", verb, table, s.args))
			if n := strings.Count(s.text, "?"); n != len(s.args) {
				t.Errorf("%s: %d arguments for %s", tc.name, len(s.args), s.text)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
