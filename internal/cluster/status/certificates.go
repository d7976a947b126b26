package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// OwnCA is the ClientCA of a mysqld that has made its certificate and its CA itself.
const OwnCA = "own"

// Certificates says why clients that verify the server's certificate will be refused after a failover; "" = no
// reason is known.
//
// If every mysqld has made its own certificate, such clients will be refused, too, but nothing is said. That is
// how each cluster begins, its clients do not verify, and nobody reads a line that is always there. An operator
// who has given one server a certificate wants clients to verify. The cluster does not know by which of its
// names the clients know a node, so it only checks that all nodes have one name in common.
func (c Cluster) Certificates() string {
	var groups [][]string // the names of the nodes of each CA
	groupOf := map[string]int{}
	var common []string
	given, first := false, true
	for _, n := range c.Nodes {
		if n.ClientCA == "" || n.Kind != cluster.KindFull || n.Weight == 0 { // clients are sent only to nodes that may be the primary
			continue
		}
		i, ok := groupOf[n.ClientCA]
		if !ok || n.ClientCA == OwnCA {
			i = len(groups)
			groupOf[n.ClientCA] = i
			groups = append(groups, nil)
		}
		name := n.Name
		if n.ClientCA == OwnCA {
			name += ": mysqld's own"
		}
		groups[i] = append(groups[i], name)
		given = given || n.ClientCA != OwnCA
		if first {
			common = n.ClientNames
		}
		common = commonNames(common, n.ClientNames)
		first = false
	}
	switch {
	case !given:
		return ""
	case len(groups) > 1:
		var texts []string
		for _, g := range groups {
			texts = append(texts, strings.Join(g, ", "))
		}
		return fmt.Sprintf("mysqld's are of %d CAs (%s): clients that verify them are refused after a failover, unless they have all of these CAs",
			len(groups), strings.Join(texts, "; "))
	case common != nil && len(common) == 0:
		return "mysqld's have no name or address in common: clients with VERIFY_IDENTITY are refused after a failover"
	}
	return ""
}

// commonNames returns the names that are in both lists; nil = that is not known.
func commonNames(a, b []string) []string {
	pattern := func(name string) bool { return strings.HasPrefix(name, "*.") }
	if a == nil || b == nil || slices.ContainsFunc(a, pattern) || slices.ContainsFunc(b, pattern) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return !slices.Contains(b, name) })
}
