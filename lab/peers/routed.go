package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/quorate/quorate/internal/testkit/mysqlrouter"
)

// The metadata's names.
const (
	routerUser  = "router"
	clusterName = "lab"
	metadata    = "mysql_innodb_cluster_metadata"
)

// routed is Group Replication behind mysqlrouter, which runs beside the clients, as its
// manual advises.
//
// mysqlrouter finds the primary by the metadata of InnoDB Cluster, which mysql-shell
// makes. Debian has no mysql-shell, so the lab writes the part of the metadata
// that the router reads (createMetadata). So the router works as in an InnoDB
// Cluster. Static routes would not do: a static route knows no primary.
type routed struct {
	*group
	router *node
}

func newRouted(d *Deployment) *routed {
	r := &routed{group: newGroup(d)}
	r.router = newNode(d.opts, clientNode, "router")
	d.nodes = append(d.nodes, r.router)
	r.settings = append(r.settings,
		Setting{"mysqlrouter ttl", "0.5", "what its bootstrap writes: the group is looked at twice a second"},
		Setting{"mysqlrouter client_ssl_mode", "PASSTHROUGH", "no system of the lab encrypts; the router only copies bytes"},
		Setting{"mysqlrouter max_total_connections", fmt.Sprint(connectionsMax), "as the servers have it"},
		Setting{"mysqlrouter connect_timeout", mysqlrouter.ConnectTimeout, "as in front of quorate; 5 s by default"},
		Setting{"mysqlrouter read_timeout", mysqlrouter.ReadTimeout, "as in front of quorate; 30 s by default"},
		Setting{"mysqlrouter io.threads", mysqlrouter.IOThreads, "as in front of quorate; one for each processor by default"},
		remark("the metadata of InnoDB Cluster are written by the lab, since mysql-shell is not in Debian: those parts that the router reads"),
	)
	return r
}

func (r *routed) up(ctx context.Context) error {
	if err := r.group.up(ctx); err != nil {
		return err
	}
	if err := r.createMetadata(ctx); err != nil {
		return fmt.Errorf("write metadata: %w", err)
	}
	if err := r.configure(ctx); err != nil {
		return err
	}
	return r.startRouter()
}

