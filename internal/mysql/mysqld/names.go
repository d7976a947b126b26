package mysqld

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// accountsMax is how many ReservedNames and WithheldGrants return.
const accountsMax = 5

// withheldDynamic are the dynamic privileges that do harm, though not to what is acknowledged: docs/dba.md says which.
const withheldDynamic = "'BACKUP_ADMIN', 'BINLOG_ENCRYPTION_ADMIN', 'INNODB_REDO_LOG_ARCHIVE', 'OPTIMIZE_LOCAL_TABLE'"

// ReservedNames returns some of the accounts and definers that have a name as quorate's
// own and are none of quorate's. They do no harm: our accounts are at localhost. But a
// later quorate may make an account with such a name, and then a definer is that.
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

// WithheldGrants returns some of the privileges that an account other than ours holds, and that none gets here: it has them from
// before. They do not fence, as those of ScanGrants.
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
