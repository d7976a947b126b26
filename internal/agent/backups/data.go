package backups

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Mysqld is the server that is copied.
type Mysqld interface {
	// DataBytes is about how many bytes a copy has.
	DataBytes(ctx context.Context) (int64, error)
	// CloneTo copies the data into a directory that does not exist, on the disk of the data.
	CloneTo(ctx context.Context, dir string) error
}

// Log is the node's log, and the committed part of it. Its reader closes it.
type Log interface {
	replay.CommittedLog
	Term(index uint64) (uint64, error)
	Close()
}

// Config is what Source needs. All fields are required.
type Config struct {
	Cluster, ClusterID, Node, Version string
	Clock                             clock.Clock
	// Own is the node's status as it is now.
	Own func() status.Node
	// Mysqld returns the mysqld that runs, and its version; nil = none runs.
	Mysqld func() (Mysqld, string)
	// Dir is where it may copy to.
	Dir string
	// Free is how many bytes are free there.
	Free func() (uint64, error)
	// Log opens the log.
	Log func() Log
	// Commit is the commit index. Current tells whether that follows what the cluster commits: the node has a leader.
	Commit  func() uint64
	Current func() bool
	// Durable is the mysqld's durable mark, State the committed cluster state.
	Durable func() replay.Mark
	State   func() cluster.StatePoint
}

// Source gives backups what they take of this node.
type Source struct {
	c      Config
	copies sync.Mutex // held while the data are copied
	// copying: there is a copy.
	copying atomic.Bool
	// archive is what is known of the archive that is shipped from here.
	archive progress
	// full is when the newest full backup was taken; nil = nobody has said so.
	full atomic.Pointer[time.Time]
}

// NoteFull notes when the newest full backup was taken, as the newest caller has found. The time may be older than
// what was noted before: a newer backup was deleted, or is in another repository.
func (s *Source) NoteFull(at time.Time) { s.full.Store(&at) }

