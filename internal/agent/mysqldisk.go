package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

const (
	// diskProbeInterval is how often mysqld's disk is asked.
	diskProbeInterval = time.Second
	// diskPatience is how long it may take. A disk that is only busy answers
	// within a few seconds; a primary that gets nowhere on one that does not is worth
	// a failover.
	diskPatience = 10 * time.Second
	// probeFile is in mysqld's directory, beside its data.
	probeFile = "probe"
	// aboutDisk and aboutSpace key what ails mysqld's disk among the board's
	// troubles.
	aboutDisk, aboutSpace = "disk", "space"
)

// diskProbe notices a disk under mysqld that hangs. mysqld itself greets, and
// answers what needs no disk; only its commits stand still.
type diskProbe struct {
	began atomic.Pointer[time.Time] // of the write under way; nil = there is none

	// The watch's goroutine alone has what follows.
	// suspect is the write that had taken too long when it was first looked at, at
	// suspectedAt. One look is not enough: the agent may have been stopped itself.
	suspect     *time.Time
	suspectedAt time.Time
	// executed is mysqld's gtid_executed, and since when that has not changed.
	executed      string
	executedSince time.Time
}

// run writes to the disk at intervals. A write that hangs outlives it: nothing can
// end that one.
func (p *diskProbe) run(ctx context.Context, dir string) error {
	return every(ctx, diskProbeInterval, func() error {
		now := time.Now()
		if p.began.CompareAndSwap(nil, &now) {
			go func() {
				// What fails mysqld finds as well, and says better.
				_ = writeProbe(filepath.Join(dir, probeFile))
				p.began.Store(nil)
			}()
		}
		return nil
	})
}

// writeProbe returns once one byte is on disk: the same one, so that nothing but it
// has to be written.
func writeProbe(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|unix.O_DSYNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte{'\n'}, 0)
	return err
}

// hangs returns for how long the disk has not answered, if that is too long, and was
// so a while ago.
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

// commits notes what mysqld has.
func (p *diskProbe) commits(executed string, now time.Time) {
	if p.executedSince.IsZero() || p.executed != executed {
		p.executed, p.executedSince = executed, now
	}
}

// standsStill tells whether mysqld gets nowhere on a disk that hangs: nothing was
// committed for as long, and something should have been. A commit needs no answer of
// its disk (only the log's is synced), so while they go on its clients are served. A
// mysqld that does not say who writes gets nowhere.
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

// pollDisk says what ails mysqld's disk, and fences a primary that stands still on
// one that hangs: all its clients wait, and its agent leads on. A replica is left
// alone, its readers may find in memory what they want.
func (a *Agent) pollDisk(p *mysqld.Process, role cluster.Role, writers func() (int, error)) {
	now := time.Now()
	took := a.disk.hangs(now)
	if took == 0 {
		a.board.SetTrouble(aboutDisk, "")
		return
	}
	reason := fmt.Sprintf("mysqld's disk has not answered for %s", took.Round(time.Second))
	a.board.SetTrouble(aboutDisk, reason)
	if role != cluster.RolePrimary && role != cluster.RolePromoting {
		return
	}
	behind := role == cluster.RolePromoting && a.board.Own().LagTransactions > 0
	if a.disk.standsStill(now, behind, writers) {
		a.doubt(p, []string{reason + ", and it commits nothing"})
	}
}

// slowWriters counts the statements that have been writing for as long as a disk may
// take.
func slowWriters(ctx context.Context, p *mysqld.Process) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	sessions, err := p.Admin().SlowWriters(ctx, diskPatience)
	if errors.Is(err, context.Canceled) {
		return 0, nil // the agent stops
	}
	return len(sessions), err
}

// watchSpace looks, until mysqld has ended, whether it waits for space on its disk.
// A primary is fenced: its clients would wait for as long as nobody makes room, and
// up to a minute longer. Without room it cannot be started again; that is tried
// after a pause each time, and its status says so. A replica is left alone: its
// readers go on, and it goes on by itself.
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

// diskFull: in every role but a replica's a session of a client may be what waits,
// also in the last moments of a primary that is closing its writes.
func (a *Agent) diskFull(p *mysqld.Process, reason string) {
	switch a.board.Own().Role {
	case cluster.RoleReplica, cluster.RoleUnverified:
		a.board.SetTrouble(aboutSpace, reason+": it cannot take over before mysqld goes on, up to a minute after there is space")
	default:
		a.doubt(p, []string{reason})
	}
}
