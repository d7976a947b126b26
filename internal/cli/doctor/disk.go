package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
)

const (
	// blockBytes is what is written before each fdatasync: a small transaction's entry.
	blockBytes = 4 << 10
	// measuredBytes is how large the file is that is written over and over, as the log
	// writes into space that it has made before.
	measuredBytes = 1 << 20
	samplesMax    = 400
)

// place is a directory of the node, on a device.
type place struct {
	name string
	// dir is the directory, or what there is of its path.
	dir    string
	device uint64
	stat   unix.Statfs_t
}

// places returns the directories of log and data; one, if a device has both.
func (h Host) places() (all []place, err error) {
	names := []string{"log", "mysql"}
	if h.Config.Self().Kind == cluster.KindLogger {
		names = names[:1]
	}
	for i, name := range names {
		p := place{name: []string{"log", "data"}[i], dir: filepath.Join(h.Config.DataDir, name)}
		var info unix.Stat_t
		for {
			err := unix.Stat(p.dir, &info)
			if err == nil {
				break
			}
			if !errors.Is(err, fs.ErrNotExist) || p.dir == filepath.Dir(p.dir) {
				return nil, fmt.Errorf("look at %s: %w", p.dir, err)
			}
			p.dir = filepath.Dir(p.dir)
		}
		p.device = uint64(info.Dev)
		if err := unix.Statfs(p.dir, &p.stat); err != nil {
			return nil, fmt.Errorf("look at the file system of %s: %w", p.dir, err)
		}
		if len(all) == 1 && all[0].device == p.device {
			all[0].name = "log and data"
			continue
		}
		all = append(all, p)
	}
	return all, nil
}

// unseen is the Check of what could not be looked at.
func unseen(subject string, err error) cluster.Check {
	return cluster.Check{Subject: subject, State: cluster.CheckUnknown, Found: fmt.Sprintf("not looked at: %v", err)}
}

// disks measures fdatasync where log and data are. It returns the median of the log's, 0 = not
// known.
func (h Host) disks(ctx context.Context) (checks []cluster.Check, median time.Duration) {
	places, err := h.places()
	if err != nil {
		return []cluster.Check{unseen("disk", err)}, 0
	}
	for i, p := range places {
		subject := "disk of " + p.name
		samples, err := measureSync(ctx, p.dir, measureTime/time.Duration(len(places)))
		var c cluster.Check
		switch {
		case errors.Is(err, errHangs):
			c = cluster.Check{Subject: subject, State: cluster.CheckFail, Found: fmt.Sprintf("a write in %s has taken more than %s", p.dir, measureTime), Do: "look at the kernel's log (dmesg): the disk hangs"}
		case errors.Is(err, fs.ErrPermission):
			c = unseen(subject, fmt.Errorf("uid %d may not write in %s: run this as the agent's account", os.Geteuid(), p.dir))
		case err != nil:
			c = unseen(subject, err)
		default:
			c = checkSync(subject, samples, h.Config.Raft)
		}
		if s := c.Figures["fdatasync_p50_seconds"]; i == 0 && s > 0 {
			median = time.Duration(s * float64(time.Second))
		}
		checks = append(checks, c)
	}
	return checks, median
}

// errHangs: a disk has not answered for much longer than it had.
var errHangs = errors.New("the disk does not answer")

// measureSync times fdatasync in a directory, for as long as that. The file has no name: nothing
// is left behind.
func measureSync(ctx context.Context, dir string, most time.Duration) ([]time.Duration, error) {
	type result struct {
		samples []time.Duration
		err     error
	}
	done := make(chan result, 1)
	go func() { // it cannot be called off
		samples, err := timeSyncs(ctx, dir, most)
		done <- result{samples, err}
	}()
	limit := time.NewTimer(most + measureTime)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.samples, r.err
	case <-limit.C:
		return nil, errHangs
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func timeSyncs(ctx context.Context, dir string, most time.Duration) (samples []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".quorate-doctor-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	if _, err := f.Write(make([]byte, measuredBytes)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	block := make([]byte, blockBytes)
	for end := time.Now().Add(most); len(samples) < samplesMax && time.Now().Before(end) && ctx.Err() == nil; {
		began := time.Now()
		if _, err := f.WriteAt(block, int64(len(samples)*blockBytes%measuredBytes)); err != nil {
			return nil, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, fmt.Errorf("fdatasync in %s: %w", dir, err)
		}
		samples = append(samples, time.Since(began))
	}
	return samples, nil
}

// space looks at the file systems of log and data, and what is free there.
func (h Host) space() (checks []cluster.Check) {
	places, err := h.places()
	if err != nil {
		return nil // disks says it
	}
	for i, p := range places {
		retention, has := int64(0), int64(0)
		if i == 0 { // the log's
			retention, has = int64(h.Config.Log.RetentionSize), sizeOf(filepath.Join(h.Config.DataDir, "log"))
		}
		block := int64(p.stat.Bsize)
		checks = append(checks, checkFileSystem("file system of "+p.name, int64(p.stat.Type)),
			checkSpace("space for "+p.name, int64(p.stat.Bavail)*block, int64(p.stat.Blocks)*block, has, retention))
	}
	return checks
}

// sizeOf is how much the files of a directory have; 0 where nobody may look.
func sizeOf(dir string) (bytes int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
	}
	return bytes
}
