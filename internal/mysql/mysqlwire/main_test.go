package mysqlwire

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
)

func TestMain(m *testing.M) {
	// Idle connections of database/sql are closed by each test's cleanup.
	end, err := mysqldtest.UseCopies(filepath.Join("..", "..", "..", ".mysql"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		end()
		os.Exit(code)
	}))
}

func testLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }
