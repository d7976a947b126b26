package agent

import (
	"errors"
	"fmt"
	"syscall"
)

// port is what a port is called where it cannot be opened, with the setting that says it.
type port string

const (
	peerPort port = "peer port (peer of this [[member]])"
	apiPort  port = "api port (api.listen)"
)

// opened says of an error of opening the port what to do; nil = it is open.
func (p port) opened(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("open %s: %w: this node's agent may run already; else \"quorate doctor\" says which program has the port", p, err)
	case err != nil:
		return fmt.Errorf("open %s: %w", p, err)
	}
	return nil
}
