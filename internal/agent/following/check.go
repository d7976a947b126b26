package following

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/rows"
)

// Look is what has to be known of a source.
type Look struct {
	Version, UUID                              string
	GTIDMode, BinlogFormat, RowImage, Checksum string
	LogBin, LogsUpdates                        bool
	Executed, Purged                           *gtid.Set
	Fixed
	// Filter is what its binlog leaves out; FilterUnknown: the account must not ask that.
	Filter        string
	FilterUnknown bool
	// Applies is why it may lack what others have acknowledged; AppliesUnknown: the account must not ask that.
	Applies        string
	AppliesUnknown bool
	// XA is which XA transactions it has under way; XAUnknown is why that cannot be seen.
	XA, XAUnknown string
	// NotInnoDB are tables of other engines, as far as the account may see. Grants is what the account may do.
	NotInnoDB []string
	Grants    string
}

// Fixed is what a server does not change while it runs, and what two servers should have in common. The zero value = it is not known.
type Fixed struct {
	// TimeZone is the time zone of sessions that set none, SystemTimeZone what SYSTEM means there.
	TimeZone            string `json:"time_zone"`
	SystemTimeZone      string `json:"system_time_zone"`
	LowerCaseTableNames int    `json:"lower_case_table_names"`
}

// ownFixed asks a mysqld of the cluster.
func ownFixed(ctx context.Context, p *mysqld.Process) (Fixed, error) {
	db, err := p.OpenFollow()
	if err != nil {
		return Fixed{}, err
	}
	defer func() { _ = db.Close() }()
	return fixedOf(ctx, db)
}

func fixedOf(ctx context.Context, db *sql.DB) (f Fixed, err error) {
	err = db.QueryRowContext(ctx, "SELECT @@GLOBAL.time_zone, @@GLOBAL.system_time_zone, @@GLOBAL.lower_case_table_names").Scan(
		&f.TimeZone, &f.SystemTimeZone, &f.LowerCaseTableNames)
	if err != nil {
		err = fmt.Errorf("read the time zone and lower_case_table_names: %w", err)
	}
	return f, err
}

// Look asks the source all that Check needs.
func (s *Source) Look(ctx context.Context) (l Look, err error) {
	fail := func(err error) (Look, error) { return Look{}, fmt.Errorf("look at the source: %w", err) }
	var executed, purged string
	err = s.db.QueryRowContext(ctx, `SELECT @@version, @@server_uuid, @@GLOBAL.gtid_mode, @@GLOBAL.binlog_format, @@GLOBAL.binlog_row_image,
		@@GLOBAL.binlog_checksum, @@GLOBAL.log_bin, @@GLOBAL.log_slave_updates, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged`).Scan(
		&l.Version, &l.UUID, &l.GTIDMode, &l.BinlogFormat, &l.RowImage, &l.Checksum, &l.LogBin, &l.LogsUpdates, &executed, &purged)
	if err != nil {
		return fail(err)
	}
	l.Executed, err = gtid.ParseSet(executed)
	if err == nil {
		l.Purged, err = gtid.ParseSet(purged)
	}
	if err != nil {
		return fail(err)
	}
	if l.Fixed, err = fixedOf(ctx, s.db); err != nil {
		return fail(err)
	}
	if l.Filter, err = s.filter(ctx); err != nil {
		l.FilterUnknown = true
	}
	if l.Applies, err = s.Applies(ctx); err != nil {
		l.AppliesUnknown = true
	}
	if l.XA, err = s.XA(ctx); err != nil {
		l.XAUnknown = err.Error()
	}
	if l.NotInnoDB, err = rows.Column[string](ctx, s.db, `SELECT CONCAT(table_schema, '.', table_name, ' (', engine, ')') FROM information_schema.tables
		WHERE table_type = 'BASE TABLE' AND engine <> 'InnoDB' AND table_schema NOT IN `+notCompared+` LIMIT 6`); err != nil {
		return fail(err)
	}
	grants, err := rows.Column[string](ctx, s.db, "SHOW GRANTS")
	if err != nil {
		return fail(err)
	}
	l.Grants = strings.ToUpper(strings.Join(grants, "\n"))
	return l, nil
}

