package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/founding"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// Adoption makes the data of a server the data of this node, in place. The node's agent does not run
// meanwhile. No server can start on the data until Close.
type Adoption struct {
	a       *Agent
	release func()
	// about is what was read.
	about founding.Situation
}

// OpenAdoption examines the data directory from. It changes nothing there except a temporary file, and
// nothing in this node's own directory.
func OpenAdoption(ctx context.Context, cfg config.Config, from string, logger *slog.Logger, version string) (_ *Adoption, err error) {
	if cfg.Joins() {
		return nil, errors.New("the configuration has [join], and only the first node of a new cluster can adopt data: remove [join]")
	}
	if from, err = filepath.Abs(from); err == nil {
		from, err = filepath.EvalSymlinks(from)
	}
	if err != nil {
		return nil, fmt.Errorf("find the data: %w", err)
	}
	a, err := New(cfg, logger, version)
	if err != nil {
		return nil, err
	}
	if !a.data.Fresh() {
		return nil, fmt.Errorf("data directory %s belongs to a node already: set data_dir to an empty directory", cfg.DataDir)
	}
	release, err := mysqld.HoldData(from)
	if err != nil {
		return nil, err
	}
	ad := &Adoption{a: a, release: release}
	if err := ad.read(ctx, from); err != nil {
		ad.Close()
		return nil, err
	}
	return ad, nil
}

// Close lets servers start on the data again.
func (ad *Adoption) Close() { ad.release() }

// read examines the data directory from, and fills about.
func (ad *Adoption) read(ctx context.Context, from string) (err error) {
	a := ad.a
	server := a.mysqldConfig()
	server.OSUser = mysqldAccount(a.cfg)
	s := founding.Situation{Members: a.cfg.ClusterMembers(), Self: a.cfg.Node}
	if s.Place, err = placeOf(from, a.cfg.DataDir); err != nil {
		return err
	}
	s.Place.Account = accountName(server.OSUser)
	if !a.runsMysqld() { // the members say so
		ad.about = s
		return nil
	}
	s.Version = a.local.Installed.Load().Version
	if s.Files, err = server.LookAtFiles(from); err != nil {
		return err
	}
	if founding.Startable(s) {
		survey, err := server.Survey(ctx, from)
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		s.Survey = &survey
	}
	ad.about = s
	return nil
}

// mysqldAccount is the account that mysqld runs as; "" = the account of this process. Where root adopts for
// an agent that is not root, and no account is configured, it is the owner of the node's data directory.
func mysqldAccount(cfg config.Config) string {
	if cfg.MySQL.User != "" || os.Geteuid() != 0 {
		return cfg.MySQL.User
	}
	uid, _, ok := ownerOf(cfg.DataDir)
	if !ok || uid == 0 {
		return ""
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return "" // an account without a name: the files will be found to be another's
	}
	return u.Username
}

func accountName(name string) string {
	if name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid())
}

// ownerOf returns the owner and the group of a file; ok=false: they are not known.
func ownerOf(path string) (uid, gid int, ok bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}

// placeOf finds out whether the data in from can be renamed into dataDir.
func placeOf(from, dataDir string) (p founding.Place, err error) {
	p = founding.Place{From: from, DataDir: dataDir}
	parent := filepath.Dir(from)
	there := dataDir // or its nearest parent that exists
	for {
		if _, err := os.Stat(there); !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			break
		}
		there = filepath.Dir(there)
	}
	device := func(path string) (dev uint64) {
		var st unix.Stat_t
		err = errors.Join(err, unix.Stat(path, &st))
		return st.Dev
	}
	real, err := filepath.EvalSymlinks(there)
	if err != nil {
		return p, fmt.Errorf("look at the data directory: %w", err)
	}
	real += strings.TrimPrefix(dataDir, there)
	p.Nested = below(from, real) || below(real, from)
	p.MountPoint = device(from) != device(parent)
	p.OtherDisk = !p.MountPoint && device(from) != device(there)
	if err != nil {
		return p, fmt.Errorf("look at the data directory: %w", err)
	}
	for _, dir := range []string{parent, from} {
		if err := unix.Access(dir, unix.W_OK); err != nil && p.Unmovable == "" {
			p.Unmovable = fmt.Sprintf("this account may not write in %s, so it cannot give %s another name", dir, from)
		}
	}
	return p, nil
}

