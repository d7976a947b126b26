package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
)

// fileBytesMax bounds what Load reads. A file with seven members and a hundred
// server variables has less than 10 KiB.
const fileBytesMax = 1 << 20

// Load reads the file at path over the defaults. Its error joins one Problem
// for everything in the file that cannot be read: broken TOML, an unknown key,
// a value that is no duration. It does not judge the values: that is Validate.
func Load(path string) (Config, error) {
	data, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := Parse(path, data)
	if err != nil {
		return Config{}, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return Config{}, fmt.Errorf("find the configuration's directory: %w", err)
	}
	c.KeyFile = keyFile(path, c.KeyFile)
	for _, file := range []*string{&c.PeerTLS.CAFile, &c.PeerTLS.CertificateFile, &c.PeerTLS.KeyFile, &c.API.TokensFile} {
		if *file != "" {
			*file = keyFile(path, *file)
		}
	}
	return c, nil
}

// keyFile returns the path of the node's key. Unless the configuration says another path, the file lies beside
// the configuration.
func keyFile(path, said string) string {
	switch {
	case said == "":
		return strings.TrimSuffix(path, filepath.Ext(path)) + ".key"
	case filepath.IsAbs(said):
		return said
	}
	return filepath.Join(filepath.Dir(path), said)
}

// readFile reads the file at path, or says in a Problem why it cannot.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	var data []byte
	if err == nil {
		defer f.Close()
		data, err = io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	}
	if err == nil && len(data) > fileBytesMax {
		err = fmt.Errorf("it is larger than %v", Bytes(fileBytesMax))
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the path is in the message already
	}
	if err != nil {
		return nil, &Problem{File: path, Text: fmt.Sprintf("cannot read it: %v", err)}
	}
	return data, nil
}