// filter is what binlog_do_db and binlog_ignore_db say, which no variable shows.
func (s *Source) filter(ctx context.Context) (string, error) {
	rows, err := s.db.QueryContext(ctx, "SHOW BINARY LOG STATUS")
	if err != nil { // before 8.2
		rows, err = s.db.QueryContext(ctx, "SHOW MASTER STATUS")
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	var file, position, do, ignore, executed sql.NullString
	if !rows.Next() {
		return "", errors.Join(errors.New("it has no binlog"), rows.Err())
	}
	if err := rows.Scan(&file, &position, &do, &ignore, &executed); err != nil {
		return "", err
	}
	var said []string
	if do.String != "" {
		said = append(said, "binlog_do_db "+do.String)
	}
	if ignore.String != "" {
		said = append(said, "binlog_ignore_db "+ignore.String)
	}
	return strings.Join(said, ", "), nil
}

// Here is what a source is compared with.
type Here struct {
	Version, UUID string
	// Executed is what the cluster has.
	Executed *gtid.Set
	Fixed
}

// versionMin is the oldest series of a source.
const versionMin = "8.0"

// OnlyHere is the subject of the check for transactions that the cluster has and the source lacks.
const OnlyHere = "only here"

// Check says of each subject whether it speaks against following.
func Check(l Look, h Here) []cluster.Check {
	var all []cluster.Check
	add := func(subject string, state cluster.CheckState, bad bool, found, do, good string) {
		if bad {
			all = append(all, cluster.Check{Subject: subject, State: state, Found: found, Do: do})
			return
		}
		all = append(all, cluster.Check{Subject: subject, State: cluster.CheckOK, Found: good})
	}
	const fail, warn = cluster.CheckFail, cluster.CheckWarn
	add("version", fail, newer(l.Version, h.Version), fmt.Sprintf("MySQL %s, newer than %s here", l.Version, h.Version),
		"upgrade the cluster first: quorate upgrade plan", fmt.Sprintf("MySQL %s, here %s", l.Version, h.Version))
	if newer(versionMin, l.Version) {
		all[0] = cluster.Check{Subject: "version", State: fail, Found: fmt.Sprintf("MySQL %s, older than %s", l.Version, versionMin),
			Do: "upgrade it, or begin with a replica of it that has a newer version"}
	}
	add("server", fail, l.UUID == h.UUID, "it is this cluster's own primary", "name another server", "server_uuid "+l.UUID)
	add("gtid mode", fail, l.GTIDMode != "ON", "gtid_mode is "+l.GTIDMode, "set it ON, step by step, as MySQL's manual says", "ON")
	add("binlog", fail, !l.LogBin || !l.LogsUpdates, "log_bin or log_replica_updates is OFF: its binlog lacks some of its transactions", "set both to ON, and restart it", "it writes all its transactions")
	add("format", fail, l.BinlogFormat != "ROW", "binlog_format is "+l.BinlogFormat, "SET GLOBAL binlog_format = ROW, and let its clients connect again", "ROW")
	add("row image", warn, l.RowImage != "FULL", "binlog_row_image is "+l.RowImage+": rows of tables without a primary key may not be found",
		"SET GLOBAL binlog_row_image = FULL", "FULL")
	add("checksums", fail, l.Checksum != "CRC32", "binlog_checksum is "+l.Checksum, "SET GLOBAL binlog_checksum = CRC32", "CRC32")
	add("filters", fail, l.Filter != "", "its binlog leaves out: "+l.Filter, "take the filters out of its configuration, and copy it again", "none")
	if l.FilterUnknown {
		all[len(all)-1] = cluster.Check{Subject: "filters", State: warn, Found: "it is not known whether its binlog leaves databases out",
			Do: "GRANT REPLICATION CLIENT to the account, and look again"}
	}
	add("others", warn, l.Applies != "", l.Applies, "the cutover refuses the source until that is done", "it applies no transactions of other servers")
	if l.AppliesUnknown {
		all[len(all)-1] = cluster.Check{Subject: "others", State: warn, Found: "it is not known whether it applies transactions of other servers",
			Do: "GRANT SELECT ON performance_schema.* to the account: the cutover needs that"}
	}
	add("xa", warn, l.XA != "", l.XA, "end them: neither the following nor the cutover takes XA transactions", "no XA transaction is under way")
	if l.XAUnknown != "" {
		all[len(all)-1] = cluster.Check{Subject: "xa", State: warn, Found: l.XAUnknown,
			Do: "GRANT SELECT ON performance_schema.*, and XA_RECOVER_ADMIN ON *.*, to the account, and let the consumer events_transactions_current and the instrument transaction be enabled: the cutover needs that"}
	}
	add("engines", fail, len(l.NotInnoDB) > 0, "tables that are not InnoDB's: "+strings.Join(l.NotInnoDB, ", "), "ALTER TABLE … ENGINE = InnoDB there", "all InnoDB, as far as the account sees")
	all = append(all, checkFixed(l.Fixed, h.Fixed)...)
	return append(append(all, checkTransactions(l, h)...), checkGrants(l)...)
}

// newer tells whether a version is of a later series than another one.
func newer(version, than string) bool {
	number := regexp.MustCompile(`^(\d+)\.(\d+)`)
	a, b := number.FindStringSubmatch(version), number.FindStringSubmatch(than)
	if a == nil || b == nil {
		return false
	}
	for i := 1; i < 3; i++ {
		if len(a[i]) != len(b[i]) {
			return len(a[i]) > len(b[i])
		}
		if a[i] != b[i] {
			return a[i] > b[i]
		}
	}
	return false
}

// checkFixed looks at what neither of the two servers can change now.
func checkFixed(there, here Fixed) []cluster.Check {
	if there == (Fixed{}) {
		return []cluster.Check{{Subject: "table names, time zone", State: cluster.CheckWarn, Found: "it does not say these: its quorate is older than the quorate here",
			Do: "upgrade it, and look again; or compare @@lower_case_table_names, @@time_zone and @@system_time_zone of both yourself"}}
	}
	names := cluster.Check{Subject: "table names", State: cluster.CheckOK, Found: fmt.Sprintf("lower_case_table_names is %d, as here", there.LowerCaseTableNames)}
	if there.LowerCaseTableNames != here.LowerCaseTableNames {
		names = cluster.Check{Subject: names.Subject, State: cluster.CheckFail,
			Found: fmt.Sprintf("lower_case_table_names is %d, here %d", there.LowerCaseTableNames, here.LowerCaseTableNames),
			Do:    "start again from a copy of it (quorate adopt): no server can change this later"}
	}
	const system = "SYSTEM"
	zone := cluster.Check{Subject: "time zone", State: cluster.CheckOK, Found: "time_zone is " + there.TimeZone + ", here " + here.TimeZone}
	if there.TimeZone == system && here.TimeZone == system && there.SystemTimeZone != here.SystemTimeZone {
		zone = cluster.Check{Subject: zone.Subject, State: cluster.CheckWarn,
			Found: fmt.Sprintf("time_zone is SYSTEM, which is %s there and %s here: the same moment reads differently", there.SystemTimeZone, here.SystemTimeZone),
			Do:    "have both machines in one time zone, or set time_zone to the same name or number on both; if the two are summer and winter of one zone, nothing is to be done"}
	}
	return []cluster.Check{names, zone}
}

// checkTransactions looks at which transactions each of the two has.
func checkTransactions(l Look, h Here) []cluster.Check {
	lacks := l.Executed.Clone()
	lacks.Subtract(h.Executed)
	gone, ours := gtid.Intersect(l.Purged, lacks), onlyHere(l, h)
	tagged := false
	for source := range lacks.Intervals() {
		tagged = tagged || source.Tag != ""
	}
	var all []cluster.Check
	add := func(subject string, bad bool, found, do, good string) {
		c := cluster.Check{Subject: subject, State: cluster.CheckOK, Found: good}
		if bad {
			c = cluster.Check{Subject: subject, State: cluster.CheckFail, Found: found, Do: do}
		}
		all = append(all, c)
	}
	add("purged", !gone.IsEmpty(), fmt.Sprintf("it has purged %d transactions that are not here: %s", gone.Count(), cut(gone)),
		"start again from a newer copy of it (quorate adopt), and let it keep its binlogs for longer", "nothing that is not here")
	add("tags", tagged, "some of its transactions that are not here have GTIDs with tags", "let it make no more of them, and start again from a copy that has these transactions", "none")
	add(OnlyHere, !ours.IsEmpty(), fmt.Sprintf("the cluster has %d transactions that it lacks: %s", ours.Count(), cut(ours)),
		"look what they are (quorate log dump); --force, if the source does not touch the same data", "nothing")
	add("to come", false, "", "", fmt.Sprintf("%d transactions", lacks.Count()))
	return all
}

// onlyHere is what the cluster has and the source lacks.
func onlyHere(l Look, h Here) *gtid.Set {
	ours := h.Executed.Clone()
	ours.Subtract(l.Executed)
	return ours
}

func cut(s *gtid.Set) string {
	const bytesMax = 120
	text := s.String()
	if len(text) > bytesMax {
		return text[:bytesMax] + "…"
	}
	return text
}

// checkGrants looks at what the account may do at the source.
func checkGrants(l Look) []cluster.Check {
	has := func(privileges ...string) bool {
		return slices.ContainsFunc(privileges, func(p string) bool {
			return regexp.MustCompile(`GRANT ([^\n]*, ?)?` + p + `[, ][^\n]*ON \*\.\*`).MatchString(l.Grants)
		})
	}
	reads := cluster.Check{Subject: "account", State: cluster.CheckOK, Found: "it may read the binlog"}
	if !has("REPLICATION SLAVE", "ALL PRIVILEGES") {
		reads = cluster.Check{Subject: "account", State: cluster.CheckFail, Found: "it may not read the binlog", Do: "GRANT REPLICATION SLAVE ON *.* to it"}
	}
	closes := cluster.Check{Subject: "cutover", State: cluster.CheckOK, Found: "the account may close the source for writes"}
	if !has("SUPER", "ALL PRIVILEGES") && !(has("SYSTEM_VARIABLES_ADMIN") && has("CONNECTION_ADMIN")) {
		closes = cluster.Check{Subject: "cutover", State: cluster.CheckWarn, Found: "the account may not close the source for writes",
			Do: "close it yourself, and say so (quorate cutover --source-closed); or GRANT SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN ON *.* to it"}
	}
	return []cluster.Check{reads, closes}
}
