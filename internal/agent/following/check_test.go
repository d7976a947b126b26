package following

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

func TestCheck(t *testing.T) {
	set := func(text string) *gtid.Set {
		s, err := gtid.ParseSet(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const a, b = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000001"
	for name, c := range map[string]struct {
		look func(*Look)
		here string
		want map[string]string
	}{
		"well":            {func(*Look) {}, a + ":1-7", nil},
		"a newer server":  {func(l *Look) { l.Version = "10.1.0" }, a + ":1-7", map[string]string{"version": "fail"}},
		"an older one":    {func(l *Look) { l.Version = "8.4.3" }, a + ":1-7", nil},
		"of 8.0":          {func(l *Look) { l.Version = "8.0.11" }, a + ":1-7", nil},
		"too old":         {func(l *Look) { l.Version = "5.7.44-log" }, a + ":1-7", map[string]string{"version": "fail"}},
		"table names":     {func(l *Look) { l.LowerCaseTableNames = 1 }, a + ":1-7", map[string]string{"table names": "fail"}},
		"another zone":    {func(l *Look) { l.SystemTimeZone = "CET" }, a + ":1-7", map[string]string{"time zone": "warn"}},
		"of an older one": {func(l *Look) { l.Fixed = Fixed{} }, a + ":1-7", map[string]string{"table names, time zone": "warn"}},
		"zones are said":  {func(l *Look) { l.TimeZone, l.SystemTimeZone = "+00:00", "CET" }, a + ":1-7", nil},
		"ourselves":       {func(l *Look) { l.UUID = "here" }, a + ":1-7", map[string]string{"server": "fail"}},
		"settings": {func(l *Look) {
			l.GTIDMode, l.BinlogFormat, l.RowImage, l.Checksum, l.LogsUpdates, l.Filter, l.NotInnoDB = "OFF", "MIXED", "MINIMAL", "NONE", false, "binlog_do_db x", []string{"a.b (MyISAM)"}
		}, a + ":1-7", map[string]string{"gtid mode": "fail", "format": "fail", "row image": "warn", "checksums": "fail", "binlog": "fail", "filters": "fail", "engines": "fail"}},
		"filters unknown":    {func(l *Look) { l.FilterUnknown = true }, a + ":1-7", map[string]string{"filters": "warn"}},
		"a replica":          {func(l *Look) { l.Applies = "it applies" }, a + ":1-7", map[string]string{"others": "warn"}},
		"others unknown":     {func(l *Look) { l.AppliesUnknown = true }, a + ":1-7", map[string]string{"others": "warn"}},
		"xa under way":       {func(l *Look) { l.XA = "1 is" }, a + ":1-7", map[string]string{"xa": "warn"}},
		"xa unknown":         {func(l *Look) { l.XAUnknown = "it is hidden" }, a + ":1-7", map[string]string{"xa": "warn"}},
		"purged":             {func(l *Look) { l.Purged = set(a + ":1-8") }, a + ":1-7", map[string]string{"purged": "fail"}},
		"purged, but here":   {func(l *Look) { l.Purged = set(a + ":1-7") }, a + ":1-7", nil},
		"tags":               {func(l *Look) { l.Executed = set(a + ":1-9:tag:1") }, a + ":1-7", map[string]string{"tags": "fail"}},
		"more here":          {func(*Look) {}, a + ":1-7," + b + ":1", map[string]string{"only here": "fail"}},
		"a plain account":    {func(l *Look) { l.Grants = "GRANT REPLICATION SLAVE ON *.* TO X" }, a + ":1-7", map[string]string{"cutover": "warn"}},
		"an account of none": {func(l *Look) { l.Grants = "GRANT USAGE ON *.* TO X\nGRANT REPLICATION SLAVE ON DB.* TO X" }, a + ":1-7", map[string]string{"cutover": "warn", "account": "fail"}},
		"two grants": {func(l *Look) {
			l.Grants = "GRANT SELECT, REPLICATION SLAVE ON *.* TO X\nGRANT CONNECTION_ADMIN,SYSTEM_VARIABLES_ADMIN ON *.* TO X"
		}, a + ":1-7", nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := Look{
				Version: "9.7.4", UUID: "there", GTIDMode: "ON", BinlogFormat: "ROW", RowImage: "FULL", Checksum: "CRC32", LogBin: true, LogsUpdates: true,
				Fixed:    Fixed{TimeZone: "SYSTEM", SystemTimeZone: "UTC"},
				Executed: set(a + ":1-9"), Purged: set(a + ":1-3"), Grants: "GRANT ALL PRIVILEGES ON *.* TO X",
			}
			c.look(&l)
			got := map[string]string(nil)
			for _, check := range Check(l, Here{Version: "9.7.4", UUID: "here", Executed: set(c.here), Fixed: Fixed{TimeZone: "SYSTEM", SystemTimeZone: "UTC"}}) {
				if check.State != cluster.CheckOK {
					if got == nil {
						got = map[string]string{}
					}
					got[check.Subject] = string(check.State)
					if check.Found == "" || check.Do == "" {
						t.Errorf("%s does not say what to do: %+v", check.Subject, check)
					}
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("what speaks against it (-want +got):\n%s", diff)
			}
		})
	}
}
