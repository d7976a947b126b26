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

// allowed names, for each package, the packages of this repository that it may import: those of
// internal/ without that prefix, those of the lab as lab/NAME. Arrows point only down. A package
// that is not here may import none.
var allowed = map[string][]string{
	"internal/mysql/binlog":              {"mysql/gtid"},
	"internal/mysql/binlog/binlogtest":   {"mysql/binlog", "mysql/gtid"}, // for tests alone
	"internal/cluster":                   {"config/units"},
	"internal/cluster/status":            {"cluster", "config/units"},
	"internal/role":                      {"cluster", "cluster/status", "config/units", "sys/invariant"},
	"internal/raft/entry":                {"cluster"},
	"internal/mysql/tap":                 {"mysql/binlog", "raft/entry", "mysql/gtid", "sys/invariant"},
	"internal/log/vfs/vfstest":           {"log/vfs"}, // for tests alone
	"internal/log/seglog":                {"mysql/binlog", "raft/entry", "mysql/gtid", "sys/invariant", "log/vfs", "sys/clock"},
	"internal/mysql/replay":              {"mysql/binlog", "cluster", "cluster/status", "raft/entry", "mysql/gtid", "log/seglog", "config/units"},
	"internal/agent/recovery":            {"cluster", "mysql/gtid"},
	"internal/raft/consensus":            {"mysql/binlog", "sys/clock", "cluster", "raft/entry", "mysql/gtid", "sys/invariant", "sys/metrics", "log/seglog"},
	"internal/raft/nodekey/nodekeytest":  {},
	"internal/raft/nodekey":              {"cluster", "log/vfs"},
	"internal/raft/transport":            {"cluster", "raft/nodekey", "raft/frame", "sys/nowait", "sys/strangers"},
	"internal/agent/datadir":             {"sys/clock", "cluster", "cluster/status", "mysql/gtid", "mysql/replay", "log/vfs"},
	"internal/agent/membership":          {"agent/datadir", "sys/clock", "cluster", "cluster/status", "raft/transport"},
	"internal/agent/board":               {"sys/clock", "cluster", "cluster/status", "raft/consensus", "role", "agent/membership", "agent/recovery"},
	"internal/agent/history":             {"agent/board", "cluster", "cluster/status", "raft/consensus", "role", "log/vfs"},
	"internal/raft/bulk":                 {"sys/clock", "cluster", "raft/entry", "raft/frame", "log/seglog"},
	"internal/front/control":             {"raft/frame"},
	"internal/sys/deadhost":              {},
	"internal/sys/deadhost/deadhosttest": {}, // for tests alone
	"internal/mysql/mysqlwire":           {"mysql/binlog", "sys/clock", "raft/entry", "mysql/gtid", "sys/deadhost", "sys/nowait", "sys/strangers", "mysql/tap"},
	"internal/mysql/feed":                {"raft/consensus", "raft/entry", "mysql/gtid", "mysql/mysqlwire", "mysql/replay", "log/seglog"},
	"internal/raft/logcopy":              {"raft/bulk", "sys/clock", "cluster", "cluster/status", "raft/consensus", "raft/entry", "log/seglog"},
	"internal/agent/join":                {"sys/clock", "cluster", "cluster/status", "raft/consensus", "raft/logcopy", "agent/membership", "mysql/replay", "log/seglog", "raft/transport"},
	"internal/log/retention":             {"sys/clock", "cluster", "cluster/status", "raft/consensus", "agent/datadir", "mysql/gtid", "agent/membership", "mysql/replay", "log/seglog"},
	"internal/agent/primary":             {"raft/bulk", "sys/clock", "cluster", "cluster/status", "raft/consensus", "role", "raft/entry", "mysql/gtid", "mysql/mysqlwire", "mysql/replay", "log/seglog", "mysql/tap", "config/units"},
	"internal/mysql/routermeta":          {"mysql/rows"},
	"internal/mysql/mysqld":              {"log/vfs", "mysql/binlog", "sys/invariant", "mysql/install", "mysql/rows"},
	"internal/mysql/mysqld/mysqldtest":   {"mysql/install"}, // for tests alone
	"internal/config":                    {"cluster", "config/units"},
	"internal/front/router":              {"cluster", "sys/deadhost", "sys/strangers"},
	"internal/front/api":                 {"cluster", "cluster/status", "front/control", "sys/metrics", "sys/strangers", "config/units"},
	"internal/agent/operate":             {"agent/board", "agent/membership", "config", "cluster", "cluster/status", "raft/consensus", "front/control", "role", "agent/datadir", "mysql/gtid", "agent/history", "mysql/replay", "raft/transport"},
	"internal/agent/quorumloss":          {"sys/clock", "cluster", "cluster/status", "raft/consensus", "agent/datadir", "mysql/gtid", "agent/history", "agent/membership", "agent/recovery", "log/seglog", "raft/transport", "config/units", "log/vfs"},
	"internal/agent/founding":            {"cluster", "config/units", "mysql/install", "mysql/mysqld", "agent/datadir", "log/seglog", "log/vfs", "mysql/gtid", "mysql/replay"},
	"internal/backup/archive":            {"log/seglog", "mysql/binlog", "mysql/gtid", "mysql/replay", "raft/entry", "raft/frame"},
	"internal/backup/repository":         {"config/units", "log/vfs", "sys/subprocess"},
	"internal/backup/ship":               {"backup/archive", "backup/repository", "log/seglog", "mysql/gtid", "sys/clock"},
	"internal/agent/backups":             {"agent/datadir", "backup/archive", "cluster", "cluster/status", "config/units", "log/seglog", "mysql/replay", "sys/clock"},
	"internal/agent/restoring":           {"agent/datadir", "backup/archive", "cluster", "log/seglog", "log/vfs", "mysql/gtid", "raft/consensus"},
	"internal/mysql/follow":              {"mysql/binlog", "mysql/gtid"},
	"internal/agent/following":           {"agent/operate", "agent/primary", "cluster", "cluster/status", "config/units", "front/control", "mysql/binlog", "mysql/follow", "mysql/gtid", "mysql/mysqld", "mysql/mysqlwire", "sys/clock", "sys/metrics", "mysql/rows"},
	"internal/agent/routing":             {"cluster", "cluster/status", "mysql/routermeta"},
	"internal/agent/mysqlrouter":         {"agent/board", "agent/routing", "cluster", "mysql/gtid", "mysql/routermeta", "sys/clock", "sys/metrics"},
	"internal/agent/hooks":               {"agent/datadir", "cluster/status"},
	"internal/agent/variables":           {"agent/operate", "agent/primary", "cluster", "cluster/status", "front/control", "mysql/install", "mysql/mysqld", "sys/clock"},
	"internal/agent/keys":                {"agent/datadir", "cluster", "cluster/status", "config/units", "raft/nodekey", "config", "log/vfs", "sys/clock"},
	"internal/agent/member":              {"agent/board", "agent/datadir", "agent/join", "agent/membership", "agent/primary", "agent/quorumloss", "cluster", "cluster/status", "log/retention", "log/seglog", "mysql/feed", "mysql/replay", "mysql/tap", "raft/bulk", "raft/consensus", "raft/logcopy", "raft/transport", "role", "sys/clock"},
	"internal/agent/events":              {"mysql/mysqld"},
	"internal/agent/switchover":          {"agent/board", "agent/operate", "agent/primary", "cluster", "cluster/status", "config/units", "front/control", "mysql/mysqld", "raft/consensus", "role", "sys/clock"},
	"internal/agent/old":                 {"agent/datadir", "cluster/status", "log/vfs", "sys/clock"},
	"internal/agent/standstill":          {"cluster/status", "sys/clock"},
	"internal/agent/prepared":            {"agent/primary", "config/units", "mysql/binlog", "mysql/gtid", "mysql/mysqld", "mysql/replay", "sys/clock", "sys/metrics"},
	"internal/agent/errant":              {"agent/datadir", "log/vfs", "mysql/binlog", "mysql/gtid", "mysql/mysqld"},
	"internal/agent/ownport":             {"front/netfence", "raft/consensus", "agent/board"},
	"internal/agent/freshness":           {"cluster/status", "raft/consensus", "sys/clock"},
	"internal/agent/reading":             {"agent/freshness", "cluster", "cluster/status", "front/router"},
	"internal/agent/readers":             {"config", "log/seglog", "mysql/feed", "mysql/gtid", "mysql/mysqlwire", "mysql/replay", "raft/consensus", "raft/entry", "raft/nodekey"},
	"internal/agent/commits":             {"agent/primary", "cluster/status", "mysql/binlog", "mysql/mysqlwire", "raft/entry", "sys/metrics"},
	"internal/agent/local":               {"agent/board", "agent/errant", "agent/prepared", "agent/primary", "agent/standstill", "agent/switchover", "agent/variables", "cluster/status", "log/retention", "mysql/binlog", "mysql/gtid", "mysql/install", "mysql/mysqld", "mysql/mysqlwire", "raft/consensus", "role", "sys/clock"},
	"internal/agent/scheduler":           {"agent/board", "agent/events", "cluster/status", "mysql/mysqld", "sys/clock"},
	"internal/agent":                     {"agent/freshness", "agent/following", "agent/old", "agent/prepared", "agent/switchover", "agent/backups", "agent/restoring", "backup/archive", "agent/mysqlrouter", "mysql/routermeta", "sys/notify", "agent/hooks", "agent/member", "agent/variables", "agent/errant", "agent/ownport", "agent/reading", "agent/readers", "agent/keys", "raft/nodekey", "front/api", "mysql/binlog", "agent/board", "raft/bulk", "sys/clock", "cluster", "cluster/status", "config", "raft/consensus", "front/control", "role", "agent/datadir", "raft/entry", "mysql/feed", "mysql/gtid", "agent/history", "agent/join", "raft/logcopy", "agent/membership", "mysql/mysqld", "mysql/mysqlwire", "front/netfence", "agent/operate", "agent/primary", "mysql/install", "agent/founding", "agent/quorumloss", "agent/recovery", "mysql/replay", "log/retention", "front/router", "log/seglog", "raft/transport", "sys/metrics", "config/units", "log/vfs", "agent/commits", "agent/local", "agent/scheduler"},
	"internal/testkit/devcluster":        {"front/api", "raft/nodekey", "cluster", "cluster/status", "config", "mysql/install", "mysql/mysqld", "sys/subprocess"},
	"internal/testkit/hostile":           {"raft/frame"}, // for tests alone
	"internal/testkit/ledger":            {},
	"internal/testkit/mysqlrouter":       {"sys/subprocess"}, // for tests alone
	"internal/testkit/sim/fakemysqld":    {"mysql/binlog", "mysql/gtid"},
	"internal/testkit/sim":               {"agent/member", "mysql/binlog", "agent/board", "agent/history", "raft/bulk", "sys/clock", "cluster", "cluster/status", "raft/consensus", "role", "agent/datadir", "raft/entry", "mysql/feed", "mysql/gtid", "sys/invariant", "agent/join", "raft/logcopy", "agent/membership", "mysql/mysqlwire", "agent/primary", "agent/quorumloss", "agent/freshness", "agent/recovery", "mysql/replay", "log/retention", "log/seglog", "testkit/sim/fakemysqld", "mysql/tap", "raft/transport", "log/vfs"},
	"internal/testkit/sim/cmd":           {"testkit/sim"},
	"internal/cli/doctor":                {"cluster", "cluster/status", "config", "config/units", "front/netfence", "mysql/install"},
	"internal/cli":                       {"backup/archive", "backup/repository", "backup/ship", "sys/clock", "cli/doctor", "agent/keys", "raft/nodekey", "agent", "agent/founding", "front/api", "mysql/binlog", "cluster", "cluster/status", "config", "front/control", "testkit/devcluster", "mysql/gtid", "agent/history", "testkit/ledger", "mysql/mysqld", "mysql/install", "agent/recovery", "log/seglog", "config/units", "log/vfs", "mysql/rows"},
	"cmd/quorate":                        {"agent", "cli"},
	// The lab is a module of its own: nothing above can name it.
	"lab/check":           {"lab/workload", "mysql/rows"},
	"lab/experiment":      {"lab/check", "lab/fault", "lab/netlab", "lab/peers", "lab/plan", "lab/result", "lab/workload"},
	"lab/fault":           {"testkit/faultmount", "lab/netlab"},
	"lab/netlab":          {"sys/subprocess"},
	"lab/peers":           {"raft/nodekey", "cluster", "cluster/status", "mysql/gtid", "lab/result", "mysql/mysqld", "mysql/install", "sys/subprocess", "testkit/mysqlrouter", "mysql/rows"},
	"lab/plan":            {"lab/result"},
	"lab/report":          {"lab/result"},
	"lab/workload":        {"lab/peers", "testkit/ledger", "mysql/rows"},
	"lab/cmd/quorate-lab": {"lab/experiment", "lab/fault", "lab/netlab", "lab/peers", "lab/plan", "lab/report", "lab/result", "lab/workload"},
}