// below tells whether path is the directory in, or lies below it.
func below(path, in string) bool {
	rel, err := filepath.Rel(in, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// AdoptionReport is what was found of a data directory.
type AdoptionReport struct {
	From     string             `json:"data_directory"`
	Cluster  string             `json:"cluster"`
	Node     string             `json:"node"`
	Version  string             `json:"version,omitempty"`
	Bytes    int64              `json:"bytes"`
	Executed string             `json:"gtid_executed,omitempty"`
	Result   cluster.CheckState `json:"result"`
	Checks   []cluster.Check    `json:"checks"`
}

// Report says what was found, and what speaks against the adoption.
func (ad *Adoption) Report() AdoptionReport {
	s := ad.about
	r := AdoptionReport{
		From: s.Place.From, Cluster: ad.a.cfg.Cluster, Node: ad.a.cfg.Node, Bytes: s.Files.Bytes, Checks: founding.Check(s),
	}
	if r.Result = cluster.Worst(r.Checks); s.Survey != nil {
		r.Executed, r.Version = s.Survey.Executed, s.Version.String()
	}
	return r
}

// Do adopts the data, unless a check of Report has failed. After an error the adoption may be half done:
// FinishAdoption goes on with it, UndoAdoption takes it back.
func (ad *Adoption) Do(by string, now time.Time) (founding.Record, error) {
	a, s := ad.a, ad.about
	if s.Survey == nil || cluster.Worst(founding.Check(s)) == cluster.CheckFail {
		return founding.Record{}, errors.New("the data cannot be adopted, and nothing was done: \"quorate adopt --check\" says why")
	}
	executed, err := gtid.ParseSet(s.Survey.Executed)
	if err != nil {
		return founding.Record{}, fmt.Errorf("parse gtid_executed: %w", err)
	}
	r, err := founding.New(founding.Adoption{
		From: s.Place.From, By: by, At: now, Executed: executed, LockedRoot: len(s.Survey.LockedRoot) > 0, UUIDBefore: s.Files.UUID, ServerUUID: mysqld.NewUUID(),
		Identity: a.data.Own(), Members: a.cfg.ClusterMembers(),
	})
	if err != nil {
		return r, err
	}
	if err := a.data.Reserve(); err != nil {
		return r, err
	}
	err = r.Make(vfs.OS{}, a.cfg.DataDir, adoptedLog(a.cfg, a.logger))
	if err == nil {
		err = giveAway(a.cfg.DataDir)
	}
	return r, errors.Join(err, a.data.Close())
}

// commandCacheBytesMax bounds the log's cache in a command, which reads none of the newest entries again.
const commandCacheBytesMax = 8 << 20

// adoptedLog has the options with which a command makes the node's log while its agent does not run.
func adoptedLog(cfg config.Config, logger *slog.Logger) seglog.Options {
	return seglog.Options{
		FS: vfs.OS{}, Dir: filepath.Join(cfg.DataDir, "log"), Identity: logIdentity(cfg), Logger: logger,
		SegmentBytesMax: int64(cfg.Log.SegmentSize),
		CacheBytesMax:   commandCacheBytesMax,
	}
}

// giveAway gives the files that root has made in a data directory to the owner of that directory. mysqld's
// data keep their owner.
func giveAway(dir string) error {
	uid, gid, ok := ownerOf(dir)
	if !ok || os.Geteuid() != 0 || uid == 0 {
		return nil
	}
	if err := giveTo(dir, uid, gid); err != nil {
		return fmt.Errorf("give the node's files to its account: %w", err)
	}
	return nil
}

// giveTo gives everything in a directory to an account, except mysqld's data. The account may replace files
// meanwhile, so the walk cannot leave the directory: nothing outside of it is given away.
func giveTo(dir string, uid, gid int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == "mysql/data":
			return fs.SkipDir
		}
		return root.Lchown(path, uid, gid)
	})
}

// AdoptionOf reads whether the data directory of a configuration has an adoption, and how far it is.
func AdoptionOf(cfg config.Config) (founding.Record, founding.Phase, error) {
	return founding.Look(vfs.OS{}, cfg.DataDir)
}

