package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// TestInit: init writes the files of three nodes, which fit together, and replaces no file.
func TestInit(t *testing.T) {
	out := filepath.Join(t.TempDir(), "new")
	args := []string{"init", "--nodes", "a=10.0.0.1,b=db2:7500,c=::1", "--logger", "c", "--cluster", "orders", "--out", out}
	code, text, errs := run(t, args...)
	if code != exitOK || strings.Count(text, "wrote ") != 6 {
		t.Fatalf("%d, %q, %q", code, text, errs)
	}
	for i, name := range []string{"a", "b", "c"} {
		c, err := config.Load(filepath.Join(out, name, "node.toml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		k, err := nodekey.Load(c.KeyFile)
		if err != nil || c.Node != name || c.Members[i].Key != k.Name() || c.KeyFile != filepath.Join(out, name, "node.key") {
			t.Errorf("%s: %v, %+v", name, err, c.Members)
		}
		peers := []string{"10.0.0.1:7400", "db2:7500", "[::1]:7400"}
		if c.Members[i].Peer != peers[i] || c.Cluster != "orders" || (c.Members[i].Kind == "logger") != (name == "c") {
			t.Errorf("%s: %+v", name, c.Members[i])
		}
	}
	if code, _, errs := run(t, args...); code != exitFailure || !strings.Contains(errs, "file exists") {
		t.Errorf("again: %d, %q", code, errs)
	}
	for _, wrong := range [][]string{
		{"init", "--out", out}, {"init", "--nodes", "a=10.0.0.1"}, {"init", "--nodes", "a", "--out", out},
		{"init", "--nodes", "a=10.0.0.1", "--logger", "x", "--out", out}, {"init", "--nodes", "a=h,a=i", "--out", out + "2"},
	} {
		if code, _, errs := run(t, wrong...); code != exitUsage || strings.Count(errs, "\n") > 2 {
			t.Errorf("%v: %d, %q", wrong, code, errs)
		}
	}
	if _, err := os.Stat(out + "2"); !os.IsNotExist(err) {
		t.Error("files of a cluster that cannot be")
	}
}

// TestInitWritesAllOrNothing: where a part of a cluster is there already, init writes nothing beside it.
func TestInitWritesAllOrNothing(t *testing.T) {
	for _, there := range []string{"a", "client-ca-key.pem"} {
		out := t.TempDir()
		if err := os.Mkdir(filepath.Join(out, there), 0o700); err != nil {
			t.Fatal(err)
		}
		code, _, errs := run(t, "init", "--nodes", "d=10.0.0.1,a=10.0.0.2,c=10.0.0.3", "--client-ca", "--out", out)
		if code != exitFailure || !strings.Contains(errs, "nothing was written: make "+filepath.Join(out, there)+": file exists") {
			t.Errorf("%s is there: %d, %q", there, code, errs)
		}
		if left, err := os.ReadDir(out); err != nil || len(left) != 1 {
			t.Errorf("%s is there: %v were written, %v", there, left, err)
		}
	}
}

// TestKey: key new makes a key once, and key show shows it.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	toml := filepath.Join(dir, "x.toml")
	if err := os.WriteFile(toml, []byte("cluster = \"c\"\nnode = \"a\"\ndata_dir = \""+dir+"/data\"\n[[member]]\nname = \"a\"\npeer = \"h:1\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, "key", "show", "--config", toml); code != exitFailure || !strings.Contains(errs, "no such file") {
		t.Errorf("no key: %d, %q", code, errs)
	}
	code, made, errs := run(t, "key", "new", "--config", toml)
	if code != exitOK || !strings.HasPrefix(made, "q1:") {
		t.Fatalf("%d, %q, %q", code, made, errs)
	}
	if told := strings.Contains(errs, "chown mysql: "+filepath.Join(dir, "x.key")); told != (os.Getuid() == 0) {
		t.Errorf("without a data directory: %q", errs)
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, "key", "new", "--config", toml, "--out", filepath.Join(dir, "more")); code != exitOK || errs != "" {
		t.Errorf("with one: %d, %q", code, errs)
	}
	if code, _, errs := run(t, "key", "rotate", "--config", toml, "--own"); code != exitUsage || !strings.Contains(errs, "has no [peer_tls]") {
		t.Errorf("back from no authority: %d, %q", code, errs)
	}
	if code, _, errs := run(t, "key", "new", "--config", toml); code != exitFailure || !strings.Contains(errs, filepath.Join(dir, "x.key")+": file exists: a key that is there is not replaced") || strings.Contains(errs, "link") {
		t.Errorf("again: %d, %q", code, errs)
	}
	code, text, _ := run(t, "key", "show", "--config", toml, "--json")
	var shown shownKey
	if err := json.Unmarshal([]byte(text), &shown); code != exitOK || err != nil || string(shown.Key)+"\n" != made || shown.File != filepath.Join(dir, "x.key") {
		t.Errorf("%d, %v, %s", code, err, text)
	}
	if code, text, _ := run(t, "key", "new", "--config", toml, "--out", filepath.Join(dir, "apart")); code != exitOK || text == made {
		t.Errorf("%d, %q", code, text)
	}
}

// keyNode is the configuration of a node with a key in dir, whose agent changes the key when it is asked; done = to the
// end. asked is the last change that was asked for. asking is called with each; nil = nothing is.
func keyNode(t *testing.T, dir string, done bool, asked *cluster.KeysChange, asking func()) (toml string) {
	t.Helper()
	return keyNodeThat(t, dir, done, asked, func() *control.Answer {
		if asking != nil {
			asking()
		}
		return nil
	})
}

// keyNodeThat is keyNode with an answer to each change; nil = it is made.
func keyNodeThat(t *testing.T, dir string, done bool, asked *cluster.KeysChange, answered func() *control.Answer) (toml string) {
	t.Helper()
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			var request control.Request
			_ = json.NewDecoder(r.Body).Decode(&request)
			_ = json.Unmarshal(request.Args, asked)
			w.Header().Set("Content-Type", "application/json")
			if answer := answered(); answer != nil {
				_ = json.NewEncoder(w).Encode(answer)
				return
			}
			_ = json.NewEncoder(w).Encode(control.Answer{Code: control.CodeOK, Result: resultOf(t, cluster.ChangeResult{Changed: true})})
			return
		}
		st := sampleStatus()
		if asked.NextKey != nil {
			st.Nodes[0].Key, st.Nodes[0].KnownBy = *asked.NextKey, []cluster.Key{*asked.NextKey}
			if !done {
				st.Nodes[0].KnownBy = []cluster.Key{"q1:former", *asked.NextKey}
			}
		}
		_ = json.NewEncoder(w).Encode(st)
	})
	asks := httptest.NewServer(serve)
	t.Cleanup(asks.Close)
	toml = filepath.Join(dir, "node.toml")
	text := fmt.Sprintf("cluster = \"c\"\nnode = \"a\"\ndata_dir = %q\n[api]\nlisten = %q\n[control]\nsocket = %q\n[[member]]\nname = \"a\"\npeer = \"h:1\"\n", dir+"/data", asks.Listener.Addr(), onSocket(t, serve))
	if err := os.WriteFile(toml, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, "key", "new", "--config", toml); code != exitOK {
		t.Fatal(errs)
	}
	return toml
}

