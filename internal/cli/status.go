package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/api"
)

// statusTimeout bounds how long the agent may take to answer: it answers from
// memory, so an agent that takes longer hangs.
const statusTimeout = 5 * time.Second

// tokenVariable is the environment variable with the token for an agent's API that requires one.
const tokenVariable = "QUORATE_TOKEN"

func newStatusCommand() *cobra.Command {
	var path, addr string
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:   "status [--watch] [--json]",
		Short: "Show the cluster as one node sees it",
		Long: `Shows the state of the whole cluster as one node sees it. It asks the agent of the
configuration, or else at the default address on this host. --watch shows it again every
second, until Ctrl-C. --json has more in it: the term, what is committed and applied, the
lag in bytes, GTIDs, processes, versions.

LOG is the number of the last entry in a node's log, and how many committed entries the log
lacks. LAG is the age of the oldest committed transaction that the node's mysqld lacks. It
is "unknown" while the node has no leader, no running mysqld, or a log that takes no
entries. "stopped" means that its mysqld does not apply. The primary has no lag: what is
committed comes from it.

If the agent wants a token from those who read ([api] tokens_file), others set
$QUORATE_TOKEN. Root, and who else may use the control socket, need none.

Exit code 0: there is a primary. 1: the agent does not answer. 3: there is no primary, or
the node does not know of one.`,
		Example: `  quorate status
  quorate status --watch --config node.toml
  quorate status --addr 10.0.0.2:7401 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := statusAddress(path, addr)
			switch {
			case err != nil:
				return err
			case watch && asJSON:
				return usage(errors.New("--watch and --json do not go together"))
			case watch:
				return watchStatus(cmd.Context(), cmd.OutOrStdout(), target)
			}
			return runStatus(cmd.Context(), cmd.OutOrStdout(), target, asJSON)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&addr, "addr", "", "`host:port` of the agent's api, or its control socket")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the agent's answer in JSON")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every second")
	return cmd
}

// clockOf is the time of day of a view, in UTC like all times in it.
func clockOf(t time.Time) string { return t.UTC().Format(time.TimeOnly) + " UTC" }

// watchEvery is how often a status is shown again.
const watchEvery = time.Second

// watchStatus shows the status again and again until ctx ends. If nobody answers, it shows that, and goes on: the user
// may wait for an agent to start or to end.
func watchStatus(ctx context.Context, out io.Writer, addr string) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		text := ""
		st, err := fetchStatus(ctx, addr)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			text = err.Error() + "\n"
		default:
			text = statusTable(st, coloured(out))
		}
		text = clockOf(time.Now()) + " " + text
		if isTerminal(out) {
			text = "\x1b[H\x1b[2J" + text // home, and clear
		}
		if err := printText(out, text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func fetchStatus(ctx context.Context, addr string) (status.Cluster, error) {
	st, err := askStatus(ctx, addr)
	return st, unanswered(err, addr)
}

// askStatus is fetchStatus with the error as it came.
func askStatus(ctx context.Context, addr string) (status.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return api.FetchStatus(ctx, addr, os.Getenv(tokenVariable))
}

// statusAddress returns where to ask.
func statusAddress(path, addr string) (string, error) {
	if addr != "" && path != "" {
		return "", usage(errTwoTargets)
	}
	if addr != "" {
		return addr, nil
	}
	c, err := agentConfig(path)
	if err != nil {
		return "", err
	}
	// On its control socket an agent asks for no token.
	if socket := c.ControlSocket(); c.API.TokensFile != "" && os.Getenv(tokenVariable) == "" && unix.Access(socket, unix.W_OK) == nil {
		return socket, nil
	}
	api, err := apiAddress(c)
	if err != nil {
		return "", err
	}
	// The socket stays where it is if api.listen was changed since the agent's start.
	if errors.Is(dial("tcp", api), syscall.ECONNREFUSED) && dial("unix", c.ControlSocket()) == nil {
		return c.ControlSocket(), nil
	}
	return api, nil
}

// apiAddress is where an agent with a configuration serves its API.
func apiAddress(c config.Config) (string, error) {
	host, port, err := net.SplitHostPort(c.API.Listen)
	if err != nil {
		return "", usage(err) // Validate has checked it
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost" // the agent listens on every address
	}
	return net.JoinHostPort(host, port), nil
}

// dial tells whether a program listens at an address of this host; nil = it does.
func dial(network, addr string) error {
	conn, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

func runStatus(ctx context.Context, out io.Writer, addr string, asJSON bool) error {
	st, err := fetchStatus(ctx, addr)
	if err != nil {
		return err
	}
	if err := show(out, asJSON, st, statusTable(st, coloured(out))); err != nil {
		return err
	}
	if st.Primary == "" {
		return &exitError{exitNoPrimary, errors.New(noPrimaryText(st))}
	}
	return nil
}

// noPrimaryText says in short why no primary is known.
func noPrimaryText(st status.Cluster) string {
	if self := st.Own(); self.Unreached != "" && self.Role.Outside() == "" {
		return "the other nodes do not reach this node"
	}
	if names, _ := st.Refusers(); len(names) > 0 && st.Own().Role.Outside() == "" {
		return "other nodes refuse this node: " + strings.Join(names, ", ")
	}
	return cmp.Or(st.Own().Role.Outside(), "the cluster has no primary")
}

// statusTable renders a status for people: a row for each node, in 80 columns if
// names are short, and below the rows the remarks about nodes.
func statusTable(st status.Cluster, colour bool) string {
	var text strings.Builder
	for _, sentence := range st.Sentences() {
		line := sentence.Text
		if code := levelColours()[sentence.Level]; colour && code != "" {
			line = "\x1b[" + code + "m" + line + "\x1b[0m"
		}
		text.WriteString(line + "\n")
	}
	text.WriteString("\n")
	header := strings.Count(text.String(), "\n")
	var rows [][]string
	reasons := ""
	for _, n := range st.Nodes {
		rows = append(rows, statusRow(n, st.Nodes))
		for _, r := range st.AboutNode(n) {
			reasons += fmt.Sprintf("%s: %s\n", n.Name, r)
		}
	}
	text.WriteString(table("NODE\tKIND\tROLE\tWEIGHT\tLOG\tSIZE\tLAG\tMYSQLD", rows))
	if reasons != "" {
		text.WriteString("\n" + reasons)
	}
	if last := lastChangeLine(st); last != "" {
		text.WriteString("\n" + last)
	}
	lines := strings.SplitAfter(text.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \n")
		if n := i - header - 1; colour && i >= header && n < len(st.Nodes) {
			code := "1" // bold
			if n >= 0 {
				code = nodeColour(st.Nodes[n])
			}
			lines[i] = "\x1b[" + code + "m" + lines[i] + "\x1b[0m"
		}
	}
	return strings.Join(lines, "\n")
}

// statusRow returns the cells of one of the nodes.
func statusRow(n status.Node, nodes []status.Node) []string {
	role, mysqld := string(n.Shown()), string(n.Mysqld)
	switch {
	case n.Reachable:
	case n.HeardAs() == "":
		return []string{n.Name, string(n.Kind), role, weightCell(n), "-", "-", "-", "-"}
	default:
		mysqld, n.ServerVersion = "-", "" // its last answer is old, and probably wrong by now
	}
	lag := fmt.Sprintf("%.1fs", n.Lag())
	if n.LagTransactions > 0 {
		lag += fmt.Sprintf(", %d tx", n.LagTransactions)
	}
	switch {
	case n.Kind == cluster.KindLogger:
		lag, mysqld = "-", "-"
	case n.LagUnknown || !n.Reachable:
		lag = "unknown"
	case n.Role == status.RolePrimary:
		lag = "-"
	case n.ApplierStopped != "":
		lag += ", stopped"
	}
	if n.ServerVersion != "" {
		mysqld += " " + n.ServerVersion
	}
	log := fmt.Sprint(n.LogLast)
	if behind := n.LogBehind(nodes); behind > 0 {
		log += fmt.Sprintf(" (%d behind)", behind)
	}
	size := units.Size(n.LogBytes)
	if n.HeardAs().Outside() != "" && n.LogLast == 0 { // its log is not open, but may exist
		log, size, lag = "-", "-", "-"
	}
	return []string{n.Name, string(n.Kind), role, weightCell(n), log, size, lag, mysqld}
}

// weightCell shows a node's weight; only full nodes have one.
func weightCell(n status.Node) string {
	if n.Kind != cluster.KindFull {
		return "-"
	}
	return fmt.Sprint(n.Weight)
}

// levelColours are how a terminal shows what is urgent.
func levelColours() map[status.Level]string {
	return map[status.Level]string{status.LevelNotice: ansiYellow, status.LevelAlarm: ansiRed}
}

func nodeColour(n status.Node) string {
	level := n.Urgency()
	if level == status.LevelOK && n.Role == status.RolePrimary {
		return ansiGreen
	}
	return cmp.Or(levelColours()[level], "0")
}

// oneLine makes one line of a text, so that it stays in its row.
func oneLine(text string) string { return units.Line(text) }