// Parse is Load for a text that is already in memory; file is only for messages.
func Parse(file string, data []byte) (Config, error) {
	var tree map[string]any
	if err := toml.Unmarshal(data, &tree); err != nil {
		p := &Problem{File: file, Text: "not valid TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
		if e, ok := errors.AsType[*toml.DecodeError](err); ok {
			p.Line, _ = e.Position()
		}
		return Config{}, p
	}
	src := &source{file: file, lines: keyLines(data), texts: map[string]string{}}
	c := Default()
	c.source = src
	d := &decoder{config: &c, fields: c.fields(), problems: problemList{source: src}}
	d.table("", tree)
	return c, d.problems.err()
}

// fields maps every key that holds one value to the function that sets it in
// c. It is the schema: what is not here (and is no member and no server
// variable) is an unknown key.
func (c *Config) fields() map[string]func(string) error {
	return map[string]func(string) error{
		"cluster":                         setText(&c.Cluster),
		"node":                            setText(&c.Node),
		"data_dir":                        setText(&c.DataDir),
		"key_file":                        setText(&c.KeyFile),
		"log_level":                       setLevel(&c.LogLevel),
		"peer_tls.ca_file":                setText(&c.PeerTLS.CAFile),
		"peer_tls.certificate_file":       setText(&c.PeerTLS.CertificateFile),
		"peer_tls.key_file":               setText(&c.PeerTLS.KeyFile),
		"join.peer":                       setText(&c.Join.Peer),
		"join.kind":                       func(text string) error { c.Join.Kind = cluster.Kind(text); return nil },
		"raft.heartbeat":                  setDuration(&c.Raft.Heartbeat),
		"raft.election_timeout":           setDuration(&c.Raft.ElectionTimeout),
		"log.segment_size":                setBytes(&c.Log.SegmentSize),
		"log.retention_size":              setBytes(&c.Log.RetentionSize),
		"log.retention_age":               setDuration(&c.Log.RetentionAge),
		"log.stage_size_min":              setBytes(&c.Log.StageSizeMin),
		"log.cache_size":                  setBytes(&c.Log.CacheSize),
		"log.prefetch_size":               setBytes(&c.Log.PrefetchSize),
		"mysql.base_dir":                  setText(&c.MySQL.BaseDir),
		"mysql.port":                      setInt(&c.MySQL.Port),
		"mysql.bind":                      setText(&c.MySQL.Bind),
		"mysql.bind_unfenced_stale_reads": setBool(&c.MySQL.BindUnfencedStaleReads),
		"mysql.user":                      setText(&c.MySQL.User),
		"mysql.promotion_timeout":         setDuration(&c.MySQL.PromotionTimeout),
		"mysql.max_apply_lag":             setDuration(&c.MySQL.MaxApplyLag),
		"mysql.xa_prepared_max_age":       setDuration(&c.MySQL.XAPreparedMaxAge),
		"feed.listen":                     setText(&c.Feed.Listen),
		"feed.readers_listen":             setText(&c.Feed.ReadersListen),
		"feed.readers_max":                setInt(&c.Feed.ReadersMax),
		"router.read_write":               setText(&c.Router.ReadWrite),
		"router.read_only":                setText(&c.Router.ReadOnly),
		"router.read_max_lag":             setDuration(&c.Router.ReadMaxLag),
		"router.read_grace":               setDuration(&c.Router.ReadGrace),
		"router.read_primary":             setBool(&c.Router.ReadPrimary),
		"router.hold_timeout":             setDuration(&c.Router.HoldTimeout),
		"router.hold_max":                 setInt(&c.Router.HoldMax),
		"router.forward":                  setBool(&c.Router.Forward),
		"router.allow":                    setNetworks(&c.Router.Allow),
		"api.listen":                      setText(&c.API.Listen),
		"api.tokens_file":                 setText(&c.API.TokensFile),
		"api.pprof":                       setBool(&c.API.Pprof),
		"control.socket":                  setText(&c.Control.Socket),
		"control.group":                   setText(&c.Control.Group),
		"hooks.timeout":                   setDuration(&c.Hooks.Timeout),
		"site.name":                       setText(&c.Site.Name),
		"site.nodes":                      setTexts(&c.Site.Nodes),
		"site.user":                       setText(&c.Site.User),
		"site.password_file":              setText(&c.Site.PasswordFile),
		"site.ca_file":                    setText(&c.Site.CAFile),
		"site.plain":                      setBool(&c.Site.Plain),
		"backup.directory":                setText(&c.Backup.Directory),
		"backup.put_command":              setText(&c.Backup.PutCommand),
		"backup.get_command":              setText(&c.Backup.GetCommand),
		"backup.list_command":             setText(&c.Backup.ListCommand),
		"backup.delete_command":           setText(&c.Backup.DeleteCommand),
		"backup.command_idle":             setDuration(&c.Backup.CommandIdle),
		"backup.recipients":               setTexts(&c.Backup.Recipients),
		"backup.interval":                 setDuration(&c.Backup.Interval),
		"backup.keep_full":                setInt(&c.Backup.KeepFull),
	}
}

// fields is the schema of one [[member]].
func (m *Member) fields() map[string]func(string) error {
	return map[string]func(string) error{
		"name":   setText(&m.Name),
		"peer":   setText(&m.Peer),
		"kind":   func(text string) error { m.Kind = cluster.Kind(text); return nil },
		"weight": setInt(&m.Weight),
		"key":    setKey(&m.Key),
	}
}

func setText(v *string) func(string) error {
	return func(text string) error { *v = text; return nil }
}

// setTexts sets a list of texts from the text that joined made of it.
func setTexts(v *[]string) func(string) error {
	return func(text string) error {
		for part := range strings.SplitSeq(text, ",") {
			*v = append(*v, strings.TrimSpace(part))
		}
		return nil
	}
}

func setKey(v *cluster.Key) func(string) error {
	return func(text string) error { *v = cluster.Key(text); return v.Check() }
}

// setParsed sets a value by parsing a text. what names the kind of value in the message if the text is refused;
// "" = the error of parse names it.
func setParsed[T any](v *T, parse func(string) (T, error), what string) func(string) error {
	return func(text string) (err error) {
		if *v, err = parse(text); err != nil && what != "" {
			return fmt.Errorf("%q is %s", text, what)
		}
		return err
	}
}

func setInt(v *int) func(string) error { return setParsed(v, strconv.Atoi, "not a whole number") }

func setBool(v *bool) func(string) error {
	return setParsed(v, strconv.ParseBool, "neither true nor false")
}

func setBytes(v *Bytes) func(string) error { return setParsed(v, ParseBytes, "") }

func setNetworks(v *[]netip.Prefix) func(string) error { return setParsed(v, parseNetworks, "") }

func setDuration(v *time.Duration) func(string) error {
	return setParsed(v, units.ParseDuration, `not a duration: write a number with a unit, such as "100ms", "5m" or "30d"`)
}

func setLevel(v *slog.Level) func(string) error {
	return func(text string) error {
		switch text {
		case "debug", "info", "warn", "error":
			return v.UnmarshalText([]byte(text))
		}
		return fmt.Errorf("%q is not a level: write \"debug\", \"info\", \"warn\" or \"error\"", text)
	}
}

// decoder walks the decoded TOML tree and sets the Config's fields.
type decoder struct {
	config   *Config
	fields   map[string]func(string) error
	problems problemList
}

// table sets all values in the table at prefix; prefix is "" or ends with a dot.
func (d *decoder) table(prefix string, table map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(table)) { // one order of messages
		key, value := prefix+name, table[name]
		sub, isTable := value.(map[string]any)
		switch {
		case key == "member":
			d.members(value)
		case key == "added":
			d.added(value)
		case key == "reader":
			d.readers(value)
		case key == hookKey:
			d.command(key, value)
		case key == "mysql.variables" && isTable:
			d.variables(key, sub)
		case d.fields[key] != nil:
			d.set(key, key, value, d.fields[key])
		case isTable && hasPrefix(d.fields, key+"."):
			d.table(key+".", sub)
		case hasPrefix(d.fields, key+".") || key == "mysql.variables":
			d.problems.add(key, "%s is a table: write [%s] on a line of its own, its keys below it", key, key)
		default:
			d.unknown(key, key, isTable)
		}
	}
}

