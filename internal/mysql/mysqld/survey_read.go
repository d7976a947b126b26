package mysqld

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// Survey has the facts of a server that is not quorate's. Lists have at most listMax names.
type Survey struct {
	// Executed is gtid_executed.
	Executed string `json:"executed"`
	// NotInnoDB has the tables of other engines, Encrypted the tablespaces that are encrypted,
	// Outside the files of tables that are not in the data directory.
	NotInnoDB []string `json:"not_innodb,omitempty"`
	Encrypted []string `json:"encrypted,omitempty"`
	Outside   []string `json:"outside,omitempty"`
	// NoKey has the tables with neither a primary key nor a unique key of columns that are NOT NULL: the order
	// of their rows differs from server to server.
	NoKey []string `json:"no_key,omitempty"`
	// Zoned has the tables that derive something from the time zone of a session (Admin.ZoneDependent).
	Zoned []string `json:"zoned,omitempty"`
	// PreparedXA counts XA transactions that are prepared.
	PreparedXA int `json:"prepared_xa"`
	// Channels has its replication channels, as "CHANNEL from HOST".
	Channels []string `json:"channels,omitempty"`
	// Plugins has the plugins of INSTALL PLUGIN, Components the components of INSTALL
	// COMPONENT.
	Plugins    []string `json:"plugins,omitempty"`
	Components []string `json:"components,omitempty"`
	// Grants are privileges that could bypass the ACK.
	Grants []Grant `json:"grants,omitempty"`
	// Reserved has accounts with names that quorate gives to its own accounts.
	Reserved []string `json:"reserved,omitempty"`
	// LockedRoot is root@localhost where that account is locked: a first start does that before anything else.
	LockedRoot []string `json:"locked_root,omitempty"`
	// FarHosts has the accounts that no client of the router can use, because of their host.
	FarHosts []string `json:"far_hosts,omitempty"`
	// Events has the enabled events. NoDefiner has the views, routines, triggers and events
	// whose definer is not an account.
	Events    []string `json:"events,omitempty"`
	NoDefiner []string `json:"no_definer,omitempty"`
	// RouterMetadata says that it has the schema in which MySQL Router finds an InnoDB Cluster.
	RouterMetadata bool `json:"router_metadata"`
}

// ownSchemas are the schemas of the server itself.
const ownSchemas = "('mysql', 'sys', 'information_schema', 'performance_schema')"

