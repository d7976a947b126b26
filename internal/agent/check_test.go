package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/raft/nodekey/nodekeytest"
)

// TestCheckStart: what is wrong with the node's files is found before the agent ends at it, and nothing is made.
func TestCheckStart(t *testing.T) {
	cfg := testConfig(t, filepath.Join(t.TempDir(), "d"))
	checkStart(t, cfg, "nothing is there yet", "")
	d := openedDir(t, cfg)
	checkStart(t, cfg, "the node has begun", "")
	for _, c := range []struct{ file, want string }{
		{secretsFile, "is not TOML"}, {"peers.json", "is damaged"}, {"durable.json", "is damaged"}, {"cluster.json", "is damaged"},
	} {
		if err := os.WriteFile(d.Join(c.file), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		checkStart(t, cfg, c.file, c.want)
		if err := os.Remove(d.Join(c.file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.HasLog(); err != nil {
		t.Fatal(err)
	}
	checkStart(t, cfg, "the log is lost", "but this node has had one")
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	checkStart(t, cfg, "the log of a node that was removed", "")
}

// TestCheckStartWithKey: a key that cannot be used is found, and no key is made.
func TestCheckStartWithKey(t *testing.T) {
	cfg := testConfig(t, filepath.Join(t.TempDir(), "d"))
	cfg.KeyFile = filepath.Join(t.TempDir(), "node.key")
	for i := range cfg.Members {
		cfg.Members[i].Key = cluster.KeyOf([]byte(cfg.Members[i].Name))
	}
	checkStart(t, cfg, "no key yet", "")
	if _, err := os.Lstat(cfg.KeyFile); err == nil {
		t.Error("a key was made")
	}
	k, err := nodekey.New()
	if err == nil {
		err = k.Save(cfg.KeyFile, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkStart(t, cfg, "another key, and no data", "correct the one or the other")
	openedDir(t, cfg)
	checkStart(t, cfg, "another key than the file says, as after a rotation", "")
	if err := os.Chmod(cfg.KeyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	checkStart(t, cfg, "others may read the key", "set it to 0600")
	if err := errors.Join(os.Chmod(cfg.KeyFile, 0o600), os.Truncate(cfg.KeyFile, 0)); err != nil {
		t.Fatal(err)
	}
	checkStart(t, cfg, "the key's file is empty", "put the file back")
	if err := os.Remove(cfg.KeyFile); err != nil {
		t.Fatal(err)
	}
	checkStart(t, cfg, "no key, which the agent makes", "")
}

// TestCheckStartWithPassword: a reader's password that everybody may read, or that is not there, is found.
func TestCheckStartWithPassword(t *testing.T) {
	cfg := testConfig(t, filepath.Join(t.TempDir(), "d"))
	file := filepath.Join(t.TempDir(), "password")
	cfg.Feed.ReadersListen, cfg.Readers = "127.0.0.1:7403", []config.Reader{{User: "cdc", PasswordFile: file}}
	checkStart(t, cfg, "no file", "no such file")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	checkStart(t, cfg, "the owner's alone", "")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	checkStart(t, cfg, "everybody's", "everybody may read")
}

// TestCheckStartWithIssuedKey: a node that the cluster knows by its authority does not start with another key. Before
// that, its own key is as good.
func TestCheckStartWithIssuedKey(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(t, filepath.Join(dir, "d"))
	cfg.KeyFile = filepath.Join(dir, "node.key")
	own, err := nodekey.New()
	if err == nil {
		err = own.Save(cfg.KeyFile, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	ca := nodekeytest.NewAuthority(t, filepath.Join(dir, "ca"))
	uri := func(node string) string { return "quorate://" + cfg.Cluster + "/" + node }
	ends := time.Now().Add(90 * 24 * time.Hour)
	file := func(name string) string { return filepath.Join(dir, name) }
	ca.Issue(t, file("a.pem"), file("a.key"), ends, uri("a"))
	ca.Issue(t, file("open.pem"), file("open.key"), ends, uri("a"))
	ca.Issue(t, file("b.pem"), file("b.key"), ends, uri("b"))
	if err := os.Chmod(file("open.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	openedDir(t, cfg)
	for _, c := range []struct{ certificate, key, want string }{
		{"a.pem", "a.key", ""}, {"open.pem", "open.key", "(mode 0644): set it to 0600"}, {"a.pem", "b.key", "private key does not match"},
		{"b.pem", "b.key", "names ca:" + uri("b") + ", and this node is ca:" + uri("a")},
	} {
		cfg.PeerTLS.CAFile, cfg.PeerTLS.CertificateFile, cfg.PeerTLS.KeyFile = ca.File, file(c.certificate), file(c.key)
		for i, name := range []cluster.Key{own.Name(), cluster.Key("ca:" + uri("a"))} {
			cfg.Members[0].Key = name
			want := c.want
			if i == 0 {
				want = ""
			}
			checkStart(t, cfg, fmt.Sprintf("%s with %s, known by %s", c.certificate, c.key, name), want)
		}
		if err := CheckIssuedKey(cfg); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %v", c.certificate, c.key, err)
		}
	}
}

// openedDir is the data directory of a node that has begun.
func openedDir(t *testing.T, cfg config.Config) *dataDir {
	t.Helper()
	d, err := prepareDataDir(cfg)
	if err == nil {
		err = d.open()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// checkStart wants an error of CheckStart, "" = none, and the data directory as it was.
func checkStart(t *testing.T, cfg config.Config, what, want string) {
	t.Helper()
	before := filesOf(t, cfg.DataDir)
	err := CheckStart(cfg)
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
	if d := cmp.Diff(before, filesOf(t, cfg.DataDir)); d != "" {
		t.Errorf("%s: the directory has changed (-before +after):\n%s", what, d)
	}
}

// filesOf returns the names in a directory, none if it is not there.
func filesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
