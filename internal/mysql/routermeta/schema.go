package routermeta

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// Layout is the number of the layout that this version makes. Each change of layout raises it: the
// statements then run on an existing schema, too, so each must be repeatable.
const Layout = 1

// Name is the name of the schema. Router knows no other name.
const Name = "mysql_innodb_cluster_metadata"

// ErrForeign: there is a schema of that name that quorate has not made.
var ErrForeign = errors.New("schema " + Name + " is not quorate's: drop it first")

// layout returns the statements that make the schema, or complete it. Each may be executed again. The columns are
// those of the public views of MySQL Shell's metadata 2.2, which Router 8.0 to 9.7 names in its statements
// (strings of libmysqlrouter_*.so). v2_routers and v2_ar_clusters can be updated: Router writes into them.
func layout() []string {
	const ascii = " CHARACTER SET ascii COLLATE ascii_general_ci"
	view := func(name, query string) string {
		return "CREATE OR REPLACE SQL SECURITY INVOKER VIEW " + Name + "." + name + " AS " + query
	}
	table := func(name, columns string) string {
		return "CREATE TABLE IF NOT EXISTS " + Name + "." + name + " (" + columns + ") ENGINE=InnoDB CHARACTER SET utf8mb4"
	}
	return []string{
		"CREATE DATABASE IF NOT EXISTS " + Name + " CHARACTER SET utf8mb4",
		table("quorate", "layout INT UNSIGNED PRIMARY KEY") + " COMMENT 'this schema is kept by quorate: see docs/router.md'",
		table("clusters", `cluster_id CHAR(36)`+ascii+` PRIMARY KEY, cluster_name VARCHAR(63) NOT NULL, cluster_type ENUM('gr', 'ar') NOT NULL,
			primary_mode ENUM('pm', 'mm') NOT NULL, view_id INT UNSIGNED NOT NULL, attributes JSON, options JSON, router_options JSON,
			description TEXT, clusterset_id VARCHAR(36)`+ascii),
		table("instances", `instance_id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, cluster_id CHAR(36)`+ascii+` NOT NULL, label VARCHAR(265) NOT NULL UNIQUE,
			mysql_server_uuid CHAR(36)`+ascii+` NOT NULL, address VARCHAR(265)`+ascii+` NOT NULL, is_primary BOOL NOT NULL, hidden BOOL NOT NULL`),
		table("routers", `router_id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, router_name VARCHAR(265) NOT NULL, product_name VARCHAR(128) NOT NULL,
			address VARCHAR(256)`+ascii+`, version VARCHAR(12), last_check_in TIMESTAMP NULL, attributes JSON, cluster_id CHAR(36)`+ascii+`,
			options JSON, clusterset_id VARCHAR(36)`+ascii+`, UNIQUE KEY (address, router_name)`),
		table("router_rest_accounts", `cluster_id CHAR(36)`+ascii+`, user VARCHAR(256), authentication_method VARCHAR(64) NOT NULL,
			authentication_string TEXT`+ascii+`, description VARCHAR(255), privileges JSON, attributes JSON, PRIMARY KEY (cluster_id, user)`),
		view("schema_version", "SELECT 2 AS major, 2 AS minor, 0 AS patch"),
		view("v2_clusters", "SELECT cluster_type, primary_mode, cluster_id, cluster_name, router_options FROM "+Name+".clusters"),
		view("v2_ar_clusters", `SELECT view_id, cluster_type, primary_mode, 'SINGLE-PRIMARY-TREE' AS async_topology_type, cluster_id, cluster_name,
			attributes, options, router_options, description FROM `+Name+".clusters"),
		view("v2_gr_clusters", `SELECT cluster_type, primary_mode, cluster_id, cluster_name, cluster_id AS group_name, attributes, options,
			router_options, description, clusterset_id FROM `+Name+".clusters WHERE cluster_type = 'gr'"),
		view("v2_instances", `SELECT instance_id, cluster_id, label, mysql_server_uuid, address, address AS endpoint, CAST(NULL AS CHAR(265)) AS xendpoint,
			CAST(IF(hidden, '{"tags": {"_hidden": true}}', '{"tags": {}}') AS JSON) AS attributes FROM `+Name+".instances"),
		view("v2_ar_members", `SELECT c.view_id, i.cluster_id, i.instance_id, i.label, i.mysql_server_uuid AS member_id,
			IF(i.is_primary, 'PRIMARY', 'SECONDARY') AS member_role FROM `+Name+".instances i JOIN "+Name+".clusters c ON c.cluster_id = i.cluster_id"),
		view("v2_this_instance", `SELECT i.cluster_id, i.instance_id, c.cluster_name, c.cluster_type FROM `+Name+".instances i JOIN "+Name+`.clusters c
			ON c.cluster_id = i.cluster_id WHERE i.mysql_server_uuid = (SELECT CONVERT(variable_value USING ascii) FROM performance_schema.global_variables
			WHERE variable_name = 'server_uuid')`),
		view("v2_routers", `SELECT router_id, cluster_id, router_name, product_name, address, version, last_check_in, attributes, options, clusterset_id
			FROM `+Name+".routers"),
		view("v2_router_options", `SELECT r.router_id, CONCAT(r.address, '::', r.router_name) AS router_label, r.cluster_id, r.clusterset_id,
			JSON_MERGE_PATCH(COALESCE((SELECT c.router_options FROM `+Name+`.clusters c WHERE c.cluster_id = r.cluster_id), '{}'),
			COALESCE(r.options, '{}')) AS router_options FROM `+Name+".routers r"),
		view("v2_router_rest_accounts", `SELECT cluster_id, user, authentication_method, authentication_string, description, privileges, attributes
			FROM `+Name+".router_rest_accounts"),
		// There is no ClusterSet.
		view("v2_cs_clustersets", `SELECT view_id, clusterset_id, cluster_name AS domain_name, attributes, options, router_options
			FROM `+Name+".clusters WHERE FALSE"),
		view("v2_cs_members", `SELECT view_id, clusterset_id, cluster_id, cluster_name, 'PRIMARY' AS member_role, FALSE AS invalidated
			FROM `+Name+".clusters WHERE FALSE"),
		view("v2_cs_router_options", `SELECT router_id, CONCAT(address, '::', router_name) AS router_label, clusterset_id, options AS router_options
			FROM `+Name+".routers WHERE FALSE"),
		fmt.Sprintf("REPLACE INTO %s.quorate VALUES (%d)", Name, Layout),
	}
}

