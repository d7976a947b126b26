package standstill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// probeEvery is the time between two writes to mysqld's disk.
	probeEvery = time.Second
	// Patience is how long a write may take. A disk that is only busy answers within a few
	// seconds. A primary that gets nowhere on a disk that does not answer is worth a failover.
	Patience = 10 * time.Second
)

// diskProbe notices that mysqld's disk hangs. mysqld itself still greets, and answers requests that
// need no disk; only its commits stand still.
type diskProbe struct {
	began atomic.Pointer[time.Time] // of the write under way; nil = there is none

	// Only the watch's goroutine uses the fields below.
	// suspect is a write that had taken too long at a first look, at suspectedAt. One
	// look is not enough: the agent may have been stopped itself.
	suspect     *time.Time
	suspectedAt time.Time
	// executed is mysqld's gtid_executed, and the time since when it has not changed.
	executed      string
	executedSince time.Time
}

// run writes to the disk at intervals. A write that hangs outlives run: nothing can end it.
func (p *diskProbe) run(ctx context.Context, write func() error) {
	for clock.Sleep(ctx, clock.Machine{}, probeEvery) == nil {
		now := time.Now()
		if p.began.CompareAndSwap(nil, &now) {
			go func() {
				// mysqld finds the same error, and reports it better.
				_ = write()
				p.began.Store(nil)
			}()
		}
	}
}

// writeProbe returns once one byte is on disk. It is always the same byte, so that nothing else
// has to be written. If the path is not a file that only the probe uses, it is removed for the next write.
func writeProbe(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|unix.O_DSYNC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return errors.Join(fmt.Errorf("%s is not the probe's own", path), os.Remove(path))
	}
	_, err = f.WriteAt([]byte{'\n'}, 0)
	return err
}

// hangs returns for how long the disk has not answered, if that is too long, and was too long
// already at a look some time ago; else 0.
func (p *diskProbe) hangs(now time.Time) time.Duration {
	began := p.began.Load()
	if began == nil || now.Sub(*began) < Patience {
		p.suspect = nil
		return 0
	}
	if p.suspect != began {
		p.suspect, p.suspectedAt = began, now
	}
	if now.Sub(p.suspectedAt) < probeEvery {
		return 0
	}
	return now.Sub(*began)
}

// commits notes which transactions mysqld has.
func (p *diskProbe) commits(executed string, now time.Time) {
	if p.executedSince.IsZero() || p.executed != executed {
		p.executed, p.executedSince = executed, now
	}
}

// standsStill tells whether mysqld gets nowhere on a disk that hangs: for Patience, no transaction
// was committed although a client writes. A commit needs no answer of mysqld's disk (only the log's
// disk is synced), so clients are served while commits go on. A mysqld that does not say who writes
// gets nowhere, too.
func (p *diskProbe) standsStill(now time.Time, behind bool, writers func() (int, error)) bool {
	if p.executedSince.IsZero() || now.Sub(p.executedSince) < Patience {
		return false
	}
	if behind {
		return true
	}
	n, err := writers()
	return err != nil || n > 0
}
