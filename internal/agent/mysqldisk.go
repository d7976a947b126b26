package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

const (
	// diskProbeInterval is the time between two writes to mysqld's disk.
	diskProbeInterval = time.Second
	// diskPatience is how long a write may take. A disk that is only busy answers within a few
	// seconds. A primary that gets nowhere on a disk that does not answer is worth a failover.
	diskPatience = 10 * time.Second
	// probeFile is in mysqld's directory, beside its data.
	probeFile = "probe"
	// aboutDisk and aboutSpace are the keys of troubles with mysqld's disk, among the board's
	// troubles.
	aboutDisk, aboutSpace = "disk", "space"
)

// diskProbe notices that mysqld's disk hangs. mysqld itself still greets, and answers requests that
// need no disk; only its commits stand still.
type diskProbe struct {
	began atomic.Pointer[time.Time] // of the write under way; nil = there is none

	// Only the watch's goroutine uses the fields below.
	// suspect is the write that had taken too long when it was first looked at, at
	// suspectedAt. One look is not enough: the agent may have been stopped itself.
	suspect     *time.Time
	suspectedAt time.Time
	// executed is mysqld's gtid_executed, and the time since when it has not changed.
	executed      string
	executedSince time.Time
}

// run writes to the disk at intervals. A write that hangs outlives run: nothing can end it.
func (p *diskProbe) run(ctx context.Context, write func() error) error {
	return every(ctx, diskProbeInterval, func() error {
		now := time.Now()
		if p.began.CompareAndSwap(nil, &now) {
			go func() {
				// mysqld finds the same error, and reports it better.
				_ = write()
				p.began.Store(nil)
			}()
		}
		return nil
	})
}

// writeProbe writes the probe beside the server's tables.
func (a *Agent) writeProbe() error { return writeProbe(a.data.Join("mysql", probeFile)) }

// writeProbe returns once one byte is on disk. It is always the same byte, so that nothing else
// has to be written. What is no file of the probe's alone goes, for the next write.
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

// hangs returns for how long the disk has not answered, if that is too long and already was too
// long a while ago.
func (p *diskProbe) hangs(now time.Time) time.Duration {
	began := p.began.Load()
	if began == nil || now.Sub(*began) < diskPatience {
		p.suspect = nil
		return 0
	}
	if p.suspect != began {
		p.suspect, p.suspectedAt = began, now
	}
	if now.Sub(p.suspectedAt) < diskProbeInterval {
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

// standsStill tells whether mysqld gets nowhere on a disk that hangs: for as long, no transaction
// was committed although a client writes. A commit needs no answer of mysqld's disk (only the log's
// disk is synced), so clients are served while commits go on. A mysqld that does not say who writes
// gets nowhere.
func (p *diskProbe) standsStill(now time.Time, behind bool, writers func() (int, error)) bool {
	if p.executedSince.IsZero() || now.Sub(p.executedSince) < diskPatience {
		return false
	}
	if behind {
		return true
	}
	n, err := writers()
	return err != nil || n > 0
}

// pollDisk reports trouble with mysqld's disk. It fences a primary that stands still on a disk that
// hangs: all its clients wait, while its agent goes on leading. A replica is left alone: its readers
// may find their data in memory.
func (a *Agent) pollDisk(p *mysqld.Process, role status.Role, writers func() (int, error)) {
	now := time.Now()
	took := a.disk.hangs(now)
	if took == 0 {
		a.board.SetTrouble(aboutDisk, "")
		return
	}
	reason := fmt.Sprintf("mysqld's disk has not answered for %s", took.Round(time.Second))
	a.board.SetTrouble(aboutDisk, reason)
	if role != status.RolePrimary && role != status.RolePromoting {
		return
	}
	behind := role == status.RolePromoting && a.board.Own().LagTransactions > 0
	if a.disk.standsStill(now, behind, writers) {
		a.doubt(p, reason+", and it commits nothing")
	}
}

// slowWriters counts the statements that have been writing for longer than a disk may take.
func slowWriters(ctx context.Context, p *mysqld.Process) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	sessions, err := p.Admin().SlowWriters(ctx, diskPatience)
	if errors.Is(err, context.Canceled) {
		return 0, nil // the agent stops
	}
	return len(sessions), err
}

// watchSpace looks, until mysqld has ended, whether mysqld waits for space on its disk. A primary is
// fenced: its clients would wait until somebody makes room, and up to a minute longer. Without room
// mysqld cannot be started again; the agent tries that again and again, with a pause, and its status
// says so. A replica is left alone: its readers go on, and it goes on by itself.
func (a *Agent) watchSpace(p *mysqld.Process) {
	for {
		select {
		case text := <-p.DiskFull():
			a.diskFull(p, "mysqld's disk is full: "+text)
		case <-p.Done():
			a.board.SetTrouble(aboutSpace, "")
			return
		}
	}
}

// diskFull acts in every role but a replica's: a client's session may wait, also in the last moments
// of a primary that is closing its writes.
func (a *Agent) diskFull(p *mysqld.Process, reason string) {
	switch a.board.Own().Role {
	case status.RoleReplica, status.RoleUnverified:
		a.board.SetTrouble(aboutSpace, reason+": it cannot take over before mysqld goes on, up to a minute after there is space")
	default:
		a.doubt(p, reason)
	}
}
