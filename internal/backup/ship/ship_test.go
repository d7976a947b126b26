package ship

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/entry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is an agent with a log of entries, in which each entry from 2 on has a transaction.
type node struct {
	mu      sync.Mutex
	first   uint64
	entries []seglog.Entry // all that there ever were, from 1 on
	w       *binlogtest.Writer
	stage   []byte // the bytes of its one staged transaction, if there is one
	// grow is how many entries are added while the data are copied. broken says that the copy
	// breaks off.
	grow   int
	broken bool
	newest time.Time
	// cluster is its id.
	cluster string
	// generation is the generation of its history.
	generation uint64
	// ahead is how wrong its clock is.
	ahead time.Duration
	// sent is called when everything up to an entry was read; it may be nil.
	sent func(index uint64)
}

func newNode(entries int) *node {
	n := &node{first: 1, cluster: "1f", w: binlogtest.New("q.000001"), entries: []seglog.Entry{{Index: 1, Term: 1}}}
	n.add(entries - 1)
	return n
}

func (n *node) add(count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range count {
		index := uint64(len(n.entries) + 1)
		data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: 1, Term: 1, Number: index})
		n.entries = append(n.entries, seglog.Entry{Index: index, Term: 1, Data: append(data, binlogtest.Join(n.w.Rows(10)...)...)})
	}
}

// Log implements Agent: it gives all entries, a point, and then points until ctx ends.
func (n *node) Log(ctx context.Context, first uint64) (io.ReadCloser, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if first == 0 {
		first = uint64(len(n.entries)) + 1
	}
	switch {
	case first < n.first:
		return nil, ErrGap
	case first > uint64(len(n.entries))+1:
		return nil, ErrBehind
	}
	out, in := io.Pipe()
	go func() {
		w, err := archive.NewWriter(in, archive.Head{Cluster: "c", ClusterID: n.cluster, Generation: n.generation, Node: "b", First: first})
		for next := first; err == nil && ctx.Err() == nil; {
			n.mu.Lock()
			found, sent := n.entries[next-1:], n.sent
			n.mu.Unlock()
			for _, e := range found {
				err = errors.Join(err, w.Entry(e, nil))
			}
			next += uint64(len(found))
			err = errors.Join(err, w.Point(next-1))
			if err == nil && sent != nil {
				sent(next - 1)
			}
		}
		in.CloseWithError(errors.Join(err, ctx.Err(), io.ErrUnexpectedEOF))
	}()
	return out, nil
}

// Data implements Agent.
func (n *node) Data(context.Context) (io.ReadCloser, error) {
	start := archive.Start{Format: archive.Format, Cluster: "c", ClusterID: n.cluster, Generation: n.generation, Node: "b", At: time.Now().Add(n.ahead), Newest: n.newest, Begin: replay.LogBegin{First: n.first, PreviousTerm: 1, GTIDs: new(gtid.Set).AppendBinary(nil)}}
	n.add(n.grow)
	n.mu.Lock()
	end := archive.End{Index: uint64(len(n.entries))}
	n.mu.Unlock()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	put := func(name string, v any) {
		b, err := json.Marshal(v)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(b))})
		}
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			panic(err) // it is written to memory
		}
	}
	put(archive.StartFile, start)
	put(archive.DataDir+"t.ibd", "rows")
	if n.broken {
		return io.NopCloser(io.MultiReader(&out, failing{})), nil
	}
	put(archive.EndFile, end)
	return io.NopCloser(&out), w.Close()
}

var errAgent = errors.New("the agent has ended")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errAgent }

type silent struct{}

func (silent) Begun(archive.Start) {}
func (silent) Copied(int64)        {}

func newConfig(t *testing.T) Config {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("b"); err != nil {
		t.Fatal(err)
	}
	store, err := repository.NewDirectory(mem, "b")
	if err != nil {
		t.Fatal(err)
	}
	return Config{Store: store, Interval: time.Hour, New: true}
}

