package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
)

// variablesWait bounds the wait for the answer to a change of variables.
const variablesWait = 90 * time.Second

func newVariablesCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "variables",
		Short: "Set server variables on all nodes at once",
		Long: `Sets server variables (max_connections, innodb_buffer_pool_size, ...) on all nodes, and
keeps them for the next starts of mysqld. Where mysqld can, they hold without a restart.
They belong to the cluster: a node that is away takes them when it is back.`,
		Example: `  quorate variables set max_connections=500 long_query_time=0.5
  quorate variables list`,
	}, newVariablesSetCommand(), newVariablesUnsetCommand(), newVariablesListCommand())
}

func newVariablesSetCommand() *cobra.Command {
	var o controlOptions
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "set NAME=VALUE ...",
		Short: "Give server variables a value on all nodes",
		Long: `Gives server variables a value on all nodes. Write values as in an option file: 500, 1G, ON.
A value holds at once for new sessions, and for all later starts of mysqld. It overrides the
value in a node's [mysql.variables].

First the mysqld of one node, of a replica if there is one, must accept all values. It is
asked whether it would start with them, and they are set there for a moment, except the
sizes of buffer pool and redo log. What it refuses is refused, in its own words. Variables
on which quorate's promise depends are refused, too, and so are paths on a host. If a mysqld
later does not start with the variables, it is started without them, and the status says so.

A variable that a running mysqld cannot change waits for its restart. Restart the mysqlds
one by one, the primary's last: the primary moves first.

  for node in db2 db3 db1; do quorate restart-mysqld $node || break; done

--dry-run asks mysqld whether it has the variables and would start with the values, and sets
nothing.

Exit codes: "quorate help exit-codes"; 1 also if a running node did not accept a value.`,
		Example: `  quorate variables set max_connections=500 long_query_time=0.5
  quorate variables set innodb_buffer_pool_size=8G --dry-run
  quorate variables set sql_mode=STRICT_TRANS_TABLES,NO_ZERO_DATE --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := parseVariables(args)
			if err != nil {
				return usage(err)
			}
			return o.changeVariables(cmd.Context(), cmd.OutOrStdout(), cluster.VariablesRequest{VariablesChange: cluster.VariablesChange{Set: set}, DryRun: dryRun})
		},
	}
	o.flags(cmd)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// parseVariables reads NAME=VALUE arguments.
func parseVariables(args []string) (map[string]string, error) {
	set := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		name = cluster.VariableName(strings.TrimPrefix(name, "--"))
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME=VALUE, such as max_connections=500", arg)
		}
		if _, twice := set[name]; twice {
			return nil, fmt.Errorf("variable %s has two values", name)
		}
		set[name] = value
	}
	change := cluster.VariablesChange{Set: set}
	return set, change.Check()
}

func newVariablesUnsetCommand() *cobra.Command {
	var o controlOptions
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "unset NAME ...",
		Short: "Take the cluster's value of server variables back",
		Long: `Takes the cluster's value of server variables back. Each node goes back to the value in its
[mysql.variables], or else to the default.`,
		Example: `  quorate variables unset max_connections
  quorate variables unset long_query_time sql_mode --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(errors.New("NAME is missing: \"quorate variables list\" shows the names"))
			}
			change := cluster.VariablesChange{}
			for _, name := range args {
				change.Unset = append(change.Unset, cluster.VariableName(name))
			}
			if err := change.Check(); err != nil {
				return usage(err)
			}
			return o.changeVariables(cmd.Context(), cmd.OutOrStdout(), cluster.VariablesRequest{VariablesChange: change, DryRun: dryRun})
		},
	}
	o.flags(cmd)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

func newVariablesListCommand() *cobra.Command {
	var o controlOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the cluster's variables, and which nodes lack them",
		Long: `Lists the server variables that "quorate variables set" has given to all nodes. Below the
list are the nodes whose mysqld does not run with them, and why. It also shows what a node's
own [mysql.variables] has, where the cluster's value overrides it.`,
		Example: `  quorate variables list
  quorate variables list --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list cluster.VariablesList
			if err := o.ask(cmd.Context(), "variables.list", struct{}{}, &list); err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), o.asJSON, list, variablesTable(list))
		},
	}
	o.flags(cmd)
	return cmd
}

func variablesTable(list cluster.VariablesList) string {
	var text strings.Builder
	if len(list.Variables) == 0 {
		text.WriteString("the cluster has no variables: each node runs with its [mysql.variables]\n")
	} else {
		var rows [][]string
		for _, name := range slices.Sorted(maps.Keys(list.Variables)) {
			rows = append(rows, []string{name, oneLine(list.Variables[name])})
		}
		text.WriteString(table("NAME\tVALUE", rows))
	}
	if lines, _ := nodesText(list.Nodes); lines != "" {
		text.WriteString("\n" + lines)
	}
	return text.String()
}

// nodesText has the remarks about nodes and the variables. failed: a running mysqld has not taken a
// value.
func nodesText(nodes []cluster.VariablesOf) (text string, failed bool) {
	for _, n := range nodes {
		if n.Error != "" {
			text += fmt.Sprintf("%s: %s\n", n.Node, oneLine(n.Error))
		}
		if len(n.Restart) > 0 {
			text += fmt.Sprintf("%s: %s waits for a restart: quorate restart-mysqld %s\n", n.Node, strings.Join(n.Restart, ", "), n.Node)
		}
		for _, name := range slices.Sorted(maps.Keys(n.Failed)) {
			text += fmt.Sprintf("%s: %s is not set: %s\n", n.Node, name, oneLine(n.Failed[name]))
			failed = true
		}
		for _, name := range slices.Sorted(maps.Keys(n.Own)) {
			text += fmt.Sprintf("%s: node.toml sets %s=%s; the cluster's value overrides it\n", n.Node, name, oneLine(n.Own[name]))
		}
	}
	return text, failed
}

// changeVariables asks for a change of the variables and prints the result.
func (o *controlOptions) changeVariables(ctx context.Context, out io.Writer, args cluster.VariablesRequest) error {
	o.timeout = variablesWait
	var result cluster.VariablesResult
	if err := o.ask(ctx, "variables.set", args, &result); err != nil {
		return err
	}
	lines, failed := nodesText(result.Nodes)
	if err := o.print(out, result, result.DryRun, result.Stops, changeText(result.ChangeResult)+lines); err != nil {
		return err
	}
	if failed {
		return &exitError{exitFailure, errors.New("a running node did not accept a value: its status says why not")}
	}
	return nil
}
