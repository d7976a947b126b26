package restoring

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/entry"
)

const newUUID = "22222222-2222-2222-2222-222222222222"

var errBroken = errors.New("broken")

// chain is a log as a repository gives it.
type chain struct {
	entries []seglog.Entry
	stage   []byte
}

// Next implements Items.
func (c *chain) Next() (archive.Item, error) {
	if len(c.entries) == 0 {
		return archive.Item{}, io.EOF
	}
	item := archive.Item{Entry: c.entries[0]}
	if _, staged := item.Entry.Staged(); staged {
		item.Stage = bytes.NewReader(c.stage)
	}
	c.entries = c.entries[1:]
	return item, nil
}

// backup returns a full backup whose data need the log from entry 5 on, and a log from there to entry 11: an epoch,
// two entries with two transactions each, a change of the policy, a transaction beside the log, and one more
// transaction.
func backup(t testing.TB) (archive.Manifest, *chain) {
	t.Helper()
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	w.Next = 41
	before, err := gtid.ParseSet(binlogtest.GTID(1).UUID.String() + ":1-40")
	if err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	batch := func(index uint64) seglog.Entry {
		number++
		data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: 2, Term: 2, Number: number})
		data = append(data, binlogtest.Join(w.Rows(20)...)...)
		return seglog.Entry{Index: index, Term: 2, Data: append(data, binlogtest.Join(w.Rows(20)...)...)}
	}
	members := []cluster.Member{{ID: 1, Name: "a", Peer: "h:1", Kind: cluster.KindFull, Weight: 5}, {ID: 2, Name: "b", Peer: "h:2", Kind: cluster.KindFull, Weight: 5}}
	state := cluster.NewState(members)
	state.Version, state.MySQLRouter = 3, true
	state.Variables = map[string]string{"innodb_buffer_pool_size": "64G", "max_connections": "500"}
	// What is restored follows no source. Once it followed the live source again, and got the DROP that the restore
	// was to undo.
	state.Follow, state.Site = &cluster.Follow{Source: "h:1", User: "u"}, &cluster.OtherSite{Site: "west"}
	state.SiteBallot = cluster.Ballot{Number: 2, Site: "east"}
	c := &chain{}
	c.entries = append(c.entries, seglog.Entry{Index: 5, Term: 2, Data: entry.EncodeEpoch(entry.Epoch{Term: 2, Primary: "a", FormatDescription: format})},
		batch(6), batch(7))
	events := w.Rows(100)
	c.stage = binlogtest.Join(events...)
	number++
	c.entries = append(c.entries, seglog.Entry{Index: 8, Term: 2, Data: entry.EncodeStaged(entry.Staged{
		ID: entry.StageID{Term: 2, Number: number}, GTIDEvent: events[0], EndEvent: events[len(events)-1], Bytes: uint64(len(c.stage)), CRC: crc32.Checksum(c.stage, crc32.MakeTable(crc32.Castagnoli)), Rows: true,
	})}, batch(9))
	record, err := json.Marshal(datadir.NewStateRecord(cluster.StatePoint{State: state, Index: 4, Through: 5}))
	if err != nil {
		t.Fatal(err)
	}
	return archive.Manifest{
		Start: archive.Start{
			Format: archive.Format, Cluster: "c", Node: "b", MarkText: replay.MarkText{MarkIndex: 5, MarkWitness: binlogtest.GTID(40).String()}, State: record,
			Begin: replay.LogBegin{First: 5, PreviousTerm: 1, GTIDs: before.AppendBinary(nil)},
		},
		End: archive.End{Index: 6},
	}, c
}

func options(fs vfs.FS) seglog.Options {
	return seglog.Options{FS: fs, Dir: "node/log", SegmentBytesMax: 8 << 10}
}

func disk(t testing.TB) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("node"); err != nil {
		t.Fatal(err)
	}
	return fs
}

func quiet(uint64, time.Time) {}