// entries returns the entries that a restore of everything would read.
func entries(t *testing.T, c Config) (all []seglog.Entry) {
	t.Helper()
	contents, manifests, _, err := Usable(t.Context(), c.Store)
	if err != nil {
		t.Fatal(err)
	}
	full, err := archive.Choose(archive.Target{}, manifests)
	if err != nil {
		t.Fatal(err)
	}
	chain := NewChain(t.Context(), c.Store, nil, "1f", contents, full.Begin.First)
	defer func() { _ = chain.Close() }()
	for {
		item, err := chain.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, item.Entry)
	}
}

func wantAll(t *testing.T, c Config, n *node) {
	t.Helper()
	if d := cmp.Diff(n.entries[n.first-1:], entries(t, c)); d != "" {
		t.Fatalf("(-log +repository):\n%s", d)
	}
}

// TestFullAndArchive: a full backup has the log up to its end, and the archive goes on from there; with
// two archives, and full backups in between, no entry is missing.
func TestFullAndArchive(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	if err := Follow(t.Context(), c, n, true); !errors.Is(err, ErrNoFull) {
		t.Fatalf("an archive without a full backup: %v", err)
	}
	n.grow = 3
	_, m, err := Full(t.Context(), c, n, silent{})
	if err != nil {
		t.Fatal(err)
	}
	if m.End.Index != 8 || m.GTIDs != binlogtest.GTID(1).UUID.String()+":1-7" || m.Time.IsZero() || len(m.Files) != 1 {
		t.Errorf("%+v", m)
	}
	wantAll(t, c, n)
	var shipped []archive.Piece
	c.Shipped = func(p archive.Piece) { shipped = append(shipped, p) }
	n.add(4)
	for range 2 { // the second has nothing to do
		if err := Follow(t.Context(), c, n, true); err != nil {
			t.Fatal(err)
		}
	}
	if len(shipped) != 1 || shipped[0].First != 9 || shipped[0].Last != 12 {
		t.Errorf("shipped %+v", shipped)
	}
	wantAll(t, c, n)
	// The next full backup does not ship pieces again that are there.
	shipped, n.grow = nil, 0
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil || len(shipped) != 0 {
		t.Errorf("shipped again %+v, %v", shipped, err)
	}
	wantAll(t, c, n)
	if all, err := Fulls(t.Context(), c.Store); err != nil || len(all) == 0 || all[0].Problem != "" || all[0].Index != 12 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestStopped: an archive that is stopped first ships the entries that it has.
func TestStopped(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Fatal(err)
	}
	n.add(3)
	ctx, cancel := context.WithCancel(t.Context())
	n.mu.Lock()
	n.sent = func(index uint64) {
		if index == 8 {
			cancel()
		}
	}
	n.mu.Unlock()
	if err := Follow(ctx, c, n, false); err != nil {
		t.Fatal(err)
	}
	wantAll(t, c, n)
}

// TestIdle: a full backup without a transaction in its log has the time of the transaction
// before.
func TestIdle(t *testing.T) {
	c, n := newConfig(t), newNode(1)
	n.newest = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	_, m, err := Full(t.Context(), c, n, silent{})
	if err != nil || !m.Time.Equal(n.newest) {
		t.Fatalf("it is of %s, %v", m.Time, err)
	}
	_, manifests, _, err := Usable(t.Context(), c.Store)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Choose(archive.Target{Time: n.newest.Add(-time.Second)}, manifests); !errors.Is(err, archive.ErrTooNew) {
		t.Errorf("it was chosen for a point before: %v", err)
	}
}

// TestTwoArchives: while one archive ships, the other has nothing to do; when the first ends, the
// other goes on.
func TestTwoArchives(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Fatal(err)
	}
	n.add(5)
	newest := func() archive.Piece {
		contents, err := list(t.Context(), c.Store)
		if err != nil {
			t.Fatal(err)
		}
		return contents.Newest()
	}
	k := &cutter{c: c, head: archive.Head{Cluster: "c", ClusterID: "1f", Node: "b"}}
	k.c.Beside = true
	defer func() { _ = k.close() }()
	take := func(from, to int) error {
		for _, e := range n.entries[from-1 : to] {
			if err := k.add(t.Context(), archive.Item{Entry: e}, nil); err != nil {
				return err
			}
		}
		return k.ship(t.Context())
	}
	if err := Follow(t.Context(), c, n, true); err != nil || newest().Last != 10 {
		t.Fatalf("it ends at %d, %v", newest().Last, err)
	}
	if err := take(6, 8); !errors.Is(err, errOther) {
		t.Errorf("what was shipped by another one: %v", err)
	}
	n.add(2)
	k.piece = archive.Piece{}
	if err := take(11, 12); err != nil || newest().Last != 12 {
		t.Errorf("what nobody has shipped: %v, it ends at %d", err, newest().Last)
	}
	wantAll(t, c, n)
}

