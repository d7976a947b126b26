package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/front/control"
)

// controlTimeout bounds the wait for an agent's answer. It is longer than control.Timeout, by which the agent
// bounds the request: the agent's own answer says more than a timeout here.
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
	cmd.Flags().StringVar(&o.addr, "addr", "", "the agent's control `socket` (default: from the configuration)")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the result in JSON")
}

// askFlags adds the flags of a change that could stop writes.
func askFlags(cmd *cobra.Command, how *cluster.Ask) {
	dryRunFlag(cmd, &how.DryRun)
	cmd.Flags().BoolVar(&how.Force, "force", false, "do it even if writes stop")
}

// dryRunFlag adds --dry-run.
func dryRunFlag(cmd *cobra.Command, dryRun *bool) {
	cmd.Flags().BoolVarP(dryRun, "dry-run", "n", false, "say what would be done, and do nothing")
}

// controlSocket returns where requests go.
func (o *controlOptions) controlSocket() (string, error) {
	switch {
	case o.addr != "" && o.path != "":
		return "", usage(errTwoTargets)
	case o.addr != "" && !api.IsSocket(o.addr):
		return "", usage(fmt.Errorf("--addr %s: requests go to the agent's control socket, on its own host: DATA_DIR/control.sock, or say --config FILE", o.addr))
	case o.addr != "":
		return o.addr, nil
	}
	c, err := agentConfig(o.path)
	return c.ControlSocket(), err
}

// ask sends a request to the agent and decodes the result.
func (o *controlOptions) ask(ctx context.Context, name string, args, result any) error {
	socket, err := o.controlSocket()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("encode arguments: %w", err)
	}
	if err := hangs(ctx, socket); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.timeout, controlTimeout))
	defer cancel()
	answer, err := api.Control(ctx, socket, control.Request{Name: name, By: os.Getenv("SUDO_USER"), Args: raw})
	if err == nil {
		err = answer.Err()
	}
	if e, ok := errors.AsType[*control.Error](err); ok {
		if e.Code == control.CodeInvalid && strings.Contains(e.Text, "unknown field ") {
			err = control.Errorf(e.Code, "%s: an agent of an older quorate cannot obey this, and nothing was done: upgrade the agents first", e.Text)
		}
		return &exitError{controlExit(e.Code), err}
	}
	if errors.Is(err, api.ErrNoAnswer) && !slices.Contains([]string{"audit", "history", "sessions"}, name) {
		return &exitError{exitUncertain, control.Errorf(control.CodeUncertain, "%v; \"quorate history\" on another node shows whether the primary moved, "+
			"\"quorate audit\" all else", unanswered(err, socket))}
	}
	if err != nil {
		return o.withoutSocket(ctx, err, socket)
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("decode result: %w", err)
	}
	return nil
}

// errHangs is the error of an agent that takes connections and shows no sign of life.
var errHangs = errors.New("it is starting, or hangs")

// hangs is errHangs if the agent at a socket does not say its status, which it has in memory: no request is sent to
// such an agent.
func hangs(ctx context.Context, socket string) error {
	if _, err := askStatus(ctx, socket); !errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("ask agent at %s: no sign of life in %s: %w, and nothing was asked of it; use another node, and see this one's log (journalctl -u quorate)",
		socket, units.Duration(statusTimeout), errHangs)
}

// withoutSocket says why nobody takes requests at a socket. An agent has no socket before its node has data,
// and after the node was removed: then its API says so.
func (o *controlOptions) withoutSocket(ctx context.Context, err error, socket string) error {
	if o.addr == "" && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)) {
		if addr, wrong := statusAddress(o.path, ""); wrong == nil {
			st, asked := askStatus(ctx, addr)
			if n := st.Own(); asked == nil && n.Role.Outside() != "" {
				return &outsideError{fmt.Sprintf("node %s takes no requests, and nothing was done: it is %s: %s", n.Name, n.Role, oneLine(n.Reason)), err}
			}
		}
	}
	return unanswered(err, socket)
}

