package ship

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// slow is a repository in which something happens at each Put: before it, and after all was written but before it returns.
type slow struct {
	repository.Store
	before func(name string) error
	after  func(name string)
}

// Put implements repository.Store.
func (s slow) Put(ctx context.Context, name string, fill func(io.Writer) error) error {
	if s.before != nil {
		if err := s.before(name); err != nil {
			return err
		}
	}
	err := s.Store.Put(ctx, name, fill)
	if s.after != nil {
		s.after(name)
	}
	return err
}

// TestFullEndsWithItsCopy: the store takes the data for hours after mysqld has copied them. What is committed meanwhile is
// not in the data, so the backup restores points in there, too.
func TestFullEndsWithItsCopy(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	var sent atomic.Uint64
	n.sent = sent.Store
	read := func(index uint64) {
		for sent.Load() < index {
			time.Sleep(time.Millisecond)
		}
	}
	c.Store = slow{c.Store,
		func(name string) error {
			if strings.HasSuffix(name, ".data") {
				read(5)
			}
			return nil
		},
		func(name string) {
			if strings.HasSuffix(name, ".data") {
				for index := range 15 {
					n.add(1)
					read(uint64(6 + index))
				}
			}
		}}
	_, m, err := Full(t.Context(), c, n, silent{})
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i < 20; i++ {
		_, err := archive.Choose(archive.Target{Before: binlogtest.GTID(i)}, []archive.Manifest{m})
		if inData := i < m.End.Index; errors.Is(err, archive.ErrTooNew) != inData || !inData && err != nil {
			t.Errorf("the data end at entry %d. A restore of all before transaction %d: %v", m.End.Index, i, err)
		}
	}
	wantAll(t, c, n)
}

// TestMarks: a mark ends after a second of the log, and at a point.
func TestMarks(t *testing.T) {
	at := func(seconds float64) time.Time { return time.Unix(1_700_000_000, int64(seconds*1e9)) }
	log := logTaker{marks: []mark{{last: 10, newest: at(0), from: at(0), gtids: new(gtid.Set)}}, point: true}
	for index, newest := range []time.Time{11: at(0.5), 12: at(1.4), 13: at(1.5), 14: at(2.4), 15: at(2.4)} {
		if index < 11 {
			continue
		}
		log.point = log.point || index == 15
		log.note(uint64(index), newest, []archive.Transaction{{GTID: binlogtest.GTID(uint64(index))}})
	}
	for index, want := range map[uint64]mark{
		10: {newest: at(0)}, 11: {last: 12, newest: at(1.4)}, 12: {last: 12, newest: at(1.4)}, 13: {last: 14, newest: at(2.4)}, 15: {last: 15, newest: at(2.4)},
	} {
		newest, gtids := log.upTo(index)
		if last := max(want.last, 10); !newest.Equal(want.newest) || gtids.Count() != last-10 {
			t.Errorf("up to entry %d: %s and %s, want %s and up to transaction %d", index, newest, gtids, want.newest, last)
		}
	}
}

// TestFullIsPatient: the store fails once at each object that a full backup can store again, at each list, and the backup is there. A
// store that fails for long ends it.
func TestFullIsPatient(t *testing.T) {
	for _, failing := range []string{".qlog", ".json", "list", "for ever"} {
		synctest.Test(t, func(t *testing.T) {
			c, n := newConfig(t), newNode(5)
			inner := c.Store
			c.Store = failsOnce{Store: inner, what: failing, begun: new(atomic.Bool), failed: new(atomic.Bool)}
			again := 0
			c.Again = func(err error) {
				if again++; !errors.Is(err, errDenied) || failing != "list" && !strings.HasPrefix(err.Error(), "store ") {
					t.Error(err)
				}
			}
			began := time.Now()
			_, _, err := Full(t.Context(), c, n, silent{})
			if again > 1 || again == 0 && failing != "list" { // a list may also show what can be left out, which is not needed
				t.Errorf("%s: said %d times", failing, again)
			}
			if failing == "for ever" {
				if took := time.Since(began); !errors.Is(err, errDenied) || took < StorePatience || took > StorePatience+time.Minute {
					t.Errorf("for ever: %v, after %s", err, took)
				}
				return
			}
			if err != nil || !c.Store.(failsOnce).failed.Load() {
				t.Fatalf("%s: %v", failing, err)
			}
			c.Store = inner
			wantAll(t, c, n)
		})
	}
}

// failsOnce is a repository that fails once it has begun to store the data.
type failsOnce struct {
	repository.Store
	what          string
	begun, failed *atomic.Bool
}

// Put implements repository.Store.
func (f failsOnce) Put(ctx context.Context, name string, fill func(io.Writer) error) error {
	f.begun.Store(true)
	if f.what == "for ever" && strings.HasSuffix(name, ".json") || strings.HasSuffix(name, f.what) && f.failed.CompareAndSwap(false, true) {
		return errDenied
	}
	return f.Store.Put(ctx, name, fill)
}

// List implements repository.Store.
func (f failsOnce) List(ctx context.Context) ([]repository.Object, error) {
	if f.what == "list" && f.begun.Load() && f.failed.CompareAndSwap(false, true) {
		return nil, errDenied
	}
	return f.Store.List(ctx)
}

// TestFullBesideAnArchive: a full backup stores nothing again that an archive has stored meanwhile, but makes sure that it is whole.
func TestFullBesideAnArchive(t *testing.T) {
	for _, cut := range []bool{false, true} {
		dir := t.TempDir()
		f := "'" + dir + "'/\"$QUORATE_OBJECT\""
		c, n := newConfig(t), newNode(5)
		c.Store = repository.NewCommands(repository.Commands{Put: "cat >" + f, Get: "cat " + f, List: "ls '" + dir + "'", Delete: "rm " + f})
		if _, _, err := Full(t.Context(), c, n, silent{}); err != nil {
			t.Fatal(err)
		}
		inner := c.Store
		n.add(5)
		c.Store = slow{inner, nil, func(name string) {
			if !strings.HasSuffix(name, ".data") {
				return
			}
			of := Config{Store: inner, Shipped: func(p archive.Piece) {
				if cut {
					cutShort(t, filepath.Join(dir, p.Name()))
				}
			}}
			if err := Follow(t.Context(), of, n, true); err != nil {
				t.Error(err)
			}
		}}
		var shipped []archive.Piece
		c.Shipped = func(p archive.Piece) { shipped = append(shipped, p) }
		if _, _, err := Full(t.Context(), c, n, silent{}); err != nil || len(shipped) > 0 != cut {
			t.Errorf("cut: %v. Shipped %+v, %v", cut, shipped, err)
		}
		c.Store = inner
		wantAll(t, c, n)
	}
}