// TestRotateAlone: two commands that change a node's key do not run at the same time, and no other key than the node's
// gets the place of that.
func TestRotateAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "node.key")
	var asked cluster.KeysChange
	var meanwhile func()
	toml := keyNode(t, dir, true, &asked, func() { meanwhile() })
	meanwhile = func() {
		first := *asked.NextKey
		if code, out, errs := run(t, "key", "rotate", "--config", toml); code != exitFailure || !strings.Contains(errs, "another \"quorate key rotate\" runs") || *asked.NextKey != first {
			t.Errorf("a second command: %d, %q, %q", code, out, errs)
		}
	}
	if code, _, errs := run(t, "key", "rotate", "--config", toml); code != exitOK {
		t.Errorf("the first command: %d, %q", code, errs)
	}
	if k, err := nodekey.Load(file); err != nil || k.Name() != *asked.NextKey {
		t.Errorf("%s holds %v, %v", file, k.Name(), err)
	}

	before, _ := nodekey.Load(file)
	meanwhile = func() { // an operator replaces the next key
		other, err := nodekey.New()
		if err := errors.Join(err, os.Rename(file+".next", file+".aside"), other.Save(file+".next", nil)); err != nil {
			t.Error(err)
		}
	}
	code, out, errs := run(t, "key", "rotate", "--config", toml)
	if k, err := nodekey.Load(file); err != nil || k.Name() != before.Name() || code != exitFailure || !strings.Contains(errs, "this node's key is now "+string(*asked.NextKey)) {
		t.Errorf("replaced: %v; %d, %q, %q", err, code, out, errs)
	}
	if err := os.Rename(file+".aside", file); err != nil {
		t.Fatal(err)
	}
	if err := takeNext(file, *asked.NextKey); err != nil {
		t.Errorf("the key is in its place: %v", err)
	}
}

