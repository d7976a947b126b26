package agent

import "testing"

// TestNativePassword: only some values of one option turn mysql_native_password on.
func TestNativePassword(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"loose_mysql_native_password", "ON", true}, {"Loose-MySQL-native-password", "on", true}, {"mysql_native_password", "FORCE", true},
		{"loose_mysql_native_password", "OFF", false}, {"loose_mysql_native_password", "0", false}, {"max_connections", "1", false},
	} {
		if got := nativePassword(map[string]string{c.name: c.value}); got != c.want {
			t.Errorf("%s = %s: %t", c.name, c.value, got)
		}
	}
}
