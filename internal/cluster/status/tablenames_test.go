package status

import (
	"strings"
	"testing"
)

// TestTableNamesDiffer: the status says that lower_case_table_names differs. Nobody compared it.
func TestTableNamesDiffer(t *testing.T) {
	node := func(name string, value int) Node { return Node{Name: name, LowerCaseTableNames: &value} }
	for want, nodes := range map[string][]Node{
		"":                       {node("a", 1), node("b", 1), {Name: "logger"}, {Name: "older"}},
		"(a and c: 0; b: 1)":     {node("a", 0), node("b", 1), node("c", 0)},
		"(a: 0; b: 1; c: 2)":     {node("a", 0), node("b", 1), node("c", 2)},
		"(b: 0; a: 1): after a ": {node("a", 1), node("b", 0), node("from the future", 3)},
	} {
		c := Cluster{Nodes: nodes}
		got := c.TableNames()
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		said := false
		for _, s := range c.Sentences() {
			said = said || s.Topic == topicTableNames && s.Level == LevelNotice && strings.Contains(s.Text, want)
		}
		if said != (want != "") {
			t.Errorf("%q: %+v", want, c.Sentences())
		}
	}
	if a := node("a", 0); a.NamesTablesUnlike(node("b", 0)) || a.NamesTablesUnlike(Node{}) || (Node{}).NamesTablesUnlike(a) || !a.NamesTablesUnlike(node("b", 1)) {
		t.Error("which nodes differ is wrong")
	}
}