// hookKey is the one key with a command.
const hookKey = "hooks.on_change"

// command reads a program and its arguments.
func (d *decoder) command(key string, value any) {
	list, ok := value.([]any)
	for _, part := range list {
		text, isText := part.(string)
		d.config.Hooks.OnChange = append(d.config.Hooks.OnChange, text)
		ok = ok && isText
	}
	d.problems.source.texts[key] = strings.Join(d.config.Hooks.OnChange, " ")
	if !ok {
		d.problems.add(key, "%s is a list of a program and its arguments: write [\"/path/of/program\", \"argument\"]", key)
	}
}

// set gives one value to a field's setter. name is the key as messages show it.
func (d *decoder) set(key, name string, value any, set func(string) error) {
	text, ok := scalar(value)
	if list, isList := value.([]any); isList && (strings.HasSuffix(key, ".allow") || key == "backup.recipients" || key == "site.nodes") {
		if len(list) == 0 {
			return // as if the key were left out
		}
		text, ok = joined(list)
	}
	if !ok {
		d.problems.add(key, "%s wants one value, not a list, a table or a date", name)
		return
	}
	d.problems.source.texts[key] = text
	if err := set(text); err != nil {
		d.problems.add(key, "%s: %v", name, err)
	}
}

// joined returns a list of texts as one text with commas: they may be written either way.
func joined(list []any) (text string, ok bool) {
	var parts []string
	for _, value := range list {
		part, ok := value.(string)
		if !ok {
			return "", false
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ","), true
}

// scalar returns a value as the text that the setters read: numbers and
// booleans are as good as strings, so that `max_connections = 500` works.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string, int64, bool:
		return fmt.Sprint(v), true
	case float64: // without an exponent: mysqld takes the e of 1e+06 for a unit, 2^60
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

func (d *decoder) members(value any) {
	d.list("member", "name, peer and kind", value, func(read func(map[string]func(string) error)) {
		m := Member{Kind: cluster.KindFull, Weight: cluster.WeightDefault}
		read(m.fields())
		d.config.Members = append(d.config.Members, m)
	})
}

func (d *decoder) added(value any) {
	d.list("added", "name and peer", value, func(read func(map[string]func(string) error)) {
		var m Added
		read(map[string]func(string) error{"name": setText(&m.Name), "peer": setText(&m.Peer), "key": setKey(&m.Key)})
		d.config.Added = append(d.config.Added, m)
	})
}

// list reads the tables of a list such as [[member]]: what is the name of the list, keys are the keys that its
// tables have. It calls each for every table; each calls read with the setters of the fields, and read gives them
// the table's values.
func (d *decoder) list(what, keys string, value any, each func(read func(fields map[string]func(string) error))) {
	list, ok := value.([]any)
	if !ok {
		d.problems.add(what, "%s is a list: write [[%s]] with two brackets, once for each entry", what, what)
		return
	}
	for i, item := range list {
		key := fmt.Sprintf("%s[%d]", what, i)
		table, ok := item.(map[string]any)
		if !ok {
			d.problems.add(key, "each entry of %s is a table: write [[%s]] with %s below it", what, what, keys)
			continue
		}
		each(func(fields map[string]func(string) error) {
			for _, name := range slices.Sorted(maps.Keys(table)) {
				if set := fields[name]; set != nil {
					d.set(key+"."+name, what+"."+name, table[name], set)
				} else {
					d.unknown(key+"."+name, what+"."+name, false)
				}
			}
		})
	}
}

func (d *decoder) variables(key string, table map[string]any) {
	d.config.MySQL.Variables = make(map[string]string, len(table))
	spelled := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		one := strings.TrimPrefix(cluster.VariableName(name), "loose_")
		if other := spelled[one]; other != "" {
			d.problems.add(key+"."+name, "%s.%s and %s.%s are the same variable: keep one of them", key, other, key, name)
		}
		spelled[one] = name
		d.set(key+"."+name, key+"."+name, table[name], func(text string) error {
			d.config.MySQL.Variables[name] = text
			return nil
		})
	}
}

