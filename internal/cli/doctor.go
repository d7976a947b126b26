package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cli/doctor"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/mysql/install"
)

func newDoctorCommand() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [--config FILE] [--json]",
		Short: "Look whether this host and its configuration are fit",
		Long: `Looks whether this host, and the configuration of its node, are fit. Run it before the first
start of the agent, and when something is slow. It is safe while the agent runs. It looks at
MySQL and its plugins, how long fdatasync takes on the disks of log and data, the way to
each other node (also TLS and keys, if the agent runs), the clock, file systems and free
space, ports and who has them, AppArmor and SELinux, limits, and whether the kernel could
fence mysqld's own port. It also says which commit latency to expect. It takes two or three
seconds, and leaves nothing behind.

It never needs root. Run it as the agent's account. What this account may not look at is
"unknown"; root sees more.

Exit code 0: nothing fails, and perhaps there are warnings. 1: something fails: the agent
would not start, or the node could not do its part. 2: the configuration has a mistake.`,
		Example: `  sudo -u mysql quorate doctor
  quorate doctor --config node.toml --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := namedConfig(path)
			if err != nil {
				return err
			}
			c, err := loadConfig(name)
			if err != nil {
				return err
			}
			warnings, err := configWarnings(cmd.Context(), name, c)
			if err != nil {
				return err
			}
			host := doctor.Host{Config: c, Discover: func() (*install.Installation, error) { return discover(c) }}
			host.Agent, host.Silent, err = ownAgent(cmd.Context(), c)
			if err != nil {
				return err
			}
			report := doctor.Examine(cmd.Context(), host)
			report.Checks = slices.Concat(settings(name, warnings, report.AgentRuns), report.Checks)
			report.Result = cluster.Worst(report.Checks)
			return printReport(cmd.OutOrStdout(), report, asJSON)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report in JSON")
	return cmd
}

// ownAgent asks this node's agent for its status: at api.listen, else at its control socket, which stays where it is if
// the file was changed since the agent's start. silent is what there is to say of an agent that runs and does not answer
// as the file says; nil = nothing.
func ownAgent(ctx context.Context, c config.Config) (st *status.Cluster, silent *cluster.Check, err error) {
	addr, err := apiAddress(c)
	if err != nil {
		return nil, nil, err
	}
	ask := func(addr string) (*status.Cluster, error) {
		st, err := askStatus(ctx, addr)
		if err != nil || st.Self != c.Node || st.Cluster != c.Cluster {
			return nil, err
		}
		return &st, nil
	}
	st, noAPI := ask(addr)
	if st != nil {
		return st, nil, nil
	}
	st, err = ask(c.ControlSocket())
	silent = &cluster.Check{Subject: doctor.Agent, State: cluster.CheckWarn}
	switch {
	case st != nil && errors.Is(noAPI, api.ErrToken):
		return st, nil, nil
	case st != nil:
		silent.Found = fmt.Sprintf("it runs and does not answer at api.listen %s: the file was changed since its start", c.API.Listen)
		silent.Do = "restart the agent, or undo that change"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(noAPI, context.DeadlineExceeded):
		silent.State, silent.Found = cluster.CheckFail, fmt.Sprintf("it runs and does not answer within %s: it is starting, or hangs", units.Duration(statusTimeout))
		silent.Do = "look at its log (journalctl -u quorate): if it says nothing new, look at the disk, and restart the agent"
	case errors.Is(err, fs.ErrPermission): // the socket may be a dead agent's
		silent.State, silent.Found = cluster.CheckUnknown, fmt.Sprintf("whether it runs is not known: uid %d may not ask at its control socket", os.Geteuid())
		silent.Do = "run this as the agent's account"
	default: // nobody listens at the socket
		silent = nil
	}
	return st, silent, nil
}

// settings turns the warnings about a configuration without mistakes into checks. A warning about this host may
// say that the agent would not start here.
func settings(file string, warnings []string, agentRuns bool) (checks []cluster.Check) {
	for _, text := range warnings {
		c := cluster.Check{Subject: "configuration", State: cluster.CheckWarn, Found: text}
		if stopsAgent(text) {
			c.State = cluster.CheckFail
			if agentRuns {
				c.Found += " again"
			}
		}
		checks = append(checks, c)
	}
	if len(checks) == 0 {
		checks = []cluster.Check{{Subject: "configuration", State: cluster.CheckOK, Found: file + " is right"}}
	}
	return checks
}

func printReport(out io.Writer, r doctor.Report, asJSON bool) error {
	err := show(out, asJSON, r, reportText(r, coloured(out)))
	if err == nil && r.Result == cluster.CheckFail {
		err = &exitError{code: exitFailure}
	}
	return err
}

// reportText shows a report to people: a line for each subject, and what to do below it.
func reportText(r doctor.Report, colour bool) string {
	var text strings.Builder
	running := "its agent does not run"
	switch {
	case r.AgentRuns:
		running = "its agent runs"
	case slices.ContainsFunc(r.Checks, func(c cluster.Check) bool { return c.Subject == doctor.Agent && c.State == cluster.CheckUnknown }):
		running = "its agent may run"
	}
	fmt.Fprintf(&text, "cluster %s, node %s: %s\n\n", r.Cluster, r.Node, running)
	counts := map[cluster.CheckState]int{}
	for _, c := range r.Checks {
		counts[c.State]++
	}
	text.WriteString(checksText(r.Checks))
	fmt.Fprintf(&text, "\n%d ok, %d warn, %d fail, %d unknown\n", counts[cluster.CheckOK], counts[cluster.CheckWarn], counts[cluster.CheckFail], counts[cluster.CheckUnknown])
	if !colour {
		return text.String()
	}
	codes := map[string]string{string(cluster.CheckFail): ansiRed, string(cluster.CheckWarn): "33", string(cluster.CheckOK): ansiGreen}
	lines := strings.SplitAfter(text.String(), "\n")
	for i, line := range lines {
		word, _, _ := strings.Cut(line, " ")
		if code := codes[word]; code != "" {
			lines[i] = "\x1b[" + code + "m" + word + "\x1b[0m" + strings.TrimPrefix(line, word)
		}
	}
	return strings.Join(lines, "")
}
