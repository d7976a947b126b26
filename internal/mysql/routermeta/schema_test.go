package routermeta

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestImpatient: a port counts if it splits reads from writes, waits for own writes, and waits too short a time or
// gets connections kept from another port. The attributes are those of Router 9.7.4.
func TestImpatient(t *testing.T) {
	port := func(tls string) string {
		return fmt.Sprintf(`"bootstrap_rw": {"client_ssl_mode": %q, "wait_for_my_writes": true, "wait_for_my_writes_timeout": 2}`, tls)
	}
	split := func(wait bool, timeout string) string {
		return fmt.Sprintf(`"bootstrap_rw_split": {"access_mode": "auto", "wait_for_my_writes": %t, "wait_for_my_writes_timeout": %s}`, wait, timeout)
	}
	rw, patient := port("PREFERRED")+", ", split(true, "60")
	const none, some = `{"idle_timeout": 5, "max_idle_server_connections": 0}`, `{"max_idle_server_connections": 64}`
	for _, tc := range []struct {
		endpoints, pool string
		want            bool
	}{
		{rw + split(true, "2"), none, true}, {rw + split(true, "0"), none, true}, {rw + split(true, "30"), none, false},
		{rw + patient, none, false}, {rw + split(false, "2"), none, false}, {rw + split(true, `"2"`), none, false},
		{port("PREFERRED"), none, false}, {"", none, false},
		{rw + patient, some, true}, {port("PASSTHROUGH") + ", " + patient, some, false}, {patient, some, false},
		{`"bootstrap_x_rw": {"protocol": "x"}, ` + patient, some, false},
		{rw + split(false, "60"), some, false}, {rw + patient, "{}", false}, {rw + patient, "", false}, {port("PREFERRED"), some, false},
	} {
		if got := impatient([]byte("{"+tc.endpoints+"}"), []byte(tc.pool), 30*time.Second); got != tc.want {
			t.Errorf("%s, %s: %t, want %t", tc.endpoints, tc.pool, got, tc.want)
		}
	}
	for _, endpoints := range []string{"", "[]"} {
		if impatient([]byte(endpoints), []byte(some), 30*time.Second) {
			t.Errorf("%q: says something", endpoints)
		}
	}
}

// TestStatements: an update writes what has changed, and nothing about a member that stays the
// same.
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
