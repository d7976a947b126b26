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

// CloneUser is the account with which the mysqld of another node copies the data of this one.
// It is @localhost, because the way from the other node ends at the Unix socket.
const CloneUser = "quorate_clone"

// Clone returns the password of CloneUser. It is derived from the admin's password, so that a
// secrets file needs no further line, and does not reveal it. It stays on this host: a node
// that copies gets a password of its own, for one copy (mysqlwire.Door).
func (s Secrets) Clone() string {
	return s.derived("quorate-clone")
}

// derived returns the password of an account that has no line in the secrets file.
func (s Secrets) derived(of string) string {
	sum := sha256.Sum256([]byte(of + "\x00" + s.Admin))
	return "Aa1-" + hex.EncodeToString(sum[:16])
}

// cloneConcurrency is how many connections copy at the same time; the server opens one more
// beside them.
const cloneConcurrency = 4

// cloneStatements make CloneUser. With SYSTEM_USER, dba cannot change it.
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

// CloneSource says from where data are copied.
type CloneSource struct {
	// Addr is the host:port by which the other mysqld can be reached.
	Addr     string
	Password string
}

// Clone copies the data of another mysqld into the directory dir, which must not exist. The
// data of this server stay as they are. It returns once dir is complete and on disk.
func (a *Admin) Clone(ctx context.Context, from CloneSource, dir string) error {
	host, port, err := net.SplitHostPort(from.Addr)
	if err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	if !plainPassword(from.Password) { // another node sent it, and it goes into the text of a statement
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
	// The statement takes no parameters. Host and port come from an address.
	err = a.exec(ctx, "clone", fmt.Sprintf("CLONE INSTANCE FROM '%s'@'%s':%s IDENTIFIED BY '%s' DATA DIRECTORY = '%s'",
		CloneUser, host, port, from.Password, dir))
	if server := (*mysql.MySQLError)(nil); errors.As(err, &server) && server.Number == errCloneDiskSpace {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// CloneTo copies the data of this server into the directory dir of its host, which must not exist.
// It returns once dir is complete and on disk. When ctx ends, the copy is cancelled, and its
// unfinished files are left.
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
		_ = a.exec(kill, "call a copy off", "KILL QUERY ?", id) // after an error the copy has ended, or goes on to its end
	})
	defer func() {
		if !stop() {
			// The KILL may still come, and would hit the next statement of this session: wait for it, and do not
			// use the session again.
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

// killTimeout bounds the statement that cancels a copy.
const killTimeout = 10 * time.Second

// CloneProgress returns how many bytes of the clone under way were copied, and the server's
// estimate of the total.
func (a *Admin) CloneProgress(ctx context.Context) (bytes, estimate int64, err error) {
	err = a.query1(ctx, "clone progress", `SELECT COALESCE(SUM(data), 0), COALESCE(SUM(GREATEST(estimate, data)), 0)
		FROM performance_schema.clone_progress`, nil, &bytes, &estimate)
	return bytes, estimate, err
}

// DataBytes returns roughly how many bytes a clone of this server would copy.
func (a *Admin) DataBytes(ctx context.Context) (bytes int64, err error) {
	err = a.query1(ctx, "size of the data", "SELECT COALESCE(SUM(file_size), 0) FROM information_schema.innodb_tablespaces", nil, &bytes)
	return bytes, err
}

// CloneDir is the directory that a running mysqld of this server may clone into. The next start
// clears it.
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

// Adopt makes dir, which another server of this node has cloned, the data directory, with a
// random server UUID, and returns the UUID. It is atomic, like Initialize.
func (s *Server) Adopt(ctx context.Context, dir string) (uuid string, err error) {
	id, lock, err := s.reserve(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }() // Only drops the lock.
	if err := os.RemoveAll(s.paths.dataTemp); err != nil {
		return "", fmt.Errorf("remove unfinished data directory: %w", err)
	}
	// In its present place mysqld's account may exchange it, so it is moved before it is
	// checked.
	if err := os.Rename(dir, s.paths.dataTemp); err != nil {
		return "", fmt.Errorf("take over the cloned data: %w", err)
	}
	if err := makeDir(s.paths.dataTemp, id); err != nil { // fails unless it is a directory
		return "", fmt.Errorf("take over the cloned data: %w", err)
	}
	if err := syncFileSystem(s.paths.dataTemp); err != nil { // the node becomes a member on the strength of these data
		return "", err
	}
	return s.publish(id)
}

// Restore lets fill write into an empty directory and makes that the data directory, with a random
// server UUID, which it returns. It is atomic, like Initialize, and durable.
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

// syncFileSystem makes everything durable that was written to the file system of dir.
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