// TestMakeLog: the log has exactly what the point says.
func TestMakeLog(t *testing.T) {
	for _, c := range []struct {
		what  string
		t     archive.Target
		last  uint64
		gtids string
	}{
		{"all", archive.Target{}, 9, "1-47"},
		{"before one in the middle of an entry", archive.Target{Before: binlogtest.GTID(44)}, 7, "1-43"},
		{"before the first of an entry", archive.Target{Before: binlogtest.GTID(43)}, 6, "1-42"},
		{"through one beside the log", archive.Target{Through: binlogtest.GTID(45)}, 8, "1-45"},
		{"before one beside the log", archive.Target{Before: binlogtest.GTID(45)}, 7, "1-44"},
	} {
		m, items := backup(t)
		fs := disk(t)
		made, err := MakeLog(options(fs), m, c.t, items, quiet)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		want := binlogtest.GTID(1).UUID.String() + ":" + c.gtids
		if made.Last != c.last || made.GTIDs.String() != want || !made.State.State.MySQLRouter {
			t.Errorf("%s: the log ends at %d, with %s", c.what, made.Last, made.GTIDs)
		}
		log, err := seglog.Open(options(fs))
		if err != nil {
			t.Fatal(err)
		}
		if hs := log.HardState(); log.FirstIndex() != 5 || log.LastIndex() != c.last || hs != (seglog.HardState{Term: 2, Commit: c.last}) {
			t.Errorf("%s: entries %d to %d, %+v", c.what, log.FirstIndex(), log.LastIndex(), hs)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMakeLogRefuses: a log that lacks a part of the data, or does not reach the point, is refused.
func TestMakeLogRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		t      archive.Target
		change func(*archive.Manifest, *chain)
		want   string
	}{
		"the point does not come":         {archive.Target{Before: binlogtest.GTID(99)}, func(*archive.Manifest, *chain) {}, "--latest restores all that there is"},
		"pieces are missing":              {archive.Target{}, func(m *archive.Manifest, _ *chain) { m.End.Index = 10 }, "pieces are missing"},
		"the point is before the end":     {archive.Target{Before: binlogtest.GTID(41)}, func(*archive.Manifest, *chain) {}, "Name an older one"},
		"an entry is missing":             {archive.Target{}, func(_ *archive.Manifest, c *chain) { c.entries = append(c.entries[:2:2], c.entries[3:]...) }, "comes where entry 7 of term"},
		"an entry comes twice, by number": {archive.Target{}, func(_ *archive.Manifest, c *chain) { c.entries[2].Data = c.entries[1].Data }, "cannot be committed"},
		"a stage is too short":            {archive.Target{}, func(_ *archive.Manifest, c *chain) { c.stage = c.stage[:50] }, "entry 8"},
	} {
		m, items := backup(t)
		c.change(&m, items)
		if _, err := MakeLog(options(disk(t)), m, c.t, items, quiet); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// node makes all files of a node, as an agent does.
func node(t *testing.T, fs vfs.FS) error {
	m, items := backup(t)
	r := Record{By: "x", At: time.Unix(1, 0).UTC(), Full: "full", Target: "all"}
	if err := Begin(fs, "node", r); err != nil {
		return err
	}
	log, err := MakeLog(options(fs), m, archive.Target{}, items, quiet)
	if err != nil {
		return err
	}
	return Finish(fs, "node", r, m, log, Node{
		Identity: datadir.Identity{Format: 1, Cluster: "c", Node: "r", NodeID: 9, Instance: strings.Repeat("ab", 16)}, ServerUUID: newUUID,
		Members: []cluster.Member{{ID: 9, Name: "r", Peer: "h:9", Kind: cluster.KindFull, Weight: 5}},
		GiveAway: func() error {
			if _, underway, err := Underway(fs, "node"); err != nil || !underway {
				t.Errorf("it is given away once it is finished (%v): killed before, it would belong to root", err)
			}
			return nil
		},
		Sets: func(variable string) bool { return variable == "innodb_buffer_pool_size" },
	})
}

// wantNode checks that the node is there as a whole.
func wantNode(t *testing.T, fs vfs.FS) {
	t.Helper()
	d := datadir.New(fs, "node")
	id, found, err := d.Identity()
	if err != nil || !found || id.Format != datadir.FormatState || !id.Log || !id.State {
		t.Fatalf("identity %+v, %v", id, err)
	}
	point, err := d.State(nil, true, 5)
	want := cluster.StatePoint{Index: 9, Through: 9, State: cluster.State{
		Version: 1_000_000, Durability: cluster.DurabilityMajority, EventsOff: true, SiteBallot: cluster.Ballot{Number: 2, Site: "east"},
		Variables: map[string]string{"max_connections": "500"},
		Members:   []cluster.Member{{ID: 9, Name: "r", Peer: "h:9", Kind: cluster.KindFull, Weight: 5}},
	}}
	if diff := cmp.Diff(want, point); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if mark, found, err := d.MarkRecord(); err != nil || !found || mark.Index != 5 || mark.ServerUUID != newUUID {
		t.Errorf("durable mark %+v, %v", mark, err)
	}
	log, err := seglog.Open(options(fs))
	if err != nil {
		t.Fatal(err)
	}
	if log.LastIndex() != 9 || log.Close() != nil {
		t.Errorf("the log ends at %d", log.LastIndex())
	}
}

// TestInterrupted: wherever a restore is interrupted, an agent takes what is there for a node only if it is whole.
// The next restore begins again.
func TestInterrupted(t *testing.T) {
	whole, part := 0, 0
	for n := int64(1); ; n++ {
		base := disk(t)
		err := node(t, vfs.Wrap(base, vfs.FailNth(n, errBroken, func(op vfs.Op, _ string) bool { return op.Changes() })))
		if err == nil {
			break
		}
		if !errors.Is(err, errBroken) && !errors.Is(err, seglog.ErrFailed) {
			t.Fatalf("step %d: %v", n, err)
		}
		for seed := range uint64(4) {
			fs := base.CrashClone(seed)
			_, underway, err := Underway(fs, "node")
			if err != nil {
				t.Fatal(err)
			}
			_, begun, err := datadir.New(fs, "node").Identity()
			switch {
			case err != nil:
				t.Fatal(err)
			case !underway && begun:
				whole++
				wantNode(t, fs)
				continue
			case !underway:
				if err := datadir.New(fs, "node").CheckEmpty(); err != nil {
					t.Fatalf("interrupted at step %d, disk %d: %v", n, seed, err)
				}
			case underway:
				part++
				if err := Clear(fs, "node"); err != nil {
					t.Fatal(err)
				}
			}
			if err := node(t, fs); err != nil {
				t.Fatalf("interrupted at step %d, disk %d, and again: %v", n, seed, err)
			}
			wantNode(t, fs)
		}
	}
	if whole == 0 || part < 50 {
		t.Errorf("%d were whole, and %d parts", whole, part)
	}
}
