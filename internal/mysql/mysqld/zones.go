package mysqld

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// derivedMax is how many expressions ZoneDependent looks at.
const derivedMax = 10_000

// derived is what a table computes of its columns: a generated column, an indexed expression or a CHECK.
type derived struct {
	table, column, expression string
	// zoned says that the result is a TIMESTAMP. kept says that the result matters when a row is written: it is STORED,
	// in an index, or a CHECK.
	zoned, kept bool
	// timestamps has the names of the table's TIMESTAMP columns and of those that come from FROM_UNIXTIME, as JSON.
	timestamps []byte
}

// ZoneDependent returns, sorted, the tables where what is stored with a row, or whether the row is taken, depends on the
// time zone of the session: an applier often has another one than the client's session had. If it did not look at all
// expressions, the first line says so. mysqld gives up at ctx's deadline: 1500 tables of 18 columns took 0.8 s (9.7.4, one
// of two busy processors).
func (a *Admin) ZoneDependent(ctx context.Context) ([]string, error) {
	// The names of CHECKs are joined here as two lists: information_schema would look for each of them among all.
	all, err := rows.All(ctx, a.db, func(d *derived) []any {
		return []any{&d.table, &d.column, &d.expression, &d.zoned, &d.kept, &d.timestamps}
	}, `SELECT `+executionLimit(ctx)+`CONCAT(x.s, '.', x.t), x.c, x.e, x.zoned, x.kept, COALESCE(z.names, '[]') FROM (
			SELECT table_schema AS s, table_name AS t, ordinal_position AS n, column_name AS c, generation_expression AS e, data_type = 'timestamp' AS zoned,
				extra LIKE '%STORED%' OR EXISTS (SELECT * FROM information_schema.statistics k
					WHERE k.table_schema = c.table_schema AND k.table_name = c.table_name AND k.column_name = c.column_name) AS kept
				FROM information_schema.columns c WHERE generation_expression <> '' AND table_schema NOT IN `+ownSchemas+`
			UNION ALL SELECT table_schema, table_name, 9999, '', expression, FALSE, TRUE
				FROM information_schema.statistics WHERE expression IS NOT NULL AND table_schema NOT IN `+ownSchemas+`
			UNION ALL SELECT s, t, 9999, '', e, FALSE, TRUE
				FROM (SELECT constraint_schema AS s, constraint_name AS n, check_clause AS e FROM information_schema.check_constraints LIMIT 1000000) k
				JOIN (SELECT constraint_schema AS s, constraint_name AS n, table_name AS t FROM information_schema.table_constraints
					WHERE constraint_type = 'CHECK' LIMIT 1000000) y USING (s, n)
		) x LEFT JOIN (SELECT table_schema AS s, table_name AS t, JSON_ARRAYAGG(column_name) AS names FROM information_schema.columns
			WHERE (data_type = 'timestamp' OR generation_expression LIKE '%from_unixtime(%') AND table_schema NOT IN `+ownSchemas+` GROUP BY 1, 2) z USING (s, t)
		WHERE z.names IS NOT NULL OR x.e LIKE '%from_unixtime(%' ORDER BY x.s, x.t, x.n LIMIT ?`, derivedMax)
	var tables []string
	if err == nil {
		tables, err = zoneDependent(all)
	}
	if err != nil {
		return nil, fmt.Errorf("look for what depends on the time zone: %w", err)
	}
	return tables, nil
}

// zoneDependent returns the tables with something that is kept and depends on the time zone. A generated column can name
// only generated columns before it, and all comes in the order of the columns.
func zoneDependent(all []derived) ([]string, error) {
	tables := []string{}
	if len(all) == derivedMax {
		tables = append(tables, fmt.Sprintf("(only the first %d expressions were looked at)", derivedMax))
	}
	var timestamps, zoned []string // of this table: derived.timestamps, and the generated columns that depend on the zone
	for i, d := range all {
		if i == 0 || all[i-1].table != d.table {
			timestamps, zoned = nil, nil
			if err := json.Unmarshal(d.timestamps, &timestamps); err != nil {
				return nil, err
			}
		}
		depends := d.zoned || strings.Contains(d.expression, "from_unixtime(") ||
			// A TIMESTAMP AT TIME ZONE is the same in every session, if its own value is.
			slices.ContainsFunc(timestamps, func(c string) bool { return names(d.expression, c, " is null", " is not null", " at time zone ") }) ||
			slices.ContainsFunc(zoned, func(c string) bool { return names(d.expression, c, " is null", " is not null") })
		if depends && d.column != "" {
			zoned = append(zoned, d.column)
		}
		if depends && d.kept {
			tables = append(tables, d.table)
		}
	}
	return slices.Compact(tables), nil
}

// names tells whether an expression, as mysqld prints it, names a column other than with one of harmless behind it. mysqld
// prints a column's name in the letter case of the statement that made the expression.
func names(expression, column string, harmless ...string) bool {
	expression = strings.ToLower(expression)
	quoted := strings.ToLower("`" + strings.ReplaceAll(column, "`", "``") + "`")
	for _, behind := range harmless {
		expression = strings.ReplaceAll(expression, quoted+behind, "")
	}
	return strings.Contains(expression, quoted)
}
