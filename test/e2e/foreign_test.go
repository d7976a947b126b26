package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	driver "github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestForeignReplica attaches a stock semi-sync replica straight to the
// primary. Its ACK would release commits that no log has.
func TestForeignReplica(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "OperatorsCannotGrantIt", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		if _, err := f.local(t, primary).ExecContext(ctx, "GRANT REPLICATION SLAVE ON *.* TO app@'%'"); err == nil {
			t.Error("the operator's account could grant REPLICATION SLAVE")
		}
		user, password := f.Application()
		f.mustNotAttach(t, ctx, primary, user, password)
	})
	f.scenario(t, "AGrantFencesBeforeItActs", f.grantFences)
	f.scenario(t, "WordsFenceNothing", f.wordsFenceNothing)
	f.scenario(t, "AForeignDumpFences", f.foreignDump)
}

// grantFences grants the privilege with an account that can. The statement
// must not get OK: the agent sees it in the binlog while it waits for
// its ACK, and kills the server.
func (f *fixture) grantFences(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	admin := f.admin(t, primary)
	if _, err := admin.ExecContext(ctx, "CREATE USER intruder@'%' IDENTIFIED BY 'Intruder-1'"); err != nil {
		t.Fatal(err)
	}
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	pid := f.MysqldPID(primary)
	if _, err := admin.ExecContext(ctx, "GRANT REPLICATION SLAVE ON *.* TO intruder@'%'"); err == nil {
		t.Error("GRANT REPLICATION SLAVE was acknowledged")
	}
	f.awaitMysqldGone(t, ctx, primary, pid)
	l.awaitAcks(t, ctx, 100)
	now := f.heal(t, ctx)
	f.mustNotAttach(t, ctx, now, "intruder", "Intruder-1")
	l.stop(t)
	f.check(t, ctx)
	for i := range f.Len() {
		for _, grant := range queryStrings(t, ctx, f.admin(t, i), "SHOW GRANTS FOR intruder@'%'") {
			if strings.Contains(grant, "REPLICATION SLAVE") {
				t.Errorf("node %s has %q", f.Name(i), grant)
			}
		}
	}
}