// TestCommands: a repository reached by commands gets the same.
func TestCommands(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	f := "'" + t.TempDir() + "'/\"$QUORATE_OBJECT\""
	c.Store = repository.NewCommands(repository.Commands{Put: "cat >" + f, Get: "cat " + f, List: "ls " + strings.TrimSuffix(f, "/\"$QUORATE_OBJECT\""), Delete: "rm " + f})
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Fatal(err)
	}
	n.add(3)
	if err := Follow(t.Context(), c, n, true); err != nil {
		t.Fatal(err)
	}
	wantAll(t, c, n)
}

// TestOtherHistory: nothing is added to the repository of another history, nor to one with a gap.
func TestOtherHistory(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Fatal(err)
	}
	before, err := c.Store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := newNode(4)
	other.w.Next++
	other.add(3) // the same length, and other transactions
	short := newNode(2)
	gap := newNode(9)
	gap.first = 7
	for what, tc := range map[string]struct {
		n             *node
		archive, full error
	}{"other entries": {other, ErrHistory, ErrHistory}, "too short": {short, ErrBehind, ErrBehind}, "purged": {gap, ErrGap, nil}} {
		if err := Follow(t.Context(), c, tc.n, true); !errors.Is(err, tc.archive) {
			t.Errorf("%s: archive: %v", what, err)
		}
		if tc.full == nil {
			continue
		}
		if _, _, err := Full(t.Context(), c, tc.n, silent{}); !errors.Is(err, tc.full) {
			t.Errorf("%s: full backup: %v", what, err)
		}
	}
	if after, err := c.Store.List(t.Context()); err != nil || len(after) != len(before) {
		t.Errorf("%v, %v", after, err)
	}
	gap.cluster = "2f"
	if _, _, err := Full(t.Context(), c, gap, silent{}); !errors.Is(err, ErrHistory) {
		t.Errorf("another cluster, behind a gap: %v", err)
	}
	gap.cluster = "1f"
	// A full backup may begin again behind a gap.
	if _, _, err := Full(t.Context(), c, gap, silent{}); err != nil {
		t.Fatal(err)
	}
}

// TestBehindByOneEntry: the log of a node that lacks only the newest entry of the repository begins with a point. It
// lags, and is of no other history; a full backup waits for it as for a node that lacks more.
func TestBehindByOneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n, late := newConfig(t), newNode(5), newNode(4)
		if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Full(t.Context(), c, late, silent{}); !errors.Is(err, ErrBehind) {
			t.Errorf("a node that stays behind: %v", err)
		}
		c.Patience = time.Minute
		var work sync.WaitGroup
		defer work.Wait()
		work.Go(func() {
			time.Sleep(10 * time.Second)
			late.add(1)
		})
		if _, _, err := Full(t.Context(), c, late, silent{}); err != nil {
			t.Errorf("a node that catches up: %v", err)
		}
		wantAll(t, c, n)
	})
}

// TestGeneration: a cluster that was recovered, or restored from everything, has the same last entry and the same
// name. But it begins another history, and the repository of the old one refuses it.
func TestGeneration(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Fatal(err)
	}
	n.generation++
	n.add(2)
	if err := Follow(t.Context(), c, n, true); !errors.Is(err, ErrHistory) {
		t.Errorf("archive: %v", err)
	}
	if _, _, err := Full(t.Context(), c, n, silent{}); !errors.Is(err, ErrHistory) {
		t.Errorf("full backup: %v", err)
	}
	n.first = 7 // purged behind the end of the repository
	if _, _, err := Full(t.Context(), c, n, silent{}); !errors.Is(err, ErrHistory) {
		t.Errorf("full backup, behind a gap: %v", err)
	}
}

