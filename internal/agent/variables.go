package agent

import (
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// aboutVariables is the key, among the node's troubles, of cluster variables that mysqld runs without.
const aboutVariables = "variables"

// variablesNode is this node as package variables asks it.
type variablesNode struct{ *Agent }

// Committed and what follows implement variables.Node.
func (n variablesNode) Committed() (map[string]string, <-chan struct{}) {
	point, changed := n.Raft.Committed().StateChanged()
	return point.State.Variables, changed
}
func (n variablesNode) Process() *mysqld.Process         { return n.currentProcess() }
func (n variablesNode) Installed() *install.Installation { return n.local.Installed.Load() }
func (n variablesNode) Nodes() []status.Node             { return n.nodes() }
func (n variablesNode) Trouble(text string)              { n.board.SetTrouble(aboutVariables, text) }
