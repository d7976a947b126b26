package peers

import (
	"os/exec"

	"github.com/quorate/quorate/internal/lab/netlab"
)

// OnNetwork makes a network's namespaces a Net.
func OnNetwork(n *netlab.Network) Net { return namespaces{n} }

type namespaces struct{ *netlab.Network }

// Start implements Net.
func (n namespaces) Start(node string, cmd *exec.Cmd) (Process, error) {
	p, err := n.Network.Start(node, cmd)
	if err != nil {
		return nil, err // not a nil *netlab.Process in a Process
	}
	return p, nil
}
