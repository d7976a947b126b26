package quorumloss

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

const (
	// File says what a recovery makes of a data directory. Once it is there, on
	// disk, the recovery is made: what a crash interrupts after that is done at the next
	// start. It is removed last.
	File   = "recovery.json"
	Format = 1
	// AutoFile holds mysqld's UUID, behind autoKey. It is mysqld's own file, so it is
	// changed in place: within a sector.
	AutoFile = "auto.cnf"
	autoKey  = "server-uuid="
)

// Record is the content of recovery.json: the files as they are to be.
type Record struct {
	Format   int                 `json:"format"`
	Identity datadir.Identity    `json:"identity"`
	State    datadir.StateRecord `json:"state"`
	Audit    cluster.AuditEntry  `json:"audit"`
	// ServerUUID is mysqld's new UUID; "" = there is no mysqld yet. Other nodes may have logged
	// transactions under the old UUID that this node never saw, so its GTIDs must not be
	// reused.
	ServerUUID string              `json:"server_uuid,omitempty"`
	Durable    *datadir.MarkRecord `json:"durable,omitempty"`
}

// NewServer chooses mysqld's new UUID, and keeps its durable mark under that UUID.
func (r *Record) NewServer(d datadir.Dir) error {
	auto, err := vfs.ReadFile(d.FS(), d.Join("mysql", "data", AutoFile))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read mysqld's UUID: %w", err)
	}
	at, err := uuidIn(auto)
	if err != nil {
		return err
	}
	var raw gtid.UUID
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand)
	r.ServerUUID = raw.String()
	mark, found, err := d.MarkRecord()
	if err != nil || !found {
		return err
	}
	r.Durable = &mark
	if r.Durable.ServerUUID != string(auto[at:at+uuidBytes]) {
		r.Durable = nil // it is of another mysqld: datadir.Mark.Check would forget it, too
		return nil
	}
	r.Durable.ServerUUID = r.ServerUUID
	return nil
}

// uuidBytes is the length of a UUID as text.
const uuidBytes = 36

// uuidIn returns where the UUID stands in mysqld's auto.cnf.
func uuidIn(auto []byte) (at int, err error) {
	at = bytes.Index(auto, []byte(autoKey))
	if at >= 0 && len(auto) >= at+len(autoKey)+uuidBytes {
		at += len(autoKey)
		if _, err := gtid.ParseUUID(string(auto[at : at+uuidBytes])); err == nil {
			return at, nil
		}
	}
	return 0, fmt.Errorf("mysqld's %s names no server-uuid", AutoFile)
}

// Make makes the recovery. After an error it may be made or not: Interrupted tells.
func (r *Record) Make(fs vfs.FS, dir string) error {
	if err := datadir.Replace(fs, dir, File, r); err != nil {
		return err
	}
	return Finish(fs, dir)
}

// Finish makes what recovery.json says, if there is one. It can be done again,
// from the beginning, wherever it was interrupted.
func Finish(fs vfs.FS, dir string) error {
	var r Record
	if found, err := datadir.New(fs, dir).Load(datadir.File{Name: File, Format: Format, Remedy: "keep this directory, and recover on another node that is left"}, &r); err != nil || !found {
		return err
	}
	steps := []func() error{
		func() error { return r.writeUUID(fs, filepath.Join(dir, "mysql", "data", AutoFile)) },
		func() error {
			if r.Durable == nil {
				return nil
			}
			return datadir.Replace(fs, dir, datadir.Durable, r.Durable)
		},
		// No former member is known any more.
		func() error { return datadir.Replace(fs, dir, datadir.Peers, datadir.Instances{}) },
		func() error { return datadir.Replace(fs, dir, datadir.ClusterState, r.State) },
		func() error { return datadir.New(fs, dir).WriteIdentity(r.Identity) },
		func() error { return appendLine(fs, dir, history.AuditFile, r.Audit) },
		func() error { return appendLine(fs, dir, history.File, r.event()) },
		func() error { return fs.Remove(filepath.Join(dir, File)) },
		func() error { return fs.SyncDir(dir) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("finish the recovery (the next start of the agent goes on with it): %w", err)
		}
	}
	return nil
}

func (r *Record) writeUUID(fs vfs.FS, path string) (err error) {
	if r.ServerUUID == "" {
		return nil
	}
	auto, err := vfs.ReadFile(fs, path)
	if err != nil {
		return err
	}
	at, err := uuidIn(auto)
	if err != nil {
		return err
	}
	f, err := fs.OpenReadWrite(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err = f.WriteAt([]byte(r.ServerUUID), int64(at)); err != nil {
		return err
	}
	return f.Sync()
}

// event is the recovery's line in the history.
func (r *Record) event() cluster.AuditEntry {
	line := r.Audit
	line.What = string(cluster.EventRecovered)
	line.Event = &cluster.Event{Kind: cluster.EventRecovered, Why: r.Audit.By + ": " + r.Audit.What}
	return line
}

// appendLine appends a line to a log, unless a line with its number is there.
func appendLine(fs vfs.FS, dir, file string, line cluster.AuditEntry) error {
	l := history.NewLog(fs, dir, file, line.Node)
	if err := l.Open(); err != nil {
		return err
	}
	return l.Append(line)
}

// Interrupted tells whether there is a recovery that was interrupted, which Finish finishes.
func Interrupted(d datadir.Dir) (bool, error) { return d.Find(File) }
