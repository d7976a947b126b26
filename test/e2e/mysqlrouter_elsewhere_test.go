package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/sys/subprocess"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/mysqlrouter"
)

// The address of the host with applications, and that of the nodes' end of the cable to it.
const applicationsAddress, applicationsGateway = "10.1.2.7", "10.1.2.1"

// otherHost is a host beside that of the nodes: a network namespace with an address of its own.
type otherHost struct{ fd int }

// newOtherHost makes a host, and a cable to this one.
func newOtherHost(t *testing.T, address, gateway string) *otherHost {
	t.Helper()
	h := &otherHost{fd: -1}
	made := make(chan error, 1)
	subprocess.OnThread(func() { made <- h.make(address, gateway) })
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(h.fd) })
	return h
}

// make runs on a thread that ends afterwards.
func (h *otherHost) make(address, gateway string) error {
	here, err := netlink.NewHandle(unix.NETLINK_ROUTE) // it speaks with the namespace in which it was made
	if err != nil {
		return err
	}
	defer here.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if h.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	there, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer there.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "to-elsewhere"
	pair := netlink.NewVeth(attrs)
	pair.PeerName, pair.PeerNamespace = "to-nodes", netlink.NsFd(h.fd)
	if err := here.LinkAdd(pair); err != nil {
		return fmt.Errorf("make veth pair: %w", err)
	}
	for _, end := range []struct {
		handle        *netlink.Handle
		name, address string
	}{{there, "lo", ""}, {here, attrs.Name, gateway + "/24"}, {there, pair.PeerName, address + "/24"}} {
		link, err := end.handle.LinkByName(end.name)
		if err == nil && end.address != "" {
			var a *netlink.Addr
			if a, err = netlink.ParseAddr(end.address); err == nil {
				err = end.handle.AddrAdd(link, a)
			}
		}
		if err == nil {
			err = end.handle.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("set up %s: %w", end.name, err)
		}
	}
	return there.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)})
}

// start starts a process on the host.
func (h *otherHost) start(cmd *exec.Cmd) (*subprocess.Process, error) {
	return subprocess.StartIn(cmd, func() error { return unix.Setns(h.fd, unix.CLONE_NEWNET) })
}

// The accounts of the scenario Elsewhere: limited to the network of the applications' host, to another one, to none.
const routedHere, routedElsewhere, routedAnywhere = "here", "elsewhere", "anywhere"

// portElsewhere runs MySQL Router and HAProxy on a host of their own, and clients on another host. It checks, for
// each way, from which address mysqld sees a client: docs/connect.md has the same table. An account that is limited
// to Router's host gets in, and an account that is limited to another network does not.
func (f *fixture) portElsewhere(t *testing.T, ctx context.Context) {
	r := f.newRouted(t, mysqlRouterProgram(t))
	r.administrator = "ben"
	primary := r.heal(t, ctx)
	other := next(primary)
	r.createUsers(t, ctx, primary)
	r.must(t, ctx, primary, "cluster", "set", "--router", "on")
	r.awaitTold(t, ctx, r.members(primary, 0, 1, 2), 0, 1, 2)
	host := newOtherHost(t, applicationsAddress, applicationsGateway)
	r.bootstrapAs(t, ctx, mysqlrouter.Config{
		Dir: filepath.Join(r.Dir(), "elsewhere"), Against: r.MysqldAddr(primary), Host: applicationsAddress, Start: host.start,
	})
	r.awaitServer(t, ctx, r.router.RO, func(string) bool { return true })

	type way struct{ name, addr, host string }
	ways := []way{
		{"mysqld's own port", r.MysqldAddr(primary), clientAddress},
		{"mysqld's own port of a replica", r.MysqldAddr(other), clientAddress},
		{"6446 of the primary's node", r.RouterAddr(primary), clientAddress},
		{"6446 of another node", r.RouterAddr(other), "127.0.0.1"},
		{"6447 of the primary's node", r.ReadAddr(primary), "127.0.0.1"},
		{"6447 of a replica's node", r.ReadAddr(other), "127.0.0.1"},
		{"MySQL Router, rw", r.router.RW, applicationsAddress},
		{"MySQL Router, ro", r.router.RO, applicationsAddress},
		{"MySQL Router, split", r.router.Split, applicationsAddress},
	}
	if haproxyProgram() == "" {
		t.Log("without HAProxy, which is not installed")
	} else {
		write, read := f.haproxy(t, ctx, host, false)
		ways = append(ways, way{"HAProxy, for writes", write, applicationsAddress}, way{"HAProxy, for reads", read, "127.0.0.1"})
		r.awaitPrimaryAt(t, ctx, write)
	}
	for _, w := range ways {
		for user, admitted := range map[string]bool{routedHere: w.host == applicationsAddress, routedElsewhere: false, routedAnywhere: true} {
			saw, err := r.seenAs(t, ctx, w.addr, user)
			switch {
			case admitted && (err != nil || saw != w.host):
				t.Errorf("%s: %s comes from %q, %v; want %s", w.name, user, saw, err, w.host)
			case !admitted && !denied(err):
				t.Errorf("%s: %s gets in from %q, %v; want it refused", w.name, user, saw, err)
			}
		}
		t.Logf("%-32s mysqld sees %s", w.name, w.host)
	}
	r.must(t, ctx, primary, "cluster", "set", "--router", "off")
}

