package e2e

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// namespaceVariable is set in the process that has a network namespace of its own.
const namespaceVariable = "QUORATE_E2E_NAMESPACE"

// The nodes' address, and the one from which clients come.
const nodesAddress, clientAddress = "10.9.8.1", "10.9.8.2"

// noAnswer is for how long a client waits where no answer may come.
const noAnswer = 500 * time.Millisecond

// TestPort has clients at mysqld's own port, and at the router's port, from which the kernel
// redirects them there. The kernel fences a frozen agent as the agent would fence itself. Everything runs
// in a network namespace of its own.
func TestPort(t *testing.T) {
	if os.Getenv(namespaceVariable) == "" {
		beside(t)
		runInNamespace(t)
		return
	}
	for _, a := range []string{nodesAddress, clientAddress} {
		addAddress(t, a)
	}
	mysql.RegisterDialContext("client", func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(clientAddress)}}).DialContext(ctx, "tcp", addr)
	})
	portRange(t, "20000 29999") // the cluster's; connections leave from others
	f := newCluster(t, devcluster.Options{Nodes: 3, Network: true, Host: nodesAddress})
	f.think = busy
	portRange(t, "30000 60999")
	ctx := scenarioContext(t)
	if err := f.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	f.createTable(t, ctx)
	f.scenario(t, "Addresses", f.clientAddresses)
	f.scenario(t, "Doctor", f.portDoctored)
	f.scenario(t, "Readers", f.portOfReplica)
	f.scenario(t, "FrozenReplica", f.portOfFrozenReplica)
	f.scenario(t, "Switchover", f.portSwitchover)
	f.scenario(t, "Switchovers", f.switchovers)
	f.scenario(t, "CalledOff", f.calledOff)
	f.scenario(t, "FreezeAgent", func(t *testing.T, ctx context.Context) { f.freeze(t, ctx, true, false) })
	f.scenario(t, "FreezeBoth", func(t *testing.T, ctx context.Context) { f.freeze(t, ctx, true, true) })
	for name, cut := range map[string]func(int, []int){
		"PrimaryInMinority": func(p int, _ []int) { f.Isolate(p) },
		"PrimaryIsDeaf":     func(p int, o []int) { f.Cut(o[0], p); f.Cut(o[1], p) },
	} {
		f.scenario(t, name, func(t *testing.T, ctx context.Context) {
			t.Cleanup(f.MendAll)
			f.cutPrimary(t, ctx, cut)
		})
	}
	f.scenario(t, "LeaseEnds", f.portLeaseEnds)
	f.scenario(t, "KillFrozen", f.portKillFrozen)
	f.scenario(t, "SettleNothingLost", f.settleBlip)
	f.scenario(t, "SettleIdle", f.settleIdle)
	f.scenario(t, "SettleSomethingLost", f.settleLost)
	// After all that cut: from its first change on, the state has one node's addresses of the others, and its own as
	// it is, so the others no longer go through the network that is cut.
	f.scenario(t, "MySQLRouter", f.portRouter)
	f.scenario(t, "HAProxy", f.portHAProxy)
	f.scenario(t, "Elsewhere", f.portElsewhere)
	f.scenario(t, "NotAllowed", f.portNotAllowed)
	f.scenario(t, "Unfenced", f.portUnfenced)
	f.scenario(t, "NotRoot", f.portNotRoot)
}

