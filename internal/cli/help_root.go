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
			{"mysql", "the client, as dba"}, {"variables", "of mysqld, everywhere"},
			{"switchover", "moves the primary"}, {"restart-mysqld", "a new mysqld on a node"},
			{"maintenance", "no failover meanwhile"}, {"node", "add, set, remove"},
			{"cluster", "policies of them all"}, {"backup", "takes, lists, checks"},
			{"archive", "the log, as it grows"}, {"upgrade", "mysqld, node by node"},
		}},
		{"When something is wrong", [][2]string{
			{"fence", "keeps mysqld down"}, {"unfence", "lets it start again"},
			{"log", "reads, exports, purges"}, {"recover", "without a majority"},
		}},
		{"A node, and its files", [][2]string{
			{"init", "files of a new cluster"}, {"config", "checks, shows a file"},
			{"run", "the agent, with mysqld"}, {"key", "by which it is known"},
			{"secrets", "mysqld's passwords"}, {"demo", "a cluster on this host"},
			{"adopt", "data that are there"}, {"restore", "a point in time"},
			{"follow", "a server outside"}, {"cutover", "takes over from it"},
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
	text.WriteString("\nquorate COMMAND --help has examples. It is about the node of --config, else of\n" +
		"$QUORATE_CONFIG, /etc/quorate/node.toml. Also: version, completion, exit-codes\n")
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

  0  success
  1  failure, or refused for now: nothing changed, unless the message says so
  2  wrong usage, a bad configuration, or a request that can never be
     carried out as it stands
  3  there is no primary, or no leader: nothing was done
  4  it is not known whether a change was made: see "quorate audit"; after a
     switchover, "quorate history"

did-commit has its own: 0 committed, 1 not committed, 3 not known. doctor ends
with 1 if something fails, with 0 also if there are warnings; config check with 1
if the agent would not start here. mysql ends with the client's.

Requests that change something are taken from root, from the agent's own account,
and from the group in [control].`,
		Example: `  quorate status || echo "exit code $?"`,
	}
}
