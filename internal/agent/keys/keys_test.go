package keys

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/raft/nodekey/nodekeytest"
)

// world is a cluster of three as node 1 sees it.
type world struct {
	point   cluster.StatePoint
	others  []status.Node
	shown   *nodekey.Key
	trouble string
	changed []cluster.KeysChange
	fails   bool
	noted   datadir.KeyNote
	full    bool
}

func (w *world) Kept() cluster.StatePoint { return w.point }
func (w *world) Nodes() []status.Node     { return w.others }
func (w *world) ShowKey(k *nodekey.Key)   { w.shown = k }
func (w *world) NoteKey(n datadir.KeyNote) error {
	if w.full {
		return errors.New("no space left on device")
	}
	w.noted = n
	return nil
}
func (w *world) Trouble(text string)  { w.trouble = text }
func (w *world) State() cluster.State { return w.point.State }
func (w *world) Outdated(string) bool { return false }
func (w *world) ChangeKey(_ context.Context, c cluster.KeysChange) error {
	if w.fails {
		return errors.New("no leader")
	}
	w.changed = append(w.changed, c)
	return nil
}

// set makes the keys of node 1 those of the state.
func (w *world) set(key, next cluster.Key) {
	w.point.Index++
	w.point.State.Members = []cluster.Member{{ID: 1, Name: "a", Key: key, NextKey: next}, {ID: 2, Name: "b"}, {ID: 3, Name: "c"}}
}

func load(t *testing.T, file string, known cluster.Key) *Keys {
	t.Helper()
	k, err := Load(Files{Own: file}, 1, known, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// load is load where the node has the state and the note of a world.
func (w *world) load(t *testing.T, file string) *Keys {
	t.Helper()
	m, is := w.point.State.MemberByID(1)
	k := load(t, file, m.Key)
	k.resume(w.noted, m, is)
	return k
}

func begun(t *testing.T) (file string, k *Keys, w *world, first cluster.Key, next *nodekey.Key) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "node.key")
	k = load(t, file, "")
	first = k.Shown().Name()
	next, err := nodekey.New()
	if err != nil {
		t.Fatal(err)
	}
	w = &world{others: []status.Node{{ID: 1, Name: "a"}, {ID: 2, Name: "b", Reachable: true}, {ID: 3, Name: "c", Reachable: true}}}
	w.point.Index = 10
	w.set(first, "")
	return file, k, w, first, next
}

// TestRotation: the next key is shown once all know it, whenever this node is started again.
func TestRotation(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		file, k, w, first, next := begun(t)
		look := func() {
			if restarts {
				k = w.load(t, file)
			}
			k.Look(t.Context(), w)
		}
		look()
		w.set(first, next.Name())
		look()
		if !strings.Contains(w.trouble, "is not in "+NextFile(file)) || k.Shown().Name() != first {
			t.Fatalf("%s, shows %s", w.trouble, k.Shown().Name())
		}
		if err := next.Save(NextFile(file), nil); err != nil {
			t.Fatal(err)
		}
		w.others[1].StateKept, w.others[2].StateKept, w.others[2].Reachable = 12, 12, false
		look()
		if !strings.HasSuffix(w.trouble, "to learn the new key: c") || w.shown != nil {
			t.Fatalf("c is away: %s", w.trouble)
		}
		w.others[1].StateKept, w.others[2].Reachable = 11, true
		look()
		if !strings.HasSuffix(w.trouble, "to learn the new key: b") || w.shown != nil {
			t.Fatalf("b is behind: %s", w.trouble)
		}
		w.others[1].StateKept, w.full = 12, true
		look()
		if !strings.Contains(w.trouble, "no space left") || w.shown != nil {
			t.Fatalf("the disk is full: %s", w.trouble)
		}
		w.full = false
		look()
		if w.trouble != "" || w.shown.Name() != next.Name() || k.Shown().Name() != next.Name() || len(w.changed) > 0 {
			t.Fatalf("all know it: %s, shows %s, %v", w.trouble, k.Shown().Name(), w.changed)
		}
		w.fails = true
		look()
		w.fails = false
		look()
		if len(w.changed) != 1 || *w.changed[0].Key != next.Name() || *w.changed[0].NextKey != "" || w.changed[0].Name != "a" {
			t.Fatalf("%v", w.changed)
		}
	}
}

