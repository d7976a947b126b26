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

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/api"
)

// statusTimeout bounds how long the agent may take to answer: it answers from
// memory, so one that takes longer hangs.
const statusTimeout = 5 * time.Second

func newStatusCommand() *cobra.Command {
	var path, addr string
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:   "status [--watch] [--json]",
		Short: "Show the cluster as one node sees it",
		Long: `Asks one node's agent for the state of the whole cluster: the one of the
configuration, or the default address on this host. --watch shows it again every
second, until Ctrl-C. --json has more in it: the term, what is committed and applied,
the lag in bytes, GTIDs, processes, versions.

LOG is the number of the last entry in a node's log, and how many committed
entries it lacks. LAG is the age of the oldest committed transaction that its
mysqld lacks; "unknown" while the node has no leader, no running mysqld, or a log
that takes no entries; "stopped" while its mysqld does not apply. The primary has
none: what is committed comes from it.

Exit code 0 if there is a primary, 3 if there is none or the node does not know of
one, 1 if the agent does not answer.`,
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

// watchEvery is how often a status is shown again.
const watchEvery = time.Second

// watchStatus shows the status again and again until ctx ends. That nobody answers is
// shown, too: it may be what is waited for.
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
			text = statusTable(st, isTerminal(out) && os.Getenv("NO_COLOR") == "")
		}
		text = time.Now().Format(time.TimeOnly) + " " + text
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
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	st, err := api.FetchStatus(ctx, addr)
	return st, unanswered(err, addr)
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
	st, err := fetchStatus(ctx, addr)
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
		return &exitError{exitNoPrimary, errors.New(noPrimaryText(st))}
	}
	return nil
}

// noPrimaryText says in short why no primary is known.
func noPrimaryText(st status.Cluster) string {
	if self := selfOf(st); self.Unreached != "" && self.Role.Outside() == "" {
		return "the other nodes do not reach this node"
	}
	if names, _ := st.Refusers(); len(names) > 0 && selfOf(st).Role.Outside() == "" {
		return "other nodes refuse this node: " + strings.Join(names, ", ")
	}
	return cmp.Or(selfOf(st).Role.Outside(), "the cluster has no primary")
}