// Schema is the schema on one server, which must be the primary.
type Schema struct{ db *sql.DB }

// New returns the schema that sessions of db reach.
func New(db *sql.DB) *Schema { return &Schema{db} }

// Update replaces the metadata found by want(found). With create it first makes the schema where it is missing. It
// returns the metadata that are then there, and whether it wrote. It calls want in a transaction, at most once: where
// the schema is missing and create is not set, Update does nothing.
func (s *Schema) Update(ctx context.Context, create bool, want func(found Metadata) Metadata) (is Metadata, wrote bool, err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return Metadata{}, false, fmt.Errorf("log in: %w", err)
	}
	defer func() { _ = conn.Close() }()
	complete, err := look(ctx, conn)
	switch {
	case !complete && !create && (err == nil || errors.Is(err, ErrForeign)):
		return Metadata{}, false, nil
	case err != nil:
		return Metadata{}, false, err
	case !complete:
		for _, statement := range layout() {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return Metadata{}, false, fmt.Errorf("make schema %s: %w", Name, err)
			}
		}
	}
	return update(ctx, conn, want)
}

// look tells whether the schema exists and has the layout of this version, or a later one.
func look(ctx context.Context, conn *sql.Conn) (complete bool, err error) {
	var tables, ours int
	err = conn.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(table_name = 'quorate'), 0) FROM information_schema.tables
		WHERE table_schema = ?`, Name).Scan(&tables, &ours)
	switch {
	case err != nil:
		return false, fmt.Errorf("look for schema %s: %w", Name, err)
	case tables > 0 && ours == 0:
		return false, ErrForeign
	case tables == 0:
		return false, nil
	}
	var has sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT MAX(layout) FROM "+Name+".quorate").Scan(&has); err != nil {
		return false, fmt.Errorf("read the layout of schema %s: %w", Name, err)
	}
	return has.Int64 >= Layout, nil
}

func update(ctx context.Context, conn *sql.Conn, want func(Metadata) Metadata) (is Metadata, wrote bool, err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return Metadata{}, false, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	found, err := read(ctx, tx)
	if err != nil {
		return Metadata{}, false, fmt.Errorf("read the members: %w", err)
	}
	next := want(found)
	if next.Same(found) {
		return found, false, nil
	}
	err = write(ctx, tx, found, next)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return Metadata{}, false, fmt.Errorf("write the members: %w", err)
	}
	return next, true, nil
}

// read locks what it reads: no other session changes it until the transaction ends.
func read(ctx context.Context, tx *sql.Tx) (m Metadata, err error) {
	err = tx.QueryRowContext(ctx, "SELECT cluster_id, cluster_name, view_id FROM "+Name+".clusters ORDER BY view_id DESC LIMIT 1 FOR UPDATE").
		Scan(&m.ClusterID, &m.Cluster, &m.View)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Metadata{}, err
	}
	m.Instances, err = rows.All(ctx, tx, func(i *Instance) []any { return []any{&i.Name, &i.UUID, &i.Address, &i.Primary, &i.Hidden} },
		"SELECT label, mysql_server_uuid, address, is_primary, hidden FROM "+Name+".instances ORDER BY label FOR UPDATE")
	return m, err
}

// statement is one statement of a transaction.
type statement struct {
	text string
	args []any
}

func write(ctx context.Context, tx *sql.Tx, found, next Metadata) error {
	for _, s := range statements(found, next) {
		if _, err := tx.ExecContext(ctx, s.text, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// statements returns the statements that change found into next.
func statements(found, next Metadata) (all []statement) {
	say := func(text string, args ...any) { all = append(all, statement{text, args}) }
	say("DELETE FROM "+Name+".clusters WHERE cluster_id <> ?", next.ClusterID)
	say("INSERT INTO "+Name+`.clusters (cluster_id, cluster_name, cluster_type, primary_mode, view_id, attributes, options, router_options)
		VALUES (?, ?, 'ar', 'pm', ?, '{}', '{}', '{}') ON DUPLICATE KEY UPDATE cluster_name = VALUES(cluster_name), view_id = VALUES(view_id)`,
		next.ClusterID, next.Cluster, next.View)
	for _, i := range found.Instances {
		if _, stays := next.Instance(i.Name); !stays {
			say("DELETE FROM "+Name+".instances WHERE label = ?", i.Name)
		}
	}
	moved := found.ClusterID != next.ClusterID
	for _, i := range next.Instances {
		before, is := found.Instance(i.Name)
		switch {
		case !is:
			say("INSERT INTO "+Name+".instances (cluster_id, label, mysql_server_uuid, address, is_primary, hidden) VALUES (?, ?, ?, ?, ?, ?)",
				next.ClusterID, i.Name, i.UUID, i.Address, i.Primary, i.Hidden)
		case moved || before != i:
			say("UPDATE "+Name+".instances SET cluster_id = ?, mysql_server_uuid = ?, address = ?, is_primary = ?, hidden = ? WHERE label = ?",
				next.ClusterID, i.UUID, i.Address, i.Primary, i.Hidden, i.Name)
		}
	}
	return all
}
