package lint

import (
	"go/ast"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// realTime has the packages and files that the simulator is built of, and that may nevertheless use the machine's
// clock or start a goroutine, with the reason.
var realTime = map[string]string{
	"internal/sys/clock":                     "is the machine's clock",
	"internal/sys/strangers":                 "counts real connections",
	"internal/raft/transport":                "is the real network: the simulator uses its judgement of a handshake alone",
	"internal/mysql/mysqlwire":               "is the protocol of a real mysqld",
	"internal/log/vfs/wrap.go":               "is a slow disk in tests",
	"internal/log/seglog/append.go":          "measures, for metrics",
	"internal/log/seglog/prefetch.go":        "is the read-ahead, of which the simulator has a twin",
	"internal/raft/consensus/machine.go":     "is the machine's clock",
	"internal/raft/consensus/runner_turn.go": "measures, for metrics",
	"internal/agent/history/records.go":      "stamps what people read, and asks real nodes",
	"internal/raft/bulk/conn.go":             "is the deadline of a real connection",
}

// clockNames are functions that wait, look at the clock, or start concurrent code without the clock that the code is
// given.
var clockNames = map[string][]string{
	"time":                        {"Now", "After", "Sleep", "NewTimer", "NewTicker", "AfterFunc", "Tick", "Since", "Until"},
	"context":                     {"WithTimeout", "WithDeadline", "WithTimeoutCause", "WithDeadlineCause", "AfterFunc"},
	"sync":                        {"WaitGroup"},
	"golang.org/x/sync/errgroup":  {"Group", "WithContext"},
	module + "internal/sys/clock": {"Machine"},
}

// TestSimulatedCodeHasOneClock: all code that the simulator runs uses only the clock that it is given, to wait and to
// start concurrent code. Otherwise a seed could not be replayed.
func TestSimulatedCodeHasOneClock(t *testing.T) {
	all, unused := sources(t), maps.Clone(realTime)
	simulated := importsOf(all, simPackage)
	for _, s := range all {
		if s.test || !simulated[s.dir] || strings.HasPrefix(s.dir, "internal/testkit/") {
			continue
		}
		for _, at := range []string{s.dir, s.path} {
			if realTime[at] != "" && usesClock(s.file) {
				delete(unused, at)
			}
		}
		if usesClock(s.file) && realTime[s.dir] == "" && realTime[s.path] == "" {
			t.Errorf("%s: the simulator runs this, and it uses the machine's clock, or a go statement: take a clock.Clock, or list it with the reason", s.path)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(unused)) {
		t.Errorf("take off the list: %s", at)
	}
}

// importsOf returns the directories of all packages of this module that a package is built of.
func importsOf(all []source, dir string) map[string]bool {
	direct := map[string][]string{}
	for _, s := range all {
		for _, imp := range s.file.Imports {
			if name, ours := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module); ours && !s.test {
				direct[s.dir] = append(direct[s.dir], filepath.FromSlash(name))
			}
		}
	}
	built, next := map[string]bool{}, []string{dir}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		if !built[at] {
			built[at] = true
			next = append(next, direct[at]...)
		}
	}
	return built
}

// usesClock tells whether a file has a go statement, or one of clockNames, called or not.
func usesClock(f *ast.File) (uses bool) {
	imported := map[string]string{}
	for _, imp := range f.Imports {
		at := strings.Trim(imp.Path.Value, `"`)
		name := path.Base(at)
		if imp.Name != nil {
			name = imp.Name.Name
		}
		imported[name] = at
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			uses = true
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && slices.Contains(clockNames[imported[pkg.Name]], n.Sel.Name) {
				uses = true
			}
		}
		return true
	})
	return uses
}
