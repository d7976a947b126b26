package status

import "testing"

// TestTimeZones: the hosts' zones are compared only if some mysqld uses its host's zone.
func TestTimeZones(t *testing.T) {
	node := func(name, global, january, july string) Node {
		return Node{Name: name, TimeZone: &TimeZone{Global: global, January: january, July: july, Rules: january + july}}
	}
	berlin := func(name string) Node { return node(name, "SYSTEM", "+01:00", "+02:00") }
	earlier := berlin("c")
	earlier.TimeZone.Rules = "summer begins earlier"
	const is, do = "time_zone is SYSTEM, and the hosts' zones differ ", ": DDL may store other times on each node"
	for _, c := range []struct {
		name  string
		nodes []Node
		want  string
	}{
		{"one zone", []Node{berlin("a"), berlin("b"), {Name: "logger"}}, ""},
		{"two zones", []Node{berlin("a"), node("b", "SYSTEM", "+00:00", "+00:00"), berlin("c")}, is + "(a and c: +01:00, in July +02:00; b: +00:00)" + do},
		{"other days of change", []Node{berlin("a"), berlin("b"), earlier}, is + "(a and b: +01:00, in July +02:00; c: +01:00, in July +02:00)" + do},
		{"time_zone is an offset", []Node{node("a", "+00:00", "+01:00", "+02:00"), node("b", "+00:00", "+00:00", "+00:00")}, ""},
		{"of one node it is SYSTEM", []Node{node("a", "+00:00", "+01:00", "+02:00"), node("b", "SYSTEM", "+00:00", "+00:00")},
			is + "(a: +01:00, in July +02:00; b: +00:00)" + do},
		{"an older quorate", []Node{berlin("a"), {Name: "b"}}, ""},
	} {
		if got := (Cluster{Nodes: c.nodes}).TimeZones(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
