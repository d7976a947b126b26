package mysqld

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// Zone is the time zone of a server. A binlog's event says only SYSTEM for a statement of a session whose
// time_zone is that, so a replica on a host in another zone gives a DDL's times other values.
type Zone struct {
	// Global is the global time_zone; SYSTEM = that of the server's host.
	Global string
	// January and July are the offsets from UTC that the host's zone has there in zoneYearLast, such as +01:00.
	January, July string
	// Rules is a digest of the offsets of the host's zone, one each week from zoneYearFirst to zoneYearLast: each
	// start of a server asks, and zones change their offsets on Sundays, weeks from each other. Zones of several
	// names may have the same rules. @@system_time_zone does not tell rules: it is CET or CEST, by the season of the
	// server's start.
	Rules string
}

const (
	zoneYearFirst, zoneYearLast = 2000, 2037
	// zoneDigestBytes of a digest are compared: nobody makes zones that collide.
	zoneDigestBytes = 8

	week = 7 * 24 * time.Hour
)

// Zone reads the server's time zone. Both of its zones are fixed when the server starts: no account may
// set the global time_zone later, and the server's C library reads the host's zone once.
func (a *Admin) Zone(ctx context.Context) (z Zone, err error) {
	if err := a.query1(ctx, "time zone", "SELECT @@GLOBAL.time_zone", nil, &z.Global); err != nil {
		return z, err
	}
	first := time.Date(zoneYearFirst, time.January, 1, 12, 0, 0, 0, time.UTC)
	weeks := int(time.Date(zoneYearLast+1, time.January, 1, 12, 0, 0, 0, time.UTC).Sub(first)/week) + 1
	// No recursion: the operator may set cte_max_recursion_depth.
	const digit = "(VALUES ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7), ROW(8), ROW(9))"
	offsets, err := rows.Column[int](ctx, a.db, `SELECT TIMESTAMPDIFF(MINUTE, at, CONVERT_TZ(at, '+00:00', 'SYSTEM')) FROM (
			SELECT TIMESTAMP(?) + INTERVAL n WEEK AS at, n FROM (
				SELECT a.column_0 + 10 * b.column_0 + 100 * c.column_0 + 1000 * d.column_0 AS n
				FROM `+digit+` AS a, `+digit+` AS b, `+digit+` AS c, `+digit+` AS d) AS numbers
			WHERE n < ?) AS weeks
		ORDER BY n`, first.Format(time.DateTime), weeks)
	if err != nil {
		return z, fmt.Errorf("read time zone: %w", err)
	}
	if len(offsets) != weeks {
		return z, fmt.Errorf("read time zone: %d offsets, want %d", len(offsets), weeks)
	}
	digest := sha256.New()
	for _, minutes := range offsets {
		_, _ = fmt.Fprintf(digest, "%d\n", minutes) // a hash takes everything
	}
	z.Rules = fmt.Sprintf("%x", digest.Sum(nil)[:zoneDigestBytes])
	last := time.Date(zoneYearLast, time.January, 1, 12, 0, 0, 0, time.UTC)
	z.January = offsetOf(offsets[last.Sub(first)/week])
	z.July = offsetOf(offsets[last.AddDate(0, 6, 0).Sub(first)/week])
	return z, nil
}

// LowerCaseTableNames reads that variable, which is fixed since the data directory was made.
func (a *Admin) LowerCaseTableNames(ctx context.Context) (value int, err error) {
	err = a.query1(ctx, "lower_case_table_names", "SELECT @@GLOBAL.lower_case_table_names", nil, &value)
	return value, err
}

// offsetOf writes an offset from UTC as MySQL does.
func offsetOf(minutes int) string {
	sign := '+'
	if minutes < 0 {
		sign, minutes = '-', -minutes
	}
	return fmt.Sprintf("%c%02d:%02d", sign, minutes/60, minutes%60)
}
