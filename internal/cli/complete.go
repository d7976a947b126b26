package cli

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completeWait bounds the wait for names: a person has pressed a key and waits, and a node may be frozen.
const completeWait = time.Second

// complete lets a shell complete the names of nodes, which the agent knows: for arguments that help calls NODE, and
// for flags whose value it calls node. The name of a new node cannot be completed. Files are offered only where help
// calls an argument FILE or DATADIR.
func complete(cmd *cobra.Command) {
	nodes := func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nodeNames(cmd), cobra.ShellCompDirectiveNoFileComp
	}
	// argument is the text before the first flag, as in "set NODE [--weight N]".
	argument, _, _ := strings.Cut(strings.TrimPrefix(cmd.Use, cmd.Name()), "--")
	switch files := regexp.MustCompile("FILE|DATADIR").MatchString(argument); {
	case strings.Contains(argument, "NODE") && cmd.Name() != "add":
		cmd.ValidArgsFunction = nodes
	case !files && len(cmd.ValidArgs) == 0 && !cmd.HasSubCommands() && cmd.ValidArgsFunction == nil:
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name, usage := pflag.UnquoteUsage(f)
		if name != "node" {
			return
		}
		// It cannot fail: the flag exists, and has no completion function yet.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			names := nodeNames(cmd)
			if strings.HasSuffix(usage, "or none") {
				names = append(names, "none")
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		})
	})
	for _, sub := range cmd.Commands() {
		complete(sub)
	}
}

// nodeNames asks the agent that the command would ask for the names of the nodes; nil = it gives no answer.
func nodeNames(cmd *cobra.Command) (names []cobra.Completion) {
	path, _ := cmd.Flags().GetString("config")
	addr, _ := cmd.Flags().GetString("addr")
	if addr, err := statusAddress(path, addr); err == nil {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWait)
		defer cancel()
		st, _ := fetchStatus(ctx, addr)
		for _, n := range st.Nodes {
			names = append(names, cobra.CompletionWithDesc(n.Name, string(n.Shown())))
		}
	}
	return names
}
