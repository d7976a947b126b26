package founding

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// sound is a situation in which nothing speaks against the adoption.
func sound() Situation {
	return Situation{
		Place:   Place{From: "/var/lib/mysql", DataDir: "/var/lib/quorate", Account: "mysql"},
		Members: []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull}}, Self: "a",
		Version: install.Version{Major: 9, Minor: 7, Patch: 4},
		Files:   mysqld.Files{UUID: oldUUID, Version: install.Version{Major: 9, Minor: 7, Patch: 4}},
		Survey:  &mysqld.Survey{Executed: oldUUID + ":1-90"},
	}
}

// TestCheckReplicationsVariables: replication variables that SET PERSIST has kept are no loss.
func TestCheckReplicationsVariables(t *testing.T) {
	s := sound()
	s.Files.Persisted = []string{"group_replication_group_name", "rpl_semi_sync_source_enabled"}
	findings := Check(s)
	if got := cluster.Worst(findings); got != cluster.CheckOK {
		t.Errorf("at worst %s", got)
	}
	if !slices.ContainsFunc(findings, func(f cluster.Check) bool {
		return strings.HasPrefix(f.Found, "SET PERSIST has kept 2 variables, all of replication")
	}) {
		t.Errorf("not named: %+v", findings)
	}
}

func TestCheckSound(t *testing.T) {
	for _, f := range Check(sound()) {
		if f.State != cluster.CheckOK || f.Do != "" || f.Found == "" {
			t.Errorf("%+v", f)
		}
	}
	if got := cluster.Worst(Check(sound())); got != cluster.CheckOK {
		t.Errorf("at worst %s", got)
	}
}

