package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/lab/netlab"
	"github.com/quorate/quorate/lab/peers"
)

// upOptions are the flags of "up".
type upOptions struct {
	peers.Options
	network         string
	rivals, quorate string
	bufferPoolMiB   int64
	expelSeconds    int
	facts           bool
}

func upCommand() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up SYSTEM",
		Short: "Deploy a system on a network, and say how to connect",
		Long: `Deploy a system on a network of namespaces, print how to connect, wait for Ctrl-C, and take everything down again: no
process, network or file stays. It needs root. "quorate-lab systems" and "quorate-lab networks" list what there is.

MySQL is found as quorate finds it (QUORATE_MYSQL_BASE); what scripts/get-rivals.sh fetched, in the directory that
QUORATE_RIVALS names, or .rivals.`,
		Example: "  quorate-lab up async --network same-city --workers 1\n  quorate-lab up quorate --network two-city --learners 1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.System = args[0]
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.network, "network", "same-rack", "the network")
	f.IntVar(&o.Workers, "workers", 0, "appliers of a replica (default 4)")
	f.IntVar(&o.Acks, "acks", 0, "semisync: replicas that a commit waits for, 1 or 2 (default 1)")
	f.IntVar(&o.Loggers, "loggers", 0, "quorate: how many of the three members are loggers, 0 or 1")
	f.IntVar(&o.Learners, "learners", 0, "quorate: learners beside them, 0 to 2")
	f.StringVar(&o.Durability, "durability", "", "quorate: site-majority = commits wait for the other city (default: a majority)")
	f.IntVar(&o.Sites, "sites", 1, "quorate: 2 = two clusters of three nodes, of which one follows the other")
	f.BoolVar(&o.PaxosSingleLeader, "paxos-single-leader", false, "mgr: one leader of the consensus, the primary")
	f.StringVar(&o.Clients, "clients", "", "quorate: the way to the primary: kernel = 6446, redirected to mysqld, port = mysqld's own, split = MySQL Router, haproxy = HAProxy (default: the router)")
	f.BoolVar(&o.PlainPeers, "plain-peers", false, "quorate: agents without keys, which talk without TLS")
	f.BoolVar(&o.ElectUpdated, "elect-updated", false, "mgr: elect the most up-to-date member (MySQL 9.7's component)")
	f.StringVar(&o.Instruments, "instruments", "", "MySQL systems: mysql = the Performance Schema as it comes, least = what quorate needs (default: quorate's own)")
	f.BoolVar(&o.NoSync, "no-sync", false, "standalone: commits without fsync, to be lost with the power")
	f.BoolVar(&o.Compress, "compress", false, "compress what is replicated")
	f.StringVar(&o.Writers, "writers", "", "galera, mgr-multi: where clients write, one or all (default one, mgr-multi all)")
	f.StringVar(&o.RelayLogRecovery, "relay-log-recovery", "", "async, semisync: on or off (default on)")
	f.BoolVar(&o.SyncRelayLog, "sync-relay-log", false, "async, semisync: fsync the relay log before it is acknowledged")
	f.StringVar(&o.ReplicaDurability, "replica-durability", "", "async, semisync, mgr: relaxed = replicas fsync nothing of what they apply")
	f.IntVar(&o.expelSeconds, "expel-timeout", -1, "mgr: seconds until a suspected member is expelled (default 5)")
	f.StringVar(&o.SizeLimit, "size-limit", "", "mgr: default = transactions of 150 MB at most, as it comes")
	f.DurationVar(&o.Suspect, "suspect", 0, "galera: silence after which a node is suspected (default 5s)")
	f.Int64Var(&o.bufferPoolMiB, "buffer-pool-mib", 128, "innodb_buffer_pool_size of each server, in MiB")
	f.StringVar(&o.rivals, "rivals", "", "where scripts/get-rivals.sh put the rivals (default $QUORATE_RIVALS, then .rivals)")
	f.StringVar(&o.quorate, "quorate", "", "the quorate program (default: the one beside this program)")
	f.BoolVar(&o.facts, "facts", false, "print every setting with its reason, too")
	return cmd
}

func (o *upOptions) run(ctx context.Context, out io.Writer) (err error) {
	topology, err := netlab.Preset(o.network)
	if err != nil {
		return err
	}
	network, err := netlab.New(topology, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := network.Up(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	dir, err := os.MkdirTemp("", "qlab")
	if err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	o.Dir, o.Network, o.BufferPoolBytes = dir, network, o.bufferPoolMiB<<20
	o.Install, o.WAN = peers.FindInstallations(o.rivals, o.quorate), topology.Kind == netlab.TUN
	if o.expelSeconds >= 0 {
		o.ExpelTimeout = &o.expelSeconds
	}
	began := time.Now()
	d, err := peers.Deploy(ctx, o.Options)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, peers.ErrMissing) {
			return errors.Join(err, removeDir(dir))
		}
		return fmt.Errorf("%w; the servers' files stay in %s", err, dir)
	}
	defer func() { err = errors.Join(err, d.Close(), removeDir(dir)) }()
	fmt.Fprintf(out, "%s is up on %s after %.1f s\n\n", o.System, o.network, time.Since(began).Seconds())
	if err := o.describe(ctx, out, d); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nCtrl-C takes it down.")
	<-ctx.Done()
	return nil
}

func removeDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the servers' directory: %w", err)
	}
	return nil
}

// describe prints nodes and how to connect.
func (o *upOptions) describe(ctx context.Context, out io.Writer, d *peers.Deployment) error {
	facts := d.Facts()
	for _, program := range slices.Sorted(maps.Keys(facts.Versions)) {
		fmt.Fprintf(out, "%s %s\n", program, facts.Versions[program])
	}
	enter := ""
	fmt.Fprintln(out, "\nnodes:")
	for _, n := range d.Nodes() {
		var processes []string
		for _, component := range slices.Sorted(maps.Keys(n.Processes)) {
			processes = append(processes, fmt.Sprintf("%s %d", component, n.Processes[component]))
		}
		fmt.Fprintf(out, "  %-6s %-7s %-15s %s\n", n.Name, n.Kind, n.Addr, strings.Join(processes, ", "))
		if socket := d.Socket(n.Name); socket != "" && n.Kind != "router" {
			fmt.Fprintf(out, "         socket %s\n", socket)
		}
		for _, pid := range n.Processes {
			enter = fmt.Sprintf("nsenter --net=/proc/%d/ns/net", pid)
		}
	}
	writers, err := d.Writers(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "\nclients write here (from inside of the network):")
	for _, w := range writers {
		host, port, _ := strings.Cut(w.Addr, ":")
		fmt.Fprintf(out, "  %s mysql --host=%s --port=%s --user=%s --password=%s %s\n", enter, host, port, w.User, w.Password, w.Database)
	}
	if o.facts {
		fmt.Fprintln(out, "\nsettings:")
		for _, s := range facts.Settings {
			fmt.Fprintf(out, "  %s=%s  # %s\n", s.Name, s.Value, s.Why)
		}
	}
	return nil
}
