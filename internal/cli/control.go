package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/api"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
)

// controlTimeout bounds the wait for an agent's answer to a request that it
// bounds by control.Timeout: the answer says more than that there is none.
const controlTimeout = control.Timeout + 10*time.Second

// controlOptions are the flags of all requests to an agent.
type controlOptions struct {
	path, addr string
	asJSON     bool
	// timeout bounds the wait for the answer; 0 = controlTimeout.
	timeout time.Duration
}

func (o *controlOptions) flags(cmd *cobra.Command) {
	configFlag(cmd, &o.path)
	cmd.Flags().StringVar(&o.addr, "addr", "", "`host:port` of the agent's api, on this host")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the result in JSON")
}

// ask sends a request and decodes the result of what was carried out.
func (o *controlOptions) ask(ctx context.Context, name string, args, result any) error {
	addr, err := statusAddress(o.path, o.addr)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("encode arguments: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.timeout, controlTimeout))
	defer cancel()
	answer, err := api.Control(ctx, addr, control.Request{Name: name, By: whoAsks(), Args: raw})
	if err == nil {
		err = answer.Err()
	}
	if e, ok := errors.AsType[*control.Error](err); ok {
		return &exitError{controlExit(e.Code), err}
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("decode result: %w", err)
	}
	return nil
}

// controlExit is the exit code for what became of a request.
func controlExit(code control.Code) int {
	switch code {
	case control.CodeInvalid:
		return exitUsage
	case control.CodeNoLeader, control.CodeNotLeader:
		return exitNoPrimary
	case control.CodeUncertain:
		return exitUncertain
	}
	return exitFailure
}

// whoAsks names the OS user and the host, for the audit log. Who became root by
// sudo is named as who they were.
func whoAsks() string {
	name := os.Getenv("SUDO_USER")
	if name == "" || os.Geteuid() != 0 {
		name = fmt.Sprintf("uid %d", os.Getuid())
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	host, _ := os.Hostname()
	return name + "@" + cmp.Or(host, "unknown host")
}

// change asks for a change of the cluster state and prints what became of it.
func (o *controlOptions) change(ctx context.Context, out io.Writer, name string, args any) error {
	var result cluster.ChangeResult
	if err := o.ask(ctx, name, args, &result); err != nil {
		return err
	}
	if o.asJSON {
		return printJSON(out, result)
	}
	text := fmt.Sprintf("%s: done, version %d of the cluster state\n", oneLine(result.What), result.Version)
	if result.DryRun {
		text = fmt.Sprintf("%s: it could be done now\n", oneLine(result.What))
	} else if !result.Changed {
		text = fmt.Sprintf("%s: it was so already\n", oneLine(result.What))
	}
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}
