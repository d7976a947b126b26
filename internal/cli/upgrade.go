package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
)

const (
	// upgradeWait bounds the wait for a new mysqld, which may have to upgrade its data.
	upgradeWait = 10 * time.Minute
	// upgradePolls is after how many looks at a node without a mysqld, one a second, the command
	// says that the new mysqld does not start. The agent tries more often than that.
	upgradePolls = 15
	// upgradeLooks is how many looks, one a second, the command waits for nodes to know their lag behind a new primary.
	upgradeLooks = 10
)

func newUpgradeCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "upgrade",
		Short: "Take the mysqlds of the cluster to another version, node by node",
		Long: `Upgrades MySQL node by node: restarts each mysqld with the program that its node's disk has
now. First install the new MySQL on the hosts, without starting it. Learners come first,
then the replicas. At last the primary moves, and the node that was the primary is
restarted. What MySQL refuses is refused: an older version, and a jump over a series with
long-term support (8.0 to 8.4 to 9.7).`,
		Example: `  quorate upgrade plan
  quorate upgrade next`,
	}, newUpgradePlanCommand(), newUpgradeNextCommand())
}

func newUpgradePlanCommand() *cobra.Command {
	o := controlOptions{}
	cmd := &cobra.Command{
		Use:   "plan [--json]",
		Short: "Show which mysqld runs, which is installed, and what comes next",
		Long: `Shows the plan of the upgrade, and changes nothing. RUNS is the version of the mysqld that
runs, INSTALLED that of the program on the node's disk, STEP what "quorate upgrade next"
will do on the node.

Exit code 0: there is nothing to do, or there is a step that may be done. 1: something is in
the way.`,
		Example: `  quorate upgrade plan --json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := o.upgradePlan(cmd.Context(), false)
			if err != nil {
				return err
			}
			return p.exit(show(cmd.OutOrStdout(), o.asJSON, p, upgradeTable(p)))
		},
	}
	o.flags(cmd)
	return cmd
}

// upgradeRun is what "quorate upgrade next --json" prints.
type upgradeRun struct {
	Done []cluster.Restarted `json:"done"`
	Plan upgradePlan         `json:"plan"`
}

func newUpgradeNextCommand() *cobra.Command {
	o := controlOptions{timeout: restartWait}
	u := upgrader{o: &o}
	cmd := &cobra.Command{
		Use:   "next [--all] [--force]",
		Short: "Do the next step of the plan, and wait until it is done",
		Long: `Does the next step of "quorate upgrade plan": restarts the mysqld of one node, and waits
until it has caught up. A primary moves to another node first. --all goes on until nothing
is left to do. --force goes on even if accounts cannot log in to the new version. What the
command waits for is printed to stderr.

Exit code 0: the step is done, or there is none. 1: a step is refused, also the one after
the step that was done, or the new mysqld does not come up. 3: there is no leader. 4: it is
not known, or the node has not caught up within --wait.`,
		Example: `  quorate upgrade next
  quorate upgrade next --all --wait 30m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u.progress = cmd.ErrOrStderr()
			run, err := u.run(cmd.Context())
			if err != nil {
				return err
			}
			text := ""
			for _, d := range run.Done {
				text += fmt.Sprintf("%s is upgraded, in %.0f s\n", d.Node, d.Seconds)
			}
			err = show(cmd.OutOrStdout(), o.asJSON, run, text+upgradeTable(run.Plan))
			if len(run.Done) > 0 {
				err = wasDone(err)
			}
			return run.Plan.exit(err)
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&u.all, "all", false, "go on until nothing is left to do")
	cmd.Flags().BoolVar(&u.force, "force", false, "go on even if accounts cannot log in to the new version")
	durationFlag(cmd, &u.maxPause, "max-pause", cluster.MaxPauseDefault, "how long writes may be closed when the primary moves")
	durationFlag(cmd, &u.wait, "wait", upgradeWait, "how long a new mysqld may take to catch up")
	return cmd
}

// exit is the error of a command that has printed a plan: err is that of printing. The exit code is 1 where the plan
// is refused.
func (p upgradePlan) exit(err error) error {
	if err == nil && p.State == upgradeRefused {
		return &exitError{code: exitFailure}
	}
	return err
}

// upgradePlan asks the agent for the status, and each node's agent for the mysqld on its disk.
// force: it does not matter which accounts can log in.
func (o *controlOptions) upgradePlan(ctx context.Context, force bool) (upgradePlan, error) {
	st, err := o.statusBySocket(ctx)
	for range upgradeLooks {
		if err != nil || !changingOver(st) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		st, err = o.statusBySocket(ctx)
	}
	if err != nil {
		return upgradePlan{}, err
	}
	found := map[string]installedAnswer{}
	for _, n := range st.Nodes {
		if n.Kind != cluster.KindLogger && n.Reachable {
			found[n.Name] = o.installed(ctx, n.Name)
		}
	}
	p := planUpgrade(st, found)
	if !force {
		p.keepLogins(st.Primary, found)
	}
	return p, ctx.Err()
}

// changingOver tells whether nodes are still changing over to a new primary. That takes a few seconds.
func changingOver(st status.Cluster) bool {
	return slices.ContainsFunc(st.Nodes, func(n status.Node) bool {
		return n.Reachable && n.Kind != cluster.KindLogger && (n.LagUnknown || n.Role == status.RoleUnverified || n.Role == status.RoleDemoting)
	})
}

