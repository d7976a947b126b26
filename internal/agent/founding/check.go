package founding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// Place is where the data are, and where they are to go.
type Place struct {
	// From and DataDir are the two directories, Account is the account that mysqld runs as.
	From, DataDir, Account string
	// MountPoint: From is one. OtherDisk: the two are on different file systems. Nested: one is
	// below the other. Unmovable says why From cannot get another name; "" = it can.
	MountPoint, OtherDisk, Nested bool
	Unmovable                     string
}

// Situation is what is judged.
type Situation struct {
	Place Place
	// Members are the members in the configuration, Self is this node's name.
	Members []cluster.Member
	Self    string
	// Version is the version of the mysqld that is to run here.
	Version install.Version
	Files   mysqld.Files
	// Survey is what was read of the server; nil = it was not started, because something else
	// speaks against that.
	Survey *mysqld.Survey
}

// Check says of each subject whether it speaks against the adoption.
func Check(s Situation) []cluster.Check {
	findings := slices.Concat(checkCluster(s), checkPlace(s.Place), checkFiles(s))
	if s.Survey == nil {
		return findings
	}
	return slices.Concat(findings, checkTransactions(s.Survey), checkData(s.Survey), checkServer(s.Survey), checkAccounts(s.Survey))
}

// Startable tells whether a server may be started on the data, to look at them: a server of another
// version would have to upgrade them.
func Startable(s Situation) bool { return cluster.Worst(checkFiles(s)) != cluster.CheckFail }

// checkOf is a finding that speaks against the adoption, or that all is well.
func checkOf(subject string, bad bool, state cluster.CheckState, found, do, good string) cluster.Check {
	if bad {
		return cluster.Check{Subject: subject, State: state, Found: found, Do: do}
	}
	return cluster.Check{Subject: subject, State: cluster.CheckOK, Found: good}
}

// shown names what is in a list, a few of many.
func shown(list []string) string {
	const few = 5
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:few], ", "), len(list)-few)
}

func checkCluster(s Situation) []cluster.Check {
	alone := len(s.Members) == 1 && s.Members[0].Name == s.Self && s.Members[0].Kind != cluster.KindLogger
	return []cluster.Check{checkOf("members", !alone, cluster.CheckFail,
		fmt.Sprintf("the configuration has %s, and must have this node alone", units.Count(len(s.Members), "[[member]]", "[[member]]s")),
		"leave one [[member]], this full node; the others join it, with [join] and \"quorate node add\"",
		"this node alone, as at the beginning of a cluster")}
}

func checkPlace(p Place) []cluster.Check {
	const subject = "place"
	switch {
	case p.Nested:
		return []cluster.Check{{Subject: subject, State: cluster.CheckFail, Found: fmt.Sprintf("one of %s and data_dir %s is below the other", p.From, p.DataDir), Do: "set data_dir to a directory beside it"}}
	case p.MountPoint:
		return []cluster.Check{{Subject: subject, State: cluster.CheckFail, Found: p.From + " is a mount point, so it cannot get another name",
			Do: "move its files into a directory below it, and set data_dir to another one there"}}
	case p.OtherDisk:
		return []cluster.Check{{Subject: subject, State: cluster.CheckFail, Found: fmt.Sprintf("%s and data_dir %s are on different file systems", p.From, p.DataDir),
			Do: "set data_dir to a directory on the file system of the data: they are moved, and not copied"}}
	case p.Unmovable != "":
		return []cluster.Check{{Subject: subject, State: cluster.CheckFail, Found: p.Unmovable, Do: "run this as root"}}
	}
	return []cluster.Check{{Subject: subject, State: cluster.CheckOK, Found: fmt.Sprintf("%s can become %s/mysql/data", p.From, p.DataDir)}}
}

func checkFiles(s Situation) []cluster.Check {
	f := s.Files
	older := f.Version != (install.Version{}) && f.Version != s.Version
	return []cluster.Check{
		checkOf("version", older, cluster.CheckFail, fmt.Sprintf("the data are of MySQL %s, and mysqld here is %s", f.Version, s.Version),
			"start this mysqld on the data once, with the configuration that they have now, and shut it down: it upgrades the data, and no downgrade is possible",
			"MySQL "+s.Version.String()),
		checkOf("links", len(f.Links) > 0, cluster.CheckFail, "symbolic links: "+shown(f.Links), "put the files in their places", "no symbolic links"),
		checkOf("owner", len(f.Foreign) > 0, cluster.CheckFail, fmt.Sprintf("files that do not belong to the account %s: %s", s.Place.Account, shown(f.Foreign)),
			fmt.Sprintf("chown -R %s %s, or run quorate and mysqld as the account to which they belong", s.Place.Account, s.Place.From),
			"all files belong to the account "+s.Place.Account),
		checkOf("binlogs", f.Binlogs > 0, cluster.CheckWarn,
			fmt.Sprintf("%s of %s stay among the data, and nobody reads them any more", units.Count(f.Binlogs, "binlog or relay log file", "binlog and relay log files"), units.Size(f.BinlogBytes)),
			"copy them elsewhere if backups need them; delete them once the cluster runs", "none among the data"),
		checkPersisted(f.Persisted),
	}
}

