package ship

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

// TestChainGoesAroundDamage: the repository has entries twice, as when an archive runs beside a full backup. If a piece is
// damaged, at its begin or later, the others give its entries. If they do not have all of them, the error names the damaged piece.
func TestChainGoesAroundDamage(t *testing.T) {
	c, n := newConfig(t), newNode(25)
	shipPieces(t, c, n, [2]uint64{1, 5}, [2]uint64{6, 20}, [2]uint64{6, 10}, [2]uint64{11, 15}, [2]uint64{16, 20}, [2]uint64{21, 25})
	contents, err := list(t.Context(), c.Store)
	if err != nil || len(contents.Pieces) != 6 {
		t.Fatal(contents.Pieces, err)
	}
	long := contents.Pieces[1]
	whole := object(t, c, long.Name())
	read := func() (all []seglog.Entry, damaged []error, err error) {
		if contents, err = list(t.Context(), c.Store); err != nil {
			return nil, nil, err
		}
		return readAll(t, c, contents, nil)
	}
	for _, left := range []int{0, 10, len(whole) / 3, len(whole) / 2, len(whole) - 1} {
		put(t, c, long.Name(), whole[:left])
		all, damaged, err := read()
		if d := cmp.Diff(n.entries, all); d != "" || !errors.Is(err, io.EOF) || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), long.Name()) {
			t.Errorf("%d of %d bytes are left: %v, %v (-log +chain):\n%s", left, len(whole), err, damaged, d)
		}
	}
	if err := c.Store.Delete(t.Context(), contents.Pieces[3].Name()); err != nil { // 11 to 15
		t.Fatal(err)
	}
	put(t, c, long.Name(), whole[:10])
	if all, _, err := read(); len(all) != 10 || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "read "+long.Name()) {
		t.Errorf("%d entries: %v", len(all), err)
	}
	// A piece that can be read, and is not what its name says: what it has given is worth nothing.
	bad := long
	bad.Sum = strings.Repeat("0", 16)
	put(t, c, bad.Name(), whole)
	if err := c.Store.Delete(t.Context(), long.Name()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(); !errors.Is(err, errName) || !strings.Contains(err.Error(), bad.Name()) {
		t.Error(err)
	}
}

// readAll reads a repository as one log, and all of its large transactions, which must have these bytes.
func readAll(t *testing.T, c Config, contents archive.Contents, stage []byte, keys ...age.Identity) (all []seglog.Entry, unread []error, err error) {
	t.Helper()
	chain := NewChain(t.Context(), c.Store, keys, "1f", contents, 1)
	defer func() { _ = chain.Close() }()
	for {
		item, err := chain.Next()
		if err != nil {
			return all, chain.Unread(), err
		}
		if item.Stage != nil {
			if b, err := io.ReadAll(item.Stage); err != nil {
				return all, chain.Unread(), err
			} else if !bytes.Equal(b, stage) {
				t.Error("the transaction has other bytes")
			}
		}
		all = append(all, item.Entry)
	}
}

// TestChainGoesAroundDamageInStage: a piece that is damaged within a large transaction is left out, too, while its bytes are
// read: others give the rest of them.
func TestChainGoesAroundDamageInStage(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	n.stage = make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(n.stage) // never fails
	n.entries = append(n.entries, seglog.Entry{Index: 6, Term: 1, Data: entry.EncodeStaged(entry.Staged{
		ID: entry.StageID{Term: 1, Number: 6}, GTIDEvent: n.w.LongGTID(uint64(len(n.stage))), Bytes: uint64(len(n.stage)), Rows: true,
	})})
	n.add(4)
	shipPieces(t, c, n, [2]uint64{1, 9}, [2]uint64{1, 7}, [2]uint64{1, 3}, [2]uint64{4, 6}, [2]uint64{7, 10})
	contents, err := list(t.Context(), c.Store)
	if err != nil || len(contents.Pieces) != 5 {
		t.Fatal(contents.Pieces, err)
	}
	read := func() (all []seglog.Entry, unread []error, err error) { return readAll(t, c, contents, n.stage) }
	for i, p := range contents.Pieces[:2] { // the first one, then both, at different places
		whole := object(t, c, p.Name())
		bad := bytes.Clone(whole)
		bad[len(bad)/2+i<<20] ^= 4
		for what, b := range map[string][]byte{"cut off": whole[:len(whole)/2], "changed": bad} {
			put(t, c, p.Name(), b)
			if all, unread, err := read(); !errors.Is(err, io.EOF) || !cmp.Equal(n.entries, all) || len(unread) != i+1 {
				t.Errorf("%d %s: %v, %d entries, left out: %v", i+1, what, err, len(all), unread)
			}
		}
	}
	if err := c.Store.Delete(t.Context(), contents.Pieces[3].Name()); err != nil { // 4 to 6
		t.Fatal(err)
	}
	if contents, err = list(t.Context(), c.Store); err != nil {
		t.Fatal(err)
	}
	if all, _, err := read(); len(all) != 5 || !Damaged(err) || !strings.Contains(err.Error(), "read "+contents.Pieces[1].Name()) {
		t.Errorf("no other has it: %d entries, %v", len(all), err)
	}
}

