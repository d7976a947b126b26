package mutation

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository's, from this package's directory.
const root = "../.."

// apply returns the edited files, by their path in the repository.
func apply(edits []edit) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range edits {
		text, edited := files[e.file]
		if !edited {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.find); n != 1 {
			return nil, fmt.Errorf("%s has this text %d times, not once:\n%s", e.file, n, e.find)
		}
		files[e.file] = strings.Replace(text, e.find, e.replace, 1)
	}
	return files, nil
}

// TestTextsAreThere wants a mutation to be rewritten with the code that it breaks.
func TestTextsAreThere(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutations() {
		if names[m.name] || m.what == "" || m.seeds == 0 || m.nodes == 0 || len(m.edits) == 0 {
			t.Errorf("%s: incomplete, or there twice", m.name)
		}
		names[m.name] = true
		files, err := apply(append(append([]edit(nil), m.setup...), m.edits...))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		for name, text := range files {
			if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
}

// TestPageNamesEach: the table in docs/mutations.md has each mutation, what it breaks, and within
// how many seeds it has to fail.
func TestPageNamesEach(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs/mutations.md"))
	if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) string { return strings.ReplaceAll(text, "`", "") }
	var rows [][]string
	for line := range strings.SplitSeq(plain(string(b)), "\n") {
		if cells := strings.Split(strings.Trim(line, "| "), " | "); len(cells) == 4 {
			rows = append(rows, cells)
		}
	}
	all := mutations()
	if len(rows) != len(all)+1 { // and its head
		t.Errorf("the table has %d rows, and there are %d mutations", len(rows)-1, len(all))
	}
	for _, m := range all {
		within := fmt.Sprint(m.seeds)
		if m.from > 0 {
			within += fmt.Sprintf(" from %d", m.from)
		}
		if !slices.ContainsFunc(rows, func(c []string) bool {
			return c[0] == m.name && c[1] == plain(m.what) && strings.HasPrefix(c[3]+",", within+",")
		}) {
			t.Errorf("no row | `%s` | %s | … | %s |", m.name, m.what, within)
		}
	}
}
