package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestVerifyEnds: a restored node that makes progress may take any time. A node that makes none is given up, and the
// error has the reason that the node says, if it says one.
func TestVerifyEnds(t *testing.T) {
	stopped := status.Node{Name: "verify", Role: status.RoleUnverified, Reason: "the applier stopped with error 1062", Applied: 7}
	for what, c := range map[string]struct {
		// at returns the node's status after a time; nil = the node does not answer. After opens the node is the
		// primary; 0 = it never is.
		at    func(time.Duration) *status.Node
		opens time.Duration
		want  string
		after time.Duration
	}{
		"an apply error": {func(time.Duration) *status.Node { return &stopped }, 0, "applied nothing for 1h: it is unverified: the applier stopped", verifyStill},
		"no answer":      {func(time.Duration) *status.Node { return nil }, 0, "applied nothing for 1h", verifyStill},
		"fenced":         {func(time.Duration) *status.Node { return &status.Node{Name: "verify", Role: status.RoleFenced} }, 0, "does not open: it is fenced", 0},
		"slow": {func(past time.Duration) *status.Node {
			return &status.Node{Name: "verify", Role: status.RolePromoting, Applied: uint64(past / (50 * time.Minute))}
		}, 10 * time.Hour, "", 10 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := opened(t.Context(), "verify", func(context.Context) (status.Cluster, error) {
				st := status.Cluster{Self: "verify"}
				if past := time.Since(began); c.opens > 0 && past >= c.opens {
					st.Primary = "verify"
				}
				n := c.at(time.Since(began))
				if n == nil {
					return st, errors.New("no answer")
				}
				st.Nodes = []status.Node{*n}
				return st, nil
			}, make(chan error, 1))
			if took := time.Since(began); took < c.after || took > c.after+time.Minute {
				t.Errorf("%s: after %v", what, took)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// TestScratchOfKilled: the directory of a verification that was killed is removed, that of a running one stays.
func TestScratchOfKilled(t *testing.T) {
	scratch := t.TempDir()
	killed := filepath.Join(scratch, "qv-killed")
	if err := os.MkdirAll(filepath.Join(killed, scratchData), 0o700); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	first, removeFirst, err := scratchDir(scratch, &said)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killed); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(said.String(), killed+" was left by a verification that was killed") {
		t.Errorf("what was left: %v, and said: %s", err, &said)
	}
	second, removeSecond, err := scratchDir(scratch, &said)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first); err != nil || first == second {
		t.Errorf("what is under way is gone: %v", err)
	}
	if err := errors.Join(removeFirst(), removeSecond()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) != 0 {
		t.Errorf("%v are left: %v", left, err)
	}
}

// TestScratchOfOthers: what a verification has not made stays, whatever its name is.
func TestScratchOfOthers(t *testing.T) {
	scratch, elsewhere := t.TempDir(), t.TempDir()
	mine, link, file := filepath.Join(scratch, "qv-photos"), filepath.Join(scratch, "qv-link"), filepath.Join(scratch, "qv-notes")
	if err := errors.Join(os.Mkdir(mine, 0o700), os.WriteFile(file, nil, 0o600), os.Symlink(elsewhere, link),
		os.Mkdir(filepath.Join(elsewhere, scratchData), 0o700)); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	_, remove, err := scratchDir(scratch, &said)
	if err == nil {
		err = remove()
	}
	if err != nil || said.Len() > 0 {
		t.Errorf("%v, and said: %s", err, &said)
	}
	for _, path := range []string{mine, link, file, filepath.Join(elsewhere, scratchData)} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestPruneSaysWhatIsGone: a prune that cannot delete an object says which others it deleted, and fails.
func TestPruneSaysWhatIsGone(t *testing.T) {
	dir := t.TempDir()
	gone, held := archive.FullName(time.Unix(0, 0), "a"), archive.FullName(time.Unix(100_000, 0), "a")
	for i, name := range []string{gone, held, archive.FullName(time.Unix(200_000, 0), "a")} {
		m := fmt.Sprintf(`{"format": 1, "begin": {"first": %d}, "end": {"index": %[1]d}, "data": "x"}`, i+1)
		piece := archive.Piece{First: uint64(i + 1), Last: uint64(i + 1), Sum: strings.Repeat("0", 16)}
		for object, text := range map[string]string{archive.DataName(name): "x", archive.ManifestName(name): m, piece.Name(): "x"} {
			if err := os.WriteFile(filepath.Join(dir, object), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "node.toml")
	text := fmt.Sprintf("cluster = \"c\"\nnode = \"a\"\n[[member]]\nname = \"a\"\npeer = \"h:1\"\n[backup]\nput_command = \"false\"\n"+
		"get_command = 'cat %[1]s/$QUORATE_OBJECT'\nlist_command = 'ls %[1]s'\ndelete_command = '[ $QUORATE_OBJECT != %[2]s ] && rm %[1]s/$QUORATE_OBJECT'\n", dir, archive.DataName(held))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, "backup", "prune", "--config", path, "--keep", "1")
	if code != 1 || !strings.Contains(stdout, archive.ManifestName(gone)+"\n") || strings.Contains(stdout, held) || !strings.Contains(stdout, " deleted\n") || !strings.Contains(stderr, archive.DataName(held)) {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

// TestPruneWithoutDelete: a host whose key may only add objects has no delete_command. Its prune says so, and does not fail.
func TestPruneWithoutDelete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.toml")
	text := "cluster = \"c\"\nnode = \"a\"\n[[member]]\nname = \"a\"\npeer = \"h:1\"\n[backup]\nput_command = \"false\"\nget_command = \"false\"\nlist_command = \"false\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{nil, {"--dry-run"}} { // the list_command would fail
		code, stdout, stderr := run(t, append([]string{"backup", "prune", "--config", path}, more...)...)
		if code != 0 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "delete_command is not set") {
			t.Errorf("%v: %d, %q, %q", more, code, stdout, stderr)
		}
	}
}