// TestChainGoesAroundKey: a piece that is encrypted for another key is left out if others have its entries. If not, the error says
// what it is, and not that it is damaged.
func TestChainGoesAroundKey(t *testing.T) {
	own, err := age.GenerateX25519Identity()
	other, err2 := age.GenerateX25519Identity()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	c, n := newConfig(t), newNode(10)
	c.Recipients = []string{own.Recipient().String()}
	shipPieces(t, c, n, [2]uint64{1, 4}, [2]uint64{5, 8})
	c.Recipients = []string{other.Recipient().String()}
	shipPieces(t, c, n, [2]uint64{3, 10})
	for key, want := range map[*age.X25519Identity]int{own: 8, other: 0} {
		contents, err := list(t.Context(), c.Store)
		if err != nil {
			t.Fatal(err)
		}
		read, _, err := readAll(t, c, contents, nil, key)
		if len(read) != want || Damaged(err) || !strings.Contains(err.Error(), "another key") {
			t.Errorf("%d entries, want %d: %v", len(read), want, err)
		}
	}
}

// TestChainGoesAroundMount: a mount that fails once says nothing about a piece. No error calls it damaged, as that would have a
// DBA move it away. Other pieces give its entries, if there are any.
func TestChainGoesAroundMount(t *testing.T) {
	c, n := newConfig(t), newNode(10)
	broken := 0
	mem := vfs.NewMem()
	store, err := repository.NewDirectory(vfs.Wrap(mem, func(op vfs.Op, path string) error {
		if op == vfs.OpRead && strings.HasSuffix(path, ".qlog") && broken > 0 {
			broken--
			return &fs.PathError{Op: "read", Path: path, Err: syscall.EIO}
		}
		return nil
	}), ".")
	if err != nil {
		t.Fatal(err)
	}
	c.Store = store
	shipPieces(t, c, n, [2]uint64{1, 10})
	read := func() (all int, unread []error, err error) {
		contents, err := list(t.Context(), c.Store)
		if err != nil {
			t.Fatal(err)
		}
		broken = 1
		entries, unread, err := readAll(t, c, contents, nil)
		return len(entries), unread, err
	}
	if all, _, err := read(); all != 0 || Damaged(err) || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "object was not read") {
		t.Errorf("%d entries: %v", all, err)
	}
	shipPieces(t, c, n, [2]uint64{1, 4}, [2]uint64{5, 10})
	if all, unread, err := read(); all != 10 || len(unread) != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("%d entries, left out: %v, %v", all, unread, err)
	}
}

// shipPieces stores pieces of a log.
func shipPieces(t *testing.T, c Config, n *node, pieces ...[2]uint64) {
	t.Helper()
	for _, p := range pieces {
		k := &cutter{c: c, head: archive.Head{Cluster: "c", ClusterID: n.cluster, Node: "b"}}
		for _, e := range n.entries[p[0]-1 : p[1]] {
			item := archive.Item{Entry: e}
			if _, staged := e.Staged(); staged {
				item.Stage = bytes.NewReader(n.stage)
			}
			if err := k.add(t.Context(), item, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(k.ship(t.Context()), k.close()); err != nil {
			t.Fatal(err)
		}
	}
}

func object(t *testing.T, c Config, name string) []byte {
	t.Helper()
	r, err := c.Store.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, c Config, name string, b []byte) {
	t.Helper()
	if err := c.Store.Put(t.Context(), name, func(w io.Writer) error { _, err := w.Write(b); return err }); err != nil {
		t.Fatal(err)
	}
}
