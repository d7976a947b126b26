package peers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// providerVariable has galera's own options.
const providerVariable = "wsrep_provider_options"

// relaxReplicas makes the replicas' appliers like quorate's: they fsync nothing of what they apply,
// and if the system allows it they write no binary log of it.
func (g *servers) relaxReplicas(o Options) {
	if o.ReplicaDurability != relaxed || len(g.all) == 0 {
		return
	}
	for _, s := range g.all[1:] {
		s.vars["sync_binlog"], s.vars["innodb_flush_log_at_trx_commit"], s.vars["sync_relay_log"] = "0", "2", "0"
		if o.System == Async || o.System == SemiSync {
			s.vars["log_replica_updates"] = "OFF"
		}
	}
}

func relaxedRemark(o Options) []Setting {
	if o.ReplicaDurability != relaxed {
		return nil
	}
	return []Setting{remark("the option --replica-durability: b and c fsync nothing of what they apply, as quorate's replicas; asynchronous ones write no binary log of it")}
}

// alsoRead are the settings that a report shows as they were read, whether somebody set them or not.
func alsoRead() []string {
	return []string{
		"sync_binlog", "innodb_flush_log_at_trx_commit", "innodb_doublewrite", "innodb_flush_method", "log_replica_updates", "log_slave_updates",
		"sync_relay_log", "relay_log_recovery", "innodb_io_capacity", "group_replication_flow_control_mode", "rpl_semi_sync_source_timeout",
	}
}

// unread tells whether a setting cannot be read back: the server has no variable of that name, or one with another
// meaning, or the lab changes it in a running server.
func unread(name string) bool {
	return slices.Contains([]string{"plugin_load_add", instrumentOption, "mysqlx", "log_bin", "super_read_only", "group_replication_start_on_boot"}, name)
}

// readBack reads every server's settings. It returns an error if one has another value than it was given: the
// report would show wrong settings. Settings that differ between servers, and others that matter, are kept for Facts.
func (d *Deployment) readBack(ctx context.Context) error {
	read := map[string]map[string]string{}
	for _, s := range d.driver.living() {
		has, err := s.settings(ctx)
		if err != nil {
			return err
		}
		want := s.vars
		if want == nil { // the agent sets them
			want = variables(d.driver.facts().Settings)
		}
		if err := differing(want, has); err != nil {
			return fmt.Errorf("read settings of node %s: %w", s.name, err)
		}
		if d.opts.System != Galera {
			if err := s.readInstruments(ctx, d.opts); err != nil {
				return err
			}
		}
		for name, value := range has {
			if read[name] == nil {
				read[name] = map[string]string{}
			}
			read[name][s.name] = value
		}
	}
	d.read = read
	return nil
}

// severally returns the common value of all servers, or, with differ, the value of each.
func severally(values map[string]string) (text string, differ bool) {
	nodes := slices.Sorted(maps.Keys(values))
	var parts []string
	for _, node := range nodes {
		differ = differ || values[node] != values[nodes[0]]
		parts = append(parts, node+": "+values[node])
	}
	if !differ && len(nodes) > 0 {
		return values[nodes[0]], false
	}
	return strings.Join(parts, ", "), differ
}

// settings are all variables of a server, and the options of galera's provider.
func (s *server) settings(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	read, err := rows.Map[string](ctx, s.root, "SHOW GLOBAL VARIABLES")
	if err != nil {
		return nil, fmt.Errorf("ask node %s for its settings: %w", s.name, err)
	}
	all := map[string]string{}
	for name, value := range read {
		all[strings.ToLower(name)] = value
	}
	return all, nil
}

// differing names the settings whose value in has is not that in want.
func differing(want, has map[string]string) error {
	var bad []string
	for _, option := range slices.Sorted(maps.Keys(want)) {
		name := strings.TrimPrefix(option, "loose_")
		if unread(name) || strings.Contains(name, " ") {
			continue
		}
		value, there := has[name]
		switch {
		case !there:
			bad = append(bad, name+" is not there")
		case name == providerVariable:
			bad = append(bad, differingProvider(want[option], value)...)
		case !sameValue(want[option], value):
			bad = append(bad, fmt.Sprintf("%s is %q, not %q", name, value, want[option]))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%s", strings.Join(bad, "; "))
	}
	return nil
}

// differingProvider compares galera's options: NAME=VALUE;…. has contains all options.
func differingProvider(want, has string) (bad []string) {
	now := providerValues(has)
	for name, value := range providerValues(want) {
		if !sameValue(value, now[name]) {
			bad = append(bad, fmt.Sprintf("%s is %q, not %q", name, now[name], value))
		}
	}
	slices.Sort(bad)
	return bad
}

func providerValues(text string) map[string]string {
	values := map[string]string{}
	for part := range strings.SplitSeq(text, ";") {
		if name, value, ok := strings.Cut(part, "="); ok {
			values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return values
}

// sameValue compares values as servers write them: ON is 1 and YES, numbers are numbers, a directory
// may end in a slash, NULL may be nothing.
func sameValue(want, has string) bool {
	return canonical(want) == canonical(has)
}

func canonical(v string) string {
	v = strings.ToLower(strings.TrimSpace(v))
	switch v {
	case "on", "yes", "true":
		return "1"
	case "off", "no", "false":
		return "0"
	case "null":
		return ""
	}
	if n, err := strconv.ParseFloat(v, 64); err == nil && len(v) < 16 {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	if len(v) > 1 {
		v = strings.TrimRight(v, "/")
	}
	return v
}

// asRead completes the facts with the values that the servers reported.
func (d *Deployment) asRead(settings []Setting) []Setting {
	all := slices.Clone(settings)
	named := map[string]bool{}
	for i, s := range all {
		name := strings.TrimPrefix(s.Name, "loose_")
		named[name] = true
		// The provider's options differ in addresses.
		if text, differ := severally(d.read[name]); differ && name != providerVariable {
			all[i].Value = text
		}
	}
	for _, name := range alsoRead() {
		if name == "log_slave_updates" && d.read["log_replica_updates"] != nil {
			continue // it is MySQL's old name of the same variable
		}
		if values, ok := d.read[name]; ok && !named[name] {
			text, _ := severally(values)
			all = append(all, Setting{name, text, "as read from the servers"})
		}
	}
	return all
}

// Setting returns a setting as the servers reported it; "" = they have none of that name. Options of galera's provider
// have names with a dot.
func (d *Deployment) Setting(name string) string {
	if strings.Contains(name, ".") {
		all := map[string]string{}
		for node, text := range d.read[providerVariable] {
			all[node] = providerValues(text)[name]
		}
		text, _ := severally(all)
		return text
	}
	text, _ := severally(d.read[name])
	return text
}
