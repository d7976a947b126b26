package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// helpRows is how many lines the root's help may have: a terminal of 80x24 shows all of it.
const helpRows = 24

// helpGroup has commands that belong together for a person who looks for one.
type helpGroup struct {
	title    string
	commands [][2]string // name, and purpose in at most 22 letters
}

func helpGroups() []helpGroup {
	return []helpGroup{
		{"How it stands", [][2]string{
			{"status", "the cluster, now"}, {"top", "the same, live"},
			{"history", "failovers, and why"}, {"audit", "who did what"},
			{"did-commit", "was it committed?"}, {"sessions", "who is connected"},
		}},
		{"Every day", [][2]string{
			{"mysql", "the client, as dba"}, {"variables", "of mysqld, all nodes"},
			{"switchover", "moves the primary"}, {"restart-mysqld", "restarts one mysqld"},
			{"maintenance", "no failover while on"}, {"node", "add, set, remove"},
			{"cluster", "cluster-wide settings"}, {"backup", "takes, lists, checks"},
			{"archive", "the log, as it grows"}, {"upgrade", "mysqld, node by node"},
		}},
		{"When something is wrong", [][2]string{
			{"fence", "keeps mysqld down"}, {"unfence", "lets it start again"},
			{"log", "reads, exports, purges"}, {"recover", "if most nodes are lost"},
		}},
		{"A node, and its files", [][2]string{
			{"init", "files of a new cluster"}, {"config", "checks, shows a file"},
			{"run", "the agent, with mysqld"}, {"key", "this node's key"},
			{"secrets", "mysqld's passwords"}, {"demo", "a cluster on this host"},
			{"adopt", "an existing server"}, {"restore", "from a backup"},
			{"follow", "an outside server"}, {"cutover", "replaces that server"},
			{"doctor", "is this host fit?"}, {"site", "follows another cluster"},
		}},
	}
}

// rootHelp shows all commands on one screen.
func rootHelp(root *cobra.Command) string {
	var text strings.Builder
	fmt.Fprintf(&text, "quorate: %s\n", root.Short)
	for _, g := range helpGroups() {
		fmt.Fprintf(&text, "%s:\n", g.title)
		for i := 0; i < len(g.commands); i += 2 {
			line := ""
			for _, c := range g.commands[i:min(i+2, len(g.commands))] {
				line += fmt.Sprintf("  %-14s %-23s", c[0], c[1])
			}
			text.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	text.WriteString("\nquorate COMMAND --help has examples. Commands read --config FILE, else\n" +
		"$QUORATE_CONFIG or /etc/quorate/node.toml. Also: version, completion, exit-codes\n")
	return text.String()
}

// showRootHelp makes the root command show rootHelp. All other commands show their own help.
func showRootHelp(root *cobra.Command) {
	usual := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd != root {
			usual(cmd, args)
			return
		}
		_, _ = io.WriteString(cmd.OutOrStdout(), rootHelp(root))
	})
}

// newExitCodesTopic is only a page of help, not a command.
func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `Exit codes:

  0  done, or nothing had to be done. With --dry-run: it could be done
  1  it failed, was called off, or is refused for now. Nothing changed, unless
     the message says so. With --dry-run: it would be refused
  2  wrong usage, a bad configuration, a question without a terminal to answer
     it, or a request that can never be carried out as it stands
  3  there is no primary, or no leader: nothing was done
  4  it was begun, and it is not known whether it was done: see "quorate
     audit"; after a switchover, "quorate history". Or it was done, and the
     result cannot be printed, as the message says

did-commit has its own: 0 committed, 1 not committed, 3 not known. doctor ends with 1 if
something fails, and with 0 if there are only warnings. config check ends with 1 if the
agent would not start here, recover with 2 if it is refused. mysql ends with the client's
exit code.

Requests that change something are taken from root, from the agent's own account, and from
the group in [control].`,
		Example: `  quorate status || echo "exit code $?"`,
	}
}
