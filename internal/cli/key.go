package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// shownKey is what the commands for keys print with --json.
type shownKey struct {
	File string      `json:"file"`
	Key  cluster.Key `json:"key"`
	// note is a text for people, not in the JSON.
	note string
}

func newKeyCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "key",
		Short: "Show, make or change this node's key, by which others know it",
		Long:  `Shows, makes or changes this node's key, by which the other nodes know it.`,
		Example: `  quorate key show
  quorate key rotate
  quorate key new --config /etc/quorate/node.toml`,
	}, newKeyShowCommand(), newKeyNewCommand(), newKeyRotateCommand())
}

func newKeyShowCommand() *cobra.Command {
	return keyCommand("show", "Print the name of this node's key",
		`Prints the name of this node's key: "q1:" and 43 characters. The name is no secret. Write it
into the [[member]] entry of this node in every node's configuration, or give it to "quorate
node add".`, ownKey)
}

func newKeyNewCommand() *cobra.Command {
	var out string
	cmd := keyCommand("new", "Make this node's key, and print its name",
		`Makes a key for a node that has none, in node.key beside the configuration, and prints its
name. It replaces no key. An agent makes its key itself if it may write there. This command
is for an account that may, where the agent may not. The file gets the owner of the data
directory. If there is no data directory yet, give the file to the agent's account yourself.`,
		func(c config.Config) (shownKey, error) {
			k, err := nodekey.New()
			if err != nil {
				return shownKey{}, err
			}
			path := cmp.Or(out, c.KeyFile)
			switch err := k.Save(path, ownerOf(c.DataDir)); {
			case errors.Is(err, fs.ErrExist):
				return shownKey{}, fmt.Errorf("%w: a key that is there is not replaced: \"quorate key show\" prints its name", err)
			case err != nil:
				return shownKey{}, err
			}
			return shownKey{path, k.Name(), roots(path, c.DataDir)}, nil
		})
	cmd.Flags().StringVar(&out, "out", "", "write to this `file` instead")
	return cmd
}

// ownKey reads the key that a node shows while its key is not being changed.
func ownKey(c config.Config) (shownKey, error) {
	if p := c.PeerTLS; p.CertificateFile != "" {
		k, err := nodekey.LoadIssued(p.CertificateFile, p.KeyFile)
		if err != nil {
			return shownKey{}, err
		}
		return shownKey{File: p.CertificateFile, Key: k.Name()}, nil
	}
	k, err := nodekey.Load(c.KeyFile)
	if err != nil {
		return shownKey{}, err
	}
	return shownKey{File: c.KeyFile, Key: k.Name()}, nil
}

// roots says that a new file belongs to root, because the data directory does not exist yet and so its owner is not
// known; "" = the owner is known, or another account than root runs this.
func roots(path, dataDir string) string {
	if _, err := os.Stat(dataDir); os.Getuid() != 0 || !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return fmt.Sprintf("%s belongs to root. If the agent runs as another account, it cannot read it: chown mysql: %s, with that account in place of mysql", path, path)
}

// ownerOf returns the owner of a file: root gives new files to that account. nil = the file does not exist, or
// another account than root runs this.
func ownerOf(like string) *vfs.Owner {
	info, err := os.Stat(like)
	if err != nil || os.Getuid() != 0 {
		return nil
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return &vfs.Owner{UID: int(owner.Uid), GID: int(owner.Gid)}
}

func keyCommand(name, short, long string, get func(c config.Config) (shownKey, error)) *cobra.Command {
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
			k, err := get(c)
			if err != nil {
				return err
			}
			if k.note != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "quorate: note: %s\n", k.note)
			}
			return show(cmd.OutOrStdout(), asJSON, k, string(k.Key)+"\n")
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result in JSON")
	return cmd
}
