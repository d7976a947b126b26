package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// faketimeVariable names libfaketimeMT.so.1 where the distribution's package is
// not installed.
const faketimeVariable = "QUORATE_FAKETIME"

// faketime returns the path of libfaketime, which gives a process another
// clock. Tests that need it are skipped without it.
func faketime(t *testing.T) string {
	t.Helper()
	if lib := os.Getenv(faketimeVariable); lib != "" {
		return lib
	}
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	t.Skip("no libfaketime: install the package faketime, or set " + faketimeVariable)
	return ""
}

// TestClock moves the wall clock of one mysqld by an hour, forth and back, under
// load: that of the primary, and that of a follower. Agents go by no
// wall clock (Raft, the lease and all limits count monotonic time; what a gain of it
// does to the lease is consensus's to test), so an agent's own is left alone here; Go does not ask the library anyway. mysqld's
// monotonic clock jumps with the other one, which no real clock does: libfaketime
// 0.9.10 hangs MySQL 9.7 if told to leave that alone.
func TestClock(t *testing.T) {
	beside(t)
	lib, clocks := faketime(t), t.TempDir()
	clock := func(node string) string { return filepath.Join(clocks, node) }
	for _, node := range []string{"a", "b", "c"} {
		if err := os.WriteFile(clock(node), []byte("+0\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cleanFaketime(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm, NodeEnv: func(node string) []string {
		return []string{"LD_PRELOAD=" + lib, "FAKETIME_TIMESTAMP_FILE=" + clock(node), "FAKETIME_NO_CACHE=1"}
	}})
	jump := func(t *testing.T, ctx context.Context, i int, offset time.Duration) {
		t.Helper()
		text := fmt.Sprintf("%+d\n", int(offset.Seconds()))
		if err := os.WriteFile(clock(f.Name(i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		f.awaitClock(t, ctx, i, offset)
	}
	f.scenario(t, "Primary", func(t *testing.T, ctx context.Context) {
		f.jumps(t, ctx, f.heal(t, ctx), jump)
	})
	f.scenario(t, "Follower", func(t *testing.T, ctx context.Context) {
		f.jumps(t, ctx, f.others(f.heal(t, ctx))[0], jump)
	})
}

// cleanFaketime removes the shared memory that killed processes with libfaketime leave behind. It does so once they are
// gone, which is a moment after the end of the cluster.
func cleanFaketime(t *testing.T) {
	t.Helper()
	const pattern = "/dev/shm/*faketime_*_*"
	before, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), scenarioTimeout)
		defer cancel()
		if err := devcluster.Poll(ctx, "libfaketime's files are gone", func(context.Context) (bool, string, error) {
			left, err := filepath.Glob(pattern)
			left = slices.DeleteFunc(left, func(file string) bool {
				if slices.Contains(before, file) {
					return true
				}
				_, err := os.Stat("/proc/" + file[strings.LastIndexByte(file, '_')+1:])
				return errors.Is(err, os.ErrNotExist) && os.Remove(file) == nil
			})
			return len(left) == 0, fmt.Sprint(left), err
		}); err != nil {
			t.Error(err)
		}
	})
}

// awaitClock waits until node i's mysqld has a clock that is off by offset.
func (f *fixture) awaitClock(t *testing.T, ctx context.Context, i int, offset time.Duration) {
	t.Helper()
	db := f.local(t, i)
	if err := devcluster.Poll(ctx, "mysqld's clock has jumped", func(ctx context.Context) (bool, string, error) {
		var unix float64
		err := db.QueryRowContext(ctx, "SELECT UNIX_TIMESTAMP(SYSDATE(6))").Scan(&unix)
		off := unix - float64(time.Now().UnixMicro())/1e6
		return math.Abs(off-offset.Seconds()) < 60, fmt.Sprintf("it is off by %.0f s", off), err
	}); err != nil {
		t.Fatal(err)
	}
}

// jumps: nobody notices that the clock of one mysqld jumps. Then another node leads, whose
// clock differs by an hour from the clock of the former primary.
func (f *fixture) jumps(t *testing.T, ctx context.Context, i int, jump func(*testing.T, context.Context, int, time.Duration)) {
	primary := f.heal(t, ctx)
	before := f.status(t, ctx, primary)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	for _, offset := range []time.Duration{time.Hour, -time.Hour, time.Hour} {
		l.ResetGap()
		jump(t, ctx, i, offset)
		l.awaitAcks(t, ctx, 100)
		for end := time.Now().Add(calm + time.Second); time.Now().Before(end); time.Sleep(quiet) { // what lasts for an election timeout
			l.awaitAcks(t, ctx, 1)
		}
		t.Logf("clock of %s at %+v: longest write gap %v", f.Name(i), offset, l.Gap().Round(time.Millisecond))
	}
	if st := f.status(t, ctx, primary); st.Term != before.Term || st.MysqldPID != before.MysqldPID {
		t.Errorf("a jump of the clock ended the epoch: %+v, was %+v", st, before)
	}
	if err := f.KillMysqld(primary); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	jump(t, ctx, i, 0)
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	f.check(t, ctx)
}
