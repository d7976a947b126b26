package bulk

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
)

// fakeSource gives the entries that it has, and waits for more.
type fakeSource struct {
	mu      sync.Mutex
	entries []seglog.Entry // from index 41 on
	err     error
	grown   chan struct{}
}

func (f *fakeSource) Open(to cluster.NodeID) Feed { return fakeFeed{f, to} }

type fakeFeed struct {
	*fakeSource
	to cluster.NodeID
}

func (f fakeFeed) Close() {}

func (f fakeFeed) Next(ctx context.Context, index, bytesMax uint64) (Point, []seglog.Entry, error) {
	for {
		f.mu.Lock()
		err, grown, p := f.err, f.grown, Point{Term: 9, Leader: nodeA, Commit: 40 + uint64(len(f.entries))}
		found, _, _ := (&fakeEntries{first: 41, entries: f.entries}).ReadCommitted(index, bytesMax)
		f.mu.Unlock()
		if f.to != nodeA || err != nil || len(found) > 0 {
			return p, found, errors.Join(err)
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return p, nil, nil
		}
	}
}

func (f *fakeSource) set(entries []seglog.Entry, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries, f.err = entries, err
	close(f.grown)
	f.grown = make(chan struct{})
}

// TestFollow: the entries that the source has come first, then those that are added, in order.
// Each second there is a sign of life. A refusal of the source ends it.
func TestFollow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		all := someEntries(41)
		source := &fakeSource{entries: all[:5], grown: make(chan struct{})}
		w.nodes[nodeB].cfg.Source = source
		var got []seglog.Entry
		signs, began := 0, time.Now()
		take := func(p Point, found []seglog.Entry) error {
			if p.Term != 9 || p.Leader != nodeA || p.Commit < found[len(found)-1].Index {
				t.Errorf("%d entries with %+v", len(found), p)
			}
			got = append(got, found...)
			return nil
		}
		err := w.nodes[nodeA].Follow(t.Context(), nodeB, 41, take, func() error {
			signs++
			switch {
			case time.Since(began) > 20*time.Second:
				source.set(all, errDisk)
			case time.Since(began) > 10*time.Second && len(got) == 5:
				source.set(all, nil)
			}
			return nil
		})
		if refused := (*refusal)(nil); !errors.As(err, &refused) {
			t.Errorf("it ended with %v", err)
		}
		if diff := cmp.Diff(all, got, cmp.Comparer(bytes.Equal)); diff != "" {
			t.Errorf("(-want +got)\n%.2000s", diff)
		}
		if signs < 15 || signs > 40 {
			t.Errorf("%d signs of life in 20 s", signs)
		}
	})
}

// TestFollowEnds: Follow ends with the error of take, with the error of alive, and at a node
// that feeds nobody.
func TestFollowEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		nothing := func() error { return nil }
		take := func(Point, []seglog.Entry) error { return errDisk }
		if err := w.nodes[nodeA].Follow(t.Context(), nodeB, 41, take, nothing); err == nil || errors.Is(err, errDisk) {
			t.Errorf("without a source: %v", err)
		}
		w.nodes[nodeB].cfg.Source = &fakeSource{entries: someEntries(41), grown: make(chan struct{})}
		if err := w.nodes[nodeA].Follow(t.Context(), nodeB, 41, take, nothing); !errors.Is(err, errDisk) {
			t.Errorf("take fails: %v", err)
		}
		for calls := range 2 { // alive fails before the first part comes, or together with it
			left := calls
			alive := func() error {
				if left--; left < 0 {
					return errBusy
				}
				return nil
			}
			if err := w.nodes[nodeA].Follow(t.Context(), nodeB, 41, take, alive); !errors.Is(err, errBusy) || errors.Is(err, errDisk) {
				t.Errorf("alive fails: %v", err)
			}
		}
	})
}

// TestFollowedEntriesAreBounded: a part of the log with too many entries is refused, even if all are empty.
func TestFollowedEntriesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		empty := make([]seglog.Entry, followEntriesMax+1)
		for i := range empty {
			empty[i] = seglog.Entry{Index: uint64(41 + i), Term: 9}
		}
		w.nodes[nodeB].cfg.Source = &fakeSource{entries: empty, grown: make(chan struct{})}
		take := func(_ Point, found []seglog.Entry) error {
			t.Errorf("%d entries were taken", len(found))
			return errDisk
		}
		if err := w.nodes[nodeA].Follow(t.Context(), nodeB, 41, take, func() error { return nil }); !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
	})
}
