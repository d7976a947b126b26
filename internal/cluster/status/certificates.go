package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// OwnCA is the ClientCA of a mysqld that has made its certificate itself, and its CA.
const OwnCA = "own"

// Certificates says why clients that verify the server's certificate will be refused after a
// failover; "" = nothing is known to be wrong.
//
// Where every mysqld has a certificate of its own that is so, too, and nothing is said: that is
// each cluster as it comes, its clients do not verify, and a line that is always there is not
// read. Whoever has given one server a certificate wants clients to verify. By which of its names
// they know the node the cluster is not told, so there must only be one that all nodes have.
func (c Cluster) Certificates() string {
	var groups [][]string // the names of the nodes of each CA
	groupOf := map[string]int{}
	var common []string
	given, first := false, true
	for _, n := range c.Nodes {
		if n.ClientCA == "" || n.Kind != cluster.KindFull || n.Weight == 0 { // clients are led to no other
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

// commonNames returns the names that are in both; nil = that is not known.
func commonNames(a, b []string) []string {
	pattern := func(name string) bool { return strings.HasPrefix(name, "*.") }
	if a == nil || b == nil || slices.ContainsFunc(a, pattern) || slices.ContainsFunc(b, pattern) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return !slices.Contains(b, name) })
}
