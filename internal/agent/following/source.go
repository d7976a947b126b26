package following

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
)

const (
	// passwordBytesMax bounds what is read of a password file.
	passwordBytesMax = 4 << 10
	// heartbeat is the longest silence of the source's binlog.
	heartbeat = 5 * time.Second
	// connectTimeout bounds a connection to the source.
	connectTimeout = 5 * time.Second
)

// Source is the server that is followed: a way to ask it, and to read its binlog.
type Source struct {
	addr, user, password string
	tls                  *tls.Config
	db                   *sql.DB
}

// Open reads the files that f names, and opens nothing yet.
func Open(f cluster.Follow) (*Source, error) {
	s := &Source{addr: f.Source, user: f.User}
	var err error
	if s.password, err = readPassword(f.PasswordFile); err != nil {
		return nil, err
	}
	if s.tls, err = tlsConfig(f); err != nil {
		return nil, err
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.TLS = s.user, s.password, "tcp", s.addr, s.tls
	cfg.InterpolateParams, cfg.Timeout = true, connectTimeout
	cfg.Logger = log.New(io.Discard, "", 0) // what the driver would print is returned as an error, too
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	s.db = sql.OpenDB(connector)
	s.db.SetMaxIdleConns(1)
	return s, nil
}

// Close ends the connections that ask.
func (s *Source) Close() error { return s.db.Close() }

// readPassword reads a file that its owner and a group alone may read.
func readPassword(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the source's password: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read the source's password: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("read the source's password: %s must be a file that others cannot read (chmod 600)", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, passwordBytesMax+1))
	if err == nil && len(text) > passwordBytesMax {
		err = errors.New("it is too long")
	}
	if err != nil {
		return "", fmt.Errorf("read the source's password: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

func tlsConfig(f cluster.Follow) (*tls.Config, error) {
	if f.Plain {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(f.Source)
	if err != nil {
		return nil, err
	}
	if f.CAFile == "" { // as mysql's --ssl-mode=REQUIRED: mysqld makes a certificate of its own
		return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, nil
	}
	text, err := os.ReadFile(f.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the source's CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the source's CA: %s has no certificate", f.CAFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: host}, nil
}

// Dial reads the source's binlog, as the replica of a name. Whoever else has that name is cut off by the source.
func (s *Source) Dial(ctx context.Context, serverID uint32, uuid string, executed *gtid.Set) (Stream, error) {
	f, err := mysqlwire.DialForeign(ctx, mysqlwire.ForeignConfig{
		Addr: s.addr, User: s.user, Password: s.password, TLS: s.tls,
		ServerID: serverID, ReplicaUUID: uuid, HeartbeatPeriod: heartbeat, Exclude: executed,
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Executed is the source's gtid_executed.
func (s *Source) Executed(ctx context.Context) (*gtid.Set, error) { return executedOf(ctx, s.db) }

func executedOf(ctx context.Context, db *sql.DB) (*gtid.Set, error) {
	var text string
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&text); err != nil {
		return nil, fmt.Errorf("read gtid_executed of the source: %w", err)
	}
	return gtid.ParseSet(strings.ReplaceAll(text, "\n", ""))
}

// Closed is how a source was before Shut.
type Closed struct{ superReadOnly, readOnly bool }

// Shut closes the source for writes, and waits until no commit is under way, for as long as ctx lets it.
func (s *Source) Shut(ctx context.Context) (was Closed, err error) {
	if err := s.db.QueryRowContext(ctx, "SELECT @@GLOBAL.super_read_only, @@GLOBAL.read_only").Scan(&was.superReadOnly, &was.readOnly); err != nil {
		return was, fmt.Errorf("close the source for writes: %w", err)
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return was, fmt.Errorf("close the source for writes: %w", err)
	}
	defer func() { _ = conn.Close() }()
	wait := time.Minute
	if end, ok := ctx.Deadline(); ok {
		wait = time.Until(end)
	}
	var id uint64
	err = conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id)
	if err == nil {
		_, err = conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = ?", max(1, int64(math.Floor(wait.Seconds()))))
	}
	if err == nil {
		if _, err = conn.ExecContext(ctx, "SET GLOBAL super_read_only = ON"); err != nil {
			s.kill(ctx, id) // it may still wait there for a commit, and close the source after OpenAgain
		}
	}
	if err != nil {
		return was, fmt.Errorf("close the source for writes: %w", err)
	}
	return was, nil
}

// kill ends a session of ours at the source, if it is still there.
func (s *Source) kill(ctx context.Context, id uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()
	_, _ = s.db.ExecContext(ctx, "KILL ?", id)
}

// OpenAgain undoes Shut.
func (s *Source) OpenAgain(ctx context.Context, was Closed) error {
	if was.superReadOnly {
		return nil
	}
	set := "SET GLOBAL super_read_only = OFF"
	if !was.readOnly {
		set += ", GLOBAL read_only = OFF"
	}
	if _, err := s.db.ExecContext(ctx, set); err != nil {
		return fmt.Errorf("open the source for writes again (%s): %w", set, err)
	}
	return nil
}

// notCompared are schemas whose contents are each server's own.
const notCompared = "('mysql', 'sys', 'information_schema', 'performance_schema', '" + mysqld.RouterSchema + "', '" + mysqld.EventsSchema + "')"

// sums returns of each table what a comparison looks at.
func sums(ctx context.Context, db *sql.DB, how cluster.Verify) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema NOT IN "+notCompared)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var schema, table string
		if err := rows.Scan(&schema, &table); err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		quoted := func(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }
		names = append(names, quoted(schema)+"."+quoted(table))
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	all := map[string]string{}
	for _, name := range names {
		var of string
		var sum sql.NullString
		if how == cluster.VerifyRows {
			err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+name).Scan(&sum)
		} else {
			err = db.QueryRowContext(ctx, "CHECKSUM TABLE "+name).Scan(&of, &sum)
		}
		if err != nil || !sum.Valid {
			return nil, fmt.Errorf("look at table %s: %w", name, cmp.Or(err, errors.New("it cannot be read")))
		}
		all[name] = sum.String
	}
	return all, nil
}

// Compare compares the source's tables with those of another server, to which nobody writes either. It returns how many there are.
func (s *Source) Compare(ctx context.Context, with *sql.DB, how cluster.Verify) (tables int, err error) {
	type answer struct {
		sums map[string]string
		err  error
	}
	there := make(chan answer, 1)
	go func() {
		all, err := sums(ctx, s.db, how)
		there <- answer{all, err}
	}()
	here, err := sums(ctx, with, how)
	source := <-there
	if err := errors.Join(source.err, err); err != nil {
		return 0, err
	}
	var differ []string
	for name, sum := range source.sums {
		if here[name] != sum {
			differ = append(differ, name)
		}
	}
	for name := range here {
		if _, ok := source.sums[name]; !ok {
			differ = append(differ, name+" (only here, or the account must not see it there)")
		}
	}
	if slices.Sort(differ); len(differ) > 0 {
		return 0, fmt.Errorf("%d of %d tables differ: %s", len(differ), len(here), strings.Join(differ[:min(len(differ), 5)], ", "))
	}
	return len(here), nil
}