// TestRestoredIsNoLag: a cluster that was restored to a point before the end of its old repository is of another history. It was
// told that it lags, until its log was as long. A node of an older generation may lag.
func TestRestoredIsNoLag(t *testing.T) {
	c, n := newConfig(t), newNode(10)
	n.generation = 1
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Fatal(err)
	}
	for generation, want := range []error{ErrBehind, ErrBehind, ErrHistory} {
		r := newNode(7)
		r.generation = uint64(generation)
		if err := Follow(t.Context(), c, r, true); !errors.Is(err, want) {
			t.Errorf("generation %d: archive: %v", generation, err)
		}
		if _, _, err := Full(t.Context(), c, r, silent{}); !errors.Is(err, want) {
			t.Errorf("generation %d: full backup: %v", generation, err)
		}
	}
}

// TestNew: an empty repository is not taken for a new one, because its disk may not be mounted.
func TestNew(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	c.New = false
	if _, _, err := Full(t.Context(), c, n, silent{}); !errors.Is(err, ErrEmpty) {
		t.Error(err)
	}
	c.New = true
	_, _, err := Full(t.Context(), c, n, silent{})
	c.New = false
	if err == nil {
		_, _, err = Full(t.Context(), c, n, silent{})
	}
	if err != nil {
		t.Error(err)
	}
}

// TestLostPiece: a lost piece is noticed, and is shipped again if the nodes still have its
// entries.
func TestLostPiece(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n.add(3)
		if err := Follow(t.Context(), c, n, true); err != nil {
			t.Fatal(err)
		}
	}
	contents, err := list(t.Context(), c.Store)
	if err != nil || len(contents.Pieces) != 3 {
		t.Fatalf("%+v, %v", contents, err)
	}
	if err := c.Store.Delete(t.Context(), contents.Pieces[1].Name()); err != nil {
		t.Fatal(err)
	}
	all, err := Fulls(t.Context(), c.Store)
	if err != nil || len(all) != 1 || !strings.Contains(all[0].Problem, "gap from entry 6 on") {
		t.Errorf("%+v, %v", all, err)
	}
	if err := Follow(t.Context(), c, n, true); err != nil {
		t.Fatal(err)
	}
	wantAll(t, c, n)
	if all, err := Fulls(t.Context(), c.Store); err != nil || all[0].Problem != "" {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestClocksOfFulls: after a gap the archive goes on from the full backup that goes furthest, although another node's
// clock was ahead when it took an older one.
func TestClocksOfFulls(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	for _, ahead := range []time.Duration{24 * time.Hour, 0} {
		n.ahead = ahead
		if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
			t.Fatal(err)
		}
		if err := Follow(t.Context(), c, n, true); err != nil {
			t.Fatalf("%v ahead: %v", ahead, err)
		}
		n.add(6)
		n.first = uint64(len(n.entries)) - 2 // the rest is purged before it is archived
		if err := Follow(t.Context(), c, n, true); !errors.Is(err, ErrGap) {
			t.Fatalf("%v ahead: %v", ahead, err)
		}
	}
}

// TestLostPieceOfFull: without a piece that the newest full backup needs itself, the archive says so, and not that there is no
// full backup.
func TestLostPieceOfFull(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Fatal(err)
	}
	contents, err := list(t.Context(), c.Store)
	if err != nil || len(contents.Pieces) != 1 {
		t.Fatalf("%+v, %v", contents, err)
	}
	if err := c.Store.Delete(t.Context(), contents.Pieces[0].Name()); err != nil {
		t.Fatal(err)
	}
	err = Follow(t.Context(), c, n, true)
	if !errors.Is(err, ErrNoChain) || errors.Is(err, ErrNoFull) || !strings.Contains(err.Error(), "the log is missing from entry 1 on") {
		t.Error(err)
	}
}

// TestFullsUnread: a manifest that may not be read is an error, and the other backups are shown all the same.
func TestFullsUnread(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	name, _, err := Full(t.Context(), c, n, silent{})
	if err != nil {
		t.Fatal(err)
	}
	store := unreadable{c.Store}
	all, err := Fulls(t.Context(), store)
	if len(all) != 1 || all[0].Problem != errDenied.Error() || !errors.Is(err, errDenied) || !strings.Contains(err.Error(), name) {
		t.Errorf("%+v, %v", all, err)
	}
}

var errDenied = errors.New("permission denied")

