package mysqld

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestZoneDependent: the tables where a replica may store something else than the primary because of a session's time zone
// are found, in all forms that mysqld takes, and no others.
func TestZoneDependent(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	a := openAlone(t, start(t, s))
	mustExec(t, login(t, s, DBAUser, s.cfg.Secrets.DBA),
		"CREATE DATABASE yes", "CREATE DATABASE no",
		"CREATE TABLE yes.a_stored (id INT PRIMARY KEY, ts TIMESTAMP, d DATE AS (DATE(ts)) STORED)",
		"CREATE TABLE yes.b_expression (id INT PRIMARY KEY, ts TIMESTAMP, KEY ((HOUR(ts))))",
		"CREATE TABLE yes.c_check (id INT PRIMARY KEY, ts TIMESTAMP, day DATE, CHECK (DATE(ts) = day))",
		"CREATE TABLE yes.d_indexed (id INT PRIMARY KEY, ts TIMESTAMP, d DATE AS (DATE(ts)) VIRTUAL, KEY (id, d))",
		"CREATE TABLE yes.e_epoch (id INT PRIMARY KEY, n INT, d DATETIME AS (FROM_UNIXTIME(n)) STORED)",
		"CREATE TABLE yes.f_result (id INT PRIMARY KEY, d DATETIME, ts TIMESTAMP AS (d) STORED)",
		"CREATE TABLE yes.g_through (id INT PRIMARY KEY, `t``s` TIMESTAMP, h INT AS (HOUR(`t``s`)) VIRTUAL, h2 INT AS (h + 1) VIRTUAL, CHECK (h2 > 0), CHECK (h > -1))",
		"CREATE TABLE yes.h_case (id INT PRIMARY KEY, TS TIMESTAMP, d DATE AS (DATE(ts)) STORED)",
		"CREATE TABLE yes.i_case_check (id INT PRIMARY KEY, Ts TIMESTAMP, day DATE, CHECK (DATE(tS) = day))",
		"CREATE TABLE yes.j_at_zone (id INT PRIMARY KEY, d DATETIME, ts TIMESTAMP AS (d) VIRTUAL, x DATETIME AS (CAST(ts AT TIME ZONE '+00:00' AS DATETIME)) STORED)",
		"CREATE TABLE yes.k_through_epoch (id INT PRIMARY KEY, n INT, d DATETIME AS (FROM_UNIXTIME(n)) VIRTUAL, day DATE AS (DATE(d)) STORED)",
		"CREATE TABLE no.at_zone (id INT PRIMARY KEY, ts TIMESTAMP, d DATETIME AS (CAST(ts AT TIME ZONE '+00:00' AS DATETIME)) STORED)",
		"CREATE TABLE no.plain (id INT PRIMARY KEY, ts TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, KEY (ts))",
		"CREATE TABLE no.virtual (id INT PRIMARY KEY, ts TIMESTAMP, d DATE AS (DATE(ts)) VIRTUAL, h2 INT AS (id + 1) STORED)",
		"CREATE TABLE no.null_only (id INT PRIMARY KEY, ts TIMESTAMP NULL, CHECK (ts IS NOT NULL OR id < 0))",
		"CREATE TABLE no.datetime (id INT PRIMARY KEY, ts TIMESTAMP, x DATETIME, d DATE AS (DATE(x)) STORED, CHECK (x > '2000-01-01'), KEY ((DATE(x))))",
	)
	got, err := a.ZoneDependent(ctx(t))
	want := []string{"yes.a_stored", "yes.b_expression", "yes.c_check", "yes.d_indexed", "yes.e_epoch", "yes.f_result", "yes.g_through",
		"yes.h_case", "yes.i_case_check", "yes.j_at_zone", "yes.k_through_epoch"}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	many := make([]derived, derivedMax)
	for i := range many {
		many[i] = derived{table: "t", timestamps: []byte("[]")}
	}
	if got, err := zoneDependent(many); err != nil || len(got) != 1 || got[0] != "(only the first 10000 expressions were looked at)" {
		t.Errorf("where it reaches its limit: %q, %v", got, err)
	}
}
