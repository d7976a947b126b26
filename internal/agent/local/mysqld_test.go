package local

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/agent/standstill"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/sys/clock"
)

// TestSlowStart: the status says what a mysqld that does not come up waits for, until that is over.
func TestSlowStart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var m Mysqld
		m.cfg = Config{Board: board.New(board.Config{}), Tasks: clock.Machine{}}
		end := m.tellSlowStart(t.Context(), mysqld.New(mysqld.Config{DataDir: dir}))
		time.Sleep(slowStart - time.Millisecond)
		synctest.Wait()
		if text := m.cfg.Board.Trouble(aboutStart); text != "" {
			t.Errorf("too soon: %s", text)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if text := m.cfg.Board.Trouble(aboutStart); !strings.Contains(text, "another mysqld (pid unknown)") {
			t.Errorf("it says %q", text)
		}
		end()
		synctest.Wait()
		if text := m.cfg.Board.Trouble(aboutStart); text != "" {
			t.Errorf("mysqld has started, and it says %q", text)
		}
	})
}

// TestUpgradingIsShown: the status says whether the mysqld that starts is newer than its data.
func TestUpgradingIsShown(t *testing.T) {
	dir := t.TempDir()
	server := mysqld.New(mysqld.Config{DataDir: dir})
	m := Mysqld{cfg: Config{Board: board.New(board.Config{})}}
	for _, c := range []struct {
		data string // as mysqld notes it; "" = there are no data
		want bool
	}{{"", false}, {"8.4.4", true}, {"8.4.5", false}, {"9.7.1", false}} {
		if c.data != "" {
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "data"), 0o700),
				os.WriteFile(filepath.Join(dir, "data", "mysql_upgrade_history"), []byte(`{"upgrade_history":[{"version":"`+c.data+`"}]}`), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		m.noteStarting(server, install.Version{Major: 8, Minor: 4, Patch: 5})
		if own := m.cfg.Board.Own(); own.Upgrading != c.want || own.Mysqld != status.MysqldStarting {
			t.Errorf("data of %q: upgrading %t, mysqld is %s", c.data, own.Upgrading, own.Mysqld)
		}
	}
}

// TestFailedUpgradeIsOver: a newer mysqld that does not start upgrades nothing, neither after that nor when it is tried
// again. It kept its node from being rebuilt (retain-max) for good, and the logs of all nodes filled their disks.
func TestFailedUpgradeIsOver(t *testing.T) {
	dir := t.TempDir()
	in := &install.Installation{Version: install.Version{Major: 8, Minor: 4, Patch: 5}}
	discover := func() (*install.Installation, error) { return in, nil }
	m := Mysqld{server: mysqld.New(mysqld.Config{DataDir: dir})}
	m.cfg = Config{Board: board.New(board.Config{}), Tasks: clock.Machine{}, Discover: discover, Logger: slog.New(slog.DiscardHandler)}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "data"), 0o700), os.WriteFile(filepath.Join(dir, "data", "auto.cnf"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "data", "mysql_upgrade_info"), []byte("8.0.36"), 0o600)); err != nil {
		t.Fatal(err)
	}
	upgrading := func() bool {
		m.noteStarting(m.server, in.Version)
		return m.cfg.Board.Own().Upgrading
	}
	start := func(ctx context.Context) {
		t.Helper()
		if _, err := m.StartMysqld(ctx, false); err == nil || m.cfg.Board.Own().Upgrading {
			t.Fatalf("it starts (%v), or upgrades its data without a start", err)
		}
	}
	fenced, cancel := context.WithCancel(t.Context())
	cancel()
	start(fenced)
	if !upgrading() {
		t.Error("the first start did not fail, it was ended")
	}
	start(t.Context())
	if upgrading() {
		t.Error("a start after one that failed counts as an upgrade")
	}
	m.cfg.Discover = func() (*install.Installation, error) { return nil, errors.New("no mysqld") }
	start(t.Context())
	in.Version.Patch++
	if !upgrading() {
		t.Error("another mysqld was installed, and its start does not count as an upgrade")
	}
	if ends := m.Ends.Load(); ends != 3 {
		t.Errorf("three starts failed, and %d ends are counted", ends)
	}
}

// TestSlowStartThatIsKilled: a mysqld that replaced one that had ended by itself is killed at the moment at which the
// text is renewed.
func TestSlowStartThatIsKilled(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var m Mysqld
		m.cfg = Config{Board: board.New(board.Config{}), Tasks: clock.Machine{}}
		m.Set(&mysqld.Process{})
		end := m.tellSlowStart(t.Context(), mysqld.New(mysqld.Config{DataDir: dir}))
		m.Set(nil)
		time.Sleep(slowStart)
		synctest.Wait()
		end()
		synctest.Wait()
		if text := m.cfg.Board.Trouble(aboutStart); text != "" {
			t.Errorf("the start has ended, and it says %q", text)
		}
	})
}

// TestGoneSaysNothingOld: what a mysqld did not apply is not said of it once it has ended: the status would say that its
// replication is started again, while nothing runs.
func TestGoneSaysNothingOld(t *testing.T) {
	m := Mysqld{cfg: Config{Board: board.New(board.Config{})}}
	m.standstill = standstill.New(m.cfg.Board, "")
	m.foreignXA.Begin() // a look is under way
	m.cfg.Board.Update(func(s *status.Node) { s.Mysqld = status.MysqldRunning })
	poll := func() { running{nil, &mysqld.Process{}, &m}.Applies(primary.ReplicaStatus{}, "error 1062") }
	poll()
	if own := m.cfg.Board.Own(); own.Reason != cannotTakeOver("error 1062", "") {
		t.Errorf("while it runs: %q", own.Reason)
	}
	m.gone()
	for range 2 {
		if own := m.cfg.Board.Own(); own.Reason != "" || own.Mysqld != status.MysqldStopped {
			t.Errorf("%s: %q", own.Mysqld, own.Reason)
		}
		poll() // mysqld answered it just before its end
	}
}

// TestZonesAgain: after a look at the tables that failed or found some, the next one comes after a minute, and otherwise
// after an hour.
func TestZonesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Mysqld{cfg: Config{Board: board.New(board.Config{}), Logger: slog.New(slog.DiscardHandler)}}
		m.cfg.Board.SetRole(status.RolePrimary, "")
		var looked time.Time
		for _, step := range []struct {
			tables []string
			err    error
			after  time.Duration
			shown  string
		}{
			{err: errors.New("no time")},
			{tables: []string{"shop.a"}, after: time.Minute, shown: ": shop.a:"},
			{err: errors.New("no time"), after: time.Minute, shown: ": shop.a:"},
			{after: time.Minute},
			{tables: []string{"shop.b"}, after: time.Hour, shown: ": shop.b:"},
		} {
			before := time.Now()
			for looked = (time.Time{}); looked.IsZero(); time.Sleep(time.Second) {
				m.LookAtTables(t.Context(), func(context.Context) ([]string, error) {
					looked = time.Now()
					return step.tables, step.err
				})
			}
			shown := m.cfg.Board.Trouble(aboutZones)
			if d := looked.Sub(before); d < step.after-time.Second || d > step.after || !strings.Contains(shown, step.shown) || (step.shown == "") != (shown == "") {
				t.Errorf("%v, %v: after %v, shown %q", step.tables, step.err, d, shown)
			}
		}
	})
}
