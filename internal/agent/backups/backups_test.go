package backups

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

// memLog is a log in memory, with segments that begin at 5, 8 and 11. Each entry is its index.
type memLog struct{ commit uint64 }

func (l *memLog) FirstIndex() uint64 { return 5 }
func (l *memLog) Close()             {}
func (l *memLog) Term(index uint64) (uint64, error) {
	return index / 5, nil
}

func (l *memLog) Segments() (all []seglog.SegmentInfo) {
	for _, first := range []uint64{5, 8, 11} {
		all = append(all, seglog.SegmentInfo{FirstIndex: first, GTIDsBefore: new(gtid.Set)})
	}
	return all
}

func (l *memLog) ReadCommitted(index, _ uint64) (found []seglog.Entry, ok bool, err error) {
	for ; index <= l.commit && len(found) < 2; index++ {
		found = append(found, seglog.Entry{Index: index, Term: 2, Data: l.data(index)})
	}
	return found, len(found) > 0, nil
}

// data are those of an entry with one transaction, of so many seconds after 1970; every fifth has none.
func (l *memLog) data(index uint64) []byte {
	if index%5 == 0 {
		return nil
	}
	events := binlogtest.New("q.000001").Rows(10)
	binary.LittleEndian.PutUint32(events[0], uint32(index))
	return append(entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: 1, Term: 2, Number: index}), binlogtest.Join(events...)...)
}

func (l *memLog) ReadStage(entry.StageID) (io.ReadCloser, error) { return nil, seglog.ErrNoStage }

// disk is a mysqld with one file of data.
type disk struct {
	err error
	dir string
}

func (d *disk) DataBytes(context.Context) (int64, error) { return 1000, nil }

func (d *disk) CloneTo(_ context.Context, dir string) error {
	d.dir = dir
	return errors.Join(os.MkdirAll(filepath.Join(dir, "shop"), 0o750), os.WriteFile(filepath.Join(dir, "shop", "t.ibd"), []byte("rows"), 0o640), d.err)
}

// source is a healthy replica; change changes it.
func source(t *testing.T, change func(*Config)) *Source {
	log := &memLog{commit: 12}
	c := Config{
		Cluster: "c", ClusterID: "1f", Node: "b", Version: "dev", Clock: clock.Machine{}, Dir: filepath.Join(t.TempDir(), "backup"),
		Own:    func() status.Node { return status.Node{Role: status.RoleReplica, LogState: status.LogOK} },
		Mysqld: func() (Mysqld, string) { return &disk{}, "9.7.4" },
		Free:   func() (uint64, error) { return 2 << 30, nil }, Log: func() Log { return log }, Commit: func() uint64 { return log.commit },
		Current: func() bool { return true },
		Durable: func() replay.Mark { return replay.Mark{Index: 9} },
		State:   func() cluster.StatePoint { return cluster.StatePoint{Through: 12} },
	}
	change(&c)
	return New(c)
}

// TestArchive: the archive lacks nothing while it has all that is committed. It lags from its last report on. On a
// node without a leader it lags from when the node last knew what is committed, whatever is reported there.
func TestArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		commit, current := uint64(7), true
		s := source(t, func(c *Config) {
			c.Commit, c.Current = func() uint64 { return commit }, func() bool { return current }
		})
		for n, step := range []struct {
			pass    time.Duration
			do      func()
			index   uint64
			lag     time.Duration
			unknown bool
		}{
			{0, func() {}, 0, 0, true},
			{time.Second, func() { s.Reached(7) }, 7, 0, false},
			{time.Hour, func() {}, 7, 0, false},
			{time.Minute, func() { commit = 9 }, 7, time.Minute, false},
			{time.Minute, func() { s.Reached(8) }, 8, 2 * time.Minute, false}, // what is behind may be as old
			{time.Minute, func() { commit = 10 }, 8, 3 * time.Minute, false},
			{time.Minute, func() { s.Reached(9) }, 9, 2 * time.Minute, false}, // 9 was the last entry until a minute before 10 came
			{time.Minute, func() { s.Reached(10) }, 10, 0, false},
			{time.Minute, func() { s.Reached(4) }, 4, time.Minute, false}, // pieces were lost
			{time.Minute, func() { s.Reached(4) }, 4, 2 * time.Minute, false},
			{time.Minute, func() { s.Reached(10) }, 10, 0, false},
			{time.Minute, func() { current = false }, 10, time.Minute, false},
			{time.Minute, func() { s.Reached(10) }, 10, 2 * time.Minute, false},
			{time.Minute, func() { current = true }, 10, 0, false},
		} {
			time.Sleep(step.pass)
			step.do()
			if index, lag, ok := s.Archive(); index != step.index || lag != step.lag || ok == step.unknown {
				t.Errorf("step %d: %d, %v, %t; want %d, %v", n, index, lag, ok, step.index, step.lag)
			}
		}
	})
}

