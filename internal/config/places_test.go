package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLoadPlaces: where the agent is can be read while the rest of the file has mistakes. It is
// never guessed.
func TestLoadPlaces(t *testing.T) {
	const places = "data_dir = \"/d\"\n[api]\nlisten = \"127.0.0.1:1\"\n[control]\nsocket = \"/s\"\n"
	for name, c := range map[string]struct {
		text string
		want string // the error; "" = the three places are read
	}{
		"these alone":                  {places, ""},
		"a guarded variable":           {places + "[mysql.variables]\nsync_binlog = 1\n", ""},
		"a variable without value":     {places + "[mysql.variables]\ninnodb_buffer_pool_size =\n", ""},
		"two broken lines":             {"members are\n" + places + "[mysql]\nport = 33 06\n", ""},
		"a string that does not end":   {places + "[mysql.variables]\nsql_mode = \"STRICT\ntmp_table_size = \"1G\"\n", ""},
		"a broken header":              {places + "[mysql.variables\nmax_connections = 10\n[raft]\nheartbeat = \"1s\"\n", ""},
		"twice the same":               {places + "[mysql]\nport = 1\nport = 2\n", ""},
		"an unknown key":               {"log_levle = \"debug\"\n" + places + "[rafd]\nx = 1\n", ""},
		"values out of range":          {places + "[raft]\nheartbeat = \"1h\"\n[router]\nread_write = \"nowhere\"\n[feed]\nlisten = 1\n", ""},
		"no members, and a port taken": {places + "[mysql]\nport = 1\n", ""},

		"data_dir misspelt":        {strings.Replace(places, "data_dir", "dat_dir", 1), `f:1: unknown key "dat_dir" (did you mean "data_dir"?)`},
		"data_dir without value":   {"data_dir =\n", "f:1: not valid TOML: "},
		"data_dir relative":        {"data_dir = \"d\"\n", `f:1: data_dir "d" is not an absolute path`},
		"listen is no address":     {"[api]\nlisten = \"x\"\n", `f:2: api.listen "x" is not an address`},
		"listen in another table":  {"[mysql]\nlisten = \"127.0.0.1:1\"\n", `f:2: unknown key "listen" (it belongs under`},
		"control misspelt":         {"[contrl]\nsocket = \"/s\"\n", `f:1: unknown table [contrl] (did you mean [control]?)`},
		"the header of api broken": {"[api\nlisten = \"127.0.0.1:1\"\n", "f:1: not valid TOML"},
		"socket relative":          {"[control]\nsocket = \"s\"\n", `f:2: control.socket "s" is not an absolute path`},
		"socket is a list":         {"[control]\nsocket = [\"/s\"]\n", "f:2: control.socket wants one value"},
	} {
		got, err := parsePlaces("f", []byte(c.text))
		if c.want != "" {
			if err == nil || !strings.HasPrefix(err.Error(), "config "+c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
			continue
		}
		if d := cmp.Diff([]string{"/d", "127.0.0.1:1", "/s"}, []string{got.DataDir, got.API.Listen, got.ControlSocket()}); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
	}
	if _, err := LoadPlaces(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "cannot read it: no such file") {
		t.Errorf("no file: %v", err)
	}
	path := filepath.Join(t.TempDir(), "node.toml")
	if err := os.WriteFile(path, []byte(places), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := LoadPlaces(path); err != nil || c.DataDir != "/d" {
		t.Errorf("from a file: %v, %s", err, c.DataDir)
	}
}