// Full is when the newest full backup was taken; zero if nobody has said so since this agent began.
func (s *Source) Full() time.Time {
	if at := s.full.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Copying tells whether a copy of the data is on their disk, or is being made. It is removed before the disk is full.
func (s *Source) Copying() bool { return s.copying.Load() }

// New makes a Source.
func New(c Config) *Source {
	return &Source{c: c, archive: progress{points: []point{{at: c.Clock.Now()}}}}
}

// ErrBusy is returned where the data are being copied.
var ErrBusy = errors.New("the data of this node are being copied for another backup")

// reserve is left free beside a copy of the data, and a tenth of their size.
const reserve = 1 << 30

// cutOffAfter is how long the client has to take the reason when its copy is stopped.
const cutOffAfter = 5 * time.Second

// Data writes a copy of mysqld's data to w: see package archive. If the disk gets nearly full it ends, and removes the copy. If
// nobody reads then, a Write to w must end: w may have EndIn, which makes Write fail after that time, also a Write that waits.
func (s *Source) Data(ctx context.Context, w io.Writer) (err error) {
	if !s.copies.TryLock() {
		return ErrBusy
	}
	defer s.copies.Unlock()
	server, start, err := s.start(ctx)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(s.c.Dir); err != nil {
		return fmt.Errorf("remove an earlier copy: %w", err)
	}
	s.copying.Store(true)
	defer s.copying.Store(false)
	buffered := bufio.NewWriterSize(w, 1<<18)
	out := tar.NewWriter(buffered)
	if err := writeJSON(out, archive.StartFile, start.At, start); err != nil {
		return err
	}
	// The client sees now that the copy has begun.
	if err := errors.Join(out.Flush(), buffered.Flush()); err != nil {
		return fmt.Errorf("write the copy: %w", err)
	}
	defer func() {
		if e := os.RemoveAll(s.c.Dir); e != nil {
			err = errors.Join(err, fmt.Errorf("remove the copy: %w", e))
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	var full error
	defer func() {
		cancel()
		if watch.Wait(); err != nil && full != nil {
			err = full // the others follow from it
		}
	}()
	watch.Go(func() {
		if full = s.watchRoom(ctx); full == nil {
			return
		}
		cancel()
		if waits, ok := w.(interface{ EndIn(time.Duration) }); ok {
			waits.EndIn(cutOffAfter)
		}
	})
	if err := server.CloneTo(ctx, s.c.Dir); err != nil {
		return err
	}
	commit := s.c.Commit()
	if err := writeTree(ctx, out, s.c.Dir); err != nil {
		return err
	}
	if err := writeJSON(out, archive.EndFile, start.At, archive.End{At: time.Now().UTC(), Index: commit}); err != nil {
		return err
	}
	if err := errors.Join(out.Close(), buffered.Flush()); err != nil {
		return fmt.Errorf("write the copy: %w", err)
	}
	return nil
}

// roomEvery is how often watchRoom looks whether there is still room.
const roomEvery = 5 * time.Second

// watchRoom returns an error once the disk is nearly full, and nil once ctx has ended.
func (s *Source) watchRoom(ctx context.Context) error {
	for s.c.Clock.Wait(ctx, roomEvery, nil) == nil {
		if free, err := s.c.Free(); err == nil && free < reserve/2 {
			return fmt.Errorf("the disk of %s has only %s left: the copy was stopped", s.c.Dir, units.Size(int64(free)))
		}
	}
	return nil
}

// start says what is copied, or why nothing is copied.
func (s *Source) start(ctx context.Context) (Mysqld, archive.Start, error) {
	start := archive.Start{
		Format: archive.Format, Cluster: s.c.Cluster, ClusterID: s.c.ClusterID, Node: s.c.Node, Quorate: s.c.Version,
		At: time.Now().UTC().Truncate(time.Second),
	}
	own := s.c.Own()
	server, version := s.c.Mysqld()
	if !own.Role.Judged() || own.LogState != status.LogOK || server == nil {
		return nil, start, fmt.Errorf("node %s is %s, and its log is %s: a backup needs a replica or the primary, with a log that is ok", s.c.Node, own.Role, own.LogState)
	}
	start.MySQL, start.FromPrimary = version, own.Role == status.RolePrimary
	var err error
	if start.DataBytes, err = server.DataBytes(ctx); err != nil {
		return nil, start, err
	}
	free, err := s.c.Free()
	if err != nil {
		return nil, start, err
	}
	if need := uint64(start.DataBytes) + uint64(start.DataBytes)/10 + reserve; free < need {
		return nil, start, fmt.Errorf("the copy needs %s on the disk of %s, beside the data, and %s are free", units.Size(int64(need)), s.c.Dir, units.Size(int64(free)))
	}
	mark := s.c.Durable() // before the copy begins
	start.MarkText = mark.Text()
	point := s.c.State()
	if start.State, err = json.Marshal(datadir.NewStateRecord(point)); err != nil {
		return nil, start, fmt.Errorf("encode the cluster state: %w", err)
	}
	if start.Newest, err = s.newest(start.At); err != nil {
		return nil, start, err
	}
	start.Generation = generation(point)
	start.Begin, err = s.begin(min(mark.Index, point.Through))
	return server, start, err
}

// generation is the generation of a cluster's history: a recovery and a restore go on with the next million of
// versions.
func generation(p cluster.StatePoint) uint64 { return cluster.Generation(p.State.Version) }

// lookBackMax is how many entries are read to find the newest transaction. Entries without one are rare.
const lookBackMax = 10_000

// newest is when the newest transaction was committed, or at if none is among the last lookBackMax entries.
func (s *Source) newest(at time.Time) (time.Time, error) {
	log := s.c.Log()
	defer log.Close()
	commit := s.c.Commit()
	for n := uint64(0); n < lookBackMax && commit >= log.FirstIndex()+n; n++ {
		found, ok, err := log.ReadCommitted(commit-n, 1)
		if err != nil {
			return at, fmt.Errorf("read the newest transaction: %w", err)
		}
		if !ok {
			continue
		}
		all, err := archive.Transactions(found[0])
		if err != nil {
			return at, err
		}
		if len(all) > 0 {
			return all[len(all)-1].Time, nil
		}
	}
	return at, nil
}

// begin is the beginning of the newest segment that does not begin behind entry after+1.
func (s *Source) begin(after uint64) (b replay.LogBegin, err error) {
	log := s.c.Log()
	defer log.Close()
	segments := log.Segments()
	at := len(segments) - 1
	latest := min(after+1, max(s.c.Commit(), 1)) // it has an entry at least
	for at > 0 && segments[at].FirstIndex > latest {
		at--
	}
	first := segments[at]
	if first.FirstIndex > latest {
		return b, fmt.Errorf("the log begins at entry %d, and it is not certain yet that mysqld has everything before it on disk: try again in some seconds", first.FirstIndex)
	}
	return replay.NewLogBegin(first, log.Term)
}

func writeJSON(out *tar.Writer, name string, at time.Time, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640, Size: int64(len(text)), ModTime: at})
	}
	if err == nil {
		_, err = out.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write %s of the copy: %w", name, err)
	}
	return nil
}

// writeTree writes the files of a directory. mysqld's account can change what is in it, so no link is
// followed out of it.
func writeTree(ctx context.Context, out *tar.Writer, dir string) error {
	above, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	defer func() { _ = above.Close() }()
	root, err := above.OpenRoot(filepath.Base(dir))
	if err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case path == ".":
			return nil
		case d.IsDir():
			return out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: archive.DataDir + path + "/", Mode: 0o750})
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is neither a file nor a directory", path)
		}
		return writeFile(ctx, out, root, path)
	})
	if err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	return nil
}

func writeFile(ctx context.Context, out *tar.Writer, root *os.Root, path string) (err error) {
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", path)
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: archive.DataDir + path, Mode: 0o640, Size: info.Size(), ModTime: info.ModTime()}); err != nil {
		return err
	}
	if _, err := io.Copy(out, io.LimitReader(contextReader{ctx, f}, info.Size())); err != nil {
		return err
	}
	return root.Remove(path) // the disk needs its room
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p[:min(len(p), 1<<20)])
}