// TestArchiveStuck: an archive that can store nothing reports the same entry again and again, and its lag still
// grows. So does the lag of an archive that ships slower than the log grows.
func TestArchiveStuck(t *testing.T) {
	for what, shipped := range map[string]uint64{"stuck": 0, "slow": 10} { // entries each minute; 60 are committed
		synctest.Test(t, func(t *testing.T) {
			commit, index := uint64(100), uint64(100)
			s := source(t, func(c *Config) { c.Commit = func() uint64 { return commit } })
			s.Reached(index)
			began, now := time.Now(), time.Duration(0)
			for now < 20*time.Hour {
				for range 12 { // a try each 5 s
					time.Sleep(5 * time.Second)
					commit += 5
					s.Reached(index)
					s.Archive() // it is scraped, too
				}
				index += shipped
				s.Reached(index)
				now = time.Since(began)
				missing := now - time.Duration(index-100)*time.Second
				if _, lag, ok := s.Archive(); !ok || lag < missing-5*time.Second || lag > missing+now/20+5*time.Second {
					t.Fatalf("%s: after %v the lag is %v, want %v", what, now, lag, missing)
				}
			}
			if n := len(s.archive.points); n > pointsMax {
				t.Errorf("%s: %d points are kept", what, n)
			}
			s.Reached(commit)
			if _, lag, _ := s.Archive(); lag != 0 {
				t.Errorf("%s: it has all, and lags %v", what, lag)
			}
		})
	}
}

// TestFull: the newest caller says when the newest full backup was taken, even if that is an older backup.
func TestFull(t *testing.T) {
	s := source(t, func(*Config) {})
	if !s.Full().IsZero() {
		t.Errorf("nobody has said so, and it is of %v", s.Full())
	}
	for _, at := range []time.Time{time.Unix(200, 0), time.Unix(100, 0)} {
		if s.NoteFull(at); !s.Full().Equal(at) {
			t.Errorf("it is of %v, want %v", s.Full(), at)
		}
	}
}

// TestData: the copy has the data, says where the log goes on, and up to which entry the data may go; nothing is left
// behind.
func TestData(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Config)
		first  uint64
	}{
		"the mark is within a segment":     {func(*Config) {}, 8},
		"at the end of one":                {func(c *Config) { c.Durable = func() replay.Mark { return replay.Mark{Index: 10} } }, 11},
		"the state is older than the mark": {func(c *Config) { c.State = func() cluster.StatePoint { return cluster.StatePoint{Through: 6} } }, 5},
	} {
		s := source(t, c.change)
		commit, copying := s.c.Commit, false
		s.c.Commit = func() uint64 { copying = s.Copying(); return commit() }
		var out bytes.Buffer
		if err := s.Data(t.Context(), &out); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !copying || s.Copying() {
			t.Errorf("%s: says that there is a copy: %t, then %t", what, copying, s.Copying())
		}
		d := archive.NewData(&out)
		var err error
		for err == nil {
			_, err = d.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Fatalf("%s: %v", what, err)
		}
		start, err := d.Start()
		if start.Newest.Unix() != 12 {
			t.Errorf("%s: the newest transaction is of %s", what, start.Newest)
		}
		if err != nil || start.Begin.First != c.first || start.Begin.PreviousTerm != (c.first-1)/5 || start.MySQL != "9.7.4" || d.End().Index != 12 {
			t.Errorf("%s: %+v, %+v, %v", what, start, d.End(), err)
		}
		if files := d.Files(); len(files) != 1 || files[0].Name != "shop/t.ibd" || files[0].Bytes != 4 {
			t.Errorf("%s: %+v", what, files)
		}
		if _, err := os.Stat(s.c.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a copy is left: %v", what, err)
		}
	}
}

// TestDataThatNobodyReads: the copy is removed when the disk is nearly full, although its client reads nothing. Before, it stayed
// until the client's time was over, or for ever.
func TestDataThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w unread
		w.end = make(chan struct{})
		free := uint64(2 << 30)
		s := source(t, func(c *Config) {
			c.Free = func() (uint64, error) { defer func() { free = 100 << 20 }(); return free, nil }
		})
		if err := s.Data(t.Context(), &w); err == nil || !strings.Contains(err.Error(), "has only 100MiB left") || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if _, err := os.Stat(s.c.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a copy is left: %v", err)
		}
	})
}

// unread is a client that reads the begin only.
type unread struct {
	begun bool
	end   chan struct{}
}

func (u *unread) Write(p []byte) (int, error) {
	if !u.begun {
		u.begun = true
		return len(p), nil
	}
	<-u.end
	return 0, os.ErrDeadlineExceeded
}

func (u *unread) EndIn(d time.Duration) { time.AfterFunc(d, func() { close(u.end) }) }

// TestDataOfPrimary: a copy says that it is the primary's.
func TestDataOfPrimary(t *testing.T) {
	for role, want := range map[status.Role]bool{status.RolePrimary: true, status.RoleReplica: false} {
		s := source(t, func(c *Config) {
			c.Own = func() status.Node { return status.Node{Role: role, LogState: status.LogOK} }
		})
		var out bytes.Buffer
		if err := s.Data(t.Context(), &out); err != nil {
			t.Fatalf("%s: %v", role, err)
		}
		if start, err := archive.NewData(&out).Start(); err != nil || start.FromPrimary != want {
			t.Errorf("%s: from the primary: %v, want %v; %v", role, start.FromPrimary, want, err)
		}
	}
}

