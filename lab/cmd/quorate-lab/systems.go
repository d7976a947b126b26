package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/lab/peers"
)

func systemsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "systems",
		Short: "List the systems that are compared, and the options that each has",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listSystems(cmd.OutOrStdout())
		},
	}
}

func listSystems(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SYSTEM\tWHAT\tOPTIONS")
	for _, s := range peers.Systems() {
		options := "-"
		if len(s.Options) > 0 {
			options = "--" + strings.Join(s.Options, " --")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, s.Description, options)
	}
	return table.Flush()
}
