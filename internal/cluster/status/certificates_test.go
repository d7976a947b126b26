package status

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

// TestCertificates: the text about differing certificates comes only if the operator gave some server a
// certificate, and only for servers to which clients are led.
func TestCertificates(t *testing.T) {
	all := []string{"db.example", "10.0.0.1"}
	node := func(name, ca string, names ...string) Node {
		return Node{Name: name, Kind: cluster.KindFull, Weight: 5, ClientCA: ca, ClientNames: names}
	}
	other := func(change func(*Node)) Node {
		n := node("c", "2", "c.example")
		change(&n)
		return n
	}
	for _, c := range []struct {
		name  string
		nodes []Node
		want  string
	}{
		{"as they come", []Node{node("a", OwnCA), node("b", OwnCA), node("c", OwnCA)}, ""},
		{"all of one CA", []Node{node("a", "1", all...), node("b", "1", all...), node("c", "1", all...)}, ""},
		{"one in common", []Node{node("a", "1", "a.example", "db.example"), node("b", "1", "db.example", "b.example")}, ""},
		{"two CAs", []Node{node("a", "1", all...), node("b", "2", all...), node("c", "1", all...)}, "of 2 CAs (a, c; b): clients that verify"},
		{"two of their own", []Node{node("a", "1", all...), node("b", OwnCA), node("c", OwnCA)}, "of 3 CAs (a; b: mysqld's own; c: mysqld's own)"},
		{"no name in common", []Node{node("a", "1", "a.example"), node("b", "1", "b.example")}, "have no name or address in common"},
		{"names are not known", []Node{node("a", "1", "a.example"), node("b", "1")}, ""},
		{"a pattern", []Node{node("a", "1", "*.example"), node("b", "1", "b.example")}, ""},
		{"an older quorate", []Node{node("a", "1", "a.example"), node("b", "")}, ""},
		{"a logger", []Node{node("a", "1", "a.example"), other(func(n *Node) { n.Kind = cluster.KindLogger })}, ""},
		{"a learner", []Node{node("a", "1", "a.example"), other(func(n *Node) { n.Kind = cluster.KindLearner })}, ""},
		{"never the primary", []Node{node("a", "1", "a.example"), other(func(n *Node) { n.Weight = 0 })}, ""},
	} {
		got := Cluster{Nodes: c.nodes}.Certificates()
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