// TestDataRefused: nothing is copied if that would be of no use, or would do harm.
func TestDataRefused(t *testing.T) {
	broken := errors.New("broken")
	for what, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"a node that is not judged": {func(c *Config) { c.Own = func() status.Node { return status.Node{Role: status.RoleUnverified} } }, "is unverified"},
		"no mysqld":                 {func(c *Config) { c.Mysqld = func() (Mysqld, string) { return nil, "" } }, "with a log that is ok"},
		"too little room":           {func(c *Config) { c.Free = func() (uint64, error) { return 1 << 30, nil } }, "are free"},
		"purged behind the mark":    {func(c *Config) { c.Durable = func() replay.Mark { return replay.Mark{Index: 3} } }, "the log begins at entry 5"},
		"the clone fails":           {func(c *Config) { c.Mysqld = func() (Mysqld, string) { return &disk{err: broken}, "" } }, "broken"},
	} {
		s := source(t, c.change)
		if err := s.Data(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(s.c.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a copy is left: %v", what, err)
		}
	}
	s := source(t, func(*Config) {})
	s.copies.Lock()
	if err := s.Data(t.Context(), io.Discard); !errors.Is(err, ErrBusy) {
		t.Errorf("beside another one: %v", err)
	}
}

// TestNewest: the full backup of an idle cluster knows how new its data are, even if the log from its beginning on
// has no transaction. Otherwise the backup would count as older than it is.
func TestNewest(t *testing.T) {
	at := time.Unix(99, 0)
	for commit, want := range map[uint64]int64{12: 12, 10: 9, 5: 99, 4: 99} {
		s := source(t, func(c *Config) {
			log := &memLog{commit: commit}
			c.Log, c.Commit = func() Log { return log }, func() uint64 { return commit }
		})
		if got, err := s.newest(at); err != nil || got.Unix() != want {
			t.Errorf("up to entry %d: %d, %v, want %d", commit, got.Unix(), err, want)
		}
	}
}

// TestDataFollowsNoLink: if mysqld's account has put a link in place of a file, its target is not read.
func TestDataFollowsNoLink(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, server := range map[string]Mysqld{"a file": linked{secret}, "all": linkedDir{filepath.Dir(secret)}} {
		s := source(t, func(c *Config) { c.Mysqld = func() (Mysqld, string) { return server, "" } })
		var out bytes.Buffer
		if err := s.Data(t.Context(), &out); err == nil || strings.Contains(out.String(), "secret") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(secret); err != nil {
			t.Errorf("%s: what the link leads to was removed: %v", what, err)
		}
	}
}

// linkedDir clones to a symbolic link.
type linkedDir struct{ to string }

func (linkedDir) DataBytes(context.Context) (int64, error)      { return 0, nil }
func (l linkedDir) CloneTo(_ context.Context, dir string) error { return os.Symlink(l.to, dir) }

// linked clones a symbolic link.
type linked struct{ to string }

func (linked) DataBytes(context.Context) (int64, error) { return 0, nil }

func (l linked) CloneTo(_ context.Context, dir string) error {
	return errors.Join(os.MkdirAll(dir, 0o750), os.Symlink(l.to, filepath.Join(dir, "ibdata1")))
}

// TestLog: first all comes that is committed, then what is committed later, with a point behind it.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{commit: 12}
		s := source(t, func(c *Config) {
			c.Log, c.Commit = func() Log { return log }, func() uint64 { return log.commit }
		})
		for first, want := range map[uint64]error{4: seglog.ErrCompacted, 14: ErrBehind} {
			if err := s.Log(t.Context(), io.Discard, first); !errors.Is(err, want) {
				t.Errorf("from %d on: %v", first, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		out, in := io.Pipe()
		ended := make(chan error)
		go func() { ended <- s.Log(ctx, in, 0) }()
		if r, err := archive.NewReader(out); err != nil || r.Head().First != 13 {
			t.Errorf("from now on: %v", err)
		}
		cancel()
		_ = out.Close()
		<-ended
		ctx, cancel = context.WithCancel(t.Context())
		out, in = io.Pipe()
		go func() { ended <- s.Log(ctx, in, 10) }()
		r, err := archive.NewReader(out)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for points := 0; points < 3; {
			item, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if item.Entry.Index > 0 {
				got = append(got, item.Entry.Index)
				continue
			}
			got = append(got, item.Commit*100)
			points++
			log.commit = min(log.commit+1, 13) // the writer waits for its next point
		}
		if d := cmp.Diff([]uint64{10, 11, 12, 1200, 13, 1300, 1300}, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		cancel()
		_ = out.Close()
		if err := <-ended; err == nil {
			t.Error("it has ended, and says nothing")
		}
	})
}
