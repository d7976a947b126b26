package routermeta

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

const (
	// routersMax bounds how many Routers are looked at, attributesBytesMax what one says of itself: 9.7.4 says 20 KB.
	routersMax         = 64
	attributesBytesMax = 64 << 10
)

// Impatient names the Routers, as name@address, whose port that splits reads from writes waits for less than least until a
// replica has a session's own writes. A Router says so itself at each of its starts; 9.7.4 does. One that says nothing does
// not count, nor does one that has not been there for a day.
func (s *Schema) Impatient(ctx context.Context, least time.Duration) (names []string, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT CONCAT(router_name, '@', COALESCE(address, '')), COALESCE(attributes->'$.Configuration.endpoints', '{}')
		FROM `+Name+`.routers WHERE last_check_in > NOW() - INTERVAL 1 DAY
		AND JSON_STORAGE_SIZE(attributes) <= ? ORDER BY router_id LIMIT ?`, attributesBytesMax, routersMax)
	if err != nil {
		return nil, fmt.Errorf("look at the Routers: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var endpoints []byte
		if err := rows.Scan(&name, &endpoints); err != nil {
			return nil, fmt.Errorf("read a Router: %w", err)
		}
		if impatient(endpoints, least) {
			names = append(names, name)
		}
	}
	return names, rows.Err()
}

// impatient judges what a Router says of its ports. What cannot be read says nothing.
func impatient(endpoints []byte, least time.Duration) bool {
	var all map[string]struct {
		AccessMode string  `json:"access_mode"`
		Wait       bool    `json:"wait_for_my_writes"`
		Timeout    float64 `json:"wait_for_my_writes_timeout"`
	}
	if json.Unmarshal(endpoints, &all) != nil {
		return false
	}
	for _, e := range all {
		if e.AccessMode == "auto" && e.Wait && e.Timeout < least.Seconds() {
			return true
		}
	}
	return false
}