// queries returns the queries that fill a list, with one text a row.
func (s *Survey) queries() []struct {
	into  *[]string
	query string
} {
	return []struct {
		into  *[]string
		query string
	}{
		{&s.NotInnoDB, `SELECT CONCAT(table_schema, '.', table_name, ' (', engine, ')') FROM information_schema.tables
			WHERE table_type = 'BASE TABLE' AND engine <> 'InnoDB' AND table_schema NOT IN ` + ownSchemas + ` ORDER BY 1`},
		{&s.Encrypted, `SELECT name FROM information_schema.innodb_tablespaces WHERE encryption = 'Y' ORDER BY 1`},
		{&s.Outside, `SELECT path FROM information_schema.innodb_datafiles WHERE path LIKE '/%' OR path LIKE '../%' ORDER BY 1`},
		{&s.NoKey, `SELECT CONCAT(t.table_schema, '.', t.table_name) FROM information_schema.tables t LEFT JOIN (
				SELECT table_schema, table_name FROM information_schema.statistics WHERE non_unique = 0 AND table_schema NOT IN ` + ownSchemas + `
				GROUP BY table_schema, table_name, index_name HAVING SUM(nullable = 'YES' OR expression IS NOT NULL OR sub_part IS NOT NULL) = 0) k
				ON k.table_schema = t.table_schema AND k.table_name = t.table_name
			WHERE t.table_type = 'BASE TABLE' AND t.engine = 'InnoDB' AND k.table_name IS NULL AND t.table_schema NOT IN ` + ownSchemas + ` ORDER BY 1`},
		{&s.Channels, `SELECT CONCAT(IF(channel_name = '', 'the default channel', channel_name), ' from ', COALESCE(host, ''))
			FROM mysql.slave_master_info WHERE COALESCE(host, '') <> '' OR channel_name LIKE 'group_replication%' ORDER BY 1`},
		{&s.Plugins, `SELECT name FROM mysql.plugin ORDER BY 1`},
		{&s.Components, `SELECT component_urn FROM mysql.component ORDER BY 1`},
		{&s.Reserved, `SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user WHERE host = 'localhost' AND user IN
			('` + strings.Join([]string{AdminUser, TapUser, CloneUser, RouterUser, FollowUser, DBAUser}, "', '") + `')
			OR host = '%' AND user = '` + DBARole + `' ORDER BY 1`},
		{&s.LockedRoot, `SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user WHERE user = 'root' AND host = 'localhost' AND account_locked = 'Y'`},
		// 'localhost' is the socket, as names are not looked up.
		{&s.FarHosts, `SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user
			WHERE account_locked = 'N' AND host <> 'localhost' AND '127.0.0.1' NOT LIKE host AND host NOT LIKE '127.0.0.0/%' ORDER BY 1`},
		{&s.Events, `SELECT CONCAT(event_schema, '.', event_name) FROM information_schema.events WHERE status = 'ENABLED' ORDER BY 1`},
		{&s.NoDefiner, `SELECT CONCAT(what, ' by ', definer) FROM (
				SELECT CONCAT(table_schema, '.', table_name) AS what, definer FROM information_schema.views WHERE table_schema NOT IN ` + ownSchemas + `
				UNION ALL SELECT CONCAT(routine_schema, '.', routine_name), definer FROM information_schema.routines WHERE routine_schema NOT IN ` + ownSchemas + `
				UNION ALL SELECT CONCAT(trigger_schema, '.', trigger_name), definer FROM information_schema.triggers WHERE trigger_schema NOT IN ` + ownSchemas + `
				UNION ALL SELECT CONCAT(event_schema, '.', event_name), definer FROM information_schema.events) AS d
			WHERE NOT EXISTS (SELECT * FROM mysql.user u WHERE CONVERT(CONCAT(u.user, '@', u.host) USING utf8mb4) COLLATE utf8mb4_bin
				= CONVERT(d.definer USING utf8mb4) COLLATE utf8mb4_bin) ORDER BY 1`},
	}
}

// readSurvey reads the facts of type Survey.
func readSurvey(ctx context.Context, db *sql.DB) (s Survey, err error) {
	fail := func(err error) (Survey, error) { return Survey{}, fmt.Errorf("look at the data: %w", err) }
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&s.Executed); err != nil {
		return fail(err)
	}
	s.Executed = oneLine(s.Executed)
	for _, q := range s.queries() {
		if *q.into, err = rows.Column[string](ctx, db, q.query+fmt.Sprintf(" LIMIT %d", listMax)); err != nil {
			return fail(err)
		}
	}
	if s.Zoned, err = (&Admin{db: db}).ZoneDependent(ctx); err != nil {
		return fail(err)
	}
	s.Zoned = s.Zoned[:min(len(s.Zoned), listMax)]
	metadata, err := rows.Column[string](ctx, db, "SELECT schema_name FROM information_schema.schemata WHERE schema_name = 'mysql_innodb_cluster_metadata'")
	if err != nil {
		return fail(err)
	}
	s.RouterMetadata = len(metadata) > 0
	if s.PreparedXA, err = (&Admin{db: db}).PendingXA(ctx); err != nil {
		return fail(err)
	}
	grants, err := (&Admin{db: db}).ScanGrants(ctx)
	if err != nil {
		return fail(err)
	}
	for _, g := range grants {
		// root keeps its privileges: the first start locks it.
		if g.Account != "'root'@'localhost'" && len(s.Grants) < listMax {
			s.Grants = append(s.Grants, g)
		}
	}
	return s, nil
}
