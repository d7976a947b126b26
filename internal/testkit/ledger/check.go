package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"hash"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bounds of a check.
const (
	// agreePoll is the interval at which the nodes' gtid_executed is read.
	agreePoll = 100 * time.Millisecond
	// readsMax bounds how often the tables are read again because a
	// transaction was applied meanwhile. Nobody writes, so the second read is normally enough.
	readsMax = 5
)

// Server is one server to check.
type Server struct {
	Name string
	// DSN reaches this very server (not the router) with an account that may
	// read the table.
	DSN string
}

// Result is a Verdict with what was read to reach it.
type Result struct {
	Verdict
	// Rows is the number of rows in the first node's table.
	Rows int `json:"rows"`
	// GTIDExecuted is the first node's gtid_executed, in one line.
	GTIDExecuted string `json:"gtid_executed"`
}

// Check checks the nodes' tables against history (from all workloads that
// wrote to them, after they have ended). It waits at most agreeWithin until all
// nodes have executed the same transactions, then reads every row of every
// node. Nodes that never agree are a finding, not an error; an error means
// that a node could not be read.
func Check(ctx context.Context, log *slog.Logger, nodes []Server, history []Attempt, agreeWithin time.Duration) (Result, error) {
	readers := make([]*reader, len(nodes))
	for i, n := range nodes {
		db, err := open(n.DSN)
		if err != nil {
			return Result{}, fmt.Errorf("check node %s: %w", n.Name, err)
		}
		defer db.Close()
		readers[i] = &reader{name: n.Name, db: db}
	}
	start := time.Now()
	for reads := 1; ; reads++ {
		agreed, err := awaitAgreement(ctx, readers, start.Add(agreeWithin))
		if err != nil {
			return Result{}, err
		}
		before := gtids(readers)
		if err := each(ctx, readers, (*reader).readTable); err != nil {
			return Result{}, err
		}
		if err := each(ctx, readers, (*reader).readGTIDs); err != nil {
			return Result{}, err
		}
		if agreed && before != gtids(readers) && reads < readsMax {
			log.Info("a transaction was applied during the check; reading again", "read", reads)
			continue
		}
		return result(readers, history), nil
	}
}

// result makes the result from what the readers have read.
func result(readers []*reader, history []Attempt) Result {
	rows := make([]NodeRows, len(readers))
	for i, r := range readers {
		rows[i] = r.rows
	}
	first := readers[0]
	res := Result{
		Verdict:      Compare(history, rows),
		Rows:         len(first.rows.IDs),
		GTIDExecuted: first.gtidExecuted,
	}
	differ := func(format string, args ...any) {
		res.Diverged = append(res.Diverged, Finding{Detail: fmt.Sprintf(format, args...)})
	}
	for _, r := range readers {
		if r.count != len(r.rows.IDs) {
			differ("%s counts %d rows and reads %d", r.name, r.count, len(r.rows.IDs))
		}
		if r.gtidExecuted != first.gtidExecuted {
			differ("gtid_executed is %s on %s, %s on %s", first.gtidExecuted, first.name, r.gtidExecuted, r.name)
		}
		if r.content != first.content {
			differ("the rows on %s are not the rows on %s", r.name, first.name)
		}
		if r.checksum != first.checksum {
			differ("CHECKSUM TABLE is %d on %s, %d on %s", first.checksum, first.name, r.checksum, r.name)
		}
	}
	return res
}

// awaitAgreement polls until all nodes have the same gtid_executed; false when
// the deadline passes first.
func awaitAgreement(ctx context.Context, readers []*reader, deadline time.Time) (bool, error) {
	tick := time.NewTicker(agreePoll)
	defer tick.Stop()
	for {
		if err := each(ctx, readers, (*reader).readGTIDs); err != nil {
			return false, err
		}
		agreed := true
		for _, r := range readers {
			agreed = agreed && r.gtidExecuted == readers[0].gtidExecuted
		}
		if agreed || time.Now().After(deadline) {
			return agreed, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("wait for equal gtid_executed: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// each runs f on all readers at once.
func each(ctx context.Context, readers []*reader, f func(*reader, context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range readers {
		group.Go(func() error {
			if err := f(r, ctx); err != nil {
				return fmt.Errorf("check node %s: %w", r.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func gtids(readers []*reader) string {
	var all []string
	for _, r := range readers {
		all = append(all, r.gtidExecuted)
	}
	return strings.Join(all, "|")
}

// reader is one node, with what was read from it last.
type reader struct {
	name string
	db   *sql.DB

	gtidExecuted string
	rows         NodeRows
	count        int
	content      [sha256.Size]byte // over every column of every row, in order
	checksum     int64
}

// readGTIDs reads gtid_executed; the server prints it in one canonical form.
func (r *reader) readGTIDs(ctx context.Context) error {
	var set string
	if err := r.db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&set); err != nil {
		return fmt.Errorf("read gtid_executed: %w", err)
	}
	r.gtidExecuted = strings.ReplaceAll(set, "\n", "")
	return nil
}

// readTable streams the whole table and its two checksums.
func (r *reader) readTable(ctx context.Context) error {
	if err := r.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+Table).Scan(&r.count); err != nil {
		return fmt.Errorf("count rows: %w", err)
	}
	var name string
	if err := r.db.QueryRowContext(ctx, "CHECKSUM TABLE "+Table).Scan(&name, &r.checksum); err != nil {
		return fmt.Errorf("checksum table: %w", err)
	}
	rows, err := r.db.QueryContext(ctx, "SELECT id, writer, seq, payload, CAST(written AS CHAR) FROM "+Table+" ORDER BY id")
	if err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	defer rows.Close()
	r.rows = NodeRows{Node: r.name}
	sum := sha256.New()
	var row tableRow
	for rows.Next() {
		if err := rows.Scan(&row.id, &row.writer, &row.seq, &row.payload, &row.written); err != nil {
			return fmt.Errorf("read rows: %w", err)
		}
		r.rows.IDs = append(r.rows.IDs, row.id)
		if !row.right() {
			r.rows.Wrong = append(r.rows.Wrong, row.id)
		}
		row.addTo(sum)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	sum.Sum(r.content[:0])
	return nil
}

// tableRow is one row of the table.
type tableRow struct {
	id          ID
	writer, seq int64
	payload     sql.RawBytes
	written     sql.RawBytes
}

// right says whether the columns have the values that follow from the id.
func (t *tableRow) right() bool {
	return t.writer == int64(t.id.Writer()) && t.seq == int64(t.id.Seq()) && bytes.Equal(t.payload, t.id.Payload())
}

// addTo adds every column, with its length, to sum.
func (t *tableRow) addTo(sum hash.Hash) {
	head := make([]byte, 0, 40)
	for _, n := range []int64{int64(t.id), t.writer, t.seq, int64(len(t.payload)), int64(len(t.written))} {
		head = binary.LittleEndian.AppendUint64(head, uint64(n))
	}
	sum.Write(head) // a hash never returns an error
	sum.Write(t.payload)
	sum.Write(t.written)
}