// statusTable renders a status for people: a row for each node, in 80 columns if
// names are short, and below them what there is to say of each.
func statusTable(st status.Cluster, colour bool) string {
	var text strings.Builder
	text.WriteString(primaryLines(st, colour) + maintenanceLine(st.Maintenance) + recoveredLine(st.Recovered) +
		ackLines(st, colour) + repairLine(st) + certificatesLine(st) + plainLine(st) + "\n")
	header := strings.Count(text.String(), "\n")
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tKIND\tROLE\tWEIGHT\tLOG\tSIZE\tLAG\tMYSQLD")
	reasons := ""
	for _, n := range st.Nodes {
		fmt.Fprintln(table, strings.Join(statusRow(n, st.Nodes), "\t"))
		for _, r := range statusReasons(st, n) {
			reasons += fmt.Sprintf("%s: %s\n", n.Name, r)
		}
	}
	table.Flush() // it writes to memory
	if reasons != "" {
		text.WriteString("\n" + reasons)
	}
	if last := lastChangeLine(st.LastChange); last != "" {
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
	role, mysqld := string(n.Role), string(n.Mysqld)
	refused := n.Refusal != nil && n.Refusal.By != ""
	switch {
	case n.Reachable:
	case n.Role == "" && refused:
		return []string{n.Name, string(n.Kind), "refused", weightCell(n), "-", "-", "-", "-"}
	case n.Role == "":
		return []string{n.Name, string(n.Kind), "unknown", weightCell(n), "-", "-", "-", "-"}
	default:
		role, mysqld, n.ServerVersion = "unreachable", "-", "" // an old answer, and likely a wrong one
		if refused {
			role = "refused"
		}
	}
	lag := fmt.Sprintf("%.1fs", n.LagSeconds)
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
	if n.Role.Outside() != "" && n.LogLast == 0 { // its log is not open: it may have one
		log, size, lag = "-", "-", "-"
	}
	return []string{n.Name, string(n.Kind), role, weightCell(n), log, size, lag, mysqld}
}

// statusReasons are sentences: what there is to say of a node beside its row.
func statusReasons(st status.Cluster, n status.Node) (reasons []string) {
	switch {
	case n.Name == st.Self && n.Role.Outside() != "":
		n.Reason = n.Unreached // the rest is above the table
	case n.Reachable:
	case n.Unreached != "":
		n.Reason = n.Unreached
	case n.Role == "" && selfOf(st).Role.Outside() != "":
		return nil // who is outside hears of nobody
	case n.Refusal != nil:
		n.Reason = n.Refusal.String()
	case n.Role == "":
		return []string{"not heard since this agent started"}
	default:
		age := time.Duration(n.AgeMs) * time.Millisecond
		n.Reason = fmt.Sprintf("last heard %v ago, as %s", age.Round(100*time.Millisecond), n.Role)
		if n.Role == status.RoleDemoting { // of a replica, too, that was stopped in order
			n.Reason = fmt.Sprintf("last heard %v ago, as its mysqld was being stopped or closed", age.Round(100*time.Millisecond))
		}
	}
	for _, r := range []struct{ about, text string }{
		{"", n.Reason}, {"errant: ", n.Errant}, {"saved: ", n.ErrantSaved}, {"log " + string(n.LogState) + ": ", n.LogDetail}, {"purge: ", n.PurgeBlocked},
		{"stage: ", n.StageBlocked}, {"writes: ", n.Pace}, {"", sourceReason(st, n)},
		{"events: ", eventsText(n)},
	} {
		if r.text != "" {
			reasons = append(reasons, oneLine(r.about+r.text))
		}
	}
	for _, o := range n.Old {
		reasons = append(reasons, fmt.Sprintf("its data from before the rebuild: %s in %s, kept until %s, or until the disk is nearly full; rm -r it if you do not need it",
			units.Size(o.Bytes), oneLine(o.Dir), o.Until.UTC().Format(time.DateOnly)))
	}
	return reasons
}

// primaryLines say who the primary is and what failures are survived, or what it takes
// to have one again.
func primaryLines(st status.Cluster, colour bool) string {
	outside := outsideText(selfOf(st))
	if st.Primary == "" && outside != "" {
		line := fmt.Sprintf("cluster %s, node %s: %s", st.Cluster, st.Self, outside)
		if colour {
			line = "\x1b[" + nodeColour(selfOf(st)) + "m" + line + "\x1b[0m"
		}
		return line + "\n"
	}
	if refused := st.Refused(); st.Primary == "" && refused != nil {
		line := fmt.Sprintf("cluster %s, node %s: %s", st.Cluster, st.Self, oneLine(refused[0]))
		if colour {
			line = "\x1b[" + ansiRed + "m" + line + "\x1b[0m"
		}
		return line + "\n" + strings.Join(refused[1:], "\n") + "\n"
	}
	if st.Primary == "" {
		line := "NO PRIMARY"
		if !st.NoPrimarySince.IsZero() {
			ago := time.Duration(st.NoPrimarySeconds * float64(time.Second)).Round(time.Second)
			line += fmt.Sprintf(" since %s UTC (%v)", st.NoPrimarySince.UTC().Format(time.DateTime), ago)
		}
		line = fmt.Sprintf("cluster %s, %s, as node %s sees it", st.Cluster, line, st.Self)
		if colour {
			line = "\x1b[" + ansiRed + "m" + line + "\x1b[0m"
		}
		if st.Quorum != nil {
			line += "\n" + strings.Join(st.Quorum.NoPrimary(st.Self), "\n")
		}
		return line + "\n"
	}
	line := fmt.Sprintf("cluster %s, primary %s, as node %s sees it\n", st.Cluster, st.Primary, st.Self)
	if outside != "" {
		line += outside + "\n"
	}
	if st.Quorum != nil {
		line += st.Quorum.String() + "\n"
	}
	if st.Failover != nil {
		line += st.Failover.String() + "\n"
	}
	return line
}

// selfOf is the status of the node that was asked.
func selfOf(st status.Cluster) status.Node {
	for _, n := range st.Nodes {
		if n.Name == st.Self {
			return n
		}
	}
	return status.Node{}
}

// outsideText says that a node takes no part in the cluster, and why; "" = it does.
func outsideText(n status.Node) string {
	text := n.Role.Outside()
	if text != "" && n.Reason != "" {
		text += ": " + oneLine(n.Reason)
	}
	return text
}

// eventsText says that events exist and are not run; "" = there are none.
func eventsText(n status.Node) string {
	if n.Events == 0 || n.Role != status.RolePrimary {
		return ""
	}
	text := fmt.Sprintf("%d exist and never run: %s", n.Events, n.EventNames)
	if int64(strings.Count(n.EventNames, ", ")+1) < n.Events {
		text += ", …"
	}
	return text
}

// maintenanceLine says that there is maintenance; "" = there is none.
func maintenanceLine(m *cluster.Maintenance) string {
	if m == nil {
		return ""
	}
	line := fmt.Sprintf("MAINTENANCE since %s, by %s", units.Time(m.Since), m.By)
	if !m.Until.IsZero() {
		line += ", until " + units.Time(m.Until)
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

// certificatesLine says that clients cannot verify all nodes alike; "" = nothing is known of that.
func certificatesLine(st status.Cluster) string {
	if text := st.Certificates(); text != "" {
		return oneLine("certificates: "+text) + "\n"
	}
	return ""
}

// plainLine says that connections between agents are not protected, or not all of them; "" = they are.
func plainLine(st status.Cluster) string {
	const knowsKeys = 3 // the first state format with them
	switch n := selfOf(st); {
	case n.StateFormat < knowsKeys || n.Role.Outside() != "" || st.PeerSecurity == cluster.PeersRequire:
		return ""
	case st.PeerSecurity == cluster.PeersBoth:
		return "connections between agents have TLS where both sides can: quorate cluster set --peer-security require\n"
	}
	return "connections between agents are not protected: quorate cluster set --peer-security both\n"
}

// weightCell shows a node's weight; only full nodes have one.
func weightCell(n status.Node) string {
	if n.Kind != cluster.KindFull {
		return "-"
	}
	return fmt.Sprint(n.Weight)
}

func nodeColour(n status.Node) string {
	switch {
	case !n.Reachable, n.Role == status.RoleFenced, n.Role == status.RoleErrant,
		n.LogState != "" && n.LogState != status.LogOK, n.StageBlocked != "":
		return ansiRed
	case n.Role == status.RolePrimary:
		return ansiGreen
	case n.Role == status.RoleReplica && !n.LagUnknown, n.Role == status.RoleLogger && n.Reason == "":
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
