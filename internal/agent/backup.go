package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/agent/backups"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// backupSource makes what gives this node's data and log to backups.
func (a *Agent) backupSource() *backups.Source {
	dir := a.data.Join("mysql", "tmp", "backup")
	return backups.New(backups.Config{
		Cluster: a.cfg.Cluster, ClusterID: formatID(a.cfg.ClusterID()), Node: a.self.Name, Version: a.version, Clock: clock.Machine{},
		Own: a.ownStatus, Dir: dir, Free: func() (uint64, error) { return freeAt(filepath.Dir(dir)) },
		Mysqld: func() (backups.Mysqld, string) {
			p := a.currentProcess()
			if p == nil {
				return nil, ""
			}
			return p.Admin(), a.local.Installed.Load().Version.String()
		},
		Log:     func() backups.Log { return a.logReader() },
		Commit:  func() uint64 { return a.Raft.Committed().Mark().Index },
		Current: func() bool { return a.Raft.Role().Leader != 0 },
		Durable: a.durable, State: func() cluster.StatePoint { return a.Raft.Committed().State() },
	})
}

func freeAt(dir string) (uint64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return 0, fmt.Errorf("look how much is free in %s: %w", dir, err)
	}
	return disk.Bavail * uint64(disk.Bsize), nil
}

// noted handles a request that only tells this node something: note keeps it.
func noted[T any](note func(T)) func(context.Context, control.Request) (operate.Done, error) {
	return operate.Typed(func(_ context.Context, _ control.Request, args T) (operate.Done, error) {
		note(args)
		return operate.Done{Result: struct{}{}}, nil
	})
}

// backupMetrics are about the archive that is shipped from here, and full backups. Nothing is shown of what this node
// was not told.
func (p provider) backupMetrics() []metrics.Sample {
	b := p.cfg.Backup
	m := []metrics.Sample{
		metrics.Bool("quorate_backup_configured", b.Directory+b.PutCommand != ""),
		metrics.Bool("quorate_backup_copies", p.backups.Copying()),
	}
	if at := p.backups.Full(); !at.IsZero() {
		m = append(m, metrics.Of("quorate_backup_full_timestamp_seconds", at.Unix()))
	}
	if index, lag, ok := p.backups.Archive(); ok {
		m = append(m, metrics.Of("quorate_archive_index", index), metrics.Of("quorate_archive_lag_seconds", lag.Seconds()))
	}
	return m
}

// stream answers a request for a copy of what this node has.
func (a *Agent) stream(ctx context.Context, r control.Request, w io.Writer) error {
	switch {
	case !a.TakesPart():
		return a.requests.NoPart()
	case r.Name == cluster.StreamData && !a.runsMysqld():
		return control.Errorf(control.CodeInvalid, "node %s is a logger: it has no mysqld", a.self.Name)
	case r.Name == cluster.StreamData:
		a.logger.Info("copying mysqld's data for a backup", "by", r.By)
		err := a.backups.Data(ctx, w)
		if err != nil { // a client that does not read does not learn why
			a.logger.Warn("no whole copy of mysqld's data was given for a backup", "error", err)
		}
		return err
	case r.Name == cluster.StreamLog:
		var args cluster.StreamLogRequest
		if err := operate.Arguments(r, &args); err != nil {
			return err
		}
		err := a.backups.Log(ctx, w, args.First)
		switch {
		case errors.Is(err, seglog.ErrCompacted):
			return control.Errorf(control.CodePurged, "%v", err)
		case errors.Is(err, backups.ErrBehind):
			return control.Errorf(control.CodeBehind, "%v", err)
		}
		return err
	}
	return control.Errorf(control.CodeUnknown, "this agent cannot give the copy %q: it runs an older quorate than the command; upgrade the agent", r.Name)
}
