// Package routermeta reads and writes what MySQL Router reads: the metadata of an InnoDB ReplicaSet, in the
// schema mysql_innodb_cluster_metadata. Router asks its servers for nothing else, so whoever keeps that true
// has Router as a client. What should be there is not decided here (package agent/routing).
//
// Router, from 8.0 on, uses the views v2_… and schema_version alone, and writes into v2_routers and, through
// v2_ar_clusters, into router_options. So the tables behind the views are quorate's own:
//
//	quorate                 the layout (Layout): the schema is quorate's, and complete. Its row is written last
//	clusters                one row: name, view_id
//	instances               one row for each member: address, role, whether it is hidden
//	routers                 the Routers that were bootstrapped, and what they say of themselves. quorate only reads there
//	router_rest_accounts    empty, for Router's REST
//
// A schema of that name that is not quorate's is left alone: ErrForeign.
//
// A Schema starts no goroutine, and keeps nothing. An Update is one transaction of an ordinary session: it is
// in the log as every other one, and durable as they are.
package routermeta
