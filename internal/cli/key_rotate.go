package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/agent/keys"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

const (
	// rotatePoll is the pause between questions how far a change of the key is.
	rotatePoll = 500 * time.Millisecond
	// rotateWait is how long the command waits for the change, unless the user says otherwise.
	rotateWait = time.Minute
)

func newKeyRotateCommand() *cobra.Command {
	var o controlOptions
	var own bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Change this node's key while everything runs",
		Long: `Changes this node's key. Nothing is restarted, and no connection of a client ends:

  1. a new key is written to node.key.next, beside node.key;
  2. all nodes take either key for this one;
  3. this node shows the new key;
  4. no node takes the old key any more, and the new one is in node.key.

With [peer_tls] the new key is the one that your authority has issued, and step 4 leaves the
files as they are. --own changes back from such a key to the one in node.key.

Run it as the account that may write beside the configuration. Step 3 waits until all nodes
are there: a node that is away would not know this node any more. If the command ends before
that, the agent goes on by itself: run the command again later, because only the command
moves the new key to node.key. Then write the new key into the [[member]] list of each
node.toml.

If somebody else has the key, do not use this command: "quorate key new" and "quorate node
set --key" shut the old key out at once. This node's agent must then be restarted.`,
		Example: `  quorate key rotate
  quorate key rotate --config /etc/quorate/node.toml --wait 10m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.rotateKey(cmd.Context(), cmd.OutOrStdout(), own, wait)
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&own, "own", false, "change from a key of your authority to the node's own, in node.key")
	durationFlag(cmd, &wait, "wait", rotateWait, "how long to wait for the other nodes")
	return cmd
}

// rotateKey lets this node's agent change its key, and then moves the new key's file to the place of the old one.
func (o *controlOptions) rotateKey(ctx context.Context, out io.Writer, own bool, wait time.Duration) error {
	named, err := namedConfig(o.path)
	if err != nil {
		return err
	}
	c, err := loadConfig(named)
	if err != nil {
		return err
	}
	if own && c.PeerTLS.CertificateFile == "" {
		return usage(fmt.Errorf("--own changes back from an authority, and %s has no [peer_tls]", named))
	}
	if c.PeerTLS.CertificateFile == "" { // it makes a file, and moves that in the end: no other command may do so meanwhile
		lock, err := vfs.OS{}.Lock(filepath.Dir(c.KeyFile))
		if errors.Is(err, vfs.ErrLocked) {
			return fmt.Errorf("nothing was done: another \"quorate key rotate\" runs for a key in %s: wait until it has ended", filepath.Dir(c.KeyFile))
		}
		if err != nil {
			return fmt.Errorf("change the node's key: %w", err)
		}
		defer func() { _ = lock.Close() }()
	}
	next, err := nextKey(c, own)
	if err != nil {
		return err
	}
	n, err := o.ownNode(ctx)
	if err != nil {
		return waits(err, c, next.Name())
	}
	before := n.Key == next.Name()
	if !before {
		var result cluster.ChangeResult
		change := cluster.KeysRequest{KeysChange: cluster.KeysChange{Name: c.Node, NextKey: new(next.Name())}}
		if err := o.ask(ctx, "node.key", change, &result); err != nil {
			return waits(err, c, next.Name())
		}
	}
	if err := o.awaitKey(ctx, next.Name(), wait); err != nil {
		return err
	}
	shown := shownKey{File: c.KeyFile, Key: next.Name()}
	if shown.Key.Issued() {
		shown.File = c.PeerTLS.CertificateFile
	} else if own {
		// the file is in its place already
	} else if err := takeNext(c.KeyFile, shown.Key); err != nil {
		return err
	}
	text := fmt.Sprintf("node %s has the key %s: write it into the [[member]] list of each node.toml\n", c.Node, shown.Key)
	if before && !own && !shown.Key.Issued() {
		text = "the key had been changed before, and no other one was made: to change it once more, run this again\n" + text
	}
	return o.print(out, shown, false, nil, text)
}

// waits adds to the error of a change that has not begun, as far as is known, that its key is kept for the next try.
func waits(err error, c config.Config, key cluster.Key) error {
	if c.PeerTLS.CertificateFile != "" { // that key is in its place already
		return err
	}
	return fmt.Errorf("%w; the new key %s waits in %s: run the command again", err, key, keys.NextFile(c.KeyFile))
}

// takeNext gives the next key the place of the node's key. It leaves both files as they are if the next one does not
// hold that key: then the place may have the last copy of a key that the node needs.
func takeNext(file string, want cluster.Key) error {
	next, err := nodekey.Load(keys.NextFile(file))
	if err == nil && next.Name() != want {
		err = fmt.Errorf("it holds the key %s", next.Name())
	}
	if err == nil {
		return keys.TakeNext(vfs.OS{}, file)
	}
	if own, _ := nodekey.Load(file); own != nil && own.Name() == want {
		return nil // somebody has moved it
	}
	return fmt.Errorf("this node's key is now %s, and %s was changed meanwhile (%w): put the file with that key at %s before the agent ends",
		want, keys.NextFile(file), err, file)
}

// nextKey reads the next key. If there is none, it makes one, in a file that belongs to the owner of the
// present key.
func nextKey(c config.Config, own bool) (*nodekey.Key, error) {
	file := c.KeyFile
	switch {
	case own:
		next, _, err := nodekey.LoadOrMake(file, ownerOf(c.PeerTLS.KeyFile))
		return next, err
	case c.PeerTLS.CertificateFile != "":
		return nodekey.LoadIssued(c.PeerTLS.CertificateFile, c.PeerTLS.KeyFile)
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no key in %s yet: \"quorate key new\" makes it", file)
	}
	next, _, err := nodekey.LoadOrMake(keys.NextFile(file), ownerOf(file))
	return next, err
}

// ownNode is this node as its agent sees it.
func (o *controlOptions) ownNode(ctx context.Context) (status.Node, error) {
	st, err := (&controlOptions{path: o.path}).agreed(ctx)
	if err != nil {
		return status.Node{}, err
	}
	return st.Own(), nil
}

// awaitKey waits until this node's agent shows a key, and the cluster knows the node only by that key.
func (o *controlOptions) awaitKey(ctx context.Context, next cluster.Key, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	reason := ""
	for {
		n, err := o.ownNode(ctx)
		switch {
		case err == nil && n.Key == next && slices.Equal(n.KnownBy, []cluster.Key{next}):
			return nil
		case err == nil:
			reason = n.Reason
		case ctx.Err() == nil:
			return err
		}
		select {
		case <-time.After(rotatePoll):
		case <-ctx.Done():
			return fmt.Errorf("the key is not changed yet: %s; the agent goes on, run \"quorate key rotate\" again later", cmp.Or(oneLine(reason), "the node's status says nothing of it"))
		}
	}
}
