package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/sys/subprocess"
	"github.com/quorate/quorate/internal/testkit/mysqlrouter"
)

// Programs between the clients and the nodes of quorate (MySQL Router, HAProxy) run beside the clients.
const (
	componentHAProxy = "haproxy"
	// splitPort is MySQL Router's port, as its bootstrap makes it.
	splitPort = 6450
	// haproxyPort and haproxyReadPort are the ports in packaging/haproxy.cfg.
	haproxyPort     = 3306
	haproxyReadPort = 3307
	// routerAdmin is the account that bootstraps MySQL Router.
	routerAdmin = "routeradmin"
)

// startBetween starts the program between clients and nodes, if the options ask for one, and waits until it leads to a
// server.
func (a *agents) startBetween(ctx context.Context) error {
	var start func(context.Context) error
	switch a.d.opts.Clients {
	case clientsSplit:
		start = a.startSplit
	case clientsHAProxy:
		start = a.startHAProxy
	default:
		return nil
	}
	a.between = newNode(a.d.opts, clientNode, "router")
	if err := os.MkdirAll(a.between.dir, 0o755); err != nil {
		return fmt.Errorf("create the directory of %s: %w", a.d.opts.Clients, err)
	}
	if err := start(ctx); err != nil {
		return err
	}
	a.d.nodes = append(a.d.nodes, a.between)
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	return poll(ctx, a.d.opts.Clients+" leads to a server", func(ctx context.Context) error {
		if a.between.running() == nil {
			return fatal{fmt.Errorf("%s has ended; %s", a.d.opts.Clients, a.between.logTail())}
		}
		for _, port := range []int{a.betweenPort(), a.betweenReadPort()} {
			if err := a.d.greets(ctx, place{clientNode, port}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *agents) betweenPort() int {
	if a.d.opts.Clients == clientsHAProxy {
		return haproxyPort
	}
	return splitPort
}

func (a *agents) betweenReadPort() int {
	if a.d.opts.Clients == clientsHAProxy {
		return haproxyReadPort
	}
	return splitPort
}

// readers are the places where clients read that may read old data: the same as writers if there is no port for reads.
func (a *agents) readers(ctx context.Context) ([]place, error) {
	switch a.d.opts.Clients {
	case clientsReplicas:
		var all []place
		for _, n := range a.nodes {
			if a.roots[n.name] != nil {
				all = append(all, place{n.name, readPort})
			}
		}
		return all, nil
	case clientsHAProxy:
		return []place{{clientNode, haproxyReadPort}}, nil
	}
	all, err := a.writers(ctx)
	return all[:min(1, len(all))], err
}

// startSplit tells MySQL Router of the nodes, bootstraps it as its manual says, and starts it.
func (a *agents) startSplit(ctx context.Context) error {
	db, err := a.admin(ctx, "a")
	if err != nil {
		return err
	}
	q := fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s' DEFAULT ROLE quorate_dba", routerAdmin, a.d.password)
	if _, err := db.ExecContext(ctx, q); err != nil {
		return fmt.Errorf("make the account that bootstraps mysqlrouter: %w", err)
	}
	if err := a.ask(ctx, "cluster", "set", "--router", "on"); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	if err := poll(wait, "MySQL Router is told of the nodes", func(ctx context.Context) error {
		var members int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+metadata+".v2_ar_members").Scan(&members)
		if err == nil && members != len(a.roots) {
			err = fmt.Errorf("of %d", members)
		}
		return err
	}); err != nil {
		return err
	}
	r, err := mysqlrouter.Bootstrap(ctx, mysqlrouter.Config{
		Program: filepath.Join(a.d.opts.Install.MySQLRouter, "bin", "mysqlrouter"), Dir: filepath.Join(a.between.dir, "router"),
		Against: address(a.nodes[0].addr.String(), serverPort), User: routerAdmin, Password: a.d.password,
		Host: a.between.addr.String(), Start: func(cmd *exec.Cmd) (*subprocess.Process, error) { return a.d.opts.Network.Start(clientNode, cmd) },
	})
	if err != nil {
		return err
	}
	return a.between.start(componentRouter, r.Command())
}

// haproxyFile is quorate's configuration for HAProxy. The lab runs in the repository's root.
const haproxyFile = "packaging/haproxy.cfg"

// startHAProxy starts HAProxy with that file. Only the addresses are changed to those of the lab.
func (a *agents) startHAProxy(context.Context) error {
	text, err := os.ReadFile(haproxyFile)
	if err != nil {
		text, err = os.ReadFile(filepath.Join("../..", haproxyFile)) // in a test of this package
	}
	if err != nil {
		return fmt.Errorf("read HAProxy's configuration: %w", err)
	}
	here := a.between.addr.String()
	places := []string{"bind :3306", "bind " + address(here, haproxyPort), "bind :3307", "bind " + address(here, haproxyReadPort)}
	for i, n := range a.nodes {
		places = append(places, fmt.Sprintf("10.0.0.%d:", i+1), n.addr.String()+":")
	}
	config := filepath.Join(a.between.dir, "haproxy.cfg")
	changed := strings.NewReplacer(places...).Replace(string(text))
	for line := range strings.Lines(changed) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "server" && !slices.ContainsFunc(a.nodes, func(n *node) bool {
			return strings.HasPrefix(words[2], n.addr.String()+":")
		}) {
			return fmt.Errorf("HAProxy's configuration has %s at %s, which the lab has not", words[1], words[2])
		}
	}
	if err := os.WriteFile(config, []byte(changed), 0o644); err != nil {
		return fmt.Errorf("write HAProxy's configuration: %w", err)
	}
	program := filepath.Join(a.d.opts.Install.HAProxy, "bin", "haproxy")
	return a.between.start(componentHAProxy, exec.Command(program, "-db", "-f", config))
}
