package routermeta

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/mysql/rows"
)

const (
	// routersMax bounds how many Routers are read, attributesBytesMax the attributes of one: Router 9.7.4 writes 20
	// KB.
	routersMax         = 64
	attributesBytesMax = 64 << 10
)

// Impatient names the Routers, as name@address, where a session may miss its own writes at the port that splits reads
// from writes. That is so if the Router waits less than least for a replica to have the writes, or if a session may
// get connections that the Router has kept from another port. A Router writes these settings at each of its starts
// (9.7.4 does). A Router that wrote none, or has not checked in for a day, does not count.
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

// impatient looks at the settings of a Router's ports and of the connections that it keeps. Settings that cannot be
// read count as none.
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
		case e.Protocol == "x": // its connections are not shared with other ports
		case e.AccessMode != "auto":
			others = others || e.ClientTLS != "PASSTHROUGH" // Router cannot keep connections of PASSTHROUGH
		case e.Wait && e.Timeout < least.Seconds():
			return true
		default:
			waits = waits || e.Wait
		}
	}
	return waits && others && keeps
}
