package lint

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// ownFiles are the product's files that write files without package vfs, with the reason.
var ownFiles = map[string]string{
	"internal/backup/ship/cutter.go":        "a piece that is made again after a crash",
	"internal/cli/doctor/disk.go":           "a probe of the disk",
	"internal/cli/log_export.go":            "an export, which is made again where it ends early",
	"internal/mysql/mysqld/clone.go":        "moves away a directory that is thrown away",
	"internal/mysql/mysqld/room.go":         "a file without content",
	"internal/mysql/mysqld/survey.go":       "a scratch directory",
	"internal/mysql/mysqld/validate.go":     "a scratch directory",
	"internal/agent/standstill/disk.go":     "a probe of the disk",
	"internal/agent/datadir/lock.go":        "a lock, of which only the lock counts",
	"internal/mysql/mysqld/server.go":       "a lock, of which only the lock counts",
	"internal/mysql/mysqld/tree.go":         "opens directories",
	"internal/front/api/tokens.go":          "reads",
	"internal/mysql/mysqld/survey_files.go": "asks whether a file can be locked",
}

// TestDurableFilesAreWrittenByVFS: whatever has to outlast a crash goes through package vfs, which syncs the file and its
// directory, and which the crash tests cut off at each operation.
func TestDurableFilesAreWrittenByVFS(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if s.test || !strings.HasPrefix(s.dir, "internal/") || strings.HasPrefix(s.dir, "internal/testkit") || strings.HasSuffix(s.dir, "test") || s.dir == "internal/log/vfs" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok || pkg.Name != "os" || !slices.Contains([]string{"Rename", "WriteFile", "Create", "CreateTemp", "OpenFile", "Link", "Symlink", "Truncate"}, sel.Sel.Name) {
				return true
			}
			if used[s.path] = true; ownFiles[s.path] == "" {
				t.Errorf("%s: os.%s: write the file by package vfs, or give the reason in ownFiles", s.fset.Position(n.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
	for path := range ownFiles {
		if !used[path] {
			t.Errorf("%s writes no files any more: take it out of ownFiles", path)
		}
	}
}