// checkPersisted names the persisted variables that may still be wanted. Those of replication are not: quorate has
// its own.
func checkPersisted(names []string) cluster.Check {
	wanted := slices.DeleteFunc(slices.Clone(names), ofReplication)
	good := "no variables of SET PERSIST"
	if len(names) > 0 {
		good = fmt.Sprintf("SET PERSIST has kept %s, all of replication: mysqld will not read them any more", units.Count(len(names), "variable", "variables"))
	}
	return checkOf("persisted", len(wanted) > 0, cluster.CheckWarn, "SET PERSIST has kept "+shown(wanted)+": mysqld will not read that any more",
		"write what is still wanted into [mysql.variables]", good)
}

// ofReplication tells whether a plugin, or a variable, is of another way to replicate. quorate loads semi-sync by
// itself.
func ofReplication(name string) bool {
	return strings.HasPrefix(name, "group_replication") || strings.HasPrefix(name, "rpl_semi_sync_")
}

func checkTransactions(v *mysqld.Survey) []cluster.Check {
	executed, err := gtid.ParseSet(v.Executed)
	if err != nil {
		return []cluster.Check{{Subject: "gtids", State: cluster.CheckFail, Found: "gtid_executed cannot be read: " + err.Error(), Do: "report this"}}
	}
	intervals, sources := 0, map[gtid.Source]bool{}
	for source := range executed.Intervals() {
		intervals++
		sources[source] = true
	}
	return []cluster.Check{
		checkOf("gtids", executed.IsEmpty(), cluster.CheckFail, "gtid_executed is empty: this server has not written with GTIDs",
			"turn gtid_mode on, step by step, as MySQL's manual says (\"Enabling GTID Transactions Online\"), and write something",
			fmt.Sprintf("%s of %s", units.Count(executed.Count(), "transaction", "transactions"), units.Count(len(sources), "server", "servers"))),
		checkOf("holes", intervals > len(sources), cluster.CheckWarn,
			fmt.Sprintf("gtid_executed has %s: transactions that this server does not have", units.Count(intervals-len(sources), "hole", "holes")),
			"make sure that this server has all data: what it lacks is lost. (Each member of a group takes a block of numbers: where the primary of the group has moved, such a hole is normal.)",
			"gtid_executed has no holes"),
		checkOf("xa", v.PreparedXA > 0, cluster.CheckFail, units.Count(v.PreparedXA, "prepared XA transaction", "prepared XA transactions"),
			"start the server again, and end each one: XA RECOVER, XA COMMIT or XA ROLLBACK", "no prepared XA transactions"),
	}
}

func checkData(v *mysqld.Survey) []cluster.Check {
	return []cluster.Check{
		checkOf("engines", len(v.NotInnoDB) > 0, cluster.CheckFail, "tables that are not InnoDB's, which no replica could follow: "+shown(v.NotInnoDB),
			"ALTER TABLE … ENGINE = InnoDB, or drop them", "all tables are InnoDB's"),
		checkOf("encryption", len(v.Encrypted) > 0, cluster.CheckFail, "encrypted: "+shown(v.Encrypted),
			"quorate has not been tried with a keyring: ALTER TABLE … ENCRYPTION = 'N'", "nothing is encrypted"),
		checkOf("outside", len(v.Outside) > 0, cluster.CheckFail, "files of tables elsewhere: "+shown(v.Outside),
			"move them into the data directory: other nodes could not have them at the same path", "all tables are in the data directory"),
		checkOf("keys", len(v.NoKey) > 0, cluster.CheckWarn, "tables without a primary key, whose rows have another order on each node: "+shown(v.NoKey),
			"give each a key by a new table and INSERT … SELECT (docs/dba.md): an AUTO_INCREMENT column that ALTER TABLE adds numbers the rows differently on each node", "every table has a primary key, or a unique key that is NOT NULL"),
		checkOf("time zones", len(v.Zoned) > 0, cluster.CheckWarn, "tables where a TIMESTAMP, or FROM_UNIXTIME, is in a generated column, an index or a CHECK: "+shown(v.Zoned),
			"use DATETIME there, or let the application fill the column (docs/dba.md): after SET time_zone in any session replicas may compute another value, without an error, or stop", "no table derives anything from the time zone of a session"),
		checkOf("definers", len(v.NoDefiner) > 0, cluster.CheckWarn, "their definers are accounts that do not exist: "+shown(v.NoDefiner),
			"they fail today already: create the account, or define them again", "every definer is an account"),
		checkOf("events", len(v.Events) > 0, cluster.CheckWarn, "enabled events, which run on the primary from the first second on: "+shown(v.Events),
			"disable those that are to wait: ALTER EVENT … DISABLE, or later quorate cluster set --events off", "no enabled events"),
		checkOf("router metadata", v.RouterMetadata, cluster.CheckFail, "the schema mysql_innodb_cluster_metadata is that of an InnoDB Cluster",
			"dissolve the InnoDB Cluster, and drop the schema", "no InnoDB Cluster"),
	}
}

