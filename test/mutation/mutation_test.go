package mutation

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
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
