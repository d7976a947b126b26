package mysqlwire

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Idle connections of database/sql are closed by each test's cleanup.
	goleak.VerifyTestMain(m)
}

func testLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }
