package mysqld

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNamedZone: mysqld starts with any offset. With a name it starts only if its tables have that name, which
// --validate-config does not tell.
func TestNamedZone(t *testing.T) {
	for zone, named := range map[string]bool{
		"+02:00": false, "-05:30": false, "+2:00": false, "+14:00": false, "-13:59": false, "system": false, "SYSTEM": false,
		"Europe/Berlin": true, "UTC": true, "+14:01": true, "+02": true, "02:00": true, "+02:60": true, "": true,
	} {
		want := ""
		if named {
			want = zone
		}
		variables := map[string]string{"default-time-zone": zone, "max_connections": "5"}
		if got := NamedZone(variables); got != want {
			t.Errorf("%q: %q", zone, got)
		}
		if in, err := findMySQL(); err == nil && zone != "" {
			if refused, err := ValidateVariables(t.Context(), in, variables); len(refused) > 0 || err != nil {
				t.Errorf("%q: mysqld judges it itself: %v, %v", zone, refused, err)
			}
		}
	}
	if got := NamedZone(map[string]string{"max_connections": "5"}); got != "" {
		t.Errorf("none is set: %q", got)
	}
}

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