// unreadable is a repository whose objects may not be read.
type unreadable struct{ repository.Store }

// Get implements repository.Store.
func (unreadable) Get(context.Context, string) (io.ReadCloser, error) { return nil, errDenied }

// TestPieceIsNotWhatItsNameSays: a piece under the name of another is noticed.
func TestPieceIsNotWhatItsNameSays(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
		t.Fatal(err)
	}
	contents, err := list(t.Context(), c.Store)
	if err != nil {
		t.Fatal(err)
	}
	p := contents.Pieces[0]
	for what, bad := range map[string]archive.Piece{
		"longer":  {First: p.First, Last: p.Last + 1, Time: p.Time, Sum: p.Sum},
		"shorter": {First: p.First, Last: p.Last - 1, Time: p.Time, Sum: p.Sum},
		"another": {First: p.First, Last: p.Last, Time: p.Time, Sum: strings.Repeat("0", 16)},
	} {
		r, err := c.Store.Get(t.Context(), p.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Store.Put(t.Context(), bad.Name(), func(w io.Writer) error { _, err := io.Copy(w, r); return err }); err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		chain := NewChain(t.Context(), c.Store, nil, "1f", archive.Contents{Pieces: []archive.Piece{bad}}, p.First)
		for err == nil {
			_, err = chain.Next()
		}
		if !errors.Is(err, archive.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		_ = chain.Close()
	}
}

// TestFullBroken: a copy that breaks off is no backup.
func TestFullBroken(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	n.broken = true
	if _, _, err := Full(t.Context(), c, n, silent{}); !errors.Is(err, errAgent) {
		t.Fatal(err)
	}
	if all, err := Fulls(t.Context(), c.Store); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if objects, err := c.Store.List(t.Context()); err != nil || len(objects) > 1 { // pieces of the log are of use
		t.Errorf("left: %+v, %v", objects, err)
	}
}

// backUp takes full backups, an hour apart, and ships more of the log after each.
func backUp(t *testing.T, c Config, n *node, fulls int) {
	t.Helper()
	for i := range fulls {
		name, m, err := Full(t.Context(), c, n, silent{})
		if err != nil {
			t.Fatal(err)
		}
		// Give each a name of its own: all were taken in one second.
		rename(t, c.Store, name, archive.FullName(m.At.Add(time.Duration(i+1)*time.Hour), "b"))
		n.add(5)
		if err := Follow(t.Context(), c, n, true); err != nil {
			t.Fatal(err)
		}
		n.first += 4 // the log is purged
	}
}

// TestPrune: only objects that no kept backup needs are removed, and the rest can be restored.
func TestPrune(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	backUp(t, c, n, 3)
	wouldGo, _, err := Prune(t.Context(), c.Store, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	gone, _, err := Prune(t.Context(), c.Store, 1, false)
	if d := cmp.Diff(wouldGo, gone); d != "" || err != nil || len(gone) < 5 {
		t.Errorf("%v (-would +gone):\n%s", err, d)
	}
	n.first = 9
	if got := entries(t, c); len(got) == 0 || got[0].Index != 9 {
		t.Errorf("%d entries are left", len(got))
	}
	wantAll(t, c, n)
}

// withParts is a repository with unfinished full backups.
type withParts struct {
	repository.Store
	removed bool
}

// Parts implements repository.Store.
func (p *withParts) Parts(_ context.Context, remove bool) ([]repository.Part, error) {
	p.removed = p.removed || remove
	return []repository.Part{
		{Name: ".1", Object: "full-20260301T120000Z-a.data", Bytes: 1, State: repository.PartWritten},
		{Name: ".2", Object: "full-20260301T120000Z-b.data", Bytes: 2, State: repository.PartLeft},
		{Name: ".3", Object: "full-20260301T120000Z-c.data", Bytes: 3},
		{Name: ".4", Object: archive.Piece{First: 1, Last: 2, Sum: strings.Repeat("0", 16)}.Name(), State: repository.PartLeft},
	}, nil
}

// TestPartsOfFulls: unfinished full backups are listed, and pruned if no process writes them. Before, no list showed
// them.
func TestPartsOfFulls(t *testing.T) {
	store := &withParts{Store: newConfig(t).Store}
	all, err := Fulls(t.Context(), store)
	if err != nil || len(all) != 3 || all[1].Name != "full-20260301T120000Z-b" || all[1].Bytes != 2 || !strings.Contains(all[1].Problem, "was interrupted, and") {
		t.Errorf("%+v, %v", all, err)
	}
	for _, dryRun := range []bool{true, false} {
		names, _, err := Prune(t.Context(), store, 1, dryRun)
		if d := cmp.Diff([]string{".2", ".4"}, names); d != "" || err != nil || store.removed == dryRun {
			t.Errorf("dry run %v: %v (-want +got):\n%s", dryRun, err, d)
		}
	}
}

// dying is a store whose process dies at the nth deletion.
type dying struct {
	repository.Store
	left int
}

func (d *dying) Delete(ctx context.Context, name string) error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return d.Store.Delete(ctx, name)
}

var errDead = errors.New("dead")

// TestPruneInterrupted: if prune is interrupted at any deletion, the same command finishes the work. Before, it
// deleted the manifest first, and then nothing showed any more that the data could be deleted.
func TestPruneInterrupted(t *testing.T) {
	for n := 0; ; n++ {
		c, node := newConfig(t), newNode(5)
		backUp(t, c, node, 2)
		want, _, err := Prune(t.Context(), c.Store, 1, true)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = Prune(t.Context(), &dying{c.Store, n}, 1, false)
		if n == len(want) {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, errDead) {
			t.Fatalf("deletion %d: %v", n, err)
		}
		again, _, err := Prune(t.Context(), c.Store, 1, false)
		if d := cmp.Diff(want[n:], again); d != "" || err != nil {
			t.Errorf("dead at deletion %d, and again: %v (-want +got):\n%s", n, err, d)
		}
	}
}

// TestPruneKeepsUsable: full backups that cannot be restored do not count, so older ones that can be
// restored stay.
func TestPruneKeepsUsable(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	var names []string
	for i := range 3 {
		name, m, err := Full(t.Context(), c, n, silent{})
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, archive.FullName(m.At.Add(time.Duration(i+1)*time.Hour), "b"))
		rename(t, c.Store, name, names[i])
		n.add(5)
		n.first += 4
	}
	for _, step := range []struct {
		lost string // an object
		keep int
		gone []string // full backups
	}{
		{archive.DataName(names[2]), 2, nil},
		{"", 1, names[:1]},
		{archive.DataName(names[1]), 1, nil}, // none is left that can be restored
	} {
		if step.lost != "" {
			if err := c.Store.Delete(t.Context(), step.lost); err != nil {
				t.Fatal(err)
			}
		}
		before, err := list(t.Context(), c.Store)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Prune(t.Context(), c.Store, step.keep, false); err != nil {
			t.Fatal(err)
		}
		after, err := list(t.Context(), c.Store)
		if d := cmp.Diff(before.Fulls[len(step.gone):], after.Fulls); d != "" || err != nil {
			t.Errorf("%q is lost, %d are kept: %v (-want +left)\n%s", step.lost, step.keep, err, d)
		}
	}
}

// stuck is a repository whose Put of a manifest hangs.
type stuck struct{ repository.Store }

// Put implements repository.Store.
func (s stuck) Put(ctx context.Context, name string, fill func(io.Writer) error) error {
	if !strings.HasSuffix(name, ".json") {
		return s.Store.Put(ctx, name, fill)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestFullManifestHangs: a full backup that is asked to end ends even if the Put of its last object hangs.
func TestFullManifestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newConfig(t), newNode(5)
		c.Store = stuck{c.Store}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, _, err := Full(ctx, c, n, silent{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func rename(t *testing.T, s repository.Store, from, to string) {
	t.Helper()
	for _, of := range []func(string) string{archive.DataName, archive.ManifestName} {
		r, err := s.Get(t.Context(), of(from))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		b = []byte(strings.ReplaceAll(string(b), archive.DataName(from), archive.DataName(to)))
		err = errors.Join(err, r.Close(), s.Delete(t.Context(), of(from)),
			s.Put(t.Context(), of(to), func(w io.Writer) error { _, err := w.Write(b); return err }))
		if err != nil {
			t.Fatal(err)
		}
	}
}