// TestRotateKeepsTheKey: if no leader takes the change, the command says that the key waits, and the next one takes it.
func TestRotateKeepsTheKey(t *testing.T) {
	dir := t.TempDir()
	var asked cluster.KeysChange
	leaderless := true
	answered := func() *control.Answer {
		if !leaderless {
			return nil
		}
		return &control.Answer{Code: control.CodeNoLeader, Error: "no leader took the request within 5s, nothing was done"}
	}
	toml := keyNodeThat(t, dir, true, &asked, answered)
	file := filepath.Join(dir, "node.key.next")
	code, _, errs := run(t, "key", "rotate", "--config", toml)
	k, err := nodekey.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := "nothing was done; the new key " + string(k.Name()) + " waits in " + file + ": run the command again\n"; code != exitNoPrimary || !strings.HasSuffix(errs, want) {
		t.Errorf("%d, %q, want %q", code, errs, want)
	}
	leaderless, asked = false, cluster.KeysChange{}
	if code, out, _ := run(t, "key", "rotate", "--config", toml); code != exitOK || !strings.Contains(out, string(k.Name())) {
		t.Errorf("again: %d, %q", code, out)
	}
}

// TestRotateEndsAtTheEnd: the command ends only once the cluster knows the node by the new key alone. The node shows
// the new key before that.
func TestRotateEndsAtTheEnd(t *testing.T) {
	for _, done := range []bool{false, true} {
		dir := t.TempDir()
		file := filepath.Join(dir, "node.key")
		var asked cluster.KeysChange
		toml := keyNode(t, dir, done, &asked, nil)
		code, out, errs := run(t, "key", "rotate", "--config", toml, "--wait", "1s")
		k, err := nodekey.Load(file)
		if err != nil || asked.NextKey == nil {
			t.Fatalf("%v, %q, %q", err, out, errs)
		}
		if is := k.Name() == *asked.NextKey; is != done || (code == exitOK) != done || !done && !strings.Contains(errs, "is not changed yet") {
			t.Errorf("the cluster has it: %t; the command: %d, %q, %q; it lies in its place: %t", done, code, out, errs, is)
		}
		if !done {
			continue
		}
		// A command that was killed before its last step has left the new key in node.key.next. The next command
		// must finish that change, and say that it made no other key.
		if err := os.Rename(file, file+".next"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		before := *asked.NextKey
		if code, out, _ := run(t, "key", "rotate", "--config", toml); code != exitOK || !strings.Contains(out, "no other one was made") || *asked.NextKey != before {
			t.Errorf("taken up: %d, %q", code, out)
		}
	}
}
