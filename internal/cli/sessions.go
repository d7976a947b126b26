package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
)

func newSessionsCommand() *cobra.Command {
	var o controlOptions
	var last int
	cmd := &cobra.Command{
		Use:   "sessions [NODE] [--last N]",
		Short: "Show who is connected through the agents' ports",
		Long: `Lists the newest clients of the agents' ports 6446 (rw) and 6447 (ro), the oldest of these
first. NODE is the node to which a client connected, TARGET the node whose mysqld serves it,
SINCE when that began. A client that is "held" waits for a node that can serve it. SERVER
SEES is the client's address as the target's mysqld knows it: HOST in SHOW PROCESSLIST.

Without NODE all nodes are asked, else only NODE. NODE also shows the clients of its mysqld
that connected to another node. They have no address then: only that other node knows it.

Clients that do not come through these ports are not shown: clients of mysqld's own port
(mysql.bind) and of its socket. With mysql.bind the kernel also leads new clients of port
6446 on the primary's node to mysqld's own port, past the agent. The process list of mysqld
has them all.

Exit code 0: all nodes that were asked have answered. 1: some have not; the clients of the
others are shown.`,
		Example: `  quorate sessions
  quorate sessions db2 --last 500
  quorate sessions --last 10000 --json`,
		Args: atMostOneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if last < 1 || last > cluster.LinesMax {
				return usage(fmt.Errorf("--last must be 1 to %d, not %d", cluster.LinesMax, last))
			}
			v, err := o.sessions(cmd.Context(), args, last)
			if err == nil {
				err = show(cmd.OutOrStdout(), o.asJSON, v, sessionsText(v))
			}
			if err == nil && len(v.Unanswered) > 0 {
				err = &exitError{code: exitFailure}
			}
			return err
		},
	}
	o.flags(cmd)
	cmd.Flags().IntVar(&last, "last", 50, "how many clients")
	return cmd
}

// sessionsView is what "quorate sessions --json" prints.
type sessionsView struct {
	// Clients is how many there are at the nodes that have answered.
	Clients int `json:"clients"`
	// LeftOut is the number of clients that are not shown: they are older than the first session.
	LeftOut    int               `json:"left_out"`
	Sessions   []cluster.Session `json:"sessions"`
	Unanswered []unansweredNode  `json:"unanswered,omitempty"`
}

// unansweredNode is a node whose clients are not known.
type unansweredNode struct {
	Node  string `json:"node"`
	Error string `json:"error"`
}

// sessions asks one node, or all of them at the same time.
func (o *controlOptions) sessions(ctx context.Context, names []string, last int) (sessionsView, error) {
	if len(names) == 1 {
		answers := make([]cluster.Sessions, 1)
		err := o.ask(ctx, "sessions", cluster.SessionsRequest{Node: names[0], Last: last}, &answers[0])
		return joinSessions(answers, last), err
	}
	st, err := o.statusBySocket(ctx)
	if err != nil {
		return sessionsView{}, err
	}
	answers, errs := make([]cluster.Sessions, len(st.Nodes)), make([]error, len(st.Nodes))
	var asked sync.WaitGroup
	for i, n := range st.Nodes {
		if !n.Reachable {
			errs[i] = fmt.Errorf("node %s does not hear of it", st.Self)
			continue
		}
		asked.Go(func() {
			errs[i] = o.ask(ctx, "sessions", cluster.SessionsRequest{Node: n.Name, Last: last}, &answers[i])
		})
	}
	asked.Wait()
	v := joinSessions(answers, last)
	for i, n := range st.Nodes {
		if errs[i] != nil {
			v.Unanswered = append(v.Unanswered, unansweredNode{n.Name, oneLine(errs[i].Error())})
		}
	}
	if len(v.Unanswered) == len(st.Nodes) && len(errs) > 0 {
		return v, errs[0]
	}
	return v, ctx.Err()
}

// joinSessions joins the answers of the nodes. If a client is passed on from one node to another, both know
// it: the first by the client's address, the target by the address that its mysqld sees.
func joinSessions(answers []cluster.Sessions, last int) sessionsView {
	v := sessionsView{Sessions: []cluster.Session{}}
	type stream struct{ node, address string }
	servers, answered := map[stream]string{}, map[string]bool{}
	for _, a := range answers {
		v.Clients += a.Clients
		answered[a.Node] = true
		for _, s := range a.Newest {
			if s.Client == "" && s.Stream != "" {
				servers[stream{s.Node, s.Stream}] = s.Server
			}
		}
	}
	for _, a := range answers {
		for _, s := range a.Newest {
			if s.Client == "" && answered[s.Node] {
				continue
			}
			if s.Client != "" && s.Server == "" {
				s.Server = servers[stream{s.Node, s.Stream}]
			}
			v.Sessions = append(v.Sessions, s)
		}
	}
	slices.SortStableFunc(v.Sessions, func(s, t cluster.Session) int { return s.Since.Compare(t.Since) })
	v.Sessions, v.LeftOut = v.Sessions[max(0, len(v.Sessions)-last):], v.Clients
	for _, s := range v.Sessions {
		if s.Client != "" {
			v.LeftOut--
		}
	}
	return v
}

// sessionsText shows one client in a line, and then says what is missing.
func sessionsText(v sessionsView) string {
	var text strings.Builder
	var rows [][]string
	for _, s := range v.Sessions {
		port := "rw"
		if s.Port == "read_only" {
			port = "ro"
		}
		rows = append(rows, []string{cmp.Or(s.Client, "-"), port, s.Node, cmp.Or(s.Target, "-"), string(s.State), units.Time(s.Since), cmp.Or(s.Server, "-")})
	}
	text.WriteString(table("CLIENT\tPORT\tNODE\tTARGET\tSTATE\tSINCE\tSERVER SEES", rows))
	if v.LeftOut > 0 {
		fmt.Fprintf(&text, "%d older clients of %d are left out: --last shows more\n", v.LeftOut, v.Clients)
	}
	for _, n := range v.Unanswered {
		fmt.Fprintf(&text, "%s has not answered: %s\n", n.Node, n.Error)
	}
	return text.String()
}