// wordsFenceNothing has an account without any privilege write the words of a GRANT in a comment, also in a statement
// that is staged. The primary stays.
func (f *fixture) wordsFenceNothing(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	if _, err := f.admin(t, primary).ExecContext(ctx, "CREATE USER 'super'@'%' IDENTIFIED BY 'Super-12' COMMENT 'may not GRANT SUPER'"); err != nil {
		t.Fatal(err)
	}
	pid := f.MysqldPID(primary)
	db := openDSN(t, fmt.Sprintf("super:Super-12@tcp(%s)/?maxAllowedPacket=0", f.MysqldAddr(primary)), nil)
	for _, bytes := range []int{1, 9 << 20} {
		if _, err := db.ExecContext(ctx, "SET DEFAULT ROLE NONE TO 'super'@'%' /* GRANT SUPER ON *.* TO u "+strings.Repeat("x", bytes)+"*/"); err != nil {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	if now := f.heal(t, ctx); now != primary || f.MysqldPID(now) != pid {
		t.Errorf("%s is the primary now, and %s was", f.Name(now), f.Name(primary))
	}
	f.check(t, ctx)
}

// mustNotAttach logs in with an account, which works, and then tries to attach as a
// replica, which must be denied.
func (f *fixture) mustNotAttach(t *testing.T, ctx context.Context, i int, user, password string) {
	t.Helper()
	db := openDSN(t, fmt.Sprintf("%s:%s@tcp(%s)/", user, password, f.MysqldAddr(i)), nil)
	if err := db.PingContext(ctx); err != nil {
		t.Fatalf("%s cannot log in, so the test would test nothing: %v", user, err)
	}
	// Registering as a replica is denied with 1045, the dump itself with 1227.
	err := attach(ctx, f.MysqldAddr(i), user, password)
	if err == nil || !strings.Contains(err.Error(), "1045") && !strings.Contains(err.Error(), "1227") {
		t.Errorf("%s attached as a replica: %v; want access denied", user, err)
	}
}

// attach is a stock semi-sync replica at addr (host:port, or a socket's path):
// it acknowledges whatever it receives. It returns the error that ends it.
func attach(ctx context.Context, addr, user, password string) error {
	cfg := replication.BinlogSyncerConfig{
		ServerID: 4711, Flavor: mysql.MySQLFlavor, Host: addr, User: user, Password: password,
		SemiSyncEnabled: true, DisableRetrySync: true, Logger: slog.New(slog.DiscardHandler),
	}
	if host, portText, err := net.SplitHostPort(addr); err == nil {
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil {
			return err
		}
		cfg.Host, cfg.Port = host, uint16(port)
	}
	replica := replication.NewBinlogSyncer(cfg)
	defer replica.Close()
	stream, err := replica.StartSync(mysql.Position{})
	for err == nil {
		_, err = stream.GetEvent(ctx)
	}
	return err
}

// foreignDump attaches with an account that may: the agent's own account, which is not
// the tap's. Its presence alone must fence the node, at the next poll. Nobody writes meanwhile: a
// transaction that it acknowledged until then would make the node errant.
func (f *fixture) foreignDump(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	pid := f.MysqldPID(primary)
	dsn, err := f.AdminDSN(primary)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if err := attach(ctx, cfg.Addr, cfg.User, cfg.Passwd); ctx.Err() != nil {
		t.Fatalf("the foreign replica stays attached: %v", err)
	}
	f.awaitMysqldGone(t, ctx, primary, pid)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	l.stop(t)
	f.check(t, ctx)
}

// TestDivergence writes rows behind quorate's back, with GTIDs of their own: while
// the node's agent is down, and through the node's own mysqld, which has them in its
// binlog.
func TestDivergence(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "RowBehindTheBack", func(t *testing.T, ctx context.Context) {
		victim := f.others(f.heal(t, ctx))[0]
		if err := f.Terminate(ctx, victim); err != nil {
			t.Fatal(err)
		}
		id := f.writeBehind(t, ctx, victim)
		if err := f.Start(ctx, victim); err != nil {
			t.Fatal(err)
		}
		st := f.awaitErrant(t, ctx, victim, id)
		if want := "none, because no binlog here has them"; st.ErrantSaved != want {
			t.Errorf("saved: %q, want %q: the binlog was elsewhere", st.ErrantSaved, want)
		}
		l := f.start(t, 4, f.others(victim)...) // the others do not mind
		l.awaitAcks(t, ctx, 100)
		l.stop(t)
	})
	f.scenario(t, "RowThroughItsOwnMysqld", f.rowThroughMysqld)
}

// awaitErrant waits until node i is errant with the transaction, its mysqld is gone,
// and it has tried to save the transaction.
func (f *fixture) awaitErrant(t *testing.T, ctx context.Context, i int, id string) status.Node {
	t.Helper()
	if err := f.WaitNode(ctx, i, "errant", func(st status.Node) bool {
		return st.Role == status.RoleErrant && st.ErrantSaved != ""
	}); err != nil {
		t.Fatal(err)
	}
	st := f.status(t, ctx, i)
	if !strings.Contains(st.Errant, id) || !strings.Contains(st.Reason, id) {
		t.Errorf("errant %q, reason %q: neither may lack %s", st.Errant, st.Reason, id)
	}
	if pid := f.MysqldPID(i); pid != 0 {
		t.Errorf("the errant node's mysqld runs, process %d", pid)
	}
	return st
}

// rowThroughMysqld opens a replica's mysqld with the agent's own account and inserts
// a row. The agent sees it, and the row can be read from what it has saved.
func (f *fixture) rowThroughMysqld(t *testing.T, ctx context.Context) {
	victim := -1
	for i := range f.Len() {
		if f.status(t, ctx, i).Role == status.RoleReplica {
			victim = i
		}
	}
	if victim < 0 {
		t.Fatal("no replica is left")
	}
	id := f.nextGTID(t, ctx, f.admin(t, victim))
	f.makeErrant(t, ctx, victim)
	st := f.awaitErrant(t, ctx, victim, id)
	if !strings.HasPrefix(st.ErrantSaved, "1 of 1 transactions in ") {
		t.Fatalf("saved: %q", st.ErrantSaved)
	}
	dir := strings.TrimPrefix(st.ErrantSaved, "1 of 1 transactions in ")
	f.savedRow(t, ctx, dir, id)
	f.bringBack(t, ctx, dir)
	// The save is found again.
	if err := f.Terminate(ctx, victim); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, victim); err != nil {
		t.Fatal(err)
	}
	if again := f.awaitErrant(t, ctx, victim, id); again.ErrantSaved != st.ErrantSaved {
		t.Errorf("saved: %q, before it was %q", again.ErrantSaved, st.ErrantSaved)
	}
}

