package cli

import (
	"strings"
	"testing"
)

// TestWrongData: a restore is refused where mysqld could not start the data, and nowhere else.
func TestWrongData(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ of, mysqld, want string }{
		{"9.7.4", "9.7.4", ""},
		{"9.7.4", "9.7.9", ""},
		{"9.7.9", "9.7.4", ""}, // of one series with long-term support
		{"8.4.7", "8.4.2", ""},
		{"8.4.7", "9.7.4", ""},
		{"", "9.7.4", ""}, // an older quorate's
		{"of somebody", "9.7.4", ""},
		{"8.0.43", "8.0.36", "8.0.36 is older than 8.0.43"},
		{"9.7.4", "8.4.9", "8.4.9 is older than 9.7.4"},
		{"8.0.43", "9.7.4", "install 8.4 first"},
	} {
		if got := wrongData(test.of, test.mysqld); (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%q into %q: %q, want %q", test.of, test.mysqld, got, test.want)
		}
	}
}
