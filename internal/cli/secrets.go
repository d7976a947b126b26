package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
)

func newSecretsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:     "secrets",
		Short:   "Change the passwords that the agent uses for its mysqld",
		Long:    `Changes the passwords that the agent uses for its mysqld.`,
		Example: "  quorate secrets rotate",
	}, newSecretsRotateCommand())
}

func newSecretsRotateCommand() *cobra.Command {
	var o controlOptions
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make new passwords for this node's internal accounts",
		Long: `Makes new passwords for quorate's own accounts in this node's mysqld, and for "dba", the
account of "quorate mysql". Each node has its own passwords, so run it on each node. The new
passwords hold from the agent's next start on. Until then nothing changes.

Restart the agents one by one, the primary's last: it hands over first.`,
		Example: `  quorate secrets rotate
  quorate secrets rotate --config node.toml --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var done cluster.SecretsRotated
			if err := o.ask(cmd.Context(), "secrets.rotate", struct{}{}, &done); err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), done, false, nil,
				fmt.Sprintf("node %s has new passwords from its agent's next start on: systemctl restart quorate\n", done.Node))
		},
	}
	o.flags(cmd)
	return cmd
}