// createMetadata writes the tables that the router asks for the cluster's members
// (version 2.2.0 of the metadata schema; the tables of a ClusterSet and of an asynchronous
// cluster exist and are empty). Views of that schema are tables here.
func (r *routed) createMetadata(ctx context.Context) error {
	group, err := r.all[0].text(ctx, "SELECT @@GLOBAL.group_replication_group_name")
	if err != nil {
		return err
	}
	statements := []string{
		"CREATE DATABASE " + metadata,
		"USE " + metadata,
		"CREATE TABLE version (major INT PRIMARY KEY, minor INT, patch INT)",
		"INSERT INTO version VALUES (2, 2, 0)",
		"CREATE VIEW schema_version AS SELECT major, minor, patch FROM version",
		`CREATE TABLE v2_clusters (cluster_id CHAR(36) CHARACTER SET ascii PRIMARY KEY, cluster_name VARCHAR(63), cluster_type VARCHAR(2),
			primary_mode VARCHAR(2), group_name CHAR(36) CHARACTER SET ascii, attributes JSON, router_options JSON)`,
		"CREATE VIEW v2_gr_clusters AS SELECT * FROM v2_clusters WHERE cluster_type = 'gr'",
		"CREATE VIEW v2_ar_clusters AS SELECT * FROM v2_clusters WHERE cluster_type = 'ar'",
		`CREATE TABLE v2_instances (instance_id INT UNSIGNED PRIMARY KEY, cluster_id CHAR(36) CHARACTER SET ascii, label VARCHAR(63),
			mysql_server_uuid CHAR(36) CHARACTER SET ascii, address VARCHAR(255), endpoint VARCHAR(255), xendpoint VARCHAR(255), attributes JSON)`,
		`CREATE VIEW v2_this_instance AS SELECT i.cluster_id, i.instance_id, c.cluster_name, c.cluster_type
			FROM v2_instances i JOIN v2_clusters c USING (cluster_id) WHERE CAST(i.mysql_server_uuid AS CHAR ASCII) =
			(SELECT CAST(VARIABLE_VALUE AS CHAR ASCII) FROM performance_schema.global_variables WHERE VARIABLE_NAME = 'server_uuid')`,
		`CREATE TABLE v2_ar_members (member_id CHAR(36) CHARACTER SET ascii PRIMARY KEY, view_id INT UNSIGNED, cluster_id CHAR(36) CHARACTER SET ascii,
			instance_id INT UNSIGNED, member_role VARCHAR(9))`,
		`CREATE TABLE v2_cs_members (cluster_id CHAR(36) CHARACTER SET ascii PRIMARY KEY, clusterset_id CHAR(36) CHARACTER SET ascii,
			member_role VARCHAR(9), invalidated TINYINT)`,
		`CREATE TABLE v2_cs_clustersets (clusterset_id CHAR(36) CHARACTER SET ascii PRIMARY KEY, domain_name VARCHAR(255), view_id INT UNSIGNED)`,
		`CREATE TABLE v2_routers (router_id INT UNSIGNED PRIMARY KEY, cluster_id CHAR(36) CHARACTER SET ascii, clusterset_id CHAR(36) CHARACTER SET ascii,
			router_name VARCHAR(255), product_name VARCHAR(128), address VARCHAR(255), version VARCHAR(12), last_check_in TIMESTAMP NULL,
			attributes JSON, options JSON)`,
		"CREATE TABLE v2_router_options (router_id INT UNSIGNED PRIMARY KEY, cluster_id CHAR(36) CHARACTER SET ascii, clusterset_id CHAR(36) CHARACTER SET ascii, router_options JSON)",
		"CREATE VIEW v2_cs_router_options AS SELECT * FROM v2_router_options WHERE clusterset_id IS NOT NULL",
		`CREATE TABLE v2_router_rest_accounts (cluster_id CHAR(36) CHARACTER SET ascii, user VARCHAR(256), authentication_method VARCHAR(64),
			authentication_string TEXT, description VARCHAR(255), privileges JSON, attributes JSON, PRIMARY KEY (cluster_id, user))`,
		fmt.Sprintf("INSERT INTO v2_clusters VALUES ('%s', '%s', 'gr', 'pm', '%s', '{}', '{}')", group, clusterName, group),
		fmt.Sprintf("INSERT INTO v2_routers VALUES (1, '%s', NULL, '', 'MySQL Router', '%s', NULL, NULL, '{}', '{}')", group, r.router.addr),
		fmt.Sprintf("INSERT INTO v2_router_options VALUES (1, '%s', NULL, '{}')", group),
		fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", routerUser, r.d.password),
		fmt.Sprintf("GRANT SELECT, EXECUTE ON %s.* TO %s@'%%'", metadata, routerUser),
		fmt.Sprintf("GRANT INSERT, UPDATE, DELETE ON %s.v2_routers TO %s@'%%'", metadata, routerUser),
	}
	for _, table := range []string{"replication_group_members", "replication_group_member_stats", "global_variables", "global_status"} {
		statements = append(statements, fmt.Sprintf("GRANT SELECT ON performance_schema.%s TO %s@'%%'", table, routerUser))
	}
	for i, s := range r.all {
		uuid, err := s.text(ctx, "SELECT @@GLOBAL.server_uuid")
		if err != nil {
			return err
		}
		at := address(s.addr.String(), serverPort)
		statements = append(statements, fmt.Sprintf("INSERT INTO v2_instances VALUES (%d, '%s', '%s', '%s', '%s', '%s', NULL, '{}')",
			i+1, group, at, uuid, at, at))
	}
	return r.all[0].exec(ctx, statements...)
}

func (r *routed) path(name string) string { return filepath.Join(r.router.dir, name) }

