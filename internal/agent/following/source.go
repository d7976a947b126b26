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
	"github.com/quorate/quorate/internal/mysql/rows"
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
	// site is the name of the cluster if this is a readers' port of another site; "" = it is a server.
	site string
}

// Open reads the files that f names, and opens nothing yet. f has one address.
func Open(f cluster.Follow) (*Source, error) {
	s := &Source{addr: f.Source, user: f.User, site: f.Site}
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

// readPassword reads a file that only its owner and its group may read.
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
	password := strings.TrimRight(string(text), "\r\n")
	if strings.ContainsAny(password, "\r\n\x00") { // a private key, for example, which must not be sent
		return "", fmt.Errorf("read the source's password: %s has more than one line", path)
	}
	return password, nil
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

// Dial reads the source's binlog, as a replica with this name. The source cuts off any other replica of that name.
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

// Executed is the source's gtid_executed; for a site, all that is committed there.
func (s *Source) Executed(ctx context.Context) (*gtid.Set, error) {
	if s.site != "" {
		_, executed, err := s.lookAtSite(ctx, siteLook)
		return executed, err
	}
	seen, err := s.See(ctx)
	return seen.Executed, err
}

// Seen is a source at a moment: which server it is, whether it is closed for clients' writes, and what it has.
type Seen struct {
	UUID                    string
	SuperReadOnly, ReadOnly bool
	Executed                *gtid.Set
}

// See asks for all of that at once: a moment later, another server may have the address.
func (s *Source) See(ctx context.Context) (seen Seen, err error) {
	var text string
	if err := s.db.QueryRowContext(ctx, "SELECT @@server_uuid, @@GLOBAL.super_read_only, @@GLOBAL.read_only, @@GLOBAL.gtid_executed").
		Scan(&seen.UUID, &seen.SuperReadOnly, &seen.ReadOnly, &text); err != nil {
		return Seen{}, fmt.Errorf("look at the source: %w", err)
	}
	seen.Executed, err = gtid.ParseSet(text)
	return seen, err
}

// asked is one session, or a pool of sessions.
type asked interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Applies says that the source takes transactions of another server, some of which it may lack when it is closed; ""
// = it takes none. An account that may not look gets an error.
func (s *Source) Applies(ctx context.Context) (string, error) { return applies(ctx, s.db) }

func applies(ctx context.Context, db asked) (string, error) {
	var others, channels int
	err := db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE MEMBER_ID <> @@server_uuid AND MEMBER_ID <> ''),
		(SELECT COUNT(*) FROM performance_schema.replication_applier_status WHERE SERVICE_STATE = 'ON'
		AND CHANNEL_NAME NOT IN ('group_replication_applier', 'group_replication_recovery'))`).Scan(&others, &channels)
	switch {
	case err != nil:
		return "", fmt.Errorf("look whether the source applies transactions of other servers: %w", err)
	case others > 0:
		return "it is a member of a group whose other members may take writes: shut the others down first", nil
	case channels > 0:
		return "it applies transactions of another server: follow that server, or STOP REPLICA at the source once it has all", nil
	}
	return "", nil
}

// XA says which XA transactions are under way at the source: read-only stops neither their XA PREPARE nor their XA COMMIT; "" = none.
// An account that may not look gets an error, and so does a server that does not show them.
func (s *Source) XA(ctx context.Context) (string, error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("look for XA transactions at the source: %w", err)
	}
	var begun, began, instruments, blind int
	var name string
	// Prepared transactions are counted below: the row of their session stays as it is when they end. A server
	// without all four instruments, or with sessions that are not instrumented, may hide a transaction, unless none
	// was ever begun there.
	err := s.db.QueryRowContext(ctx, `SELECT
		(SELECT COUNT(*) FROM performance_schema.events_transactions_current WHERE STATE = 'ACTIVE' AND XA_STATE <> 'PREPARED'),
		(SELECT COUNT(*) FROM performance_schema.setup_consumers WHERE ENABLED = 'YES'
			AND NAME IN ('global_instrumentation', 'thread_instrumentation', 'events_transactions_current'))
		+ (SELECT COUNT(*) FROM performance_schema.setup_instruments WHERE ENABLED = 'YES' AND NAME = 'transaction'),
		(SELECT COUNT(*) FROM performance_schema.threads WHERE INSTRUMENTED <> 'YES' AND CONNECTION_TYPE IS NOT NULL)`).Scan(
		&begun, &instruments, &blind)
	if err == nil {
		err = s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Com_xa_start'").Scan(&name, &began)
	}
	if err != nil {
		return fail(err)
	}
	if began > 0 && (instruments < 4 || blind > 0) {
		return fail(errors.New("some were begun since its start, and its Performance Schema does not show transactions"))
	}
	prepared, err := rows.Count(ctx, s.db, "XA RECOVER")
	if err != nil {
		return fail(err)
	}
	if begun+prepared == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d XA transactions are open in sessions, %d are prepared (XA RECOVER)", begun, prepared), nil
}

// notCompared are schemas whose contents belong to each server alone.
const notCompared = "('mysql', 'sys', 'information_schema', 'performance_schema', '" + mysqld.RouterSchema + "', '" + mysqld.EventsSchema + "')"

// quotedTable is the name of a table in information_schema, quoted for statements.
const quotedTable = "CONCAT('`', REPLACE(table_schema, '`', '``'), '`.`', REPLACE(table_name, '`', '``'), '`')"

// sums returns for each table what is compared: its number of rows, or its checksum.
func sums(ctx context.Context, db *sql.DB, how cluster.Verify) (map[string]string, error) {
	names, err := rows.Column[string](ctx, db, "SELECT "+quotedTable+" FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema NOT IN "+notCompared)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	counted := map[string]bool{}
	if how == cluster.VerifyChecksum {
		// The hidden column of a multi-valued index differs between equal tables.
		multi, err := rows.Column[string](ctx, db, "SELECT DISTINCT "+quotedTable+" FROM information_schema.statistics WHERE expression LIKE '% array)%'")
		if err != nil {
			return nil, fmt.Errorf("look for multi-valued indexes: %w", err)
		}
		for _, name := range multi {
			counted[name] = true
		}
	}
	all := map[string]string{}
	for _, name := range names {
		var of string
		var sum sql.NullString
		if how == cluster.VerifyRows || counted[name] {
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

// Compare compares the source's tables with those of another server. Nobody writes to either. It returns how many
// tables there are.
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
			differ = append(differ, name+" (only here, or the account may not see it there)")
		}
	}
	if slices.Sort(differ); len(differ) > 0 {
		return 0, fmt.Errorf("%d of %d tables differ: %s", len(differ), len(here), strings.Join(differ[:min(len(differ), 5)], ", "))
	}
	return len(here), nil
}