// keyLines maps the path of every key and table in a valid TOML text to its
// line: "raft.heartbeat", "raft", "member[1].name", "member[1]".
func keyLines(data []byte) map[string]int {
	lines := make(map[string]int)
	arrays := make(map[string]int)
	var p unstable.Parser
	p.Reset(data)
	prefix := ""
	for p.NextExpression() {
		node := p.Expression()
		switch node.Kind {
		case unstable.Table:
			name := noteKey(&p, lines, "", node)
			prefix = name + "."
		case unstable.ArrayTable:
			name := noteKey(&p, lines, "", node)
			item := fmt.Sprintf("%s[%d]", name, arrays[name])
			arrays[name]++
			lines[item] = keyLine(&p, node)
			prefix = item + "."
		case unstable.KeyValue:
			noteKey(&p, lines, prefix, node)
		}
	}
	return lines
}

// noteKey notes the line of the key of node, and the lines of the keys in an inline table
// under it. It returns the key's path.
func noteKey(p *unstable.Parser, lines map[string]int, prefix string, node *unstable.Node) string {
	var parts []string
	for key := node.Key(); key.Next(); {
		parts = append(parts, string(key.Node().Data))
	}
	name := prefix + strings.Join(parts, ".")
	if _, ok := lines[name]; !ok { // a list's own line is its first item's
		lines[name] = keyLine(p, node)
	}
	if node.Kind == unstable.KeyValue && node.Value().Kind == unstable.InlineTable {
		for child := node.Value().Children(); child.Next(); {
			noteKey(p, lines, name+".", child.Node())
		}
	}
	return name
}

func keyLine(p *unstable.Parser, node *unstable.Node) int {
	key := node.Key()
	key.Next()
	return p.Shape(key.Node().Raw).Start.Line
}
