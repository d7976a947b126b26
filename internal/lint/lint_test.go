package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module           = "github.com/quorate/quorate/"
	fileLinesMax     = 800
	functionLinesMax = 70
)

// allowed names, for each package, the packages of ours that it may import: those of
// internal/ without that, those of the lab as lab/NAME. Arrows point down only. A package
// that is not here may import none.
var allowed = map[string][]string{
	"internal/binlog":            {"gtid"},
	"internal/binlog/binlogtest": {"binlog", "gtid"}, // for tests alone
	"internal/cluster":           {"units"},
	"internal/core":              {"cluster", "invariant"},
	"internal/entry":             {"cluster"},
	"internal/tap":               {"binlog", "entry", "gtid", "invariant"},
	"internal/seglog":            {"binlog", "entry", "gtid", "invariant", "vfs"},
	"internal/replay":            {"binlog", "cluster", "entry", "gtid", "seglog", "units"},
	"internal/recovery":          {"cluster", "gtid"},
	"internal/consensus":         {"binlog", "clock", "cluster", "entry", "gtid", "invariant", "seglog"},
	"internal/transport":         {"cluster", "frame", "nowait"},
	"internal/datadir":           {"cluster", "gtid", "replay", "vfs"},
	"internal/membership":        {"clock", "cluster", "transport"},
	"internal/board":             {"cluster", "consensus", "core", "membership", "recovery"},
	"internal/history":           {"board", "cluster", "consensus", "core", "datadir", "vfs"},
	"internal/bulk":              {"clock", "cluster", "entry", "frame", "invariant", "seglog"},
	"internal/control":           {"frame"},
	"internal/mysqlwire":         {"binlog", "clock", "entry", "gtid", "nowait", "tap"},
	"internal/feed":              {"consensus", "entry", "gtid", "mysqlwire", "replay", "seglog"},
	"internal/logcopy":           {"bulk", "clock", "cluster", "consensus", "entry", "seglog"},
	"internal/join":              {"clock", "cluster", "consensus", "gtid", "logcopy", "membership", "replay", "seglog", "transport"},
	"internal/retention":         {"clock", "cluster", "consensus", "datadir", "gtid", "membership", "replay", "seglog"},
	"internal/primary":           {"clock", "cluster", "consensus", "core", "entry", "gtid", "replay", "tap", "units"},
	"internal/mysqld":            {"binlog", "invariant", "provision"},
	"internal/mysqld/mysqldtest": {"provision"}, // for tests alone
	"internal/config":            {"cluster", "units"},
	"internal/router":            {"cluster"},
	"internal/api":               {"cluster", "control"},
	"internal/operate":           {"board", "cluster", "consensus", "control", "core", "datadir", "gtid", "history", "membership", "replay", "transport", "units"},
	"internal/quorumloss":        {"board", "cluster", "datadir", "gtid", "history", "membership", "recovery", "seglog", "transport", "units", "vfs"},
	"internal/agent":             {"api", "binlog", "board", "bulk", "clock", "cluster", "config", "consensus", "control", "core", "datadir", "entry", "feed", "gtid", "history", "join", "logcopy", "membership", "mysqld", "mysqlwire", "netfence", "operate", "primary", "provision", "quorumloss", "recovery", "replay", "retention", "router", "seglog", "tap", "transport", "units", "vfs"},
	"internal/devcluster":        {"api", "cluster", "config", "mysqld", "provision", "subprocess"},
	"internal/ledger":            {"gtid"},
	"internal/sim/fakemysqld":    {"binlog", "gtid"},
	"internal/sim":               {"binlog", "board", "bulk", "clock", "cluster", "consensus", "core", "datadir", "entry", "feed", "gtid", "invariant", "join", "logcopy", "membership", "mysqlwire", "primary", "recovery", "replay", "retention", "seglog", "sim/fakemysqld", "tap", "transport", "vfs"},
	"internal/sim/cmd":           {"sim"},
	"internal/cli":               {"agent", "api", "binlog", "cluster", "config", "control", "devcluster", "gtid", "history", "ledger", "mysqld", "provision", "recovery", "seglog", "units", "vfs"},
	"cmd/quorate":                {"agent", "cli", "config"},
	// The lab is a module of its own: nothing above can name it.
	"lab/check":           {"lab/workload"},
	"lab/experiment":      {"lab/check", "lab/fault", "lab/netlab", "lab/peers", "lab/plan", "lab/result", "lab/workload"},
	"lab/fault":           {"faultmount", "lab/netlab"},
	"lab/netlab":          {"subprocess"},
	"lab/peers":           {"cluster", "gtid", "lab/netlab", "lab/result", "mysqld", "provision", "subprocess"},
	"lab/plan":            {"lab/result"},
	"lab/report":          {"lab/result"},
	"lab/workload":        {"lab/peers", "ledger"},
	"lab/cmd/quorate-lab": {"lab/experiment", "lab/fault", "lab/netlab", "lab/peers", "lab/plan", "lab/report", "lab/result", "lab/workload"},
}