// configure writes the configuration that the router's bootstrap would write.
func (r *routed) configure(ctx context.Context) error {
	for _, dir := range []string{"run", "data"} {
		if err := os.MkdirAll(r.path(dir), 0o700); err != nil {
			return fmt.Errorf("create router directory: %w", err)
		}
	}
	prefix := r.d.opts.Install.MySQLRouter
	keyring := filepath.Join(prefix, "bin", "mysqlrouter_keyring")
	for _, args := range [][]string{
		{"init", "--master-key-file=" + r.path("key"), r.path("keyring")},
		{"set", "--master-key-file=" + r.path("key"), r.path("keyring"), routerUser, "password", r.d.password},
	} {
		if err := r.d.run(ctx, clientNode, exec.Command(keyring, args...), r.router.log()); err != nil {
			return fmt.Errorf("make the router's keyring: %w", err)
		}
	}
	group, err := r.all[0].text(ctx, "SELECT @@GLOBAL.group_replication_group_name")
	if err != nil {
		return err
	}
	servers := []string{}
	for _, s := range r.all {
		servers = append(servers, "mysql://"+address(s.addr.String(), serverPort))
	}
	state, err := json.Marshal(map[string]any{
		"version":        "1.1.0",
		"metadata-cache": map[string]any{"group-replication-id": group, "cluster-metadata-servers": servers},
	})
	if err != nil {
		return fmt.Errorf("encode the router's state: %w", err)
	}
	for name, text := range map[string]string{"state.json": string(state), "router.conf": r.render(prefix)} {
		if err := os.WriteFile(r.path(name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write the router's %s: %w", name, err)
		}
	}
	return nil
}

func (r *routed) render(prefix string) string {
	return strings.Join([]string{
		"[DEFAULT]",
		"logging_folder=", // standard error
		"runtime_folder=" + r.path("run"),
		"data_folder=" + r.path("data"),
		"plugin_folder=" + filepath.Join(prefix, "usr/lib/mysqlrouter/plugin"),
		"keyring_path=" + r.path("keyring"),
		"master_key_path=" + r.path("key"),
		"dynamic_state=" + r.path("state.json"),
		"connect_timeout=" + mysqlrouter.ConnectTimeout,
		"read_timeout=" + mysqlrouter.ReadTimeout,
		"client_ssl_mode=PASSTHROUGH",
		"server_ssl_mode=AS_CLIENT",
		"max_total_connections=" + fmt.Sprint(connectionsMax),
		"[io]",
		"threads=" + mysqlrouter.IOThreads,
		"[logger]",
		"level=INFO",
		"[metadata_cache:lab]",
		"cluster_type=gr",
		"router_id=1",
		"user=" + routerUser,
		"metadata_cluster=" + clusterName,
		"ttl=0.5",
		"use_gr_notifications=0",
		"[routing:rw]",
		"bind_address=" + r.router.addr.String(),
		fmt.Sprintf("bind_port=%d", routerPort),
		"destinations=metadata-cache://lab/?role=PRIMARY",
		"routing_strategy=first-available",
		"protocol=classic",
		"",
	}, "\n")
}

func (r *routed) startRouter() error {
	program := filepath.Join(r.d.opts.Install.MySQLRouter, "bin", "mysqlrouter")
	return r.router.start(componentRouter, exec.Command(program, "--config="+r.path("router.conf")))
}

// places is the router's port, for all clients at all times.
func (r *routed) places() []place { return []place{{clientNode, routerPort}} }

func (r *routed) writers(ctx context.Context) ([]place, error) {
	all, err := r.group.writers(ctx)
	if err != nil || len(all) == 0 || r.router.running() == nil {
		return nil, err
	}
	return r.places(), nil
}

// ready returns an error also while the router takes no connections.
func (r *routed) ready(ctx context.Context) error {
	if err := r.group.ready(ctx); err != nil {
		return err
	}
	if r.router.running() == nil {
		return fatal{fmt.Errorf("the router has ended; %s", r.router.logTail())}
	}
	return r.d.greets(ctx, place{clientNode, routerPort})
}

// greets returns an error if no server greets a client at an address.
func (d *Deployment) greets(ctx context.Context, p place) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := d.opts.Network.DialContext(clientNode)(ctx, "tcp", address(d.opts.Network.Addr(p.node).String(), p.port))
	if err != nil {
		return fmt.Errorf("connect as a client: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetReadDeadline(deadline); err != nil {
			return fmt.Errorf("connect as a client: %w", err)
		}
	}
	// The server's greeting: a length of three bytes, a number, the protocol version.
	var head [5]byte
	if _, err := conn.Read(head[:]); err != nil {
		return fmt.Errorf("read the server's greeting: %w", err)
	}
	if head[4] != 10 {
		return errors.New("no primary is known yet")
	}
	return nil
}

func (r *routed) restart(ctx context.Context, node string) error {
	if node == clientNode {
		return r.startRouter()
	}
	return r.group.restart(ctx, node)
}

func (r *routed) stop(ctx context.Context, node string) error {
	if node == clientNode {
		return r.router.stop(stopWait)
	}
	return r.group.stop(ctx, node)
}

func (r *routed) facts() Facts {
	f := r.group.facts()
	stamp, err := os.ReadFile(filepath.Join(r.d.opts.Install.MySQLRouter, ".quorate-rival"))
	if _, version, ok := strings.Cut(strings.TrimSpace(string(stamp)), " "); err == nil && ok {
		f.Versions["mysqlrouter"] = version
	}
	return f
}
