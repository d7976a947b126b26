package mysqld

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// Drift is a guarded variable or other fact that does not have the value that it must have.
type Drift struct {
	Name, Want, Got string
}

// String prints the drift for people.
func (d Drift) String() string { return fmt.Sprintf("%s is %q, must be %q", d.Name, d.Got, d.Want) }

// CheckGuarded compares everything that quorate's promise rests on with the running server: the
// guarded variables, the semi-sync plugin and whether it waits, the redo log, and that the
// binlog belongs to this incarnation. It returns the differences, sorted by name; empty means
// that all is well. For a process with ReplicaBinlog, it checks semi-sync from EnableSemiSync
// on.
func (p *Process) CheckGuarded(ctx context.Context) ([]Drift, error) {
	semiSync := p.semiSync.Load() // read before the facts: once it is set, the server has it, too
	cfg := p.server.cfg
	settings := cfg.guardedSettings(p.options)
	want := map[string]string{
		"log_bin":                            "ON",
		"log_bin_basename":                   p.server.paths.binlogBase(p.incarnation),
		"server_id":                          fmt.Sprint(cfg.ServerID),
		"plugin status rpl_semi_sync_source": "ACTIVE",
		"plugin load_option rpl_semi_sync_source": "FORCE_PLUS_PERMANENT",
		"status Innodb_redo_log_enabled":          "ON",
	}
	if semiSync {
		want["rpl_semi_sync_source_enabled"], want["status Rpl_semi_sync_source_status"] = "ON", "ON"
	}
	if semiSync && p.guarded.Load() {
		if same, err := p.admin.guardedAsWanted(ctx, want, settings); same && err == nil {
			return nil, nil
		}
	}
	names := slices.Collect(maps.Keys(want))
	for _, s := range settings {
		names = append(names, s.name)
	}
	got, err := p.admin.facts(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, s := range settings {
		switch {
		case s.allows(got[s.name]):
		case s.among != nil:
			want[s.name] = s.among[0]
		case s.want != "":
			want[s.name] = s.want
		}
	}
	var drift []Drift
	for name, w := range want {
		if g, ok := got[name]; !strings.EqualFold(g, w) {
			if !ok {
				g = "(none)"
			}
			drift = append(drift, Drift{Name: name, Want: w, Got: g})
		}
	}
	slices.SortFunc(drift, func(a, b Drift) int { return cmp.Compare(a.Name, b.Name) })
	p.guarded.Store(len(drift) == 0)
	return drift, nil
}

// guardedAsWanted tells whether everything still has its value. It costs the server a quarter
// of what facts costs, because it reads variables by name, where the tables list all variables.
// It does not check the plugin, which is permanent. Where it returns false, all may still be
// well.
func (a *Admin) guardedAsWanted(ctx context.Context, want map[string]string, settings []setting) (bool, error) {
	allowed := make(map[string][]string)
	for name, value := range want {
		if !strings.Contains(name, " ") {
			allowed[name] = []string{value}
		}
	}
	for _, s := range settings {
		switch {
		case s.among != nil:
			allowed[s.name] = s.among
		case s.want != "":
			allowed[s.name] = []string{s.want}
		}
	}
	names := slices.Sorted(maps.Keys(allowed)) // sorted, so that the Performance Schema sees one statement text
	values := make([]sql.NullString, len(names))
	statusesOn := 0
	dest := []any{&statusesOn}
	for i := range values {
		dest = append(dest, &values[i])
	}
	err := a.query1(ctx, "guarded variables", `SELECT (SELECT COUNT(*) FROM performance_schema.global_status
		WHERE variable_name IN ('Rpl_semi_sync_source_status', 'Innodb_redo_log_enabled') AND variable_value = 'ON'),
		@@GLOBAL.`+strings.Join(names, ", @@GLOBAL."), nil, dest...)
	if err != nil || statusesOn != 2 {
		return false, err
	}
	for i, name := range names {
		if !slices.ContainsFunc(allowed[name], func(v string) bool { return isValue(values[i], v) }) {
			return false, nil
		}
	}
	return true, nil
}

// isValue tells whether a variable that was selected by its name has a value; value is written
// as the tables show it.
func isValue(got sql.NullString, value string) bool {
	switch {
	case !got.Valid:
		return value == "NULL"
	case value == "ON" && got.String == "1", value == "OFF" && got.String == "0":
		return true
	}
	return strings.EqualFold(got.String, value)
}

// facts reads the global variables of names. It also reads the plugin and status values that
// CheckGuarded compares; their names have a prefix.
func (a *Admin) facts(ctx context.Context, names []string) (map[string]string, error) {
	facts, err := rows.Map[string](ctx, a.db, `
		SELECT variable_name, COALESCE(variable_value, '') FROM performance_schema.global_variables
			WHERE variable_name IN ('`+strings.Join(names, "', '")+`')
		UNION ALL SELECT CONCAT('status ', variable_name), variable_value FROM performance_schema.global_status
			WHERE variable_name IN ('Rpl_semi_sync_source_status', 'Innodb_redo_log_enabled')
		UNION ALL SELECT CONCAT('plugin status ', plugin_name), plugin_status FROM information_schema.plugins
			WHERE plugin_name = 'rpl_semi_sync_source'
		UNION ALL SELECT CONCAT('plugin load_option ', plugin_name), load_option FROM information_schema.plugins
			WHERE plugin_name = 'rpl_semi_sync_source'`)
	if err != nil {
		return nil, fmt.Errorf("read variables: %w", err)
	}
	return facts, nil
}

// SemiSync is the state of the semi-sync source plugin.
type SemiSync struct {
	// On says that commits wait for an ACK.
	On bool
	// Clients is the number of connected semi-sync replicas. On a primary it must be 1: the
	// tap.
	Clients int
	// WaitSessions is the number of sessions that wait for an ACK.
	WaitSessions int
}

// semiSyncColumns of semiSyncRows are the fields of SemiSync.
const (
	semiSyncColumns = `MAX(IF(variable_name = 'Rpl_semi_sync_source_status', variable_value, NULL)),
		MAX(IF(variable_name = 'Rpl_semi_sync_source_clients', variable_value, NULL)),
		MAX(IF(variable_name = 'Rpl_semi_sync_source_wait_sessions', variable_value, NULL))`
	semiSyncRows = `performance_schema.global_status WHERE variable_name IN
		('Rpl_semi_sync_source_status', 'Rpl_semi_sync_source_clients', 'Rpl_semi_sync_source_wait_sessions')`
)

// SemiSyncStatus reads the state of the semi-sync source plugin. A server
// without the plugin is an error.
func (a *Admin) SemiSyncStatus(ctx context.Context) (SemiSync, error) {
	var s SemiSync
	var status string
	err := a.query1(ctx, "semi-sync status", "SELECT "+semiSyncColumns+" FROM "+semiSyncRows, nil, &status, &s.Clients, &s.WaitSessions)
	s.On = status == "ON"
	return s, err
}

// Grant is a privilege of an account that could bypass the ACK.
type Grant struct {
	// Account is 'user'@'host'.
	Account string
	// Privilege is the privilege's name, or "role …" for a reserved account
	// granted as a role, or "unlocked" for root.
	Privilege string
}

// reservedUsers are our accounts and the server's own, at localhost.
const reservedUsers = "'" + AdminUser + "', '" + TapUser + "', '" + CloneUser + "', '" + RouterUser + "', '" + FollowUser + "', 'root', 'mysql.session', 'mysql.sys', 'mysql.infoschema'"

// reservedAccount is true for an account of mysql.user u whose privileges need no check: our
// accounts always, the server's own while they are locked.
const reservedAccount = `(u.host = 'localhost' AND u.user IN (` + reservedUsers + `)
	AND (u.account_locked = 'Y' OR u.user IN ('` + AdminUser + `', '` + TapUser + `', '` + CloneUser + `', '` + RouterUser + `', '` + FollowUser + `')))`

// instrumentWrites are the privileges by which the setup of performance_schema can be changed.
const instrumentWrites = "INSERT UPDATE DELETE DROP"

// anyOf returns the SQL condition that condition holds for one of the privileges.
func anyOf(condition, privileges string) string {
	var any []string
	for privilege := range strings.FieldsSeq(privileges) {
		any = append(any, fmt.Sprintf(condition, privilege))
	}
	return "(" + strings.Join(any, " OR ") + ")"
}

// writesTables returns the SQL condition that an account of mysql.user holds one of the privileges everywhere, and
// that no partial revoke takes it away in schema.
func writesTables(schema, privileges string) string {
	return anyOf(`%[1]s_priv = 'Y' AND NOT COALESCE(JSON_CONTAINS(user_attributes->'$.Restrictions', '{"Database": "`+schema+`", "Privileges": ["%[1]s"]}'), 0)`, privileges)
}

// ScanGrants returns the privileges by which an account other than ours could bypass the ACK.
// Locked accounts count, because they can be granted as roles. It also returns reserved
// accounts that are granted as roles, and the right to write the grant tables, which gives
// every privilege.
func (a *Admin) ScanGrants(ctx context.Context) ([]Grant, error) {
	var static strings.Builder
	for _, p := range slices.Sorted(maps.Keys(bypassStatic())) {
		fmt.Fprintf(&static, "SELECT user, host, '%s' AS p FROM mysql.user WHERE %s = 'Y' UNION ALL ", p, bypassStatic()[p])
	}
	return a.grants(ctx, static.String()+`
			SELECT user, host, 'write mysql.*' FROM mysql.user WHERE `+writesTables("mysql", grantWrites)+`
			UNION ALL SELECT user, host, 'write mysql.*' FROM mysql.db WHERE db = 'mysql' AND `+anyOf("%s_priv = 'Y'", grantWrites)+`
			UNION ALL SELECT user, host, 'write mysql.*' FROM mysql.tables_priv WHERE db = 'mysql' AND table_priv REGEXP 'Insert|Update|Delete|Drop|Alter|Create'
			UNION ALL SELECT user, host, 'write mysql.*' FROM mysql.columns_priv WHERE db = 'mysql' AND column_priv REGEXP 'Insert|Update'
			UNION ALL SELECT user, host, priv FROM mysql.global_grants WHERE priv IN (`+bypassDynamic+`)
			UNION ALL SELECT to_user, to_host, CONCAT('role ', from_user) FROM mysql.role_edges WHERE from_host = 'localhost'
				AND from_user IN (`+reservedUsers+`)
			UNION ALL SELECT user, host, 'unlocked' FROM mysql.user WHERE user = 'root' AND host = 'localhost' AND account_locked = 'N'`, "")
}

// grants returns the grants that the query found yields, without our own accounts; limit is a
// LIMIT clause.
func (a *Admin) grants(ctx context.Context, found, limit string) ([]Grant, error) {
	all, err := rows.All(ctx, a.db, func(g *Grant) []any { return []any{&g.Account, &g.Privilege} }, `SELECT `+executionLimit(ctx)+`CONCAT(QUOTE(g.user), '@', QUOTE(g.host)), g.p FROM (`+found+`
		) AS g LEFT JOIN mysql.user u ON u.user = g.user AND u.host = g.host
		WHERE NOT COALESCE(`+reservedAccount+`, 0) ORDER BY 1, 2 `+limit)
	if err != nil {
		return nil, fmt.Errorf("scan grants: %w", err)
	}
	return all, nil
}

// executionLimit is a hint for a SELECT: mysqld ends it at ctx's deadline. A connection that is closed does not end it.
func executionLimit(ctx context.Context) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ""
	}
	return fmt.Sprintf("/*+ MAX_EXECUTION_TIME(%d) */ ", max(1, time.Until(deadline).Milliseconds()))
}