// FinishAdoption goes on with an adoption that was interrupted, or with undoing one.
func FinishAdoption(cfg config.Config, logger *slog.Logger) (founding.Record, error) {
	return resumeAdoption(cfg, func(r founding.Record) error {
		if err := checkIdentity(r.Identity, cfg); err != nil {
			return err
		}
		if err := founding.Finish(vfs.OS{}, cfg.DataDir, adoptedLog(cfg, logger)); err != nil {
			return err
		}
		return giveAway(cfg.DataDir)
	})
}

// AdoptionMoved tells whether the data of an adoption that is under way are the node's already.
func AdoptionMoved(cfg config.Config, r founding.Record) (bool, error) {
	return r.Moved(vfs.OS{}, cfg.DataDir)
}

// AdoptionUnchanged returns nil if an adoption that is done can still be undone, else why not.
func AdoptionUnchanged(cfg config.Config, r founding.Record) error {
	return r.Unchanged(vfs.OS{}, cfg.DataDir)
}

// UndoAdoption puts the data back to where they were, as long as no start of mysqld has changed them here.
func UndoAdoption(ctx context.Context, cfg config.Config, logger *slog.Logger, version string) (founding.Record, error) {
	return resumeAdoption(cfg, func(founding.Record) error {
		return founding.Undo(vfs.OS{}, cfg.DataDir, func(r founding.Record) error {
			data := filepath.Join(cfg.DataDir, "mysql", "data")
			changed, err := changedSince(ctx, cfg, r, data, logger, version)
			if err == nil && changed == "" {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("%w: %s", founding.ErrStarted, changed)
			} else {
				err = fmt.Errorf("mysqld was started after the adoption, and quorate cannot tell whether that changed the data: %w", err)
			}
			return fmt.Errorf("%w. The data are complete in %s: start the agent, and mend what stops it; or go on without quorate, with the data in place (docs/leaving.md)", err, data)
		})
	})
}

// changedSince says what a start of mysqld has changed in the data of an adoption; "" = nothing. A start first locks
// root, then makes quorate's accounts, and only then lets anybody in. So where neither was done, nobody has written
// anything.
func changedSince(ctx context.Context, cfg config.Config, r founding.Record, data string, logger *slog.Logger, version string) (string, error) {
	a, err := New(cfg, logger, version)
	if err != nil {
		return "", err
	}
	server := a.mysqldConfig()
	server.OSUser = mysqldAccount(cfg)
	survey, err := server.Survey(ctx, data)
	if err != nil {
		return "", err
	}
	executed, err := gtid.ParseSet(survey.Executed)
	if err != nil {
		return "", fmt.Errorf("parse gtid_executed: %w", err)
	}
	before, err := gtid.ParseSet(r.Executed)
	switch {
	case err != nil:
		return "", fmt.Errorf("parse what gtid_executed was: %w", err)
	case len(survey.Reserved) > 0:
		return "it has made quorate's accounts", nil
	case len(survey.LockedRoot) > 0 && !r.LockedRoot:
		return "root@localhost is locked, as the first start does", nil
	case !executed.Equal(before):
		return "gtid_executed has changed", nil
	}
	return "", nil
}

// resumeAdoption calls do. Meanwhile no agent can run here, and no server can start on the data.
func resumeAdoption(cfg config.Config, do func(founding.Record) error) (founding.Record, error) {
	home := datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, cfg.DataDir), datadir.Identity{}, false))
	if err := home.TakeLock(); err != nil {
		return founding.Record{}, err
	}
	r, _, err := AdoptionOf(cfg)
	if err == nil {
		err = holdWhile(r, cfg.DataDir, func() error { return do(r) })
	}
	return r, errors.Join(err, home.Close())
}

// holdWhile calls do while no server can start on the data of an adoption, in their old place or the new one.
func holdWhile(r founding.Record, dataDir string, do func() error) error {
	for _, dir := range []string{r.From, filepath.Join(dataDir, "mysql", "data")} {
		release, err := mysqld.HoldData(dir)
		if errors.Is(err, mysqld.ErrNoData) {
			continue
		}
		if err != nil {
			return err
		}
		defer release()
	}
	return do()
}
