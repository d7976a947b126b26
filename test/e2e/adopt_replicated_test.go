package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// TestAdoptSemiSync: the source of a semi-sync pair is shut down while writers write. Semi-sync is removed from it as
// docs/adopt.md says, and it becomes the first node. All that it acknowledged is on all nodes.
func TestAdoptSemiSync(t *testing.T) {
	beside(t)
	f := newCluster(t, devcluster.Options{Nodes: 1})
	ctx := adoptContext(t)
	source, replica := f.semiSyncPair(t, ctx)
	load := f.startAt(t, 4, f.plainDSN(t, ctx, source))
	load.awaitAcks(t, ctx, 100)
	if n := plainQuery(t, ctx, source, "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Rpl_semi_sync_source_yes_tx'"); n == "0" {
		t.Error("the replica has acknowledged nothing: it is no semi-sync pair")
	}
	if err := source.Stop(); err != nil { // while writers write
		t.Fatal(err)
	}
	load.stop(t)
	f.adoptionFails(t, ctx, source.Data(), "installed plugins that cannot run beside quorate: rpl_semi_sync_source",
		"stop its replicas; UNINSTALL PLUGIN rpl_semi_sync_source", "2 variables, all of replication", "REVOKE REPLICATION SLAVE")
	if err := source.Start(ctx); err != nil { // with all that SET PERSIST has kept
		t.Fatal(err)
	}
	plainDo(t, ctx, replica, "STOP REPLICA")
	if err := replica.Stop(); err != nil {
		t.Fatal(err)
	}
	plainDo(t, ctx, source, "UNINSTALL PLUGIN rpl_semi_sync_source", "SET sql_log_bin = 0", "REVOKE REPLICATION SLAVE ON *.* FROM 'rep'@'%'")
	want := holdingOf(t, ctx, source)
	f.takeOver(t, ctx, source)
	f.growAdopted(t, ctx, want)
}

// semiSyncPair returns a source that waits for its replica without a limit, and the replica.
func (f *fixture) semiSyncPair(t *testing.T, ctx context.Context) (source, replica *mysqldtest.Plain) {
	t.Helper()
	source = f.plainServer(t, ctx, "source")
	plainDo(t, ctx, source, "CREATE USER rep@'%' IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO rep@'%'")
	f.plainLedger(t, ctx, source)
	fillShops(t, ctx, source, 0, 3)
	if long() {
		fillLarge(t, ctx, source)
	}
	replica = f.plainCopy(t, ctx, source, "replica", "server_id=1002")
	plainDo(t, ctx, replica, "INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'", "SET PERSIST rpl_semi_sync_replica_enabled = ON")
	plainDo(t, ctx, source, "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
		"SET PERSIST rpl_semi_sync_source_timeout = 18446744073709551615", "SET PERSIST rpl_semi_sync_source_enabled = ON")
	replicate(t, ctx, source, replica)
	f.awaitPlain(t, ctx, source, "a semi-sync replica", "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Rpl_semi_sync_source_clients'", "1")
	return source, replica
}

