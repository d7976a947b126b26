package mysqld

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestValidateVariables: the server names all settings that it would not start with, and none
// that it takes.
func TestValidateVariables(t *testing.T) {
	in, err := findMySQL()
	if err != nil {
		t.Skipf("no MySQL: %v", err)
	}
	for name, c := range map[string]struct {
		variables map[string]string
		refused   []string
	}{
		"none": {nil, nil},
		"right": {map[string]string{"max_connections": "500", "innodb_buffer_pool_size": "1G", "sql-mode": "ANSI",
			"loose_nobody_knows": "1", "validate_password.policy": "LOW", "clone_buffer_size": "4M"}, nil},
		"wrong": {map[string]string{"innodb_bufer_pool_size": "1G", "max_connections": "abc", "innodb-flush-method": "foo", "max_user_connections": "7",
			"character_set_server": "utf9", "sql_mode": "NONSENSE"},
			[]string{"character_set_server", "innodb-flush-method", "innodb_bufer_pool_size", "max_connections", "sql_mode"}},
	} {
		refused, err := ValidateVariables(t.Context(), in, c.variables)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.refused, slices.Sorted(maps.Keys(refused))); d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, refused, d)
		}
		for name, why := range refused {
			if strings.Contains(why, "Aborting") || strings.Contains(why, "[Server]") {
				t.Errorf("%s: %q", name, why)
			}
		}
	}
}