// TestCheck changes one thing in a sound situation: only that is found.
func TestCheck(t *testing.T) {
	many := strings.Split("a b c d e f g", " ")
	for name, c := range map[string]struct {
		change  func(*Situation)
		state   cluster.CheckState
		subject string
		found   string // part of it
		do      string // part of it
	}{
		"three members": {func(s *Situation) { s.Members = append(s.Members, s.Members[0], s.Members[0]) }, cluster.CheckFail, "members", "has 3 [[member]]s", "leave one [[member]]"},
		"another":       {func(s *Situation) { s.Self = "b" }, cluster.CheckFail, "members", "this node alone", "leave one"},
		"logger":        {func(s *Situation) { s.Members[0].Kind = cluster.KindLogger }, cluster.CheckFail, "members", "this node alone", "this full node"},
		"nested":        {func(s *Situation) { s.Place.Nested = true }, cluster.CheckFail, "place", "below the other", "beside it"},
		"mount":         {func(s *Situation) { s.Place.MountPoint = true }, cluster.CheckFail, "place", "is a mount point", "a directory below it"},
		"disk":          {func(s *Situation) { s.Place.OtherDisk = true }, cluster.CheckFail, "place", "different file systems", "on the file system of the data"},
		"unmovable":     {func(s *Situation) { s.Place.Unmovable = "/var/lib is not writable" }, cluster.CheckFail, "place", "not writable", "as root"},
		"older":         {func(s *Situation) { s.Files.Version.Patch = 3 }, cluster.CheckFail, "version", "of MySQL 9.7.3, and mysqld here is 9.7.4", "it upgrades the data"},
		"links":         {func(s *Situation) { s.Files.Links = many }, cluster.CheckFail, "links", "a, b, c, d, e and 2 more", "in their places"},
		"owner":         {func(s *Situation) { s.Files.Foreign = many[:1] }, cluster.CheckFail, "owner", "do not belong to the account mysql: a", "chown -R mysql /var/lib/mysql"},
		"binlogs":       {func(s *Situation) { s.Files.Binlogs, s.Files.BinlogBytes = 2, 3<<20 }, cluster.CheckWarn, "binlogs", "2 binlog and relay log files of 3MiB", "delete them"},
		"persisted":     {func(s *Situation) { s.Files.Persisted = many[:1] }, cluster.CheckWarn, "persisted", "has kept a", "[mysql.variables]"},
		"persisted beside a group's": {func(s *Situation) { s.Files.Persisted = []string{"group_replication_group_name", "long_query_time"} },
			cluster.CheckWarn, "persisted", "has kept long_query_time:", "[mysql.variables]"},
		"no GTIDs":        {func(s *Situation) { s.Survey.Executed = "" }, cluster.CheckFail, "gtids", "is empty", "turn gtid_mode on"},
		"bad GTIDs":       {func(s *Situation) { s.Survey.Executed = "x" }, cluster.CheckFail, "gtids", "cannot be read", "report"},
		"hole":            {func(s *Situation) { s.Survey.Executed = oldUUID + ":1-5:7-9," + newUUID + ":1" }, cluster.CheckWarn, "holes", "1 hole", "all data"},
		"xa":              {func(s *Situation) { s.Survey.PreparedXA = 1 }, cluster.CheckFail, "xa", "1 prepared XA transaction", "XA ROLLBACK"},
		"engine":          {func(s *Situation) { s.Survey.NotInnoDB = []string{"shop.t (MyISAM)"} }, cluster.CheckFail, "engines", "shop.t (MyISAM)", "ENGINE = InnoDB"},
		"encrypted":       {func(s *Situation) { s.Survey.Encrypted = many[:1] }, cluster.CheckFail, "encryption", "encrypted: a", "ENCRYPTION = 'N'"},
		"outside":         {func(s *Situation) { s.Survey.Outside = many[:1] }, cluster.CheckFail, "outside", "elsewhere: a", "into the data directory"},
		"keys":            {func(s *Situation) { s.Survey.NoKey = many }, cluster.CheckWarn, "keys", "another order on each node: a, b, c, d, e and 2 more", "INSERT … SELECT"},
		"time zones":      {func(s *Situation) { s.Survey.Zoned = many }, cluster.CheckWarn, "time zones", "or a CHECK: a, b, c, d, e and 2 more", "use DATETIME"},
		"definer":         {func(s *Situation) { s.Survey.NoDefiner = many[:1] }, cluster.CheckWarn, "definers", "do not exist: a", "define them again"},
		"events":          {func(s *Situation) { s.Survey.Events = many[:1] }, cluster.CheckWarn, "events", "run on the primary", "DISABLE"},
		"innodb cluster":  {func(s *Situation) { s.Survey.RouterMetadata = true }, cluster.CheckFail, "router metadata", "InnoDB Cluster", "dissolve"},
		"hole of a group": {func(s *Situation) { s.Survey.Executed = oldUUID + ":1-5:1000001-1000003" }, cluster.CheckWarn, "holes", "1 hole", "primary of the group has moved"},
		"replica":         {func(s *Situation) { s.Survey.Channels = []string{"x from h"} }, cluster.CheckFail, "replication", "x from h", "received: STOP REPLICA; RESET REPLICA ALL"},
		"member": {func(s *Situation) { s.Survey.Channels = []string{"group_replication_applier from <NULL>"} }, cluster.CheckFail, "replication",
			"group_replication_applier", "received: STOP GROUP_REPLICATION; RESET REPLICA ALL"},
		"group":        {func(s *Situation) { s.Survey.Plugins = []string{"audit", "group_replication"} }, cluster.CheckFail, "plugins", ": group_replication", "super_read_only = OFF; UNINSTALL PLUGIN group_replication"},
		"semi-sync":    {func(s *Situation) { s.Survey.Plugins = []string{"rpl_semi_sync_source"} }, cluster.CheckFail, "plugins", "rpl_semi_sync_source", "stop its replicas; UNINSTALL PLUGIN rpl_semi_sync_source"},
		"of the group": {func(s *Situation) { s.Survey.Components = []string{"file://component_group_replication_x"} }, cluster.CheckFail, "group components", "group_replication_x", "UNINSTALL COMPONENT 'file://component_group_replication_x'"},
		"component":    {func(s *Situation) { s.Survey.Components = many[:1] }, cluster.CheckWarn, "components", "a; every node", "UNINSTALL COMPONENT"},
		"own name":     {func(s *Situation) { s.Survey.Reserved = []string{"'dba'@'localhost'"} }, cluster.CheckFail, "own accounts", "'dba'@'localhost'", "RENAME USER"},
		"host":         {func(s *Situation) { s.Survey.FarHosts = many[:1] }, cluster.CheckWarn, "hosts", "127.0.0.1: a", "RENAME USER"},
		"replication account": {func(s *Situation) {
			s.Survey.Grants = []mysqld.Grant{{Account: "'r'@'%'", Privilege: "REPLICATION SLAVE"}}
		},
			cluster.CheckFail, "privileges", "'r'@'%' could bypass", "REVOKE REPLICATION SLAVE ON *.* FROM 'r'@'%'"},
		"administrator": {func(s *Situation) {
			for _, p := range []string{"SUPER", "RELOAD", "SHUTDOWN", "BINLOG_ADMIN"} {
				s.Survey.Grants = append(s.Survey.Grants, mysqld.Grant{Account: "'ann'@'%'", Privilege: p})
			}
		}, cluster.CheckFail, "privileges", "SUPER, RELOAD, SHUTDOWN, BINLOG_ADMIN", "GRANT quorate_dba TO it"},
		"writes grants": {func(s *Situation) { s.Survey.Grants = []mysqld.Grant{{Account: "'r'@'%'", Privilege: "write mysql.*"}} },
			cluster.CheckFail, "privileges", "write mysql.*", "REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'r'@'%'"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sound()
			c.change(&s)
			wantOne(t, Check(s), cluster.Check{State: c.state, Subject: c.subject, Found: c.found, Do: c.do})
		})
	}
}

// wantOne wants one finding that is not OK; the texts of want are parts of the finding's texts.
func wantOne(t *testing.T, all []cluster.Check, want cluster.Check) {
	t.Helper()
	if got := cluster.Worst(all); got != want.State {
		t.Errorf("at worst %s, want %s", got, want.State)
	}
	var bad []cluster.Check
	for _, f := range all {
		if f.State != cluster.CheckOK {
			bad = append(bad, f)
		}
	}
	if len(bad) != 1 || bad[0].Subject != want.Subject || bad[0].State != want.State ||
		!strings.Contains(bad[0].Found, want.Found) || !strings.Contains(bad[0].Do, want.Do) {
		t.Errorf("found %+v, want one of %s: %q, %q", bad, want.Subject, want.Found, want.Do)
	}
}

// TestCheckEachAccount: each account that could bypass the acknowledgement is named.
func TestCheckEachAccount(t *testing.T) {
	s := sound()
	s.Survey.Grants = []mysqld.Grant{{Account: "a", Privilege: "SUPER"}, {Account: "a", Privilege: "RELOAD"}, {Account: "b", Privilege: "SUPER"}}
	var got []string
	for _, f := range Check(s) {
		if f.State == cluster.CheckFail {
			got = append(got, f.Do)
		}
	}
	if d := cmp.Diff([]string{"REVOKE SUPER, RELOAD ON *.* FROM a", "REVOKE SUPER ON *.* FROM b"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// What was not read is not judged.
	s.Survey = nil
	if got := cluster.Worst(Check(s)); got != cluster.CheckOK {
		t.Errorf("without a survey at worst %s", got)
	}
}
