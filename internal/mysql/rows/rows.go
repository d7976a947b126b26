package rows

import (
	"context"
	"database/sql"
)

// Querier runs statements: a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// All reads all rows; into returns the destinations for the columns of a row.
func All[T any](ctx context.Context, from Querier, into func(*T) []any, query string, args ...any) ([]T, error) {
	rows, err := from.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err says what there is to say
	var all []T
	for rows.Next() {
		var v T
		if err := rows.Scan(into(&v)...); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// Column reads a result that has one column.
func Column[T any](ctx context.Context, from Querier, query string, args ...any) ([]T, error) {
	return All(ctx, from, func(v *T) []any { return []any{v} }, query, args...)
}

// Map reads a result that has two columns: a name, and its value.
func Map[V any](ctx context.Context, from Querier, query string, args ...any) (map[string]V, error) {
	type pair struct {
		name  string
		value V
	}
	pairs, err := All(ctx, from, func(p *pair) []any { return []any{&p.name, &p.value} }, query, args...)
	if err != nil {
		return nil, err
	}
	all := make(map[string]V, len(pairs))
	for _, p := range pairs {
		all[p.name] = p.value
	}
	return all, nil
}

// Count returns the number of rows.
func Count(ctx context.Context, from Querier, query string, args ...any) (n int, err error) {
	rows, err := from.QueryContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }() // Err says what there is to say
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}
