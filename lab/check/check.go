package check

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/mysql/rows"
	"github.com/quorate/quorate/lab/workload"
)

const (
	// examplesMax bounds Verdict.Examples.
	examplesMax = 8
	// rowsMax bounds how many rows of the prober's table are read.
	rowsMax = 1_000_000
)

// Server is a server to read.
type Server struct {
	Name string
	DB   *sql.DB
}

// Content is what a server has.
type Content struct {
	Name string
	// IDs are the prober's rows, sorted.
	IDs []int64
	// Sums are the checksums of all tables.
	Sums map[string]int64
}

// Verdict is the outcome.
type Verdict struct {
	Acknowledged, Unknown, Failed int
	// UnknownThere is how many of the unknown rows are on the first server.
	UnknownThere   int
	Lost, Diverged int
	// LostSince is when the first of the lost rows was acknowledged, on the prober's clock.
	LostSince time.Duration
	// Examples are sentences, a few.
	Examples []string
}

// Check reads the servers and compares them. The first is where clients write.
func Check(ctx context.Context, ledger workload.Timeline, database string, servers []Server) (Verdict, error) {
	contents := make([]Content, len(servers))
	reading, ctx := errgroup.WithContext(ctx)
	for i, s := range servers {
		reading.Go(func() (err error) {
			contents[i], err = Read(ctx, s, database)
			return err
		})
	}
	if err := reading.Wait(); err != nil {
		return Verdict{}, err
	}
	return Compare(ledger, contents), nil
}

// Read reads a server.
func Read(ctx context.Context, s Server, database string) (Content, error) {
	c := Content{Name: s.Name, Sums: map[string]int64{}}
	tables, err := rows.Column[string](ctx, s.DB, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? ORDER BY 1", database)
	if err != nil {
		return c, fmt.Errorf("list tables of node %s: %w", s.Name, err)
	}
	for _, table := range tables {
		name := "`" + database + "`.`" + table + "`"
		var sum sql.NullInt64
		if err := s.DB.QueryRowContext(ctx, "CHECKSUM TABLE "+name).Scan(new(string), &sum); err != nil {
			return c, fmt.Errorf("checksum table %s of node %s: %w", table, s.Name, err)
		}
		c.Sums[table] = sum.Int64
	}
	if slices.Contains(tables, workload.ProbeTable) {
		c.IDs, err = rows.Column[int64](ctx, s.DB, fmt.Sprintf("SELECT id FROM `%s`.`%s` ORDER BY id LIMIT %d", database, workload.ProbeTable, rowsMax))
		if err != nil {
			return c, fmt.Errorf("read the prober's rows of node %s: %w", s.Name, err)
		}
	}
	return c, nil
}

// Compare says what the servers have; the first is where clients write.
func Compare(ledger workload.Timeline, servers []Content) Verdict {
	v := Verdict{
		Acknowledged: ledger.Count(workload.Acknowledged),
		Unknown:      ledger.Count(workload.Unknown),
		Failed:       ledger.Count(workload.Failed),
	}
	if len(servers) == 0 {
		v.Lost = v.Acknowledged
		v.example("no server is left")
		return v
	}
	ledger = slices.Clone(ledger)
	slices.SortFunc(ledger, func(a, b workload.Attempt) int { return int(a.ID - b.ID) })
	for _, a := range ledger {
		v.count(a, servers)
	}
	v.compareTables(servers)
	return v
}

func (v *Verdict) count(a workload.Attempt, servers []Content) {
	var with, without []string
	for _, s := range servers {
		if _, ok := slices.BinarySearch(s.IDs, a.ID); ok {
			with = append(with, s.Name)
		} else {
			without = append(without, s.Name)
		}
	}
	there := slices.Contains(with, servers[0].Name)
	switch {
	case a.Outcome == workload.Acknowledged && !there:
		if at := a.At + a.Latency; v.Lost == 0 || at < v.LostSince {
			v.LostSince = at
		}
		v.Lost++
		v.example("row %d was acknowledged by %s and is not on %s", a.ID, a.Node, strings.Join(without, ", "))
	case a.Outcome == workload.Unknown && there:
		v.UnknownThere++
	case a.Outcome == workload.Failed && len(with) > 0:
		v.Diverged++
		v.example("row %d was refused by %s (%s) and is on %s", a.ID, a.Node, a.Err, strings.Join(with, ", "))
		return
	}
	if len(with) > 0 && len(without) > 0 {
		v.Diverged++
		v.example("row %d (%v) is on %s and not on %s", a.ID, a.Outcome, strings.Join(with, ", "), strings.Join(without, ", "))
	}
}

// compareTables compares the tables of each server with those of the first. The prober's own table was
// already compared row by row: its checksum counts only if that found nothing.
func (v *Verdict) compareTables(servers []Content) {
	first := servers[0]
	for _, s := range servers[1:] {
		names := map[string]bool{}
		for name := range maps.Keys(first.Sums) {
			names[name] = true
		}
		for name := range maps.Keys(s.Sums) {
			names[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			a, onFirst := first.Sums[name]
			b, onOther := s.Sums[name]
			if onFirst == onOther && a == b || name == workload.ProbeTable && !slices.Equal(first.IDs, s.IDs) {
				continue
			}
			v.Diverged++
			v.example("table %s differs between %s and %s", name, first.Name, s.Name)
		}
	}
}

func (v *Verdict) example(format string, args ...any) {
	if len(v.Examples) < examplesMax {
		v.Examples = append(v.Examples, fmt.Sprintf(format, args...))
	}
}