// installed asks a node's agent which mysqld is on its disk.
func (o *controlOptions) installed(ctx context.Context, name string) (a installedAnswer) {
	a.err = o.ask(ctx, "mysqld.installed", cluster.InstalledRequest{Node: name}, &a.Installed)
	return a
}

// statusBySocket asks for the status at the control socket.
func (o *controlOptions) statusBySocket(ctx context.Context) (status.Cluster, error) {
	socket, err := o.controlSocket()
	if err != nil {
		return status.Cluster{}, err
	}
	return fetchStatus(ctx, socket)
}

// upgrader does the steps of a plan.
type upgrader struct {
	o              *controlOptions
	all, force     bool
	maxPause, wait time.Duration
	progress       io.Writer
	said           string
}

func (u *upgrader) run(ctx context.Context) (r upgradeRun, err error) {
	r.Done = []cluster.Restarted{}
	for {
		if r.Plan, err = u.o.upgradePlan(ctx, u.force); err != nil || r.Plan.State != upgradeNext || len(r.Done) > 0 && !u.all {
			return r, err
		}
		done, err := u.step(ctx, r.Plan)
		if err != nil {
			return r, err
		}
		r.Done = append(r.Done, done)
	}
}

// step restarts the mysqld of the plan's next node, and waits until it has caught up.
func (u *upgrader) step(ctx context.Context, p upgradePlan) (done cluster.Restarted, err error) {
	for _, n := range p.Nodes {
		if n.Name != p.Next {
			continue
		}
		u.say(fmt.Sprintf("%s: %s, from mysqld %s to %s", n.Name, n.Does, n.Runs, n.Disk))
		began := time.Now()
		err = u.o.ask(ctx, "restart", cluster.RestartRequest{Node: n.Name, MaxPause: u.maxPause}, &done)
		// The new mysqld may still be upgrading its data.
		if e, ok := errors.AsType[*exitError](err); err != nil && !(ok && e.code == exitUncertain) {
			return done, err
		}
		err = u.await(ctx, n)
		done.Node, done.Seconds = n.Name, time.Since(began).Seconds()
		return done, err
	}
	return done, nil
}

// await returns once a node runs another mysqld and has caught up.
func (u *upgrader) await(ctx context.Context, to upgradeNode) error {
	ctx, cancel := context.WithTimeout(ctx, u.wait)
	defer cancel()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last, down := "it is not heard of", 0
	for {
		if st, err := u.o.statusBySocket(ctx); err == nil {
			for _, n := range st.Nodes {
				if n.Name != to.Name {
					continue
				}
				if last = upgradeLack(n, to.Disk); last == "" {
					return nil
				}
				u.say(n.Name + ": " + last)
				down++
				if !n.Reachable || n.Mysqld == status.MysqldRunning || n.Mysqld == status.MysqldStarting {
					down = 0
				}
				if down == upgradePolls {
					to.Data = u.o.installed(ctx, n.Name).Data // the start may have upgraded the data
					return fmt.Errorf("mysqld %s of node %s does not start: %s", to.Disk, to.Name, notUp(n, to))
				}
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return &exitError{exitUncertain, fmt.Errorf("node %s is not ready after %s: %s; \"quorate upgrade plan\" says what to do", to.Name, units.Duration(u.wait), last)}
		}
	}
}

// upgradeLack says what a node lacks to be upgraded; "" = nothing.
func upgradeLack(n status.Node, version string) string {
	switch {
	case !n.Reachable:
		return "it is not heard of"
	case n.Role != status.RoleReplica && n.Role != status.RolePrimary:
		return strings.TrimSuffix(fmt.Sprintf("it is %s: %s", n.Role, oneLine(n.Reason)), ": ")
	case n.ServerVersion != version:
		return fmt.Sprintf("it runs mysqld %s, not %s", n.ServerVersion, version)
	case n.ApplierStopped != "":
		return "it does not apply: " + oneLine(n.ApplierStopped)
	case n.LagUnknown:
		return "its lag is not known"
	case n.BacklogSeconds() >= 1:
		return fmt.Sprintf("%s behind, about %.0f s", units.Count(int(n.LagTransactions), "transaction", "transactions"), n.BacklogSeconds())
	}
	return ""
}

// say prints what the command waits for, once.
func (u *upgrader) say(text string) {
	if text != u.said {
		u.said = text
		fmt.Fprintln(u.progress, text)
	}
}

// upgradeTable shows a plan.
func upgradeTable(p upgradePlan) string {
	var text strings.Builder
	var rows [][]string
	reasons := ""
	for _, n := range p.Nodes {
		step := cmp.Or(string(n.Does), "-")
		if n.Refused != "" {
			step = "refused"
			reasons += fmt.Sprintf("%s: %s\n", n.Name, n.Refused)
		}
		rows = append(rows, []string{n.Name, cmp.Or(string(n.Role), "-"), cmp.Or(n.Runs, "-"), cmp.Or(n.Disk, "-"), step})
	}
	text.WriteString(table("NODE\tROLE\tRUNS\tINSTALLED\tSTEP", rows) + "\n" + reasons)
	for _, why := range p.Refused {
		text.WriteString("in the way: " + why + "\n")
	}
	switch p.State {
	case upgradeDone:
		text.WriteString("nothing to do: every node runs the mysqld that is installed there\n")
	case upgradeNext:
		text.WriteString("next is " + p.Next + ": quorate upgrade next\n")
	}
	return text.String()
}
