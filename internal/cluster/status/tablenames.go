package status

import (
	"fmt"
	"strings"
)

// NamesTablesUnlike tells whether the two nodes' mysqlds are known to have another lower_case_table_names. The variable
// is fixed when a data directory is made, so nodes differ if they began with their own, and not with a copy. A replica
// with 0 does not find the table Orders if its primary has 1, and writes orders.
func (n Node) NamesTablesUnlike(other Node) bool {
	return n.LowerCaseTableNames != nil && other.LowerCaseTableNames != nil && *n.LowerCaseTableNames != *other.LowerCaseTableNames
}

// TableNames says that lower_case_table_names differs between nodes; "" = it does not. TableNamesRemedy is what to do.
func (c Cluster) TableNames() string {
	var nodes [3][]string
	for _, n := range c.Nodes {
		if v := n.LowerCaseTableNames; v != nil && *v >= 0 && *v < len(nodes) {
			nodes[*v] = append(nodes[*v], n.Name)
		}
	}
	var texts []string
	for value, names := range nodes {
		if len(names) > 0 {
			texts = append(texts, fmt.Sprintf("%s: %d", list(names, "and"), value))
		}
	}
	if len(texts) < 2 {
		return ""
	}
	return fmt.Sprintf("lower_case_table_names differs (%s): after a failover between them replicas may stop, because they do not find tables", strings.Join(texts, "; "))
}

// TableNamesRemedy says what to do about different table names.
const TableNamesRemedy = "write the primary's value into [mysql.variables] of the nodes that differ from it, restart their agents, then quorate node rebuild each"
