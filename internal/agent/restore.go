package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/restoring"
	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// Restoration makes this node's data directory from a backup. The node's agent does not run meanwhile.
type Restoration struct {
	a      *Agent
	record restoring.Record
	full   archive.Manifest
	log    restoring.Log
	uuid   string
}

// OpenRestoration begins a restore into the data directory of a configuration. The directory must be empty,
// or have what an interrupted restore left: that is removed. It is locked until Close.
func OpenRestoration(cfg config.Config, logger *slog.Logger, version string) (*Restoration, error) {
	switch {
	case cfg.Joins():
		return nil, errors.New("the configuration has [join], and a backup makes the first node of a new cluster: remove [join]")
	case len(cfg.Members) != 1 || cfg.Self().Kind == cluster.KindLogger:
		return nil, errors.New("the configuration must name this node, as a full node, in its only [[member]]: a backup makes the first node of a new cluster, and the other nodes join it")
	}
	if err := clearRestore(cfg); err != nil {
		return nil, err
	}
	a, err := New(cfg, logger, version)
	if err != nil {
		return nil, err
	}
	if !a.data.Fresh() {
		return nil, fmt.Errorf("data directory %s belongs to a node already: set data_dir to an empty directory", cfg.DataDir)
	}
	if err := a.data.Reserve(); err != nil {
		return nil, err
	}
	return &Restoration{a: a}, nil
}

// clearRestore removes what an interrupted restore has left.
func clearRestore(cfg config.Config) error {
	_, found, err := restoring.Underway(vfs.OS{}, cfg.DataDir)
	if err != nil || !found {
		return err
	}
	home := datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, cfg.DataDir), datadir.Identity{}, false))
	if err := home.TakeLock(); err != nil {
		return err
	}
	return errors.Join(restoring.Clear(vfs.OS{}, cfg.DataDir), home.Close())
}

// Begin notes what is restored. Until Finish no agent starts here.
func (r *Restoration) Begin(by, full string, m archive.Manifest, t archive.Target) error {
	r.full = m
	if free, err := freeAt(r.a.cfg.DataDir); err == nil {
		if why := noRoom(m, free); why != "" {
			r.a.logger.Warn("the data will not fit, unless the file system compresses them", "directory", r.a.cfg.DataDir, "reason", why)
		}
	}
	r.record = restoring.Record{By: by, At: time.Now().UTC().Truncate(time.Second), Full: full, Target: t.String()}
	return restoring.Begin(vfs.OS{}, r.a.cfg.DataDir, r.record)
}

// noRoom says that a full backup's data are larger than what is free; "" = they are not.
func noRoom(m archive.Manifest, free uint64) string {
	need := int64(0)
	for _, f := range m.Files {
		need += f.Bytes
	}
	if uint64(need) <= free {
		return ""
	}
	return fmt.Sprintf("they need %s, and %s are free", units.Size(need), units.Size(int64(free)))
}

// MakeLog makes the node's log, as far as the target says.
func (r *Restoration) MakeLog(t archive.Target, items restoring.Items, progress func(index uint64, at time.Time)) (restoring.Log, error) {
	var err error
	r.log, err = restoring.MakeLog(adoptedLog(r.a.cfg, r.a.logger), r.full, t, items, progress)
	return r.log, err
}

// MakeData unpacks the data of the full backup: a tar, as package archive has it. progress is called
// with the number of bytes of files that are unpacked.
func (r *Restoration) MakeData(ctx context.Context, from io.Reader, progress func(bytes int64)) (err error) {
	server := r.a.mysqldConfig()
	server.OSUser = mysqldAccount(r.a.cfg)
	r.uuid, err = mysqld.New(server).Restore(ctx, func(root *os.Root) error {
		u := unpacker{ctx: ctx, root: root, want: r.full, progress: progress}
		return u.unpack(from)
	})
	return err
}

// Finish makes the directory this node's. own: where both set a server variable, this node's configuration counts and
// not the backed-up cluster, whose hosts may be larger.
func (r *Restoration) Finish(own bool) (restoring.Record, error) {
	r.record.Index, r.record.GTIDs = r.log.Last, r.log.GTIDs.String()
	err := restoring.Finish(vfs.OS{}, r.a.cfg.DataDir, r.record, r.full, r.log, restoring.Node{
		Identity: r.a.data.Own(), Members: r.a.cfg.ClusterMembers(), ServerUUID: r.uuid,
		GiveAway: func() error { return giveAway(r.a.cfg.DataDir) },
		Sets: func(variable string) bool {
			_, operator, _ := mysqld.Own(r.a.cfg.MySQL.Variables, variable)
			return own && operator
		},
	})
	return r.record, err
}

// Close gives the data directory back.
func (r *Restoration) Close() error { return r.a.data.Close() }

// unpacker writes the files of a backup's data, and checks them.
type unpacker struct {
	ctx      context.Context
	root     *os.Root
	want     archive.Manifest
	bytes    int64
	progress func(int64)
}

func (u *unpacker) unpack(from io.Reader) error {
	in := archive.NewData(from)
	for {
		f, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = u.ctx.Err()
		}
		if err == nil {
			err = u.write(f)
		}
		if err != nil {
			return fmt.Errorf("unpack the data: %w", err)
		}
	}
	return in.Check(u.want)
}

func (u *unpacker) write(f *archive.DataFile) (err error) {
	if f.Dir {
		return u.root.MkdirAll(f.Name, 0o750)
	}
	if dir := path.Dir(f.Name); dir != "." {
		if err := u.root.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	out, err := u.root.OpenFile(f.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	n, err := io.Copy(out, f)
	u.bytes += n
	u.progress(u.bytes)
	return err
}