// runInNamespace runs this test in a process with a network namespace of its own.
func runInNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a network namespace")
	}
	pattern := "^TestPort$"
	if _, sub, ok := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); ok {
		pattern += "/" + sub
	}
	cmd := exec.Command("/proc/self/exe", "-test.run="+pattern, "-test.v", "-test.timeout=15m")
	cmd.Env = append(os.Environ(), namespaceVariable+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// It ends with this process, that is, with the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}

func addAddress(t *testing.T, address string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	var addr *netlink.Addr
	if err == nil {
		addr, err = netlink.ParseAddr(address + "/32")
	}
	if err == nil {
		err = netlink.AddrAdd(lo, addr)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// portRange sets from which ports the kernel chooses, in this namespace.
func portRange(t *testing.T, ports string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(ports), 0); err != nil {
		t.Fatal(err)
	}
}

// client connects an application, from an address that no node has.
func (f *fixture) client(t *testing.T, addr string) *sql.DB {
	t.Helper()
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName = "client", addr, ledger.Database
	cfg.User, cfg.Passwd = f.Application()
	return openDSN(t, cfg.FormatDSN(), nil)
}

// session is one connection of a client.
func (f *fixture) clientSession(t *testing.T, ctx context.Context, addr string) *sql.Conn {
	t.Helper()
	conn, err := f.client(t, addr).Conn(ctx)
	if err != nil {
		t.Fatalf("connect to %s: %v", addr, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// reads asks a session for the server's UUID.
func reads(ctx context.Context, conn *sql.Conn, patience time.Duration) (server string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = conn.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid").Scan(&server)
	return server, err
}

// asksInVain lets a session ask something and wait: no answer may come. The session cannot be used
// afterwards.
func asksInVain(t *testing.T, ctx context.Context, what string, conn *sql.Conn) {
	t.Helper()
	if server, err := reads(ctx, conn, noAnswer); err == nil {
		t.Errorf("%s: server %s answers", what, server)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Logf("%s: %v", what, err)
	}
}

// refusedAt fails the test if an address accepts a connection.
func refusedAt(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, scenarioTimeout)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect to %s: %v, want it refused", addr, err)
	}
}

// clientAddresses: the server sees the clients' addresses at its own port, and at the
// router's port of its node. Through another node it sees the address of an agent.
func (f *fixture) clientAddresses(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	if got := f.status(t, ctx, primary).MysqldPort; got != f.MysqldAddr(primary) {
		t.Errorf("the status says that mysqld is at %q, it is at %s", got, f.MysqldAddr(primary))
	}
	for addr, want := range map[string]string{
		f.MysqldAddr(primary):           clientAddress,
		f.RouterAddr(primary):           clientAddress,
		f.RouterAddr((primary + 1) % 3): "127.0.0.1",
	} {
		var host string
		conn := f.clientSession(t, ctx, addr)
		if err := conn.QueryRowContext(ctx, "SELECT SUBSTRING_INDEX(host, ':', 1) FROM information_schema.processlist WHERE id = CONNECTION_ID()").Scan(&host); err != nil {
			t.Fatal(err)
		}
		if host != want {
			t.Errorf("at %s the server sees a client at %s, want %s", addr, host, want)
		}
	}
}

// portDoctored: doctor sees that the agent fences mysqld's port. If no agent runs, doctor itself tries whether the
// kernel can. The node's fence stays as it is.
func (f *fixture) portDoctored(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	before := tables(t)
	conn := f.clientSession(t, ctx, f.MysqldAddr(primary))
	out := f.must(t, ctx, primary, "doctor")
	for _, line := range []string{"the agent has it open, and fences it", "this node's agent and mysqld have theirs", "0 fail"} {
		if !strings.Contains(out, line) {
			t.Errorf("doctor does not say %q:\n%s", line, out)
		}
	}
	same := func(before []string) {
		if diff := cmp.Diff(before, tables(t)); diff != "" {
			t.Errorf("doctor has changed the host's nftables: -before, +after\n%s", diff)
		}
	}
	same(before)
	stopped := f.others(primary)[0]
	if err := f.Terminate(ctx, stopped); err != nil {
		t.Fatal(err)
	}
	before = tables(t)
	if out, _ := f.quorate(t, ctx, stopped, "doctor"); !strings.Contains(out, "the kernel can fence it (mysql.bind)") {
		t.Errorf("beside no agent doctor says:\n%s", out)
	}
	same(before)
	if err := f.Start(ctx, stopped); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	if _, err := reads(ctx, conn, scenarioTimeout); err != nil {
		t.Errorf("a session beside doctor: %v", err)
	}
}

// portOfReplica: a replica's port answers readers while its node hears a leader.
func (f *fixture) portOfReplica(t *testing.T, ctx context.Context) {
	t.Cleanup(f.MendAll)
	primary := f.heal(t, ctx)
	replica := f.others(primary)[0]
	f.awaitReads(t, ctx, replica) // it has applied the account
	conn := f.clientSession(t, ctx, f.MysqldAddr(replica))
	var readOnly bool
	if err := conn.QueryRowContext(ctx, "SELECT @@GLOBAL.super_read_only").Scan(&readOnly); err != nil || !readOnly {
		t.Fatalf("read-only: %t, %v", readOnly, err)
	}
	f.Isolate(replica)
	if err := f.WaitNode(ctx, replica, "without a leader", func(st status.Node) bool { return st.Leader == 0 }); err != nil {
		t.Fatal(err)
	}
	f.awaitClosed(t, ctx, replica)
	asksInVain(t, ctx, "a replica that hears no leader", conn)
	f.MendAll()
	f.heal(t, ctx)
	f.awaitReads(t, ctx, replica)
}

// portOfFrozenReplica freezes a replica's agent, cuts it off, and lets it go on: the agent has noticed
// nothing, and heartbeats wait in its sockets. The replica may not be read, because its data may be of
// any age.
func (f *fixture) portOfFrozenReplica(t *testing.T, ctx context.Context) {
	t.Cleanup(f.MendAll)
	replica := f.others(f.heal(t, ctx))[0]
	f.awaitReads(t, ctx, replica) // it has applied the account
	conn := f.clientSession(t, ctx, f.MysqldAddr(replica))
	f.pause(t, ctx, replica)
	// An answer to what it asked just before still counts when it goes on, for an election timeout from the question.
	unheard := time.Now().Add(electionTimeout)
	f.awaitClosed(t, ctx, replica)
	time.Sleep(time.Until(unheard))
	f.Isolate(replica)
	f.resume(t, replica)
	asksInVain(t, ctx, "a replica that was frozen, and is cut off", conn)
	f.MendAll()
	f.heal(t, ctx)
	f.awaitReads(t, ctx, replica)
}

// awaitClosed waits until nobody takes connections at a node's port of mysqld.
func (f *fixture) awaitClosed(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	if err := devcluster.Poll(ctx, "mysqld's port is closed", func(context.Context) (bool, string, error) {
		conn, err := net.DialTimeout("tcp", f.MysqldAddr(i), scenarioTimeout)
		if err == nil {
			conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED), fmt.Sprint(err), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitReads waits until a node's mysqld answers at its own port.
func (f *fixture) awaitReads(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	db := f.client(t, f.MysqldAddr(i))
	if err := devcluster.Poll(ctx, "mysqld's port answers", func(ctx context.Context) (bool, string, error) {
		err := db.PingContext(ctx)
		return err == nil, fmt.Sprint(err), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// portSwitchover: sessions at the old primary's own port, and those that were redirected to
// it, end; clients find the new one.
func (f *fixture) portSwitchover(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	direct, redirected := f.clientSession(t, ctx, f.MysqldAddr(primary)), f.clientSession(t, ctx, f.RouterAddr(primary))
	reader := f.clientSession(t, ctx, f.MysqldAddr(f.others(primary)[1]))
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	l.ResetGap()
	to := f.others(primary)[0]
	f.must(t, ctx, primary, "switchover", "--to", f.Name(to), "--max-pause", "10s")
	for what, conn := range map[string]*sql.Conn{"direct": direct, "redirected": redirected} {
		if server, err := reads(ctx, conn, scenarioTimeout); err == nil {
			t.Errorf("a %s session with the old primary goes on at %s", what, server)
		} else if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a %s session with the old primary does not hear of its end", what)
		}
	}
	if _, err := reads(ctx, reader, scenarioTimeout); err != nil {
		t.Errorf("a reader at another replica: %v", err)
	}
	l.awaitAcks(t, ctx, 100)
	gap := l.Gap()
	l.stop(t)
	var host string
	conn := f.clientSession(t, ctx, f.RouterAddr(to))
	if err := conn.QueryRowContext(ctx, "SELECT SUBSTRING_INDEX(host, ':', 1) FROM information_schema.processlist WHERE id = CONNECTION_ID()").Scan(&host); err != nil || host != clientAddress {
		t.Errorf("at the new primary's router: client %s, %v", host, err)
	}
	f.awaitReads(t, ctx, primary)
	f.check(t, ctx)
	t.Logf("write gap %v", gap.Round(time.Millisecond))
}

// portLeaseEnds freezes a primary's agent while no other node can take over. Sessions
// get no answer once the lease has run out, and new connections are refused. When the
// agent goes on, they go on, unless it finds that it has lost its leadership.
func (f *fixture) portLeaseEnds(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	uuid := f.status(t, ctx, primary).ServerUUID
	sessions := map[string]*sql.Conn{}
	for n := range 8 {
		sessions[fmt.Sprint("direct ", n)] = f.clientSession(t, ctx, f.MysqldAddr(primary))
		sessions[fmt.Sprint("redirected ", n)] = f.clientSession(t, ctx, f.RouterAddr(primary))
	}
	asking := f.clientSession(t, ctx, f.MysqldAddr(primary))
	f.pause(t, ctx, primary)
	t.Cleanup(func() { f.resume(t, primary) })
	frozen := time.Now()
	var last time.Time // when the last question that got an answer was asked
	for {
		asked := time.Now()
		// An answer may be read late on a busy machine: it is waited for longer than any lease.
		if server, err := reads(ctx, asking, 3*time.Second); err != nil {
			break
		} else if server != uuid {
			t.Fatalf("server %s answers", server)
		}
		last = asked
	}
	if after := last.Sub(frozen); last.IsZero() || after > time.Second {
		t.Errorf("the last answer was to a question of %v after the agent froze; the lease is less than an election timeout of 1 s", after)
	} else {
		t.Logf("the last answer was to a question of %v after the agent froze", after.Round(time.Millisecond))
	}
	for what, conn := range sessions {
		asksInVain(t, ctx, what, conn)
	}
	refusedAt(t, f.MysqldAddr(primary))
	if _, err := f.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	refusedAt(t, f.MysqldAddr(primary))
	f.resume(t, primary)
	f.heal(t, ctx)
	f.awaitReads(t, ctx, primary)
	f.check(t, ctx)
}

// tables are the nftables of this namespace.
func tables(t *testing.T) (names []string) {
	t.Helper()
	all, err := (&nftables.Conn{}).ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range all {
		names = append(names, table.Name)
	}
	return names
}

// holdsTable tells whether a process has a netfilter socket open: the agent's table
// lasts as long as that socket.
func holdsTable(t *testing.T, pid int) bool {
	t.Helper()
	list, err := os.ReadFile("/proc/self/net/netlink")
	if err != nil {
		t.Fatal(err)
	}
	const protocolAt, inodeAt = 1, 9
	sockets := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) > inodeAt && f[protocolAt] == fmt.Sprint(unix.NETLINK_NETFILTER) {
			sockets["socket:["+f[inodeAt]+"]"] = true
		}
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(open, func(path string) bool {
		target, _ := os.Readlink(path) // it may be closed meanwhile
		return sockets[target]
	})
}

// portKillFrozen kills an agent whose lease has run out. mysqld dies with it, and does not
// answer what it was asked meanwhile; nothing is left of the fence.
func (f *fixture) portKillFrozen(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	table := fmt.Sprintf("quorate-dev-%s-%d", f.Name(primary), f.AgentPID(primary))
	if got := strings.Join(tables(t), " "); !strings.Contains(got, table) || len(tables(t)) != 3 {
		t.Fatalf("tables: %s, want three, one of them %s", got, table)
	}
	if !holdsTable(t, f.MysqldPID(primary)) {
		t.Error("mysqld does not hold the table: it would be gone before mysqld is, when the agent is killed")
	}
	q := f.newQuestions(t, ctx, primary)
	f.pause(t, ctx, primary)
	stopAsking := q.start(ctx)
	next, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	opened := f.openedAt(t, next)
	q.awaitSent(t, ctx, opened, 20)
	uuid := ""
	if err := f.local(t, primary).QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid").Scan(&uuid); err != nil {
		t.Fatal(err)
	}
	if err := f.KillAgent(primary); err != nil {
		t.Fatal(err)
	}
	stopAsking()
	q.mustNotBeAnswered(t, uuid, opened)
	if err := devcluster.Poll(ctx, "the killed agent's table is gone", func(context.Context) (bool, string, error) {
		got := strings.Join(tables(t), " ")
		return !strings.Contains(got, table), got, nil
	}); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	f.check(t, ctx)
}

// wrapAgent restarts a node's agent through setpriv.
func (f *fixture) wrapAgent(t *testing.T, ctx context.Context, i int, prepare func(), options string) {
	t.Helper()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("no setpriv here")
	}
	if err := f.Terminate(ctx, i); err != nil {
		t.Fatal(err)
	}
	prepare()
	wrapper := filepath.Join(f.Dir(), f.Name(i)+"-wrapped")
	script := fmt.Sprintf("#!/bin/sh\numask 077\nexec %s --pdeathsig=keep %s %s \"$@\"\n", setpriv, options, os.Getenv(binaryVariable))
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	f.SetBinary(i, wrapper)
	t.Cleanup(func() { f.SetBinary(i, "") })
	f.heal(t, ctx)
}

// withoutNetAdmin are options of setpriv.
const withoutNetAdmin = "--bounding-set=-net_admin --inh-caps=-net_admin"

// portNotAllowed restarts a node's agent without the right to fence: its mysqld listens only on
// loopback, clients go through the router, and the status says why.
func (f *fixture) portNotAllowed(t *testing.T, ctx context.Context) {
	i := f.others(f.heal(t, ctx))[0]
	f.wrapAgent(t, ctx, i, func() {}, withoutNetAdmin)
	refusedAt(t, f.MysqldAddr(i))
	st := f.status(t, ctx, i)
	if st.MysqldPort != "" || !strings.Contains(st.Reason, "CAP_NET_ADMIN") {
		t.Errorf("the status has port %q, and says %q", st.MysqldPort, st.Reason)
	}
	if _, err := reads(ctx, f.clientSession(t, ctx, f.RouterAddr(i)), scenarioTimeout); err != nil {
		t.Errorf("through its router: %v", err)
	}
	doctor := append(strings.Fields(withoutNetAdmin), os.Getenv(binaryVariable), "doctor", "--config", f.ConfigPath(i))
	if out, err := exec.CommandContext(ctx, "setpriv", doctor...).CombinedOutput(); err != nil || !strings.Contains(string(out), "has no CAP_NET_ADMIN") {
		t.Errorf("doctor without the right: %v: %s", err, out)
	}
}

// portUnfenced restarts a node's agent without the right to fence, and with the operator's setting that accepts
// stale reads: clients reach mysqld, and the status names the price. The price is that a frozen primary
// there still answers reads after another node has opened. It acknowledges no write.
func (f *fixture) portUnfenced(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := f.others(primary)[0]
	f.wrapAgent(t, ctx, i, func() { f.set(t, i, "mysql", "bind_unfenced_stale_reads = true") }, withoutNetAdmin)
	f.awaitReads(t, ctx, i)
	if st := f.status(t, ctx, i); st.MysqldPort != f.MysqldAddr(i) || !strings.Contains(st.Reason, "reads there are stale") {
		t.Errorf("the status has port %q, and says %q", st.MysqldPort, st.Reason)
	}
	f.must(t, ctx, primary, "switchover", "--to", f.Name(i), "--max-pause", "10s")
	uuid := f.status(t, ctx, i).ServerUUID
	reading, writing := f.clientSession(t, ctx, f.MysqldAddr(i)), f.clientSession(t, ctx, f.MysqldAddr(i))
	if _, err := writing.ExecContext(ctx, "CREATE TABLE quorate_demo.unfenced (id BIGINT AUTO_INCREMENT PRIMARY KEY)"); err != nil {
		t.Fatalf("write at the unfenced port: %v", err)
	}
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	f.pause(t, ctx, i)
	t.Cleanup(func() { f.resume(t, i) }) // for a test that failed in between
	wrote := make(chan error, 1)
	go func() {
		_, err := writing.ExecContext(ctx, "INSERT INTO quorate_demo.unfenced () VALUES ()")
		wrote <- err
	}()
	if _, err := f.WaitPrimary(ctx, i); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	if server, err := reads(ctx, reading, scenarioTimeout); err != nil || server != uuid {
		t.Errorf("a read at the frozen, unfenced primary: server %q, %v", server, err)
	}
	select {
	case err := <-wrote:
		t.Errorf("a write at the frozen, unfenced primary does not wait: %v", err)
	default:
		f.resume(t, i)
		if err := <-wrote; err == nil {
			t.Error("a write at the frozen, unfenced primary got OK")
		}
	}
	f.heal(t, ctx)
	l.stop(t)
	f.check(t, ctx)
}

// set adds a setting to a node's configuration, for the agents of this scenario.
func (f *fixture) set(t *testing.T, i int, table, setting string) {
	t.Helper()
	before, err := os.ReadFile(f.ConfigPath(i))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(f.ConfigPath(i), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	head := "[" + table + "]\n"
	write(strings.Replace(string(before), head, head+setting+"\n", 1))
	t.Cleanup(func() { write(string(before)) })
}

// portNotRoot restarts a node's agent as an account that has only this right, as the unit in
// packaging/ does: the agent fences, and its mysqld has no rights.
func (f *fixture) portNotRoot(t *testing.T, ctx context.Context) {
	i := f.others(f.heal(t, ctx))[0]
	f.wrapAgent(t, ctx, i, func() { giveAway(t, f.Dir(), filepath.Dir(f.DataDir(i))) },
		"--reuid=nobody --regid=nogroup --clear-groups --inh-caps=+net_admin --ambient-caps=+net_admin --bounding-set=-all,+net_admin --no-new-privs")
	f.awaitReads(t, ctx, i)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.MysqldPID(i)))
	if err != nil {
		t.Fatal(err)
	}
	for _, capabilities := range []string{"CapPrm", "CapEff", "CapAmb"} {
		if !strings.Contains(string(status), capabilities+":\t0000000000000000\n") {
			t.Errorf("mysqld has rights:\n%s", status)
		}
	}
}

// giveAway gives a node's directory to the account nobody, in a directory that everybody may enter.
func giveAway(t *testing.T, dir, node string) {
	t.Helper()
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chown", "-R", nobody.Uid+":"+nobody.Gid, node).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}