// pure packages have no goroutine, clock, I/O, randomness or logger.
var pure = []string{"internal/mysql/gtid", "internal/mysql/binlog", "internal/raft/entry", "internal/role", "internal/cluster", "internal/cluster/status", "internal/sys/invariant", "internal/mysql/tap", "internal/mysql/replay", "internal/mysql/follow", "internal/agent/recovery", "internal/agent/routing", "internal/agent/events", "internal/config/units", "lab/plan", "lab/report"}

// impure imports are forbidden in pure packages.
var impure = []string{"os", "net", "time", "math/rand", "math/rand/v2", "crypto/rand", "log", "log/slog", "sync", "context", "os/exec"}

// pureTime may use the types of package time; time.Now is forbidden.
var pureTime = []string{"internal/role", "internal/mysql/binlog", "internal/cluster", "internal/cluster/status", "internal/agent/recovery", "internal/agent/routing", "internal/agent/events", "internal/mysql/replay", "internal/mysql/tap", "lab/plan", "lab/report", "internal/config/units"}

type source struct {
	path, dir string
	file      *ast.File
	fset      *token.FileSet
	test      bool
}

func sources(t *testing.T) []source {
	t.Helper()
	root, err := filepath.Abs("../../..")
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
	used := map[string]bool{}
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
			used[s.dir+" "+name] = true
		}
	}
	for dir, names := range allowed {
		for _, name := range names {
			if !used[dir+" "+name] {
				t.Errorf("%s does not import %s: take it out of the table", dir, name)
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

// TestPackageDocs: every package has a doc.go that starts with the package's name.
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

// TestNoMutablePackageState: package-level variables are constants in
// all but name (errors, compiled patterns, tables, interface assertions). Each
// gets its value where it is declared, or from go:embed.
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
		b, err := os.ReadFile(filepath.Join("../../..", s.path))
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
