package ship

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
)

// shortNode has a repository reached by commands, with a full backup and, behind it, a piece of which a killed
// command has left only a part.
func shortNode(t *testing.T, recipients ...string) (c Config, n *node, cut string) {
	t.Helper()
	dir := t.TempDir()
	f := "'" + dir + "'/\"$QUORATE_OBJECT\""
	c, n = newConfig(t), newNode(5)
	c.Recipients = recipients
	c.Store = repository.NewCommands(repository.Commands{Put: "cat >" + f, Get: "cat " + f, List: "ls '" + dir + "'", Delete: "rm " + f})
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Fatal(err)
	}
	n.add(3)
	if err := Follow(t.Context(), c, n, true); err != nil {
		t.Fatal(err)
	}
	contents, err := list(t.Context(), c.Store)
	if err != nil || contents.Newest().Last != 8 {
		t.Fatalf("%+v, %v", contents, err)
	}
	cut = filepath.Join(dir, contents.Newest().Name())
	cutShort(t, cut)
	return c, n, cut
}

func cutShort(t *testing.T, file string) {
	t.Helper()
	info, err := os.Stat(file)
	if err == nil {
		err = os.Truncate(file, info.Size()-7)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantAllFor is wantAll for a repository that may be encrypted.
func wantAllFor(t *testing.T, c Config, n *node, own age.Identity) {
	t.Helper()
	contents, err := list(t.Context(), c.Store)
	if err != nil {
		t.Fatal(err)
	}
	_, last := contents.Chain(1)
	chain := NewChain(t.Context(), c.Store, []age.Identity{own}, "1f", contents, 1)
	defer func() { _ = chain.Close() }()
	for _, e := range n.entries {
		item, err := chain.Next()
		if d := cmp.Diff(e, item.Entry); d != "" || err != nil {
			t.Fatalf("%v (-log +repository):\n%s", err, d)
		}
	}
	if _, err := chain.Next(); !errors.Is(err, io.EOF) || last != uint64(len(n.entries)) {
		t.Errorf("%v, it goes to %d", err, last)
	}
}

// TestCutPiece: a killed command has left a part of a piece. An archive or a full backup stores the piece again
// before it stores another behind it; a piece that can be read is stored again even if no other follows. Before, the
// part was taken for the end of the log, and a restore ended there.
func TestCutPiece(t *testing.T) {
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		recipients []string
		more       int
		full       bool
	}{
		"plain": {nil, 3, false}, "plain, nothing new": {nil, 0, false}, "plain, by a full backup": {nil, 3, true},
		"plain, by a full backup, nothing new":     {nil, 0, true},
		"encrypted":                                {[]string{own.Recipient().String()}, 3, false},
		"encrypted, by a full backup":              {[]string{own.Recipient().String()}, 3, true},
		"encrypted, by a full backup, nothing new": {[]string{own.Recipient().String()}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, n, _ := shortNode(t, tc.recipients...)
			n.add(tc.more)
			var err error
			if tc.full {
				_, _, err = Full(t.Context(), c, n, silent{})
			} else {
				err = Follow(t.Context(), c, n, true)
			}
			if err != nil {
				t.Fatal(err)
			}
			wantAllFor(t, c, n, own)
		})
	}
}

// TestCutPieceIdle: an archive that has nothing to store finds the part, too.
func TestCutPieceIdle(t *testing.T) {
	c, n, _ := shortNode(t)
	c.Interval = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	c.Shipped = func(archive.Piece) { cancel() }
	if err := Follow(ctx, c, n, false); err != nil {
		t.Fatal(err)
	}
	wantAll(t, c, n)
}