// TestKilledWhileItsNextKeyIsShown: the others may have made it the only key, and this node's disk may not say so. Before,
// the node then showed its former key, and all others refused it. Without a state, too: it is being rebuilt. A change that
// was taken back stays so.
func TestKilledWhileItsNextKeyIsShown(t *testing.T) {
	file, k, w, first, next := begun(t)
	if err := next.Save(NextFile(file), nil); err != nil {
		t.Fatal(err)
	}
	w.set(first, next.Name())
	w.others[1].StateKept, w.others[2].StateKept = w.point.Index, w.point.Index
	k.Look(t.Context(), w)
	want := func(what string, key cluster.Key) {
		t.Helper()
		if k = w.load(t, file); k.Shown().Name() != key {
			t.Errorf("%s: it shows %s, want %s", what, k.Shown().Name(), key)
		}
	}
	want("its state is older", next.Name())
	state := w.point.State
	w.point.State = cluster.State{}
	want("it has no state", next.Name())
	w.point.State = state
	w.set(first, newName(t))
	want("another next key", first)
	w.set(first, "")
	want("the change was taken back", first)
	k.Look(t.Context(), w)
	w.set(first, next.Name())
	want("it was taken back, and is asked for again", first)
	w.point.State = cluster.State{}
	want("and it has no state", first)
}

// TestAnotherNextKey: a node that has the state with one next key does not know the key that replaces it.
func TestAnotherNextKey(t *testing.T) {
	file, k, w, first, next := begun(t)
	w.set(first, newName(t))
	w.others[1].StateKept, w.others[2].StateKept = w.point.Index, w.point.Index
	k.Look(t.Context(), w) // the first one is in no file
	if err := next.Save(NextFile(file), nil); err != nil {
		t.Fatal(err)
	}
	w.set(first, next.Name())
	k.Look(t.Context(), w)
	if k.Shown().Name() != first || !strings.Contains(w.trouble, "b, c") {
		t.Fatalf("shows %s: %s", k.Shown().Name(), w.trouble)
	}
	w.others[1].StateKept, w.others[2].StateKept = w.point.Index, w.point.Index
	k.Look(t.Context(), w)
	if k.Shown().Name() != next.Name() {
		t.Fatalf("all know it: %s", w.trouble)
	}
}

func newName(t *testing.T) cluster.Key {
	t.Helper()
	k, err := nodekey.New()
	if err != nil {
		t.Fatal(err)
	}
	return k.Name()
}

