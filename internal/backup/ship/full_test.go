package ship

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
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