// pure packages have no goroutine, clock, I/O, randomness or logger.
var pure = []string{"internal/gtid", "internal/binlog", "internal/entry", "internal/core", "internal/cluster", "internal/invariant", "internal/tap", "internal/replay", "internal/recovery", "internal/units", "lab/plan", "lab/report"}

// impure imports are forbidden in pure packages.
var impure = []string{"os", "net", "time", "math/rand", "math/rand/v2", "crypto/rand", "log", "log/slog", "sync", "context", "os/exec"}

// pureTime may use the types of package time; time.Now is forbidden.
var pureTime = []string{"internal/core", "internal/binlog", "internal/cluster", "internal/recovery", "internal/replay", "internal/tap", "lab/plan", "lab/report", "internal/units"}

type source struct {
	path, dir string
	file      *ast.File
	fset      *token.FileSet
	test      bool
}

func sources(t *testing.T) []source {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var all []source
	fset := token.NewFileSet()
	for _, top := range []string{"cmd", "internal", "lab", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, path)
			all = append(all, source{rel, filepath.Dir(rel), f, fset, strings.HasSuffix(path, "_test.go")})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 20 {
		t.Fatalf("found only %d Go files", len(all))
	}
	return all
}

func TestDependenciesPointDown(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.dir, "test") {
			continue
		}
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			name, ours := strings.CutPrefix(path, module)
			name = strings.TrimPrefix(name, "internal/")
			if ours && !slices.Contains(allowed[s.dir], name) {
				t.Errorf("%s imports %s: %s may import %v", s.path, path, s.dir, allowed[s.dir])
			}
		}
	}
}

func TestPurePackages(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || !slices.Contains(pure, s.dir) {
			continue
		}
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if path == "time" && slices.Contains(pureTime, s.dir) {
				continue
			}
			if slices.Contains(impure, path) {
				t.Errorf("%s is of a pure package and imports %q", s.path, path)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine in a pure package", s.fset.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && n.Sel.Name == "Now" {
					t.Errorf("%s reads the clock in a pure package", s.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		if lines := s.fset.File(s.file.Pos()).LineCount(); lines > fileLinesMax {
			t.Errorf("%s has %d lines, at most %d are allowed", s.path, lines, fileLinesMax)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if lines := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; lines > functionLinesMax {
				t.Errorf("%s: %s has %d lines, at most %d are allowed", s.path, f.Name.Name, lines, functionLinesMax)
			}
		}
	}
}

// TestPackageDocs wants a doc.go that starts with the package's name.
func TestPackageDocs(t *testing.T) {
	docs, dirs := map[string]bool{}, map[string]string{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		dirs[s.dir] = s.file.Name.Name
		if filepath.Base(s.path) == "doc.go" && s.file.Doc != nil &&
			strings.HasPrefix(s.file.Doc.Text(), "Package "+s.file.Name.Name+" ") {
			docs[s.dir] = true
		}
	}
	for dir, name := range dirs {
		if name != "main" && !docs[dir] {
			t.Errorf("%s has no doc.go with \"Package %s …\"", dir, name)
		}
	}
}

func TestNoCatchAllPackages(t *testing.T) {
	for _, s := range sources(t) {
		for _, bad := range []string{"util", "utils", "common", "base", "helpers", "misc"} {
			if filepath.Base(s.dir) == bad {
				t.Errorf("%s: a package is named after what it is for, not %q", s.path, bad)
			}
		}
	}
}

// TestNoMutablePackageState wants package-level variables to be constants in
// all but name (errors, compiled patterns, tables, interface assertions): each
// has its value where it is declared, or is filled by go:embed.
func TestNoMutablePackageState(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				embedded := g.Doc != nil && strings.Contains(commentText(g.Doc), "go:embed")
				linked := s.dir == "cmd/quorate" && v.Names[0].Name == "version" // set by -ldflags
				if len(v.Values) == 0 && !embedded && !linked {
					t.Errorf("%s: package-level variable %s has no value: it is meant to change", s.fset.Position(v.Pos()), v.Names[0].Name)
				}
			}
		}
	}
}

func commentText(g *ast.CommentGroup) string {
	var b strings.Builder
	for _, c := range g.List {
		b.WriteString(c.Text)
	}
	return b.String()
}

// TestNoMachinePaths keeps what belongs to one machine out of the tree.
func TestNoMachinePaths(t *testing.T) {
	for _, s := range sources(t) {
		b, err := os.ReadFile(filepath.Join("../..", s.path))
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"/work" + "/main", "/root" + "/", "proxy." + "golang"} {
			if strings.Contains(string(b), bad) {
				t.Errorf("%s contains %q", s.path, bad)
			}
		}
	}
}
