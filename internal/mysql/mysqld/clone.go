package mysqld

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sys/unix"
)

// CloneUser is the account with which the mysqld of another node copies the data of
// this one: @localhost, as the way to it ends at the Unix socket.
const CloneUser = "quorate_clone"

// Clone returns the password of CloneUser. It is derived, so that a secrets file
// needs no line more, and tells nothing of what it is derived from. It stays on this
// host: a node that copies has one of its own, for one copy (mysqlwire.Door).
func (s Secrets) Clone() string {
	return s.derived("quorate-clone")
}

// derived is the password of an account that has no line in the file.
func (s Secrets) derived(of string) string {
	sum := sha256.Sum256([]byte(of + "\x00" + s.Admin))
	return "Aa1-" + hex.EncodeToString(sum[:16])
}

// cloneConcurrency bounds the connections that copy at a time: the server opens as
// many, and one beside them.
const cloneConcurrency = 4

// cloneStatements make CloneUser. It must not be changed by dba: SYSTEM_USER.
func (c Config) cloneStatements() []string {
	name := "'" + CloneUser + "'@'localhost'"
	return []string{
		"DROP USER IF EXISTS " + name,
		"CREATE USER " + name + identifiedBy(c.Secrets.Clone()),
		"GRANT BACKUP_ADMIN, SYSTEM_USER, CONNECTION_ADMIN ON *.* TO " + name,
	}
}

// ErrNoSpace means that the disk has too little space for a clone, by the server's
// estimate: nothing was copied.
var ErrNoSpace = errors.New("mysqld: too little space for a clone")

// errCloneDiskSpace is ER_CLONE_DISK_SPACE.
const errCloneDiskSpace = 3873

// CloneSource is where data are copied from.
type CloneSource struct {
	// Addr is the host:port of a way to the other mysqld.
	Addr     string
	Password string
}

// Clone copies the data of another mysqld into the directory dir, which must not
// exist; its own stay as they are. It returns once dir is complete and on disk.
func (a *Admin) Clone(ctx context.Context, from CloneSource, dir string) error {
	host, port, err := net.SplitHostPort(from.Addr)
	if err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	if !plainPassword(from.Password) { // it comes from another node, and into the text of a statement
		return fmt.Errorf("clone: %w: the password that the other node gave", ErrSecrets)
	}
	for _, s := range []struct {
		query string
		args  []any
	}{
		{"SET GLOBAL clone_valid_donor_list = ?", []any{from.Addr}},
		{"SET GLOBAL clone_autotune_concurrency = OFF", nil},
		{"SET GLOBAL clone_max_concurrency = ?", []any{cloneConcurrency}},
	} {
		if err := a.exec(ctx, "prepare clone", s.query, s.args...); err != nil {
			return err
		}
	}
	// Its parts are no parameters: host and port are an address.
	err = a.exec(ctx, "clone", fmt.Sprintf("CLONE INSTANCE FROM '%s'@'%s':%s IDENTIFIED BY '%s' DATA DIRECTORY = '%s'",
		CloneUser, host, port, from.Password, dir))
	if server := (*mysql.MySQLError)(nil); errors.As(err, &server) && server.Number == errCloneDiskSpace {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// CloneTo copies the data of this server into the directory dir of its host, which must not exist.
// It returns once dir is complete and on disk. When ctx ends the copy is called off, and what there
// is of it is left.
func (a *Admin) CloneTo(ctx context.Context, dir string) error {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("copy the data: %w", err)
	}
	defer func() { _ = conn.Close() }() // back into the pool
	id := uint64(0)
	if err := conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		return fmt.Errorf("copy the data: %w", err)
	}
	// A connection that is closed would not end the statement.
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		_ = a.exec(kill, "call a copy off", "KILL QUERY ?", id) // it has ended, or goes on to its end
	})
	defer func() {
		if !stop() {
			// What is to be killed is over: the session must not be used for anything else before that, nor after.
			<-killed
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool drops it
		}
	}()
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(dir)
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "CLONE LOCAL DATA DIRECTORY = '"+quoted+"'"); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("copy the data: %w", err))
	}
	return context.Cause(ctx)
}

// killTimeout bounds the statement that calls a copy off.
const killTimeout = 10 * time.Second

// CloneProgress returns how many bytes of a clone under way were copied, and the
// server's estimate of all.
func (a *Admin) CloneProgress(ctx context.Context) (bytes, estimate int64, err error) {
	err = a.query1(ctx, "clone progress", `SELECT COALESCE(SUM(data), 0), COALESCE(SUM(GREATEST(estimate, data)), 0)
		FROM performance_schema.clone_progress`, nil, &bytes, &estimate)
	return bytes, estimate, err
}

// DataBytes returns about how many bytes a clone of this server would copy.
func (a *Admin) DataBytes(ctx context.Context) (bytes int64, err error) {
	err = a.query1(ctx, "size of the data", "SELECT COALESCE(SUM(file_size), 0) FROM information_schema.innodb_tablespaces", nil, &bytes)
	return bytes, err
}

// CloneDir is where a mysqld of this server that runs may clone to. The next start clears it.
func (s *Server) CloneDir() string { return filepath.Join(s.paths.tmp, "clone") }

// reserve makes and locks the directories of a server that has no data yet. The caller closes lock.
func (s *Server) reserve(ctx context.Context) (id osIdentity, lock *os.File, err error) {
	if s.Initialized() {
		return id, nil, fmt.Errorf("%w: %s", ErrInitialized, s.paths.data)
	}
	if id, err = s.cfg.identity(); err == nil {
		err = s.makeDirs(id)
	}
	if err == nil {
		lock, err = s.lockDirectory(ctx)
	}
	return id, lock, err
}

// Adopt makes dir, which another server of this node has cloned, the data directory,
// with a random server UUID, and returns that. It is atomic, as Initialize.
func (s *Server) Adopt(ctx context.Context, dir string) (uuid string, err error) {
	id, lock, err := s.reserve(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }() // Only drops the lock.
	if err := os.RemoveAll(s.paths.dataTemp); err != nil {
		return "", fmt.Errorf("remove unfinished data directory: %w", err)
	}
	// Where it is now mysqld's account may exchange it.
	if err := os.Rename(dir, s.paths.dataTemp); err != nil {
		return "", fmt.Errorf("take over the cloned data: %w", err)
	}
	if err := makeDir(s.paths.dataTemp, id); err != nil { // it is a directory
		return "", fmt.Errorf("take over the cloned data: %w", err)
	}
	if err := syncFileSystem(s.paths.dataTemp); err != nil { // the node will be a member with all of it
		return "", err
	}
	return s.publish(id)
}

// Restore makes the data directory of what fill writes into an empty one, with a random server UUID,
// and returns that. It is atomic, as Initialize, and durable.
func (s *Server) Restore(ctx context.Context, fill func(*os.Root) error) (uuid string, err error) {
	id, lock, err := s.reserve(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }() // Only drops the lock.
	if err := emptyDir(s.paths.dataTemp, id.keeper()); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(s.paths.dataTemp)
	if err != nil {
		return "", fmt.Errorf("open the new data directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := fill(root); err != nil {
		return "", err
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = root.Lchown(path, id.uid, id.gid)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("give the data to their account: %w", err)
	}
	if err := syncFileSystem(s.paths.dataTemp); err != nil {
		return "", err
	}
	return s.publish(id)
}

// syncFileSystem has all that was written to the file system of a directory on its disk.
func syncFileSystem(dir string) error {
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
	}
	if err != nil {
		return fmt.Errorf("sync the new data directory: %w", err)
	}
	return nil
}