// denied says that mysqld refused an account (ER_ACCESS_DENIED_ERROR). For an unknown account mysqld first asks for
// another authentication plugin, which this driver does not accept from MySQL Router at that point of a login.
func denied(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == 1045 || errors.Is(err, mysql.ErrMalformPkt)
}

// awaitPrimaryAt waits until HAProxy has found the primary: until then it sends clients to any node.
func (r *routed) awaitPrimaryAt(t *testing.T, ctx context.Context, addr string) {
	t.Helper()
	settled := 0
	if err := devcluster.Poll(ctx, "HAProxy goes to the primary's node", func(ctx context.Context) (bool, string, error) {
		host, err := r.seenAs(t, ctx, addr, routedAnywhere)
		if settled++; host != applicationsAddress {
			settled = 0
		}
		return settled == r.Len(), fmt.Sprint(host, err), nil // one after the other, it goes to each that it takes for one
	}); err != nil {
		t.Fatal(err)
	}
}

// createUsers makes the accounts, and the one that bootstraps Router, and waits until all nodes have them.
func (r *routed) createUsers(t *testing.T, ctx context.Context, primary int) {
	t.Helper()
	db := r.local(t, primary)
	for user, host := range map[string]string{routedHere: "10.1.2.%", routedElsewhere: "10.1.3.%", routedAnywhere: "%", r.administrator: "%"} {
		q := fmt.Sprintf("CREATE USER %s@'%s' IDENTIFIED BY '%s'", user, host, r.password)
		if user == r.administrator {
			q += " DEFAULT ROLE quorate_dba"
		}
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	for i := range r.Len() {
		if err := devcluster.Poll(ctx, "node "+r.Name(i)+" has the accounts", func(ctx context.Context) (bool, string, error) {
			var n int
			err := r.admin(t, i).QueryRowContext(ctx, "SELECT COUNT(*) FROM mysql.user WHERE user IN (?, ?, ?, ?)", routedHere, routedElsewhere, routedAnywhere, r.administrator).Scan(&n)
			return err == nil && n == 4, fmt.Sprint(n, err), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// seenAs connects an account from the clients' address, and returns the client host that mysqld sees.
func (r *routed) seenAs(t *testing.T, ctx context.Context, addr, user string) (host string, err error) {
	t.Helper()
	cfg, err := mysql.ParseDSN(r.clientDSN(addr))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Net, cfg.User, cfg.Passwd, cfg.DBName = "client", user, r.password, ""
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT SUBSTRING_INDEX(USER(), '@', -1)").Scan(&host)
	return host, err
}