// TestNextOfAuthority: a node shows the key from its authority once all nodes know that authority, and its own key
// again when it is told so.
func TestNextOfAuthority(t *testing.T) {
	file, _, w, first, _ := begun(t)
	dir := filepath.Dir(file)
	ca := nodekeytest.NewAuthority(t, filepath.Join(dir, "ca"))
	files := Files{Own: file, Certificate: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	const name = cluster.Key("ca:quorate://orders/a")
	ca.Issue(t, files.Certificate, files.Key, time.Now().Add(90*24*time.Hour), "quorate://orders/a")
	k, err := Load(files, 1, first, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.set(first, name)
	for i := range w.others {
		w.others[i].StateKept = w.point.Index
	}
	w.others[0].PeerAuthority, w.others[2].PeerAuthority = true, true
	k.Look(t.Context(), w)
	if k.Shown().Name() != first || !strings.HasSuffix(w.trouble, "the authority of the new key: b") {
		t.Fatalf("b has none: %s, shows %s", w.trouble, k.Shown().Name())
	}
	w.others[1].PeerAuthority = true
	k.Look(t.Context(), w)
	if k.Shown().Name() != name || w.trouble != "" {
		t.Fatalf("all know it: %s, shows %s", w.trouble, k.Shown().Name())
	}
	for _, restarted := range []bool{false, true} {
		w.set(name, first)
		for i := range w.others {
			w.others[i].StateKept, w.others[i].PeerAuthority = w.point.Index, false
		}
		if restarted {
			if k, err = Load(files, 1, name, slog.New(slog.DiscardHandler)); err != nil || k.Shown().Name() != name {
				t.Fatalf("%v", err)
			}
		}
		k.Look(t.Context(), w)
		if k.Shown().Name() != first {
			t.Fatalf("it is to have its own: %s, shows %s", w.trouble, k.Shown().Name())
		}
	}
}

// TestIssuedKeyOfAnotherNode: it is left aside, and the status says why until it is mended.
func TestIssuedKeyOfAnotherNode(t *testing.T) {
	file, _, w, first, _ := begun(t)
	dir := filepath.Dir(file)
	const name = cluster.Key("ca:quorate://orders/a")
	ca := nodekeytest.NewAuthority(t, filepath.Join(dir, "ca"))
	files := Files{Own: file, Certificate: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Name: name}
	ends := time.Now().Add(90 * 24 * time.Hour)
	ca.Issue(t, files.Certificate, files.Key, ends, "quorate://orders/b")
	k, err := Load(files, 1, first, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for known, want := range map[cluster.Key]string{first: "it shows " + file + ", because", name: "the cluster knows this node by the key " + string(name) + ": it shows"} {
		w.set(known, "")
		k.Look(t.Context(), w)
		if k.Shown().Name() != first || !strings.HasPrefix(w.trouble, want) || !strings.Contains(w.trouble, "names ca:quorate://orders/b, and this node is "+string(name)) ||
			strings.Contains(w.trouble, "node set") {
			t.Errorf("known by %s: shows %s: %s", known, k.Shown().Name(), w.trouble)
		}
	}
	ca.Issue(t, files.Certificate, files.Key, ends, "quorate://orders/a")
	w.set(first, "")
	if k.Look(t.Context(), w); w.trouble != "" {
		t.Errorf("mended: %s", w.trouble)
	}
}

// TestRestartedDuringRotation: of two keys, the node shows the one that the others know.
func TestRestartedDuringRotation(t *testing.T) {
	file, _, w, first, next := begun(t)
	if err := next.Save(NextFile(file), nil); err != nil {
		t.Fatal(err)
	}
	for _, known := range []cluster.Key{first, next.Name()} {
		if k := load(t, file, known); k.Shown().Name() != known || !k.Has(first) || !k.Has(next.Name()) {
			t.Errorf("known by %s, shows %s", known, k.Shown().Name())
		}
	}
	// The command has given the new key its place, and the leader has not made it the only one yet.
	if err := TakeNext(vfs.OS{}, file); err != nil {
		t.Fatal(err)
	}
	k := load(t, file, first)
	w.set(first, next.Name())
	k.Look(t.Context(), w)
	if k.Shown().Name() != next.Name() || len(w.changed) != 1 {
		t.Errorf("shows %s, changed %v", k.Shown().Name(), w.changed)
	}
}

// TestTakenKeyStays: the new key has its place, also after a loss of power.
func TestTakenKeyStays(t *testing.T) {
	disk := vfs.NewMem()
	for name, text := range map[string]string{"node.key": "old", NextFile("node.key"): "new"} {
		if err := vfs.WriteNew(disk, name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := TakeNext(disk, "node.key"); err != nil {
		t.Fatal(err)
	}
	if text, err := vfs.ReadFile(disk.CrashClone(0), "node.key"); err != nil || string(text) != "new" {
		t.Errorf("the key is %q, %v", text, err)
	}
}

// TestSaidByAnOperator: a key that an operator has named as this node's is shown, if the node has it; else the status
// says which key the others know.
func TestSaidByAnOperator(t *testing.T) {
	file, k, w, first, next := begun(t)
	w.set(next.Name(), "")
	k.Look(t.Context(), w)
	if !strings.Contains(w.trouble, "quorate node set a --key "+string(first)) || w.shown != nil {
		t.Errorf("%s", w.trouble)
	}
	if err := next.Save(NextFile(file), nil); err != nil {
		t.Fatal(err)
	}
	k = load(t, file, first)
	k.Look(t.Context(), w)
	if w.shown == nil || w.shown.Name() != next.Name() || w.trouble != "" {
		t.Errorf("%v, %s", w.shown, w.trouble)
	}
}

// TestOutdated: for which nodes a configuration has another key than the cluster.
func TestOutdated(t *testing.T) {
	members := func(keys ...cluster.Key) (all []cluster.Member) {
		for i, k := range keys {
			all = append(all, cluster.Member{ID: cluster.NodeID(i + 1), Name: string(rune('a' + i)), Key: k})
		}
		return all
	}
	s := cluster.State{PeerSecurity: cluster.PeersRequire, Members: members("A", "B")}
	s.Members[1].NextKey = "B2"
	both := s
	both.PeerSecurity = cluster.PeersBoth
	for _, c := range []struct {
		configured []cluster.Member
		s          cluster.State
		want       string
	}{
		{members("A", "B"), s, ""},
		{members("A", "B2"), s, ""},
		{members("A", "B", "C"), s, ""}, // c was removed
		{members("A0", "B"), s, `of node a, key = "A"`},
		{members("", "B"), s, `of node a, key = "A"`},
		{members("", "B"), both, ""},
		{members("A0", ""), both, `of node a, key = "A"`},
		{members("A0", "B0"), s, `of node a, key = "A"; of node b, key = "B"`},
	} {
		if got := Outdated(c.configured, c.s); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.configured, got, c.want)
		}
	}
}

// TestNoFile: a key is made where there is none, and not where there is something else.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(Files{Own: filepath.Join(dir, "away", "node.key")}, 1, "", slog.New(slog.DiscardHandler)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "node.key"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Files{Own: filepath.Join(dir, "node.key")}, 1, "", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file that is no key")
	}
}

// TestIssuedAnew: a node changes from its own key to the key from its authority, and takes each certificate that is
// issued again. It says that a certificate ends.
func TestIssuedAnew(t *testing.T) {
	dir := t.TempDir()
	ca := nodekeytest.NewAuthority(t, filepath.Join(dir, "ca"))
	files := Files{Own: filepath.Join(dir, "node.key"), Certificate: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	const name = cluster.Key("ca:quorate://orders/a")
	ca.Issue(t, files.Certificate, files.Key, time.Now().Add(90*24*time.Hour), "quorate://orders/a")
	quiet := slog.New(slog.DiscardHandler)
	k, err := Load(files, 1, name, quiet)
	if err != nil || k.Shown().Name() != name {
		t.Fatalf("no key of its own: %v", err)
	}
	if _, err := os.Stat(files.Own); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key was made: %v", err)
	}
	first := load(t, files.Own, "").Shown().Name()
	if k, err = Load(files, 1, first, quiet); err != nil || k.Shown().Name() != first || !k.Has(name) {
		t.Fatalf("known by its own key: %v", err)
	}
	w := &world{}
	w.set(first, name)
	k.Look(t.Context(), w)
	if k.Shown().Name() != name || w.shown != k.Shown() {
		t.Fatalf("shows %s", k.Shown().Name())
	}
	w.set(name, "")
	k.Look(t.Context(), w)
	if w.trouble != "" || w.shown != k.Shown() {
		t.Errorf("nothing was to be done: %s", w.trouble)
	}
	before := w.shown
	ca.Issue(t, files.Certificate, files.Key, time.Now().Add(29*24*time.Hour), "quorate://orders/a")
	k.Look(t.Context(), w)
	if !strings.Contains(w.trouble, "renew it") || w.shown == before || w.shown.Ends().After(before.Ends()) {
		t.Errorf("%s", w.trouble)
	}
	ca.Issue(t, files.Certificate, files.Key, time.Now().Add(90*24*time.Hour), "quorate://orders/b")
	k.Look(t.Context(), w)
	if !strings.Contains(w.trouble, "now names ca:quorate://orders/b") || k.Shown().Name() != name {
		t.Errorf("another node's: %s", w.trouble)
	}
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	k.Look(t.Context(), w)
	if !strings.Contains(w.trouble, "no such file") || k.Shown().Name() != name {
		t.Errorf("%s", w.trouble)
	}
}
