package peers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// templateWait bounds the initialisation of a data directory.
const templateWait = 3 * time.Minute

// template returns a data directory, which makes initialises once for each name
// and key. The directory appears by a rename, so it is always complete. Two runs of the lab never use the
// templates at the same time: a run owns the machine.
func (d *Deployment) template(ctx context.Context, name, key string, makes func(ctx context.Context, dir string) error) (string, error) {
	dir := filepath.Join(d.opts.Templates, fmt.Sprintf("%s-%x", name, sha256.Sum256([]byte(key)))[:len(name)+13])
	if exists(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(d.opts.Templates, 0o755); err != nil {
		return "", fmt.Errorf("create template directory: %w", err)
	}
	work := dir + ".tmp"
	if err := os.RemoveAll(work); err != nil {
		return "", fmt.Errorf("remove old template: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, templateWait)
	defer cancel()
	if err := makes(ctx, work); err != nil {
		return "", errors.Join(fmt.Errorf("initialise a data directory of %s: %w", name, err), os.RemoveAll(work))
	}
	// Each copy is another server, and makes a server_uuid of its own.
	if err := os.Remove(filepath.Join(work, "auto.cnf")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("make template anonymous: %w", err)
	}
	if err := os.Rename(work, dir); err != nil {
		return "", fmt.Errorf("keep template: %w", err)
	}
	return dir, nil
}

// run runs a program to its end, on a node; its output goes to the file log.
func (d *Deployment) run(ctx context.Context, node string, cmd *exec.Cmd, log string) error {
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return fmt.Errorf("create log directory: %w", err)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer out.Close() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = out, out
	p, err := d.opts.Network.Start(node, cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Kill())
	}
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("run %s: %v; %s", cmd.Path, cmd.ProcessState, tail(log))
	}
	return nil
}

// copyTree copies a directory, by reference where the file system can.
func copyTree(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	out, err := exec.CommandContext(ctx, "cp", "-a", "--reflink=auto", "--sparse=auto", "-T", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy template: %w: %s", err, out)
	}
	return nil
}
