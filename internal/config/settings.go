package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Setting is one value that a node runs with.
type Setting struct {
	// Key is its path: raft.heartbeat, member[0].peer, mysql.variables.NAME.
	Key string `json:"key"`
	// Value is as a file has it. Secrets are left out.
	Value string `json:"value"`
	// Line is where it is in the file; 0 = it is the default.
	Line int `json:"line,omitempty"`
}

// secret is shown in the place of a value that gives access to something.
const secret = "(not shown)"

// Settings returns all settings: first those that have a default, in the order of Example, then what
// the file lists.
func (c Config) Settings() (all []Setting) {
	standard, err := Parse("", []byte(example))
	if err != nil {
		panic(err) // a test parses it
	}
	file := c.source
	if file == nil {
		file = &source{}
	}
	keys := append(slices.Collect(maps.Keys(c.fields())), hookKey)
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(standard.source.lines[a], standard.source.lines[b]) })
	for _, key := range keys {
		s := Setting{Key: key, Value: standard.source.texts[key]}
		if text, is := file.texts[key]; is {
			s.Value, s.Line = text, file.line(key)
		}
		switch key { // "" stands for another value
		case "key_file":
			s.Value = cmp.Or(c.KeyFile, s.Value)
		case "control.socket":
			s.Value = c.ControlSocket()
		}
		all = append(all, s)
	}
	var listed []Setting
	for key, text := range file.texts {
		if !slices.Contains(keys, key) {
			if strings.HasSuffix(key, ".password_hash") {
				text = secret
			}
			listed = append(listed, Setting{key, text, file.line(key)})
		}
	}
	slices.SortFunc(listed, func(a, b Setting) int { return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.Key, b.Key)) })
	return append(all, listed...)
}