// TestCutManifest: a part of a manifest that a killed command has left is no full backup: the archive and the next
// full backup go on behind the backup before. Before, they failed until somebody deleted the part.
func TestCutManifest(t *testing.T) {
	c, n, cut := shortNode(t)
	contents, err := list(t.Context(), c.Store)
	if err != nil {
		t.Fatal(err)
	}
	rename(t, c.Store, contents.Fulls[0], archive.FullName(time.Now().Add(-time.Hour), "b")) // the next one may be of the same second
	name := archive.FullName(time.Now().Add(time.Hour), "n")
	for object, data := range map[string]string{archive.ManifestName(name): `{"format": 1, "da`, archive.DataName(name): "x"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(cut), object), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := list(t.Context(), c.Store); err != nil || len(after.Fulls) != len(contents.Fulls)+1 || after.Fulls[len(after.Fulls)-1] != name {
		t.Fatalf("%+v, %v", after, err)
	}
	n.add(1)
	if err := Follow(t.Context(), c, n, true); err != nil {
		t.Errorf("the archive: %v", err)
	}
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Errorf("the full backup: %v", err)
	}
	wantAll(t, c, n)
	before, err := list(t.Context(), c.Store)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Prune(t.Context(), c.Store, 1, false); err != nil { // only one of the two others can go
		t.Errorf("prune: %v", err)
	}
	if after, err := list(t.Context(), c.Store); err != nil || len(after.Fulls) != len(before.Fulls)-1 || !slices.Contains(after.Fulls, name) {
		t.Errorf("%v, left of %v: %v", err, before.Fulls, after.Fulls)
	}
}

// TestUnreadablePiece: a piece that the store cannot deliver now does not count as broken: it is not stored again,
// and no error tells anybody to delete it.
func TestUnreadablePiece(t *testing.T) {
	c, n, cut := shortNode(t)
	if err := Follow(t.Context(), c, n, true); err != nil { // the piece that was cut is whole now
		t.Fatal(err)
	}
	n.add(1)
	n.first = 8
	dir := filepath.Dir(cut)
	get := `case "$QUORATE_OBJECT" in log-*) echo 503 >&2; exit 1 ;; *) cat '` + dir + `'/"$QUORATE_OBJECT" ;; esac`
	c.Store = repository.NewCommands(repository.Commands{Put: "exit 1", Get: get, List: "ls '" + dir + "'", Delete: "exit 1"})
	err := Follow(t.Context(), c, n, true)
	if !errors.Is(err, repository.ErrGet) || strings.Contains(err.Error(), "delete") {
		t.Errorf("%v", err)
	}
}

// TestCutPieceSealedIdle: an archive of encrypted pieces that has nothing to store checks once.
func TestCutPieceSealedIdle(t *testing.T) {
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	c, n, _ := shortNode(t, own.Recipient().String())
	gets := &countedStore{Store: c.Store}
	c.Store = gets
	k := &cutter{c: c, agent: n}
	contents, err := list(t.Context(), c.Store)
	if err != nil {
		t.Fatal(err)
	}
	pieces, _ := contents.Chain(1)
	k.behind = pieces[len(pieces)-1]
	for range 3 {
		if err := k.due(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if gets.n != 1 {
		t.Errorf("%d reads", gets.n)
	}
}

type countedStore struct {
	repository.Store
	n int
}

func (s *countedStore) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	s.n++
	return s.Store.Get(ctx, name)
}

// TestCutPiecePurged: if the nodes no longer have the log of the piece, the error says what to do. If nobody can tell
// whether the piece is whole, the archive goes on.
func TestCutPiecePurged(t *testing.T) {
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for name, recipients := range map[string][]string{"plain": nil, "encrypted": {own.Recipient().String()}} {
		c, n, cut := shortNode(t, recipients...)
		n.add(3)
		n.first = 8
		err := Follow(t.Context(), c, n, true)
		said := err != nil && strings.Contains(err.Error(), fmt.Sprintf("read %s", filepath.Base(cut))) && strings.Contains(err.Error(), "delete this object")
		if said != (recipients == nil) || !said && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWholePieceStays: a whole piece is not stored again.
func TestWholePieceStays(t *testing.T) {
	c, n, _ := shortNode(t)
	var stored []archive.Piece
	c.Shipped = func(p archive.Piece) { stored = append(stored, p) }
	for range 2 {
		n.add(1)
		if err := Follow(t.Context(), c, n, true); err != nil {
			t.Fatal(err)
		}
	}
	if len(stored) != 3 { // the one that was cut, and two
		t.Errorf("stored %+v", stored)
	}
}