// outsideError says why a node has no socket for requests: it takes no part in the cluster. cause is the error of
// dialling the socket.
type outsideError struct {
	text  string
	cause error
}

func (e *outsideError) Error() string { return e.text }
func (e *outsideError) Unwrap() error { return e.cause }

// whoAsks names the OS account and the host for work that is done without an agent. (An agent knows the account by
// itself.) For root it adds the account that became root by sudo, as sudo says.
func whoAsks() string {
	name := fmt.Sprintf("uid %d", os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	name += "@" + cmp.Or(host, "unknown host")
	if sudo := os.Getenv("SUDO_USER"); sudo != "" && os.Geteuid() == 0 {
		name += " (sudo by " + sudo + ")"
	}
	return name
}

// unanswered says what to do if the agent at addr does not answer.
func unanswered(err error, addr string) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		hint := ""
		if c := config.Default(); addr == c.API.Listen || addr == c.ControlSocket() {
			hint = " --config FILE names another one"
		}
		return fmt.Errorf("%w: is the agent running there (systemctl status quorate)?%s", err, hint)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("ask agent at %s: it has not answered in time: see its log (journalctl -u quorate)", addr)
	case errors.Is(err, api.ErrToken):
		return fmt.Errorf("%w: set %s, or use sudo on that host: its control socket needs none", err, tokenVariable)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: only root, the agent's own account and members of [control] group may ask: use sudo", err)
	}
	return err
}

// controlExit is the exit code for the result of a request.
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

// change asks for a change of the cluster state and prints the result.
func (o *controlOptions) change(ctx context.Context, out io.Writer, name string, args any) error {
	var result cluster.ChangeResult
	if err := o.ask(ctx, name, args, &result); err != nil {
		return err
	}
	return o.print(out, result, result.DryRun, result.Stops, changeText(result))
}

// print prints what became of a change, in JSON or as a text. A dry run with something in the way ends
// with exit code 1.
func (o *controlOptions) print(out io.Writer, result any, dryRun bool, inTheWay []string, text string) (err error) {
	possible := len(inTheWay) == 0
	switch {
	case !o.asJSON:
		err = printText(out, text)
	case !dryRun:
		err = printJSON(out, result)
	default:
		err = printDryRun(out, result, possible)
	}
	if !dryRun {
		return wasDone(err)
	}
	if err == nil && dryRun && !possible {
		err = &exitError{code: exitFailure}
	}
	return err
}

// wasDone is the error of a command that has done its work and cannot print the result: it has not failed.
func wasDone(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUncertain, fmt.Errorf("it was done, but the result cannot be printed: %w", err)}
}

// printDryRun prints the result of a dry run. For every kind of request it has two fields: whether the request could
// be carried out ("possible"), and what that would mean ("notes").
func printDryRun(out io.Writer, result any, possible bool) error {
	raw, err := json.Marshal(result)
	fields := map[string]json.RawMessage{"notes": json.RawMessage("[]")}
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	fields["dry_run"], fields["possible"] = json.RawMessage("true"), json.RawMessage(strconv.FormatBool(possible))
	return printJSON(out, fields)
}

func changeText(result cluster.ChangeResult) string {
	text := oneLine(cmp.Or(result.Done, "done: "+result.What)) + "\n" // an older agent has no sentence
	switch {
	case result.DryRun && len(result.Stops) > 0:
		text = fmt.Sprintf("it would be refused without --force: %s\n", oneLine(result.What))
	case result.DryRun:
		text = fmt.Sprintf("it could be done now: %s\n", oneLine(result.What))
	case !result.Changed:
		text = fmt.Sprintf("it was so already: %s\n", oneLine(result.What))
	}
	for _, stop := range result.Stops {
		text += "writes stop: " + oneLine(stop) + "\n"
	}
	return text + noteLines(result.Notes)
}

func noteLines(notes []string) (text string) {
	for _, n := range notes {
		text += "note: " + oneLine(n) + "\n"
	}
	return text
}
