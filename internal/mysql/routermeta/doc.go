// Package routermeta keeps the metadata of an InnoDB ReplicaSet, in the schema
// mysql_innodb_cluster_metadata. MySQL Router asks its servers for nothing else, so this makes Router a
// client of the cluster. Package agent/routing decides what the metadata say.
//
// Router, from 8.0 on, uses the views v2_… and schema_version alone, and writes into v2_routers and, through
// v2_ar_clusters, into router_options. So quorate could choose the tables behind the views:
//
//	quorate                 the layout (Layout): the schema is quorate's, and complete. Its row is written last
//	clusters                one row: name, view_id
//	instances               one row for each member: address, role, whether it is hidden
//	routers                 the Routers that were bootstrapped, and what they say of themselves. quorate only reads there
//	router_rest_accounts    empty, for Router's REST
//
// A schema of that name that quorate has not made is not touched: ErrForeign.
//
// A Schema starts no goroutine and keeps no state. An Update is one transaction of an ordinary session: the
// log has it like any other, with the same durability.
package routermeta
