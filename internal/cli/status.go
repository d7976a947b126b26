package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/api"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
)

// statusTimeout bounds how long the agent may take to answer: it answers from
// memory, so one that takes longer hangs.
const statusTimeout = 5 * time.Second

func newStatusCommand() *cobra.Command {
	var path, addr string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [--config FILE | --addr HOST:PORT]",
		Short: "Show the cluster as one node sees it",
		Long: `Asks one node's agent for the state of the whole cluster. Without --config and
--addr it asks the default address on this host.

Exit code 0 if there is a primary, 3 if there is none, 1 if the agent does not
answer.`,
		Example: `  quorate status
  quorate status --config node.toml
  quorate status --addr 10.0.0.2:7401 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := statusAddress(path, addr)
			if err != nil {
				return err
			}
			return runStatus(cmd.Context(), cmd.OutOrStdout(), target, asJSON)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&addr, "addr", "", "`host:port` of the agent's api")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the agent's answer in JSON")
	return cmd
}

// statusAddress returns where to ask.
func statusAddress(path, addr string) (string, error) {
	if addr != "" && path != "" {
		return "", usage(errors.New("--addr and --config both say where to ask: use one of them"))
	}
	if addr != "" {
		return addr, nil
	}
	c := config.Default()
	if path != "" {
		var err error
		if c, err = loadConfig(path); err != nil {
			return "", err
		}
	}
	host, port, err := net.SplitHostPort(c.API.Listen)
	if err != nil {
		return "", usage(err) // Validate has checked it
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost" // the agent listens on every address
	}
	return net.JoinHostPort(host, port), nil
}

func runStatus(ctx context.Context, out io.Writer, addr string, asJSON bool) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	st, err := api.FetchStatus(ctx, addr)
	if err != nil {
		return err
	}
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(st)
	} else {
		_, err = io.WriteString(out, statusTable(st, isTerminal(out) && os.Getenv("NO_COLOR") == ""))
	}
	if err != nil {
		return fmt.Errorf("print status: %w", err)
	}
	if st.Primary == "" {
		return &exitError{exitNoPrimary, errors.New("the cluster has no primary")}
	}
	return nil
}

// statusTable renders a status for people.
func statusTable(st cluster.Status, colour bool) string {
	var text strings.Builder
	fmt.Fprintf(&text, "cluster %s, primary %s, as node %s sees it\n%s%s\n", st.Cluster, cmp.Or(st.Primary, "none"), st.Self,
		failoverLine(st.Failover), maintenanceLine(st.Maintenance)+ackLines(st, colour))
	header := strings.Count(text.String(), "\n")
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tKIND\tROLE\tWEIGHT\tTERM\tLOG\tSIZE\tCOMMIT\tAPPLIED\tLAG TX\tLAG BYTES\tLAG TIME\tMYSQLD\tREASON")
	for _, n := range st.Nodes {
		fmt.Fprintln(table, strings.Join(statusRow(n), "\t"))
	}
	table.Flush() // it writes to memory
	lines := strings.SplitAfter(text.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \n")
		if n := i - header - 1; colour && i >= header && lines[i] != "" {
			code := "1" // bold
			if n >= 0 {
				code = nodeColour(st.Nodes[n])
			}
			lines[i] = "\x1b[" + code + "m" + lines[i] + "\x1b[0m"
		}
	}
	return strings.Join(lines, "\n")
}

// statusRow returns one node's cells.
func statusRow(n cluster.NodeStatus) []string {
	age := time.Duration(n.AgeMs) * time.Millisecond
	switch {
	case n.Reachable:
	case n.Role == "":
		return []string{n.Name, string(n.Kind), "unknown", weightCell(n), "-", "-", "-", "-", "-", "-", "-", "-", "-", "never heard from it"}
	default:
		n.Reason = fmt.Sprintf("last heard %v ago, as %s", age.Round(100*time.Millisecond), n.Role)
		n.Role = "unreachable"
		n.Mysqld, n.ServerVersion = "-", "" // an old answer, and likely a wrong one
	}
	if n.Kind == cluster.KindLogger {
		n.Mysqld = "-"
	}
	mysqld := string(n.Mysqld)
	if n.ServerVersion != "" {
		mysqld += " " + n.ServerVersion
	}
	var reasons []string
	for _, r := range []struct{ about, text string }{
		{"", n.Reason}, {"errant: ", n.Errant}, {"saved: ", n.ErrantSaved}, {"log " + string(n.LogState) + ": ", n.LogDetail}, {"purge: ", n.PurgeBlocked},
		{"stage: ", n.StageBlocked}, {"writes: ", n.Pace},
	} {
		if r.text != "" {
			reasons = append(reasons, oneLine(r.about+r.text))
		}
	}
	applied := appliedCells(n)
	return []string{
		n.Name, string(n.Kind), string(n.Role), weightCell(n), fmt.Sprint(n.Term),
		fmt.Sprintf("%d-%d", n.LogFirst, n.LogLast), shortBytes(n.LogBytes), fmt.Sprint(n.LogCommit), applied[0], applied[1], applied[2], applied[3],
		mysqld, strings.Join(reasons, "; "),
	}
}

// failoverLine says what a failover would take now; "" = there is no primary.
func failoverLine(f *cluster.Failover) string {
	if f == nil {
		return ""
	}
	return f.String() + "\n"
}

// maintenanceLine says that there is maintenance; "" = there is none.
func maintenanceLine(m *cluster.Maintenance) string {
	if m == nil {
		return ""
	}
	line := fmt.Sprintf("MAINTENANCE since %s, by %s", m.Since.UTC().Format(time.RFC3339), m.By)
	if !m.Until.IsZero() {
		line += ", until " + m.Until.UTC().Format(time.RFC3339)
	}
	line += ": no failover, no node may open"
	if m.Primary != "" {
		line += " but " + m.Primary
	}
	if m.Reason != "" {
		line += ": " + m.Reason
	}
	return oneLine(line) + "\n"
}

// weightCell shows a node's weight; only full nodes have one.
func weightCell(n cluster.NodeStatus) string {
	if n.Kind != cluster.KindFull {
		return "-"
	}
	return fmt.Sprint(n.Weight)
}

// appliedCells says how far mysqld is; a logger has none.
func appliedCells(n cluster.NodeStatus) [4]string {
	if n.Kind == cluster.KindLogger {
		return [4]string{"-", "-", "-", "-"}
	}
	return [4]string{
		fmt.Sprint(n.Applied), fmt.Sprint(n.LagTransactions), shortBytes(n.LagBytes), fmt.Sprintf("%.1fs", n.LagSeconds),
	}
}

func nodeColour(n cluster.NodeStatus) string {
	switch {
	case !n.Reachable, n.Role == cluster.RoleFenced, n.Role == cluster.RoleErrant,
		n.LogState != "" && n.LogState != cluster.LogOK, n.StageBlocked != "":
		return ansiRed
	case n.Role == cluster.RolePrimary:
		return ansiGreen
	case n.Role == cluster.RoleReplica, n.Role == cluster.RoleLogger && n.Reason == "":
		return "0"
	}
	return "33" // yellow: on its way to something
}

// oneLine keeps a reason in its row: it may quote a server's error message. What is
// not printable is left out, as it could change what a terminal shows of the rest.
func oneLine(text string) string {
	shown := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return -1
	}, text)
	return strings.Join(strings.Fields(shown), " ")
}

// shortBytes prints a size in three digits: 0B, 812KiB, 1.4GiB.
func shortBytes(n int64) string {
	size, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for size >= 1000 && len(units) > 1 {
		size, units = size/1024, units[1:]
	}
	if size >= 10 || size == float64(int64(size)) {
		return fmt.Sprintf("%.0f%s", size, units[0])
	}
	return fmt.Sprintf("%.1f%s", size, units[0])
}
