package workload

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/lab/peers"
)

// largeTable is the table for large transactions. largeRowBytes is the size of its rows.
const (
	largeTable    = "large"
	largeRowBytes = 1 << 20
)

// Large is one transaction of many rows of random bytes, which no compression makes smaller.
type Large struct{ Bytes int64 }

// LargeResult is the result of a large transaction.
type LargeResult struct {
	// Err is the error of the server or the connection; nil = the client has the OK.
	Err error
	// Commit is how long the COMMIT took, Total how long the whole transaction took.
	Commit, Total time.Duration
	// CommitBegan is when the COMMIT was sent.
	CommitBegan time.Time
}

// CreateLargeTable makes the empty table.
func CreateLargeTable(ctx context.Context, dial Dial, at peers.Endpoint) error {
	db, err := Open(dial, at)
	if err != nil {
		return err
	}
	defer db.Close() // nothing to lose
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+largeTable+" (id INT NOT NULL PRIMARY KEY, data LONGBLOB NOT NULL) ENGINE=InnoDB"); err != nil {
		return fmt.Errorf("create the table for large transactions: %w", err)
	}
	return nil
}

// Run runs the transaction. If the transaction fails, that is a result, not an error of Run.
func (l Large) Run(ctx context.Context, dial Dial, at peers.Endpoint) (r LargeResult, err error) {
	db, err := Open(dial, at)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return r, fmt.Errorf("connect for a large transaction: %w", err)
	}
	defer conn.Close() // its outcome is known
	began := time.Now()
	row := make([]byte, largeRowBytes)
	_, r.Err = conn.ExecContext(ctx, "BEGIN")
	for id := int64(0); id*largeRowBytes < l.Bytes && r.Err == nil; id++ {
		_, _ = rand.Read(row) // never fails (Go 1.24)
		_, r.Err = conn.ExecContext(ctx, "INSERT INTO "+largeTable+" VALUES (?, ?)", id, row)
	}
	r.CommitBegan = time.Now()
	if r.Err == nil {
		_, r.Err = conn.ExecContext(ctx, "COMMIT")
		r.Commit = time.Since(r.CommitBegan)
	}
	r.Total = time.Since(began)
	return r, nil
}
