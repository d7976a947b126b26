package mysqld

import (
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
)

// plainServer returns a running server without quorate. It is gone when the test ends.
func plainServer(t *testing.T) (*mysqldtest.Plain, Config) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a mysqld; not in -short")
	}
	in, err := findMySQL()
	if err != nil {
		t.Skipf("no MySQL to test with: %v; run `make mysql` or set %s", err, install.EnvBaseDir)
	}
	dir, err := os.MkdirTemp("", "qplain-") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p, err := mysqldtest.NewPlain(in, filepath.Join(dir, "srv"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if err := p.Start(ctx(t)); err != nil {
		t.Fatal(err)
	}
	return p, Config{Installation: in, Logger: slog.New(slog.DiscardHandler)}
}

func plainExec(t *testing.T, p *mysqldtest.Plain, statements ...string) {
	t.Helper()
	db := plainOpen(t, p)
	for _, s := range statements {
		if _, err := db.ExecContext(ctx(t), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// plainOpen returns one session of root.
func plainOpen(t *testing.T, p *mysqldtest.Plain) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	return db
}

// stamps are the sizes and times of all files of a directory.
func stamps(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all[path] = info.ModTime().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSurvey reads a server that has one of each kind of finding, and changes nothing in its
// data directory.
func TestSurvey(t *testing.T) {
	p, c := plainServer(t)
	// While the server runs, its data cannot be held.
	if _, err := HoldData(p.Data()); !errors.Is(err, ErrInUse) {
		t.Fatalf("hold the data of a server that runs: %v, want %v", err, ErrInUse)
	}
	plainExec(t, p,
		"CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "CREATE TABLE shop.old (id INT) ENGINE=MyISAM",
		"CREATE TABLE shop.zoned (id INT PRIMARY KEY, ts TIMESTAMP, d DATE AS (DATE(ts)) STORED)", "CREATE TABLE shop.bare (id INT)", "CREATE TABLE shop.part (id VARCHAR(9) NOT NULL, UNIQUE (id(3)))", "CREATE TABLE shop.maybe (id INT NOT NULL, b INT, UNIQUE (id, b), UNIQUE ((id + 1)), KEY (id))",
		"CREATE TABLE shop.strict (id INT NOT NULL, b INT, UNIQUE (b), UNIQUE (id))",
		"INSERT INTO shop.t VALUES (1)", "DROP TABLE IF EXISTS shop.nothing",
		"CREATE EVENT shop.nightly ON SCHEDULE EVERY 1 DAY DO DELETE FROM shop.t",
		"CREATE DEFINER = gone@'%' VIEW shop.v AS SELECT 1", "CREATE VIEW shop.w AS SELECT 1",
		"CREATE USER app@'%' IDENTIFIED BY 'x'", "CREATE USER far@'10.0.0.%' IDENTIFIED BY 'x'", "CREATE USER near@'127.0.0.1' IDENTIFIED BY 'x'",
		"CREATE USER rep@'%' IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO rep@'%'", "CREATE USER dba@localhost IDENTIFIED BY 'x'",
		"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '10.0.0.9', SOURCE_AUTO_POSITION = 1",
		"SET PERSIST long_query_time = 3",
		"XA START 'x'", "INSERT INTO shop.t VALUES (2)", "XA END 'x'", "XA PREPARE 'x'",
	)
	var executed string
	db, err := sql.Open("mysql", p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.QueryRow("SELECT @@GLOBAL.gtid_executed").Scan(&executed), db.Close(), p.Stop()); err != nil {
		t.Fatal(err)
	}
	release, err := HoldData(p.Data())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	before := stamps(t, p.Data())
	got, err := c.Survey(ctx(t), p.Data())
	if err != nil {
		t.Fatal(err)
	}
	want := Survey{
		Executed: executed, NotInnoDB: []string{"shop.old (MyISAM)"}, NoKey: []string{"shop.bare", "shop.maybe", "shop.part"}, PreparedXA: 1,
		Zoned: []string{"shop.zoned"}, Channels: []string{"the default channel from 10.0.0.9"},
		Grants: []Grant{{"'rep'@'%'", "REPLICATION SLAVE"}}, Reserved: []string{"'dba'@'localhost'"},
		FarHosts: []string{"'far'@'10.0.0.%'"}, Events: []string{"shop.nightly"}, NoDefiner: []string{"shop.v by gone@%"},
		Components: got.Components,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(before, stamps(t, p.Data())); d != "" {
		t.Errorf("the data directory has changed (-before +after):\n%s", d)
	}
	files, err := c.LookAtFiles(p.Data())
	if err != nil {
		t.Fatal(err)
	}
	if files.Version != c.Installation.Version || len(files.UUID) != 36 || files.Binlogs == 0 || files.Bytes < 1<<20 || len(files.Foreign) != 0 {
		t.Errorf("%+v", files)
	}
	if d := cmp.Diff([]string{"long_query_time"}, files.Persisted); d != "" {
		t.Errorf("persisted (-want +got):\n%s", d)
	}
	c.Variables = map[string]string{"no_such_variable": "1"}
	if _, err := c.Survey(ctx(t), p.Data()); err == nil || !strings.Contains(err.Error(), "no_such_variable") {
		t.Errorf("with a variable that the server does not know: %v", err)
	}
	// A server that is started during a survey, by its service for example, ends at once.
	if err := p.Start(ctx(t)); err == nil {
		t.Error("a server starts on the data that are held")
	}
}

// TestSurveyUnclean: data whose server was not shut down in order are neither surveyed nor repaired. That holds also
// if the server had nothing to write when it was killed: its last transactions may be in its binlog alone.
func TestSurveyUnclean(t *testing.T) {
	p, c := plainServer(t)
	killed := func(how string) {
		t.Helper()
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Survey(ctx(t), p.Data()); !errors.Is(err, ErrUnclean) {
			t.Errorf("killed %s: %v, want %v", how, err, ErrUnclean)
		}
	}
	plainExec(t, p, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
	killed("after a write")
	if err := p.Start(ctx(t)); err != nil {
		t.Fatal(err)
	}
	plainExec(t, p, "SET GLOBAL innodb_max_dirty_pages_pct = 0")
	db := plainOpen(t, p)
	for behind := uint64(1); behind > 0; time.Sleep(100 * time.Millisecond) { // until all is in the tables
		if err := db.QueryRowContext(ctx(t), `SELECT MAX(count) - MIN(count) FROM information_schema.innodb_metrics
			WHERE name IN ('log_lsn_current', 'log_lsn_last_checkpoint')`).Scan(&behind); err != nil {
			t.Fatal(err)
		}
	}
	killed("with nothing to write")
}

// TestUpgrades: 8.0 notes its version only when it upgrades data, so the upgrade from a first 8.0 to 8.4 was not seen.
func TestUpgrades(t *testing.T) {
	v80, v84 := install.Version{Major: 8, Patch: 45}, install.Version{Major: 8, Minor: 4, Patch: 5}
	for name, c := range map[string]struct {
		files map[string]string
		to    install.Version
		want  bool
	}{
		"no data":             {nil, v84, false},
		"made by 8.0":         {map[string]string{"auto.cnf": ""}, v84, true},
		"made by 8.0, to 8.0": {map[string]string{"auto.cnf": ""}, v80, false},
		"upgraded by 8.0":     {map[string]string{"auto.cnf": "", "mysql_upgrade_info": "8.0.36"}, v80, true},
		"made by 8.4":         {map[string]string{"auto.cnf": "", "mysql_upgrade_history": `{"upgrade_history":[{"version":"8.4.5"}]}`}, v84, false},
		"a note of later":     {map[string]string{"auto.cnf": "", "mysql_upgrade_history": `{"history":[]}`}, v84, false},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "data"), 0o700), os.WriteFile(filepath.Join(dir, "data", file), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := New(Config{DataDir: dir}).Upgrades(c.to); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestNoDataDirectory: a directory without data of a server is refused.
func TestNoDataDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := HoldData(dir); !errors.Is(err, ErrNoData) {
		t.Errorf("hold: %v", err)
	}
	if _, err := (Config{}).LookAtFiles(dir); !errors.Is(err, ErrNoData) {
		t.Errorf("look: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "auto.cnf"), []byte("[auto]\nserver-uuid=11111111-1111-1111-1111-111111111111\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink("/elsewhere", filepath.Join(dir, "shop")),
		os.WriteFile(filepath.Join(dir, "mysql_upgrade_info"), []byte("8.0.36\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	got, err := (Config{}).LookAtFiles(dir)
	want := Files{UUID: "11111111-1111-1111-1111-111111111111", Version: install.Version{Major: 8, Minor: 0, Patch: 36}, Links: []string{"shop"}, Bytes: got.Bytes}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}