func checkServer(v *mysqld.Survey) []cluster.Check {
	other := func(name string) bool { return !ofReplication(name) }
	bad := slices.DeleteFunc(slices.Clone(v.Plugins), other)
	known := slices.DeleteFunc(slices.Clone(v.Plugins), ofReplication)
	ofGroup := func(urn string) bool { return strings.Contains(urn, "group_replication") }
	needGroup := slices.DeleteFunc(slices.Clone(v.Components), func(urn string) bool { return !ofGroup(urn) })
	components := slices.DeleteFunc(slices.Clone(v.Components), ofGroup)
	return []cluster.Check{
		checkChannels(v.Channels),
		checkOf("plugins", len(bad) > 0, cluster.CheckFail, "installed plugins that cannot run beside quorate: "+shown(bad), uninstallPlugins(bad), orNone("no plugins of INSTALL PLUGIN", known)),
		checkOf("group components", len(needGroup) > 0, cluster.CheckFail, "installed components that need Group Replication: "+shown(needGroup),
			"start it again, and UNINSTALL COMPONENT '"+strings.Join(needGroup, "', '")+"'", "no components of Group Replication"),
		checkOf("components", len(components) > 0, cluster.CheckWarn, "installed for good: "+shown(components)+"; every node needs their files",
			"install the same MySQL on all nodes, or UNINSTALL COMPONENT", "no components"),
	}
}

// checkChannels asks that what was received is applied first: RESET REPLICA ALL forgets it with the channel.
func checkChannels(channels []string) cluster.Check {
	stop := "STOP REPLICA"
	if slices.ContainsFunc(channels, ofReplication) {
		stop = "STOP GROUP_REPLICATION"
	}
	return checkOf("replication", len(channels) > 0, cluster.CheckFail, "it replicates: "+shown(channels),
		"start it again; once it has applied all that it has received: "+stop+"; RESET REPLICA ALL, which forgets the rest", "it replicates from nobody")
}

// uninstallPlugins says how to uninstall plugins. A plugin refuses that while it is at work, so it is stopped first.
func uninstallPlugins(names []string) string {
	how := "start it again"
	if slices.Contains(names, "group_replication") {
		how += ", STOP GROUP_REPLICATION; SET GLOBAL super_read_only = OFF"
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "rpl_semi_sync_") }) {
		how += ", stop its replicas"
	}
	return how + "; UNINSTALL PLUGIN " + strings.Join(names, "; UNINSTALL PLUGIN ")
}

func orNone(none string, list []string) string {
	if len(list) == 0 {
		return none
	}
	return "of INSTALL PLUGIN: " + shown(list)
}

func checkAccounts(v *mysqld.Survey) []cluster.Check {
	findings := []cluster.Check{
		checkOf("own accounts", len(v.Reserved) > 0, cluster.CheckFail, "accounts with names of quorate's own: "+shown(v.Reserved),
			"RENAME USER, or drop them: quorate makes its own at each start", "no account has a name of quorate's own"),
		checkOf("hosts", len(v.FarHosts) > 0, cluster.CheckWarn, "accounts that cannot log in through quorate's ports, where all clients come from 127.0.0.1: "+shown(v.FarHosts),
			"RENAME USER … TO …@'%', unless they use mysqld's own port (mysql.bind)", "every account can log in from 127.0.0.1"),
	}
	if len(v.Grants) == 0 {
		return append(findings, cluster.Check{Subject: "privileges", State: cluster.CheckOK, Found: "no account could bypass the acknowledgement, but root, which is locked"})
	}
	for _, some := range byAccount(v.Grants) {
		findings = append(findings, checkGrants(some))
	}
	return findings
}

// byAccount sorts grants, which are in the order of their accounts, into one list for each.
func byAccount(grants []mysqld.Grant) (all [][]mysqld.Grant) {
	for i, g := range grants {
		if i == 0 || grants[i-1].Account != g.Account {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], g)
	}
	return all
}

// revokedMax is how many privileges are revoked one by one. An account with more is an administrator's.
const revokedMax = 3

func checkGrants(grants []mysqld.Grant) cluster.Check {
	account := grants[0].Account
	var names []string
	plain := true
	for _, g := range grants {
		names = append(names, g.Privilege)
		plain = plain && !strings.HasPrefix(g.Privilege, "role ") && !strings.HasPrefix(g.Privilege, "write ")
	}
	do := fmt.Sprintf("REVOKE %s ON *.* FROM %s", strings.Join(names, ", "), account)
	if !plain || len(names) > revokedMax {
		do = fmt.Sprintf("REVOKE ALL PRIVILEGES, GRANT OPTION FROM %s, and its roles; once the cluster runs, GRANT quorate_dba TO it", account)
	}
	return cluster.Check{Subject: "privileges", State: cluster.CheckFail, Found: account + " could bypass the acknowledgement: " + shown(names), Do: do}
}
