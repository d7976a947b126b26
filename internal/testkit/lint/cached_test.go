package lint

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestE2EKnowsTheProgram: test/e2e has the program built, so its own imports do not tell `go test` that the program
// changed, and a result of before was printed as "ok (cached)". (All others that build it run with -count=1.)
func TestE2EKnowsTheProgram(t *testing.T) {
	var program, e2e []string
	for _, s := range sources(t) {
		for _, imp := range s.file.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			switch s.dir {
			case "cmd/quorate":
				program = append(program, path)
			case "test/e2e":
				e2e = append(e2e, path)
			}
		}
	}
	ours := 0
	for _, path := range program {
		if !strings.HasPrefix(path, module) {
			continue
		}
		ours++
		if !slices.Contains(e2e, path) {
			t.Errorf("test/e2e does not import %s, which cmd/quorate imports", path)
		}
	}
	if ours == 0 {
		t.Error("cmd/quorate imports nothing of ours")
	}
}
