package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cli/doctor"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/install"
)

func newDoctorCommand() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [--config FILE] [--json]",
		Short: "Look whether this host and its configuration are fit",
		Long: `Looks at this host and at the configuration of its node, before the agent is
started or while it runs: MySQL and its plugins, what fdatasync takes where log and
data are, the way to each other node (TLS and keys, if the agent runs), the
clock, file systems and space, ports and who has them, AppArmor and SELinux,
limits, and whether the kernel could fence mysqld's own port. It says what commit
latency to expect. It takes two or three seconds, and leaves nothing behind.

It never needs root. Run it as the agent's account; what it could not look at is
"unknown", and root sees more.

Exit code 0 if nothing fails, also with warnings; 1 if something fails: the agent
would not start, or the node could not do its part; 2 if the configuration is
wrong.`,
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
			if addr, err := statusAddress(name, ""); err == nil {
				if st, err := fetchStatus(cmd.Context(), addr); err == nil && st.Self == c.Node && st.Cluster == c.Cluster {
					host.Agent = &st
				}
			}
			report := doctor.Examine(cmd.Context(), host)
			report.Checks = slices.Concat(settings(name, warnings), report.Checks)
			report.Result = cluster.Worst(report.Checks)
			return printReport(cmd.OutOrStdout(), report, asJSON)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report in JSON")
	return cmd
}

// settings turns the warnings about a configuration without mistakes into checks. A warning about this host may
// say that the agent would not start here.
func settings(file string, warnings []string) (checks []cluster.Check) {
	for _, text := range warnings {
		c := cluster.Check{Subject: "configuration", State: cluster.CheckWarn, Found: text}
		if stopsAgent(text) {
			c.State = cluster.CheckFail
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
	if r.AgentRuns {
		running = "its agent runs"
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
