package keys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/sys/clock"
)

// ErrKey means that this node cannot use its key until somebody mends its files.
var ErrKey = errors.New("this node cannot use its key")

// Open reads the key of a configuration's node. If there is none it makes one: at the first start, or after an
// upgrade from a quorate without keys. last is the cluster state that the node knew last, noted what it noted of the
// key that it shows; fresh: the node has no data yet. nil: there is no key, and none is needed yet.
func Open(cfg config.Config, last cluster.State, noted datadir.KeyNote, fresh bool, logger *slog.Logger) (*Keys, error) {
	if cfg.KeyFile == "" {
		return nil, nil
	}
	configured := cfg.Self().Key
	if _, missing := os.Lstat(cfg.KeyFile); fresh && configured != "" && cfg.PeerTLS.CertificateFile == "" && errors.Is(missing, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the configuration says that node %q has the key %s, and %s is not there: put it back, or make another one with \"quorate key new\" and write its name into the configuration",
			ErrKey, cfg.Node, configured, cfg.KeyFile)
	}
	known, needed := knownKey(cfg, last)
	k, err := Load(filesOf(cfg), cfg.Self().ID, known, logger)
	switch {
	case err != nil && needed:
		return nil, unusable(err, cfg)
	case err != nil:
		logger.Warn("this node has no key: its connections with other agents are not protected", "error", err)
		return nil, nil
	case known.Issued() && !k.Has(known) && !k.Has(nextKey(cfg, last)) && k.aside() != "":
		// With node.key all others would refuse it, and name node.key as the cause.
		return nil, fmt.Errorf("%w: the cluster knows node %q by %s: %s", ErrKey, cfg.Node, known, k.aside())
	case fresh && configured != "" && !k.Has(configured):
		return nil, fmt.Errorf("%w: the configuration says that node %q has the key %s, and %s holds the key %s: correct the one or the other",
			ErrKey, cfg.Node, configured, cfg.KeyFile, k.Shown().Name())
	}
	m, is := last.MemberByID(cfg.Self().ID)
	k.resume(noted, m, is)
	return k, nil
}

// filesOf are the files of a configuration's keys.
func filesOf(cfg config.Config) Files {
	return Files{Own: cfg.KeyFile, Certificate: cfg.PeerTLS.CertificateFile, Key: cfg.PeerTLS.KeyFile,
		Name: cluster.IssuedKey(&url.URL{Scheme: "quorate", Host: cfg.Cluster, Path: "/" + cfg.Node})}
}

// nextKey is the key to which the cluster is changing a configuration's node; "" = there is none, and no node has it.
func nextKey(cfg config.Config, last cluster.State) cluster.Key {
	m, _ := last.MemberByID(cfg.Self().ID)
	return m.NextKey
}

// CheckIssued says why the key of [peer_tls] cannot be used; nil = it can, or there is none.
func CheckIssued(cfg config.Config) error {
	if cfg.PeerTLS.CertificateFile == "" {
		return nil
	}
	_, err := filesOf(cfg).loadIssued()
	return err
}

// knownKey is the key by which the others know a configuration's node. needed: the node does not start without a key.
func knownKey(cfg config.Config, last cluster.State) (known cluster.Key, needed bool) {
	if m, ok := last.MemberByID(cfg.Self().ID); ok && m.Key != "" {
		return m.Key, true
	}
	return cfg.Self().Key, len(cfg.Members) > 0 && cfg.Members[0].Key != "" // all have one, or none
}

// Check says why Open would fail, and makes no key. It takes a key that is not there for one that somebody will put there, if the node
// has no data yet.
func Check(cfg config.Config, last cluster.State, fresh bool) error {
	_, missing := os.Lstat(cfg.KeyFile)
	if cfg.KeyFile == "" || cfg.PeerTLS.CertificateFile != "" || !errors.Is(missing, fs.ErrNotExist) {
		_, err := Open(cfg, last, datadir.KeyNote{}, fresh, slog.New(slog.DiscardHandler))
		return err
	}
	const writeAndPass = 0o3 // access(2): W_OK|X_OK
	err := syscall.Access(filepath.Dir(cfg.KeyFile), writeAndPass)
	if _, needed := knownKey(cfg, last); err == nil || fresh || !needed {
		return nil
	}
	return unusable(&os.PathError{Op: "make", Path: cfg.KeyFile, Err: err}, cfg)
}

// unusable says why the key could not be read or made, and what to do where the reason does not say it.
func unusable(err error, cfg config.Config) error {
	errno, failed := errors.AsType[syscall.Errno](err)
	switch {
	case failed && !slices.Contains([]syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.EROFS}, errno):
		return err // a fault of the disk or the host, which may pass by itself
	case cfg.PeerTLS.CertificateFile != "" || !failed && errors.Is(err, nodekey.ErrOpen):
		return fmt.Errorf("%w: %w", ErrKey, err)
	case !failed:
		return fmt.Errorf("%w: %w: put the file back, or move it away and make another key with \"quorate key new\"", ErrKey, err)
	}
	if _, there := os.Lstat(cfg.KeyFile); there == nil {
		return fmt.Errorf("%w: %w: give the file to the agent's account", ErrKey, err)
	}
	return fmt.Errorf("%w: there is no key, and none can be made here (%w): put %s back, or make a key with \"quorate key new\"", ErrKey, err, cfg.KeyFile)
}

// OutdatedIn says for which nodes a configuration has other keys than the cluster; "" = for none.
func OutdatedIn(cfg config.Config, s cluster.State) string {
	return Outdated(append(cfg.ClusterMembers(), cfg.AddedMembers()...), s)
}

// lookEvery is how often a Service looks.
const lookEvery = time.Second

// Service looks which keys the configuration lacks, and changes this node's own. Make one with NewService.
type Service struct {
	keys   *Keys
	node   Node
	file   file
	logger *slog.Logger
}

// NewService returns the Service of a node that has begun with a configuration; k may be nil. It starts nothing.
func NewService(k *Keys, cfg config.Config, n Node, logger *slog.Logger) *Service {
	return &Service{keys: k, node: n, file: file{cfg: cfg}, logger: logger}
}

// Run looks until ctx ends. It has a goroutine of its own: the leader, which is asked to change the state, may not
// answer for seconds.
func (s *Service) Run(ctx context.Context) error {
	for c := new(clock.OneTimer); ; {
		if text := OutdatedIn(s.file.now(), s.node.State()); s.node.Outdated(text) && text != "" {
			s.logger.Warn(text)
		}
		if s.keys != nil {
			s.keys.Look(ctx, s.node)
		}
		if c.Wait(ctx, lookEvery, nil) != nil {
			return nil
		}
	}
}

// file is a node's configuration as its file has it now. One goroutine may use it.
type file struct {
	cfg config.Config
	// read is the file as it was when cfg was read from it; nil = cfg is from the agent's start.
	read fs.FileInfo
}

// now reads the file again if it has changed. A file that cannot be read now, or is of another node, changes
// nothing.
func (f *file) now() config.Config {
	path := f.cfg.File()
	if path == "" {
		return f.cfg
	}
	info, err := os.Stat(path)
	if err != nil || f.read != nil && os.SameFile(info, f.read) && info.ModTime().Equal(f.read.ModTime()) && info.Size() == f.read.Size() {
		return f.cfg
	}
	fresh, err := config.Load(path)
	if err == nil && fresh.Cluster == f.cfg.Cluster && fresh.Node == f.cfg.Node {
		f.cfg, f.read = fresh, info
	}
	return f.cfg
}