// nextGTID returns the GTID that a server will give to its own next transaction: after that
// transaction the server is killed too soon to be asked.
func (f *fixture) nextGTID(t *testing.T, ctx context.Context, db *sql.DB) string {
	t.Helper()
	own := queryStrings(t, ctx, db, "SELECT @@GLOBAL.server_uuid")[0]
	set, err := gtid.ParseSet(queryStrings(t, ctx, db, "SELECT @@GLOBAL.gtid_executed")[0])
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for source, interval := range set.Intervals() {
		if source.UUID.String() == own && source.Tag == "" {
			last = max(last, interval.End)
		}
	}
	return fmt.Sprintf("%s:%d", own, last+1)
}

// savedRow runs the command in the README of a save.
func (f *fixture) savedRow(t *testing.T, ctx context.Context, dir, id string) {
	t.Helper()
	readme, err := os.ReadFile(dir + "/README")
	if err != nil {
		t.Fatal(err)
	}
	install, err := install.Discover(mysqlBase(t))
	if err != nil {
		t.Fatal(err)
	}
	argv, err := install.MysqlbinlogArgv()
	if err != nil {
		t.Fatal(err)
	}
	command, _, _ := strings.Cut(string(readme), "#")
	argv = append(argv, append(strings.Fields(command)[1:], "--verify-binlog-checksum")...)
	tool := exec.CommandContext(ctx, argv[0], argv[1:]...)
	tool.Dir = dir
	out, err := tool.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", readme, err, out)
	}
	for _, want := range []string{"GTID_NEXT= '" + id + "'", "'through its own mysqld'", "COMMIT"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s lacks %q:\n%s", readme, want, out)
		}
	}
	if n := strings.Count(string(out), "SET @@SESSION.GTID_NEXT= '"+id[:8]); n != 1 {
		t.Errorf("%d transactions, want 1:\n%s", n, out)
	}
}

// writeBehind runs node i's data directory without an agent, inserts a row and
// stops the server in good order. It returns the row's GTID.
func (f *fixture) writeBehind(t *testing.T, ctx context.Context, i int) string {
	t.Helper()
	install, err := install.Discover(mysqlBase(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "qe2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := dir + "/s"
	argv := append(install.MysqldArgv(), "--no-defaults", "--user=root", "--datadir="+f.MysqldDataDir(i), "--socket="+socket,
		"--skip-networking", "--skip-grant-tables", "--mysqlx=OFF", "--skip-replica-start", "--secure-file-priv=NULL",
		"--log-bin="+dir+"/b", "--server-id=99", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
		"--lc-messages-dir="+install.ShareDir, "--pid-file="+dir+"/pid")
	server := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, err := os.Create(dir + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	server.Stderr = out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	db := openDSN(t, fmt.Sprintf("root@unix(%s)/", socket), nil)
	if err := devcluster.Poll(ctx, "the server answers", func(ctx context.Context) (bool, string, error) {
		select {
		case err := <-ended:
			text, _ := os.ReadFile(dir + "/log")
			return false, "", fmt.Errorf("the server ended: %w: %s", err, text)
		default:
		}
		err := db.PingContext(ctx)
		return err == nil, fmt.Sprint(err), nil
	}); err != nil {
		t.Fatal(err)
	}
	var before, after, gtid string
	for _, step := range []error{
		db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&before),
		execute(ctx, db, "INSERT INTO quorate_demo.ledger (id, writer, seq, payload) VALUES (1 << 60, 1 << 28, 0, 'behind')"),
		db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&after),
		db.QueryRowContext(ctx, "SELECT GTID_SUBTRACT(?, ?)", after, before).Scan(&gtid),
		server.Process.Signal(syscall.SIGTERM),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the server does not end")
	}
	return strings.ReplaceAll(gtid, "\n", "")
}

func execute(ctx context.Context, db *sql.DB, stmt string) error {
	_, err := db.ExecContext(ctx, stmt)
	return err
}
