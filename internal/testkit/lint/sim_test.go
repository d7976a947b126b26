package lint

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

// simCalls are the functions of the product's packages that the simulator calls itself, though
// they build nothing, each with the reason. The list is to get shorter: an answer that an adapter
// asks for is one that the agent asks for in another place. docs/simulation.md, "What runs", tells
// more.
var simCalls = map[string]string{
	"board.Shown":             "how a status looks to others: its encoding",
	"consensus.Promise":       "the loop that notes the promise has a file in the agent, and a disk here",
	"datadir.Visit":           "it opens the data directory",
	"logcopy.Heal":            "what a node with a damaged log runs",
	"membership.RefuseVote":   "the simulated operator asks for a vote as package operate does",
	"primary.XAPrepared":      "a text",
	"quorumloss.ClosedReport": "the answer of a node that is out, which the operator asks",
	"quorumloss.Finish":       "what a start of the agent does first",
	"quorumloss.NodeOf":       "how the operator asks is the modelled network's, what that means this function's",
	"quorumloss.ReportOf":     "the answer of a node that the operator asks",
}

// adapterLinesMax bounds what gives the product its world there.
const adapterLinesMax = 1300

// builds tells whether a function only makes or opens what then runs by itself.
func builds(name string) bool {
	return strings.HasPrefix(name, "New") || strings.HasPrefix(name, "Open") || strings.HasPrefix(name, "Start")
}

// TestSimulatorDecidesNothing holds that the simulator builds what the agent builds, and is the
// world around it. Decisions are asked for by the product's code, which runs there as it is.
func TestSimulatorDecidesNothing(t *testing.T) {
	called, adapters := map[string]bool{}, 0
	for _, s := range sources(t) {
		if s.test || s.dir != "internal/testkit/sim" {
			continue
		}
		if strings.HasPrefix(path.Base(s.path), "node_") {
			adapters += s.fset.File(s.file.Pos()).LineCount()
		}
		decides := map[string]bool{} // imported packages that do
		for _, imp := range s.file.Imports {
			p := strings.Trim(imp.Path.Value, `"`)
			for _, of := range []string{"internal/agent/", "internal/raft/consensus", "internal/raft/logcopy", "internal/raft/bulk", "internal/log/retention", "internal/role"} {
				decides[path.Base(p)] = decides[path.Base(p)] || strings.HasPrefix(p, module+of)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := c.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := f.X.(*ast.Ident)
			if !ok || !decides[x.Name] {
				return true
			}
			name := x.Name + "." + f.Sel.Name
			called[name] = true
			if _, listed := simCalls[name]; !listed && !builds(f.Sel.Name) {
				t.Errorf("%s: the simulator calls %s: let product code call it, or list it with the reason", s.fset.Position(c.Pos()), name)
			}
			return true
		})
	}
	if adapters > adapterLinesMax {
		t.Errorf("the simulator's adapters, node_*.go, have %d lines, at most %d are allowed", adapters, adapterLinesMax)
	}
	for name, why := range simCalls {
		if !called[name] {
			t.Errorf("the simulator does not call %s any more: take it off the list", name)
		}
		if why == "" {
			t.Errorf("%s is listed without a reason", name)
		}
	}
}
