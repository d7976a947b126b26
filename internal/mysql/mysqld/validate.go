package mysqld

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/mysql/install"
)

// validateTimeout bounds ValidateVariables. A run of mysqld takes 0.2 s. There is one run for
// each variable that mysqld refuses, and one more.
const validateTimeout = time.Minute

// ValidateVariables lets mysqld judge the operator's own settings, by its option
// --validate-config. It returns, by name, why mysqld refuses a setting: it would not start with
// it. It starts no server and touches no data. It does not judge variables of components (with
// a dot in their names), because the data directory decides which components there are.
func ValidateVariables(ctx context.Context, in *install.Installation, variables map[string]string) (refused map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, validateTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "quorate-check-")
	if err != nil {
		return nil, fmt.Errorf("validate mysqld's variables: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	left := maps.Clone(variables)
	maps.DeleteFunc(left, func(name, _ string) bool { return strings.Contains(name, ".") })
	refused = map[string]string{}
	for len(left) > 0 {
		said, err := runValidation(ctx, in, dir, left)
		if err != nil {
			return nil, fmt.Errorf("validate mysqld's variables: %w", err)
		}
		if len(said) == 0 {
			break
		}
		before := len(left)
		for _, line := range said {
			if name := namedIn(line, left); name != "" {
				refused[name] = line
				delete(left, name)
			}
		}
		if len(left) == before {
			return nil, fmt.Errorf("validate mysqld's variables: %s", strings.Join(said, "; "))
		}
	}
	return refused, nil
}

// NamedZone returns the default_time_zone among the settings that is no offset from UTC, and not SYSTEM; "" = there is none.
// mysqld looks such a name up in its tables of time zones, and does not start if they lack it. --validate-config reads no tables.
func NamedZone(variables map[string]string) string {
	offset := regexp.MustCompile(`^[+-](0?\d|1[0-3]):[0-5]\d$|^[+]14:00$`)
	for name, zone := range variables {
		if normalizeOption(name) == "default_time_zone" && !strings.EqualFold(zone, "SYSTEM") && !offset.MatchString(zone) {
			return zone
		}
	}
	return ""
}

// runValidation returns the errors that mysqld finds in the settings.
func runValidation(ctx context.Context, in *install.Installation, dir string, variables map[string]string) ([]string, error) {
	var text strings.Builder
	text.WriteString("[mysqld]\n")
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		writeOption(&text, name, variables[name])
	}
	if os.Geteuid() == 0 {
		writeOption(&text, "user", "root")
	}
	writeOption(&text, "datadir", dir)
	writeOption(&text, "secure_file_priv", "NULL")
	text.WriteString(Config{Installation: in}.installationOptions())
	// The operator may also set variables of these plugins.
	writeOption(&text, "plugin_load_add", "rpl_semi_sync_source=semisync_source.so")
	writeOption(&text, "plugin_load_add", "clone=mysql_clone.so")
	file := filepath.Join(dir, "my.cnf")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	argv := append(in.MysqldArgv(), "--defaults-file="+file, "--validate-config")
	var out []byte
	err := install.WithoutNetCapabilities(func() (err error) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = childEnv(os.Environ())
		out, err = cmd.CombinedOutput()
		return err
	})
	if err == nil {
		return nil, nil
	}
	var said []string
	line := regexp.MustCompile(`\[ERROR\] \[MY-\d+\] \[\w+\] (.*)`)
	for _, found := range line.FindAllStringSubmatch(string(out), -1) {
		said = append(said, strings.TrimSuffix(strings.TrimPrefix(found[1], in.Mysqld+": "), "."))
	}
	if len(said) == 0 || ctx.Err() != nil {
		return nil, fmt.Errorf("run %s --validate-config: %w: %s", in.Mysqld, err, strings.TrimSpace(string(out)))
	}
	return said, nil
}

// namedIn returns which of the variables a message of the server is about; "" = none of them.
// In some messages the server writes - for _.
func namedIn(line string, variables map[string]string) string {
	words := regexp.MustCompile(`[A-Za-z0-9_]+`).FindAllString(strings.ReplaceAll(line, "-", "_"), -1)
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		plain := strings.ReplaceAll(name, "-", "_")
		for _, word := range words {
			if strings.EqualFold(word, plain) || strings.EqualFold("loose_"+word, plain) {
				return name
			}
		}
	}
	// Some messages name only the value, such as that of character_set_server.
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if strings.Contains(line, "'"+variables[name]+"'") {
			return name
		}
	}
	return ""
}