// PrimaryStatus is what the poll of a primary reads.
type PrimaryStatus struct {
	// Executed is gtid_executed.
	Executed string
	SemiSync
	// Dumps is the user of every binlog dump session, with its host if it is not the
	// agent's. On a healthy node there is at most one, TapUser.
	Dumps []string
}

// PrimaryStatus reads it in one statement: a poll costs mostly the round trip.
func (a *Admin) PrimaryStatus(ctx context.Context) (PrimaryStatus, error) {
	var s PrimaryStatus
	var status, dumps string
	err := a.query1(ctx, "status of a primary", `
		SELECT @@GLOBAL.gtid_executed, `+semiSyncColumns+`,
			COALESCE((SELECT JSON_ARRAYAGG(COALESCE(IF(`+agentSession+`, processlist_user, CONCAT(processlist_user, '@', processlist_host)), '')) FROM performance_schema.threads
				WHERE processlist_command LIKE 'Binlog Dump%'), '[]')
		FROM `+semiSyncRows, nil, &s.Executed, &status, &s.Clients, &s.WaitSessions, &dumps)
	if err == nil {
		err = json.Unmarshal([]byte(dumps), &s.Dumps)
	}
	s.Executed, s.On = oneLine(s.Executed), status == "ON"
	return s, err
}
