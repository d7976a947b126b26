package join

import (
	"fmt"
	"slices"
	"sync"

	"github.com/quorate/quorate/internal/raft/transport"
)

// Knocks checks the nodes that dial a node with an empty data directory. It keeps the first
// node of the same cluster that has data and is no initial member: that cluster is not new.
type Knocks struct {
	// Self is the name of the node with the empty directory. Added are the names of its peers
	// that are no initial members.
	Self  string
	Added []string

	mu sync.Mutex
	by string
}

// CheckPeer implements transport.Checker. Initial members are welcome, and none of them is kept.
// But an initial member whose directory is empty, too, is refused once a node was kept: the cluster
// has lived, and perhaps no node that knows that reaches the other one.
func (k *Knocks) CheckPeer(id transport.Identity) error {
	if slices.Contains(k.Added, id.NodeName) {
		return k.CheckUnknown(id)
	}
	if by := k.By(); by != "" && id.Instance == (transport.Identity{}).Instance {
		return &transport.RejectedError{Code: transport.CodeEmpty, Text: fmt.Sprintf("node %q, which has data, looks for node %q: the cluster is not new", by, k.Self)}
	}
	return nil
}

// CheckAnswer implements transport.AnswerChecker: a peer that accepts this node is heard.
func (k *Knocks) CheckAnswer(transport.Identity) error { return nil }

// CheckUnknown implements transport.UnknownChecker. A node without an instance has an empty
// directory, too, and is no sign that the cluster has lived.
func (k *Knocks) CheckUnknown(id transport.Identity) error {
	if id.Instance != (transport.Identity{}).Instance {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.by == "" {
			k.by = id.NodeName
		}
	}
	return &transport.RejectedError{Code: transport.CodeEmpty, Text: fmt.Sprintf("node %q has an empty data directory", k.Self)}
}

// By is the name of the node that was kept; "" = there is none.
func (k *Knocks) By() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.by
}
