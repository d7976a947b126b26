package routermeta

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/mysql/rows"
)

const (
	// routersMax bounds how many Routers are looked at, attributesBytesMax what one says of itself: 9.7.4 says 20 KB.
	routersMax         = 64
	attributesBytesMax = 64 << 10
)

// Impatient names the Routers, as name@address, at whose port that splits reads from writes a session may miss its own
// writes: it waits for less than least until a replica has them, or is given connections that Router has kept of another
// port. A Router says so itself at each of its starts; 9.7.4 does. One that says nothing does not count, nor does one that
// has not been there for a day.
func (s *Schema) Impatient(ctx context.Context, least time.Duration) (names []string, err error) {
	type router struct {
		name            string
		endpoints, pool []byte
	}
	all, err := rows.All(ctx, s.db, func(r *router) []any { return []any{&r.name, &r.endpoints, &r.pool} }, `SELECT CONCAT(router_name, '@', COALESCE(address, '')), COALESCE(attributes->'$.Configuration.endpoints', '{}'),
		COALESCE(attributes->'$.Configuration.connection_pool', '{}')
		FROM `+Name+`.routers WHERE last_check_in > NOW() - INTERVAL 1 DAY
		AND JSON_STORAGE_SIZE(attributes) <= ? ORDER BY router_id LIMIT ?`, attributesBytesMax, routersMax)
	if err != nil {
		return nil, fmt.Errorf("look at the Routers: %w", err)
	}
	for _, r := range all {
		if impatient(r.endpoints, r.pool, least) {
			names = append(names, r.name)
		}
	}
	return names, nil
}

// impatient judges what a Router says of its ports, and of the connections that it keeps. What cannot be read says nothing.
func impatient(endpoints, pool []byte, least time.Duration) bool {
	var all map[string]struct {
		Protocol   string  `json:"protocol"`
		AccessMode string  `json:"access_mode"`
		ClientTLS  string  `json:"client_ssl_mode"`
		Wait       bool    `json:"wait_for_my_writes"`
		Timeout    float64 `json:"wait_for_my_writes_timeout"`
	}
	var kept struct {
		Max int `json:"max_idle_server_connections"`
	}
	if json.Unmarshal(endpoints, &all) != nil {
		return false
	}
	keeps := json.Unmarshal(pool, &kept) == nil && kept.Max > 0
	waits, others := false, false
	for _, e := range all {
		switch {
		case e.Protocol == "x": // its connections are kept for itself
		case e.AccessMode != "auto":
			others = others || e.ClientTLS != "PASSTHROUGH" // whose connections cannot be kept
		case e.Wait && e.Timeout < least.Seconds():
			return true
		default:
			waits = waits || e.Wait
		}
	}
	return waits && others && keeps
}
