package mysqld

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// accountsMax is how many names or grants ReservedNames, WithheldGrants and LogsInWith return at most.
const accountsMax = 5

// NativePassword is the plugin for logins that MySQL 8.4 has only if an option turns it on, and 9.0 has no more.
const NativePassword = "mysql_native_password"

// withheldDynamic are dynamic privileges that can do harm, though not to acknowledged transactions: docs/dba.md says
// what harm.
const withheldDynamic = "'BACKUP_ADMIN', 'BINLOG_ENCRYPTION_ADMIN', 'INNODB_REDO_LOG_ARCHIVE', 'OPTIMIZE_LOCAL_TABLE'"

// ReservedNames returns some of the accounts and definers whose names begin with quorate_ but
// are not quorate's own. They do no harm now, because our accounts are at localhost. But a
// later version of quorate may make an account with such a name, and then the definer would be
// that account.
func (a *Admin) ReservedNames(ctx context.Context) (names []string, err error) {
	names, err = rows.Column[string](ctx, a.db, `
		SELECT CONCAT('account ', QUOTE(user), '@', QUOTE(host)) AS name FROM mysql.user WHERE user LIKE 'quorate\_%'
			AND NOT (host = 'localhost' AND user IN (`+reservedUsers+`)) AND NOT (host = '%' AND user = '`+DBARole+`')
		UNION ALL SELECT CONCAT('definer ', definer, ' of view ', table_schema, '.', table_name)
			FROM information_schema.views WHERE definer LIKE 'quorate\_%' AND NOT (table_schema = '`+RouterSchema+`' AND definer = '`+RouterUser+`@localhost')
		UNION ALL SELECT CONCAT('definer ', definer, ' of routine ', routine_schema, '.', routine_name)
			FROM information_schema.routines WHERE definer LIKE 'quorate\_%'
		UNION ALL SELECT CONCAT('definer ', definer, ' of trigger ', trigger_schema, '.', trigger_name)
			FROM information_schema.triggers WHERE definer LIKE 'quorate\_%'
		UNION ALL SELECT CONCAT('definer ', definer, ' of event ', event_schema, '.', event_name)
			FROM information_schema.events WHERE definer LIKE 'quorate\_%'
		ORDER BY name LIMIT ?`, accountsMax)
	if err != nil {
		return nil, fmt.Errorf("look for reserved names: %w", err)
	}
	return names, nil
}

// LogsInWith returns some of the accounts that can log in with a plugin. They are none if the server does not have it.
func (a *Admin) LogsInWith(ctx context.Context, plugin string) ([]string, error) {
	names, err := rows.Column[string](ctx, a.db, `
		SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user WHERE plugin = ? AND account_locked = 'N'
			AND EXISTS (SELECT * FROM information_schema.plugins WHERE plugin_name = ? AND plugin_status = 'ACTIVE')
		ORDER BY user, host LIMIT ?`, plugin, plugin, accountsMax)
	if err != nil {
		return nil, fmt.Errorf("look for accounts of %s: %w", plugin, err)
	}
	return append([]string{}, names...), nil
}

// WithheldGrants returns some of the privileges that quorate gives to nobody and that an account other than ours
// holds, from the time before quorate. Unlike the privileges of ScanGrants, they are no reason to fence.
func (a *Admin) WithheldGrants(ctx context.Context) ([]Grant, error) {
	return a.grants(ctx, `
		SELECT user, host, priv AS p FROM mysql.global_grants WHERE priv IN (`+withheldDynamic+`)
			UNION SELECT user, host, 'FILE' FROM mysql.user WHERE file_priv = 'Y'
			UNION SELECT user, host, 'CREATE TABLESPACE' FROM mysql.user WHERE create_tablespace_priv = 'Y'
			UNION SELECT user, host, 'PROXY' FROM mysql.proxies_priv
			UNION SELECT user, host, 'write performance_schema' FROM mysql.user WHERE `+writesTables("performance_schema", instrumentWrites)+`
			UNION SELECT user, host, 'write performance_schema' FROM mysql.db WHERE db = 'performance_schema' AND `+anyOf("%s_priv = 'Y'", instrumentWrites)+`
			UNION SELECT user, host, 'write performance_schema' FROM mysql.tables_priv WHERE db = 'performance_schema' AND table_priv REGEXP 'Insert|Update|Delete|Drop'`, fmt.Sprint("LIMIT ", accountsMax))
}
