package netlab

import (
	"fmt"
	"os/exec"

	"github.com/quorate/quorate/internal/sys/subprocess"
)

// Start starts cmd inside the node.
func (n *Network) Start(node string, cmd *exec.Cmd) (*subprocess.Process, error) {
	ns, err := n.namespaceOf(node)
	if err != nil {
		return nil, err
	}
	p, err := subprocess.StartIn(cmd, ns.enter)
	if err != nil {
		return nil, fmt.Errorf("in node %s: %w", node, err)
	}
	return p, nil
}
