package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// shownKey is what the commands for keys print with --json.
type shownKey struct {
	File string      `json:"file"`
	Key  cluster.Key `json:"key"`
}

func newKeyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Show or make this node's key, by which the others know it",
		Example: `  quorate key show
  quorate key new --config /etc/quorate/node.toml`,
		Args: noArgs,
		RunE: showHelp,
	}
	cmd.AddCommand(newKeyShowCommand(), newKeyNewCommand())
	return cmd
}

func newKeyShowCommand() *cobra.Command {
	return keyCommand("show", "Print the name of this node's key",
		`Prints the name of this node's key: "q1:" and 43 characters. It is no secret. Write it
into the [[member]] entry of this node in every node's configuration, or give it
to "quorate node add".`, nodekey.Load)
}

func newKeyNewCommand() *cobra.Command {
	return keyCommand("new", "Make this node's key, and print its name",
		`Makes this node's key in a file beside its configuration, for a node that has none.
A key that is there is not replaced. An agent makes its key itself where it may
write there; this command is for the account that may.`,
		func(path string) (*nodekey.Key, error) {
			k, err := nodekey.New()
			if err != nil {
				return nil, err
			}
			return k, k.Save(path)
		})
}

func keyCommand(name, short, long string, get func(path string) (*nodekey.Key, error)) *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long,
		Example: "  quorate key " + name + "\n  quorate key " + name + " --config node.toml --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			named, err := namedConfig(path)
			if err != nil {
				return err
			}
			c, err := loadConfig(named)
			if err != nil {
				return err
			}
			k, err := get(c.KeyFile)
			if err != nil {
				return err
			}
			return printKey(cmd.OutOrStdout(), shownKey{File: c.KeyFile, Key: k.Name()}, asJSON)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for machines")
	return cmd
}

func printKey(w io.Writer, k shownKey, asJSON bool) error {
	if asJSON {
		return printJSON(w, k)
	}
	_, err := fmt.Fprintln(w, k.Key)
	return err
}
