package logcopy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// peers are node 2, the leader, and node 3. Each has the committed entries of term 2 from first to
// last. A peer fails once after entry breaks (0 = never).
type peers struct {
	Peers
	first, last, breaks map[cluster.NodeID]uint64
	gone                bool // a peer that has failed fails from then on
	asked               int
	leaderless          int // so many questions come before there is a leader
	hangs               int // so many fetches take 20 s, and give nothing
	// hiccups: the source, node 3, fails once at the begin and once after that time, and has nothing new before.
	hiccups time.Duration
	begun   time.Time
}

func (p *peers) AskTail(_ context.Context, peer cluster.NodeID) (bulk.Tail, error) {
	if p.asked++; p.asked <= p.leaderless {
		return bulk.Tail{}, errors.ErrUnsupported
	}
	return bulk.Tail{Term: 2, Leading: peer == 2, First: p.first[peer], Last: 9, Commit: 9}, nil
}

func (p *peers) FetchEntries(_ context.Context, from cluster.NodeID, index uint64, f func(seglog.Entry) error) error {
	if p.hangs > 0 {
		p.hangs--
		time.Sleep(20 * time.Second)
		return errors.ErrUnsupported
	}
	if past := time.Since(p.begun); p.hiccups > 0 && past <= p.hiccups {
		if from == 3 && (past == 0 || past == p.hiccups) {
			return errors.ErrUnsupported
		}
		return nil
	}
	if index < p.first[from] {
		return seglog.ErrCompacted
	}
	for ; index <= p.last[from]; index++ {
		if err := f(seglog.Entry{Index: index, Term: 2}); err != nil {
			return err
		}
		if index == p.breaks[from] {
			if !p.gone {
				delete(p.breaks, from)
			}
			return errors.ErrUnsupported
		}
	}
	if p.gone {
		return errors.ErrUnsupported
	}
	return nil
}

type byNode = map[cluster.NodeID]uint64

// TestCopy: a damaged log is healed, and a new log begun, with all committed entries, from any peer
// that has them. A healing ends with an error if no peer has an entry any more.
func TestCopy(t *testing.T) {
	for _, c := range []struct {
		what  string
		peers peers
		want  error
	}{
		{"from the leader", peers{first: byNode{2: 1, 3: 1}, last: byNode{2: 9, 3: 9}}, nil},
		{"broken off", peers{first: byNode{2: 1, 3: 1}, last: byNode{2: 9}, breaks: byNode{2: 4}}, nil},
		{"the leader lacks it", peers{first: byNode{2: 5, 3: 1}, last: byNode{2: 9, 3: 9}}, nil},
		{"some from each", peers{first: byNode{2: 5, 3: 1}, last: byNode{2: 9, 3: 6}}, nil},
		{"nobody has it", peers{first: byNode{2: 5, 3: 4}, last: byNode{2: 9, 3: 9}}, ErrUnhealable},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = log.Close() }()
			c.peers.leaderless = 2
			h := healing{
				Copy: Copy{Log: log, Peers: &c.peers, Clock: clock.Machine{}, Progress: func(cluster.NodeID) {}},
				node: patient{}, target: consensus.NewHealTarget(seglog.HardState{}),
			}
			h.Others = func() []cluster.NodeID { return []cluster.NodeID{2, 3} }
			hs, err := h.run(t.Context())
			if !errors.Is(err, c.want) {
				t.Fatalf("%s: %v, want %v", c.what, err, c.want)
			}
			if c.want == nil && (log.LastIndex() != 9 || hs.Commit != 9) {
				t.Errorf("%s: the log ends at %d, with %+v", c.what, log.LastIndex(), hs)
			}
		})
	}
}

// TestJoin: a new log gets all committed entries from one member, and holds no vote in its term. If there is no leader,
// the join waits for one before it fails: by then all of mysqld's data may have been copied for it.
func TestJoin(t *testing.T) {
	for _, leaderless := range []int{0, 2, 1000} {
		synctest.Test(t, func(t *testing.T) {
			log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = log.Close() }()
			p := &peers{first: byNode{2: 1, 3: 1}, last: byNode{2: 9, 3: 9}, leaderless: leaderless}
			c := Copy{Log: log, Peers: p, Clock: clock.Machine{}, Progress: func(cluster.NodeID) {}}
			c.Others = func() []cluster.NodeID { return []cluster.NodeID{2, 3} }
			begun := time.Now()
			err = c.Join(t.Context(), 1, 3, 1)
			if leaderless > 2 {
				if waited := time.Since(begun); err == nil || log.LastIndex() != 0 || waited < joinPatience || waited > 2*joinPatience {
					t.Errorf("joined without a leader: %v, %d entries, %v", err, log.LastIndex(), waited)
				}
				return
			}
			if err != nil {
				t.Fatalf("%d questions without a leader: %v", leaderless, err)
			}
			if hs := log.HardState(); log.LastIndex() != 9 || hs != (seglog.HardState{Term: 2, Vote: 1, Commit: 9}) {
				t.Errorf("the log ends at %d, with %+v", log.LastIndex(), hs)
			}
		})
	}
}

// TestJoinGoesOn: a join whose source breaks off goes on with the next entry. Before, it began again, with a new copy
// of mysqld's data. It never ended if the log had a stage that took more than 30 s to fetch, because after that time
// the source closes the connection for entries. If the source is gone, or lags, any other gives the rest: the join
// began again there, too. It is patient from the first failure on, however long that took to come, and again after an answer.
func TestJoinGoesOn(t *testing.T) {
	for _, c := range []struct {
		what   string
		from   cluster.NodeID
		breaks byNode
		last   byNode // the last entry that each has
		hangs  int
		// hiccups: the source fails at the begin, and again after that time.
		hiccups time.Duration
		ends    uint64
		err     error
	}{
		{"it breaks off once", 3, byNode{3: 4}, byNode{3: 9}, 0, 0, 9, nil},
		{"it is gone for good", 3, byNode{3: 4}, byNode{2: 9, 3: 4}, 0, 0, 9, nil},
		{"it leads, and is gone for good", 2, byNode{2: 4}, byNode{2: 4, 3: 9}, 0, 0, 9, nil},
		{"it lags", 3, nil, byNode{2: 9, 3: 4}, 0, 0, 9, nil},
		{"all hang once", 3, nil, byNode{2: 9, 3: 9}, 2, 0, 9, nil},
		{"it answers between two failures", 3, nil, byNode{2: 9, 3: 9}, 0, time.Minute, 9, nil},
		{"all are gone for good", 3, byNode{2: 4, 3: 4}, byNode{2: 4, 3: 4}, 0, 0, 4, errors.ErrUnsupported},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = log.Close() }()
			p := &peers{first: byNode{2: 1, 3: 1}, last: c.last, breaks: c.breaks, gone: len(c.last) > 1 && len(c.breaks) > 0, hangs: c.hangs, hiccups: c.hiccups, begun: time.Now()}
			join := Copy{Log: log, Peers: p, Clock: clock.Machine{}, Progress: func(cluster.NodeID) {}, Others: func() []cluster.NodeID { return []cluster.NodeID{2, 3} }}
			if err := join.Join(t.Context(), 1, c.from, 1); !errors.Is(err, c.err) || log.LastIndex() != c.ends {
				t.Errorf("%s: %v, the log ends at %d; want %v, %d", c.what, err, log.LastIndex(), c.err, c.ends)
			}
		})
	}
}
