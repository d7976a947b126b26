package local

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
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
