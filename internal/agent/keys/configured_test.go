package keys

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// TestCorrectedKeys: the alarm about keys that node.toml lacks ends once the file has them, without a restart. A file
// that cannot be read, or is of another node, ends no alarm, and begins none.
func TestCorrectedKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.toml")
	write := func(node string, key cluster.Key) {
		t.Helper()
		text := fmt.Sprintf("cluster = \"orders\"\nnode = %q\n[[member]]\nname = \"a\"\npeer = \"10.0.0.1:7400\"\nkey = %q\n", node, string(key))
		for _, err := range []error{os.WriteFile(path+".new", []byte(text), 0o644), os.Rename(path+".new", path)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	first, second := cluster.KeyOf([]byte("first")), cluster.KeyOf([]byte("second"))
	write("a", first)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	s := cluster.NewState(cfg.ClusterMembers())
	s.PeerSecurity, s.Version, s.Members[0].Key = cluster.PeersRequire, 3, second
	f := file{cfg: cfg}
	for _, step := range []struct {
		what  string
		do    func()
		alarm bool
	}{
		{"the key was changed", func() {}, true},
		{"a broken file", func() { _ = os.WriteFile(path, []byte("cluster ="), 0o644) }, true},
		{"no file", func() { _ = os.Remove(path) }, true},
		{"another node's file", func() { write("b", second) }, true},
		{"corrected", func() { write("a", second) }, false},
		{"as it was", func() {}, false},
		{"no file any more", func() { _ = os.Remove(path) }, false},
		{"the former file", func() { write("a", first) }, true},
	} {
		step.do()
		if text := OutdatedIn(f.now(), s); (text != "") != step.alarm {
			t.Errorf("%s: %q", step.what, text)
		}
	}
}

// TestConfiguredKeyIsMissing: a node without data whose key is configured makes no other key in its place.
func TestConfiguredKeyIsMissing(t *testing.T) {
	dir := t.TempDir()
	path, file := filepath.Join(dir, "node.toml"), filepath.Join(dir, "node.key")
	text := fmt.Sprintf("cluster = \"orders\"\nnode = \"a\"\nkey_file = %q\n[[member]]\nname = \"a\"\npeer = \"10.0.0.1:7400\"\nkey = %q\n", file, string(cluster.KeyOf([]byte("gone"))))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(cfg, cluster.State{}, datadir.KeyNote{}, true, slog.New(slog.DiscardHandler))
	if !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), file+" is not there: put it back") {
		t.Error(err)
	}
	if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key was made: %v", err)
	}
}

// TestUnusableKey: one sentence for each case says how to mend the file of a key; the agent ends as with any mistake
// in its configuration. What the disk fails to read may be there after a restart.
func TestUnusableKey(t *testing.T) {
	there := filepath.Join(t.TempDir(), "node.key")
	if err := os.WriteFile(there, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, noKey := nodekey.Load(there)
	if err := os.Chmod(there, 0o640); err != nil {
		t.Fatal(err)
	}
	_, open := nodekey.Load(there)
	away := there + ".away"
	failed := func(path string, errno syscall.Errno) error {
		return fmt.Errorf("read the node's key: %w", &os.PathError{Op: "open", Path: path, Err: errno})
	}
	for _, c := range []struct {
		what  string
		file  string
		err   error
		says  string
		never string
		key   bool
	}{
		{"others may read it", there, open, "(mode 0640): set it to 0600", "key new", true},
		{"it holds no key", there, noKey, "put the file back, or move it away and make another key", "0600", true},
		{"not this account's", there, failed(there, syscall.EACCES), "give the file to the agent's account", "key new", true},
		{"it may not be made", away, failed(away, syscall.EACCES), "put " + away + " back, or make a key with \"quorate key new\"", "0600", true},
		{"the directory is read-only", away, failed(away, syscall.EROFS), "make a key with \"quorate key new\"", "0600", true},
		{"the disk fails", there, failed(there, syscall.EIO), "input/output error", "key new", false},
	} {
		err := unusable(c.err, config.Config{KeyFile: c.file})
		if errors.Is(err, ErrKey) != c.key || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), c.never) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
