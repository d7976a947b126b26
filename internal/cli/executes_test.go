package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/config"
)

// TestRootExecutesNothingOthersName: root executes no program of a configuration that others may change, or may
// replace by another file.
func TestRootExecutesNothingOthersName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root is somebody else's ladder")
	}
	for name, c := range map[string]struct {
		dir, file    os.FileMode
		dirOf, owner int
		link         bool
		want         string
	}{
		"root's":                                   {dir: 0o755, file: 0o644},
		"another's file":                           {dir: 0o755, file: 0o644, owner: 65534, want: "node.toml belongs to uid 65534: chown root "},
		"another's directory":                      {dir: 0o755, file: 0o644, dirOf: 65534, want: "belongs to uid 65534: chown root "},
		"a directory of all":                       {dir: 0o777, file: 0o644, want: "others may change "},
		"a directory of all, sticky":               {dir: 0o777 | os.ModeSticky, file: 0o644},
		"a file that others may change":            {dir: 0o755, file: 0o666, want: "others may change "},
		"another's directory, by a link of root's": {dir: 0o755, file: 0o644, dirOf: 65534, link: true, want: "belongs to uid 65534: chown root "},
	} {
		dir := filepath.Join(t.TempDir(), "etc")
		path := filepath.Join(dir, "node.toml")
		text := "cluster = \"c\"\nnode = \"a\"\n[[member]]\nname = \"a\"\npeer = \"127.0.0.1:7400\"\n[mysql]\nbase_dir = \"" + dir + "\"\n"
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{os.Chown(path, c.owner, 0), os.Chmod(path, c.file), os.Chown(dir, c.dirOf, 0), os.Chmod(dir, c.dir)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if c.link {
			link := filepath.Join(t.TempDir(), "node.toml")
			if err := os.Symlink(path, link); err != nil {
				t.Fatal(err)
			}
			path = link
		}
		cfg, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := mayExecute(cfg.File()); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, err := discover(cfg); c.want != "" && (err == nil || !strings.Contains(err.Error(), "root executes nothing that ")) {
			t.Errorf("%s: mysqld is looked for: %v", name, err)
		}
	}
}