// TestAdoptGroup: the primary of a group of three is adopted, after the primary has moved and the group was removed from
// the server as docs/adopt.md says. All that the group acknowledged is on all nodes. Before that another cluster follows
// the same member, first as a secondary and then as the primary, until a cutover.
func TestAdoptGroup(t *testing.T) {
	beside(t)
	f := newCluster(t, devcluster.Options{Nodes: 1, Variables: map[string]string{"sql_require_primary_key": "ON"}})
	ctx := adoptContext(t)
	members := f.group(t, ctx)
	g := followsMember(t, ctx, members[0], members[1])
	var dsns []string
	for _, p := range members {
		dsns = append(dsns, f.plainDSN(t, ctx, p))
	}
	load := f.startAt(t, 6, dsns...) // where a member is no primary they are refused
	load.awaitAcks(t, ctx, 100)
	primary := members[1]
	plainQuery(t, ctx, members[0], "SELECT group_replication_set_as_primary('"+plainQuery(t, ctx, primary, "SELECT @@server_uuid")+"')")
	load.awaitAcks(t, ctx, 100)
	for _, p := range []*mysqldtest.Plain{members[0], members[2]} {
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	f.adoptionFails(t, ctx, members[0].Data(), "it replicates: group_replication_applier", "STOP GROUP_REPLICATION; RESET REPLICA ALL",
		"cannot run beside quorate: group_replication", "SET GLOBAL super_read_only = OFF; UNINSTALL PLUGIN group_replication", "GROUP_REPLICATION_STREAM",
		"SET PERSIST has kept sql_require_primary_key")
	load.awaitAcks(t, ctx, 20)
	load.stop(t)
	g.takesOverFrom(t, ctx, primary, f.history)
	load = f.startAt(t, 6, dsns...)
	load.awaitAcks(t, ctx, 20)
	plainDo(t, ctx, primary, "STOP GROUP_REPLICATION") // while writers write
	load.stop(t)
	f.awaitPlain(t, ctx, primary, "all that was received is applied", "SELECT COUNT(*) FROM performance_schema.replication_connection_status "+
		"WHERE NOT GTID_SUBSET(received_transaction_set, @@GLOBAL.gtid_executed)", "0")
	plainDo(t, ctx, primary, "SET GLOBAL super_read_only = OFF", "SET sql_log_bin = 0", "RESET REPLICA ALL",
		"UNINSTALL PLUGIN group_replication", "DROP USER rep@'%', fol@'%'")
	want := holdingOf(t, ctx, primary)
	t.Log("gtid_executed", want.executed)
	f.takeOver(t, ctx, primary)
	f.growAdopted(t, ctx, want)
}

// followsMember makes a new cluster that follows a member of a group. The member is a secondary now, first is the
// primary.
func followsMember(t *testing.T, ctx context.Context, first, member *mysqldtest.Plain) *fixture {
	t.Helper()
	g := newCluster(t, devcluster.Options{Nodes: 1, Name: "other"})
	g.heal(t, ctx)
	plainDo(t, ctx, first, "CREATE USER fol@'%' IDENTIFIED BY 'secret'", "GRANT SELECT ON *.* TO fol@'%'",
		"GRANT REPLICATION SLAVE, REPLICATION CLIENT, SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN, XA_RECOVER_ADMIN ON *.* TO fol@'%'")
	g.awaitPlain(t, ctx, member, "the account with its rights", "SELECT COUNT(*) FROM mysql.global_grants WHERE user = 'fol' AND priv = 'XA_RECOVER_ADMIN'", "1")
	file := filepath.Join(g.Dir(), "source.password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	follow := []string{"follow", "127.0.0.1:" + plainQuery(t, ctx, member, "SELECT @@port"), "--user", "fol", "--password-file", file}
	if out := g.must(t, ctx, 0, append(follow, "--check")...); !strings.Contains(out, "it is a member of a group whose other members may take writes: shut the others down first") {
		t.Errorf("the check says %q", out)
	}
	g.must(t, ctx, 0, follow...)
	g.awaitNear(t, ctx)
	g.refused(t, ctx, 0, []int{1}, "shut the others down first", "cutover")
	return g
}

// takesOverFrom: the cluster takes over from the last member of a group, and has all that the group has acknowledged.
// Then the member takes writes again.
func (f *fixture) takesOverFrom(t *testing.T, ctx context.Context, member *mysqldtest.Plain, all []ledger.Attempt) {
	t.Helper()
	f.awaitNear(t, ctx)
	t.Log(strings.TrimSpace(f.must(t, ctx, 0, "cutover", "--verify", "rows")))
	f.history = all
	f.check(t, ctx)
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	plainDo(t, ctx, member, "RESET PERSIST super_read_only", "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")
}

// group makes a group of three whose first member is the primary. It is set up as MySQL Shell does it, only by INSTALL
// PLUGIN and SET PERSIST.
func (f *fixture) group(t *testing.T, ctx context.Context) []*mysqldtest.Plain {
	t.Helper()
	const host = "report_host=127.0.0.1"
	first := f.plainServer(t, ctx, "m1", host)
	f.plainLedger(t, ctx, first)
	fillShops(t, ctx, first, 0, 3)
	if long() {
		fillLarge(t, ctx, first)
	}
	plainDo(t, ctx, first, "CREATE USER rep@'%' IDENTIFIED BY 'x'",
		"GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO rep@'%'")
	members := []*mysqldtest.Plain{first}
	for i := range 2 {
		members = append(members, f.plainCopy(t, ctx, first, fmt.Sprintf("m%d", i+2), host, fmt.Sprintf("server_id=%d", 1002+i)))
	}
	addrs := make([]string, len(members))
	for i := range members {
		addrs[i] = "127.0.0.1:" + freePort(t)
	}
	name := mysqld.NewUUID()
	for i, p := range members {
		plainDo(t, ctx, p, "INSTALL PLUGIN group_replication SONAME 'group_replication.so'", "INSTALL PLUGIN clone SONAME 'mysql_clone.so'",
			"SET PERSIST group_replication_group_name = '"+name+"'", "SET PERSIST group_replication_local_address = '"+addrs[i]+"'",
			"SET PERSIST group_replication_group_seeds = '"+strings.Join(addrs, ",")+"'", "SET PERSIST group_replication_start_on_boot = ON",
			"SET PERSIST group_replication_recovery_get_public_key = ON", "SET PERSIST sql_require_primary_key = ON",
			"CHANGE REPLICATION SOURCE TO SOURCE_USER = 'rep', SOURCE_PASSWORD = 'x' FOR CHANNEL 'group_replication_recovery'")
		if i == 0 {
			plainDo(t, ctx, p, "SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = OFF")
			continue
		}
		plainDo(t, ctx, p, "START GROUP_REPLICATION")
	}
	f.awaitPlain(t, ctx, first, "a group of three", "SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE member_state = 'ONLINE'", "3")
	return members
}

// plainLedger makes the ledger's table on a server, and the account for it, and returns the writers' DSN.
func (f *fixture) plainLedger(t *testing.T, ctx context.Context, p *mysqldtest.Plain) (dsn string) {
	t.Helper()
	user, password := f.Application()
	plainDo(t, ctx, p, "CREATE DATABASE "+ledger.Database, fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", user, password),
		fmt.Sprintf("GRANT ALL ON %s.* TO %s@'%%'", ledger.Database, user))
	dsn = f.plainDSN(t, ctx, p)
	if err := ledger.CreateTable(ctx, dsn); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// plainDSN is the writers' DSN for a server.
func (f *fixture) plainDSN(t *testing.T, ctx context.Context, p *mysqldtest.Plain) string {
	t.Helper()
	user, password := f.Application()
	return fmt.Sprintf("%s:%s@tcp(127.0.0.1:%s)/?timeout=2s&readTimeout=30s&allowCleartextPasswords=false", user, password, plainQuery(t, ctx, p, "SELECT @@port"))
}

// awaitPlain waits until a server answers a query with want.
func (f *fixture) awaitPlain(t *testing.T, ctx context.Context, p *mysqldtest.Plain, what, query, want string) {
	t.Helper()
	if err := devcluster.Poll(ctx, what, func(ctx context.Context) (bool, string, error) {
		got := plainQuery(t, ctx, p, query)
		return got == want, got, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// adoptionFails fails the test unless the check refuses the data, and names everything in want.
func (f *fixture) adoptionFails(t *testing.T, ctx context.Context, data string, want ...string) {
	t.Helper()
	out, err := f.quorate(t, ctx, 0, "adopt", data, "--check")
	if err == nil {
		t.Errorf("nothing speaks against an adoption of %s:\n%s", data, out)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("the check does not say %q:\n%s", w, out)
		}
	}
}
