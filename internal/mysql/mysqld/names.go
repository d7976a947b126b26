package mysqld

import (
	"context"
	"fmt"
)

// reservedNamesMax is how many names ReservedNames returns.
const reservedNamesMax = 5

// ReservedNames returns some of the accounts and definers that have a name as quorate's
// own and are none of quorate's. They do no harm: our accounts are at localhost. But a
// later quorate may make an account with such a name, and then a definer is that.
func (a *Admin) ReservedNames(ctx context.Context) (names []string, err error) {
	rows, err := a.db.QueryContext(ctx, `
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
		ORDER BY name LIMIT ?`, reservedNamesMax)
	if err == nil {
		names, err = collect[string](rows)
	}
	if err != nil {
		return nil, fmt.Errorf("look for reserved names: %w", err)
	}
	return names, nil
}
