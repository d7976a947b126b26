package replay

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// TestPreparedReadsInParts: ReadSome reads a bounded part of the log, and all parts give the
// same as one Read.
func TestPreparedReadsInParts(t *testing.T) {
	const n = 60
	log := xaLog(n)
	whole, parts := NewPrepared(1), NewPrepared(1)
	if err := whole.Read(log, n); err != nil {
		t.Fatal(err)
	}
	looks := 1
	for ; ; looks++ {
		done, err := parts.ReadSome(log, n)
		if err != nil || looks > n {
			t.Fatalf("look %d: %v", looks, err)
		}
		if done {
			break
		}
	}
	if looks != n/2 { // a fakeLog gives two entries at once
		t.Errorf("it took %d looks, want %d", looks, n/2)
	}
	if diff := cmp.Diff(whole, parts, cmp.AllowUnexported(Prepared{}, PreparedXA{})); diff != "" {
		t.Errorf("in parts (-whole +parts):\n%s", diff)
	}
	if _, err := parts.ReadSome(log, n+1); err == nil {
		t.Error("what is not committed counts as looked at")
	}
}

// TestPreparedForgets: where no mark is asked for, ended XA transactions are not kept for ever.
// A mark that looks back as far as possible still gets the same.
func TestPreparedForgets(t *testing.T) {
	const n = 3 * witnessEntriesMax
	log := xaLog(n)
	kept, xa := NewPrepared(1), NewPrepared(1)
	for through := uint64(100); through <= n; through += 100 {
		if err := xa.Read(log, through); err != nil {
			t.Fatal(err)
		}
		xa.Forget(through)
		if len(xa.ended) > witnessEntriesMax {
			t.Fatalf("through %d: %d that have ended are kept", through, len(xa.ended))
		}
	}
	if err := kept.Read(log, n); err != nil {
		t.Fatal(err)
	}
	last := n/100*uint64(100) - witnessEntriesMax
	if err := xa.Read(log, n); err != nil {
		t.Fatal(err)
	}
	if got := xa.before(last - 1); got != 0 {
		t.Errorf("further back than a mark looks: %d, want that it does not know", got)
	}
	for at := last; at <= n; at++ {
		if got, want := xa.before(at), kept.before(at); got != want || got == 0 {
			t.Fatalf("before(%d) = %d, want %d", at, got, want)
		}
	}
}

// TestPreparedIn: only what a mysqld has applied counts, not what the log has beyond that.
func TestPreparedIn(t *testing.T) {
	does := []change{ // of transaction 1, 2, …, one an entry; 1, 3 and 7 are staged, 3 and 7 as a payload
		{xaPrepare, 'x'}, {rowChange, 0}, {xaPrepare, 'y'}, {xaEnd, 'x'}, {noOp, 0}, {xaEnd, 'y'}, {xaPrepare, 'x'}, {xaPrepare, 'z'},
	}
	counts := slices.Repeat([]int{1}, len(does))
	log := buildLog(counts, func(n uint64) change { return does[n-1] })
	id := func(xid string) binlog.XID { return binlog.XID{GTRID: xid} }
	at := func(n uint64) gtid.GTID { return gtid.GTID{N: n} }
	for _, tc := range []struct {
		name     string
		log      CommittedLog
		from     uint64
		executed *gtid.Set
		open     map[binlog.XID]gtid.GTID
		want     map[binlog.XID]gtid.GTID
	}{
		{"nothing is applied", log, 1, numbers(), nil, nil},
		{"prepared", log, 1, numbers(1, 2), nil, map[binlog.XID]gtid.GTID{id("x"): at(1)}},
		{"two are", log, 1, numbers(1, 2, 3), nil, map[binlog.XID]gtid.GTID{id("x"): at(1), id("y"): at(3)}},
		{"an end", log, 1, numbers(1, 2, 3, 4), nil, map[binlog.XID]gtid.GTID{id("y"): at(3)}},
		{"an end, not in order", log, 1, numbers(1, 3, 6), nil, map[binlog.XID]gtid.GTID{id("x"): at(1)}},
		{"prepared under the same name again", log, 1, numbers(1, 2, 3, 4, 5, 6, 7), nil, map[binlog.XID]gtid.GTID{id("x"): at(7)}},
		{"the newest of a name counts", log, 1, numbers(1, 7), nil, map[binlog.XID]gtid.GTID{id("x"): at(7)}},
		{"its PREPARE is not applied, its end is", log, 1, numbers(4), nil, nil},
		{"all", log, 1, numbers(1, 2, 3, 4, 5, 6, 7, 8), nil, map[binlog.XID]gtid.GTID{id("x"): at(7), id("z"): at(8)}},
		{"brought forward by an end", log, 4, numbers(1, 2, 3, 4), map[binlog.XID]gtid.GTID{id("x"): at(1), id("y"): at(3)}, map[binlog.XID]gtid.GTID{id("y"): at(3)}},
		{"brought forward by nothing", log, 5, numbers(1, 2, 3, 4), map[binlog.XID]gtid.GTID{id("y"): at(3)}, map[binlog.XID]gtid.GTID{id("y"): at(3)}},
		{"brought forward to the same name", log, 4, numbers(1, 2, 3, 4, 7), map[binlog.XID]gtid.GTID{id("x"): at(1)}, map[binlog.XID]gtid.GTID{id("x"): at(7)}},
		{"from behind the end", log, 99, numbers(1), map[binlog.XID]gtid.GTID{id("x"): at(1)}, map[binlog.XID]gtid.GTID{id("x"): at(1)}},
		{"from before a copied log begins", log.purged(6), 1, numbers(1, 2, 3, 4, 5, 6, 7, 8), nil, map[binlog.XID]gtid.GTID{id("x"): at(7), id("z"): at(8)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := map[binlog.XID]gtid.GTID{}
			maps.Copy(got, tc.open)
			if err := PreparedIn(tc.log, tc.from, tc.executed, got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	delete(log.stages, entry.StageID{Term: 1, Number: 7})
	if err := PreparedIn(log, 1, upTo(8), map[binlog.XID]gtid.GTID{}); !errors.Is(err, seglog.ErrNoStage) {
		t.Errorf("a payload that cannot be read: %v, want %v", err, seglog.ErrNoStage)
	}
}
