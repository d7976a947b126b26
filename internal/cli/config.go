package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/config"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Write an example configuration, or check one",
		Example: `  quorate config example > node.toml
  quorate config check node.toml`,
		Args: cobra.NoArgs,
		RunE: showHelp,
	}
	cmd.AddCommand(newConfigExampleCommand(), newConfigCheckCommand())
	return cmd
}

func newConfigExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "example",
		Short:   "Print a commented configuration with every setting at its default",
		Example: `  quorate config example > node.toml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), config.Example())
			return err
		},
	}
}

func newConfigCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file, without starting anything",
		Long: `Checks a configuration file and prints one line for each mistake, with its line
in the file. Exit code 2 if there is one.`,
		Example: `  quorate config check /etc/quorate/node.toml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(args[0])
			if err != nil {
				return err
			}
			for _, text := range c.Warnings() {
				fmt.Fprintf(cmd.ErrOrStderr(), "quorate: warning: config %s: %s\n", args[0], text)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is right: cluster %q, node %q of %d\n", args[0], c.Cluster, c.Node, len(c.Members))
			return err
		},
	}
}
