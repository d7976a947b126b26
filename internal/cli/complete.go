package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completeNodes has a shell complete the names of nodes, which the node's agent knows: arguments and flags that
// are called so in help. A new node's name nobody knows.
func completeNodes(cmd *cobra.Command) {
	if argument, _, _ := strings.Cut(cmd.Use[len(cmd.Name()):], "--"); strings.Contains(argument, "NODE") && cmd.Name() != "add" {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nodeNames(cmd), cobra.ShellCompDirectiveNoFileComp
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if name, _ := pflag.UnquoteUsage(f); name == "node" {
			// It cannot fail: the flag exists, and has no other one.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return nodeNames(cmd), cobra.ShellCompDirectiveNoFileComp
			})
		}
	})
	for _, sub := range cmd.Commands() {
		completeNodes(sub)
	}
}

// nodeNames asks the agent that the command would ask; nil: it does not say.
func nodeNames(cmd *cobra.Command) (names []cobra.Completion) {
	path, _ := cmd.Flags().GetString("config")
	addr, _ := cmd.Flags().GetString("addr")
	if addr, err := statusAddress(path, addr); err == nil {
		st, _ := fetchStatus(cmd.Context(), addr)
		for _, n := range st.Nodes {
			names = append(names, cobra.CompletionWithDesc(n.Name, string(n.Shown())))
		}
	}
	return names
}
