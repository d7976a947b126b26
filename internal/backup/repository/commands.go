package repository

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/sys/subprocess"
)

// Commands are an operator's: /bin/sh runs them, with the object's name in QUORATE_OBJECT.
type Commands struct {
	// Put stores its stdin, Get writes the object to its stdout. List prints a name in each line.
	Put, Get, List, Delete string
}

const (
	objectVariable = "QUORATE_OBJECT"
	// saidBytesMax is how much of what a command says is kept.
	saidBytesMax = 4 << 10
	// waitDelay is how long a command that was killed may hold its pipes open.
	waitDelay = 5 * time.Second
)

// commands is a repository that commands reach.
type commands struct{ Commands }

// NewCommands is the repository that an operator's commands reach.
func NewCommands(c Commands) Store { return commands{c} }

// command makes one. It ends with ctx, and all that it has started.
func (c commands) command(ctx context.Context, setting, text, object string) (*exec.Cmd, *said, error) {
	if text == "" {
		return nil, nil, fmt.Errorf("backup.%s is not set, and is needed here", setting)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", text)
	cmd.Env = append(os.Environ(), objectVariable+"="+object)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = waitDelay
	errors := &said{}
	cmd.Stderr = errors
	return cmd, errors, nil
}

// said keeps the end of what a command says.
type said struct{ text []byte }

// Write implements io.Writer.
func (s *said) Write(p []byte) (int, error) {
	s.text = append(s.text, p...)
	if over := len(s.text) - saidBytesMax; over > 0 {
		s.text = slices.Delete(s.text, 0, over)
	}
	return len(p), nil
}

// failed says why a command failed.
func failed(ctx context.Context, setting string, s *said, err error) error {
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(string(bytes.ToValidUTF8(s.text, []byte("?")))), " ")
	return fmt.Errorf("backup.%s: %w: %s", setting, errors.Join(context.Cause(ctx), err), cmp.Or(text, "it said nothing"))
}

// ended is how a command has ended. What it has left running may hold its output open: it has ended well all the same.
func ended(err error) error {
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}

// Put implements Store.
func (c commands) Put(ctx context.Context, name string, fill func(io.Writer) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd, said, err := c.command(ctx, "put_command", c.Commands.Put, name)
	if err != nil {
		return err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("run backup.put_command: %w", err)
	}
	if err := startDying(ctx, cmd); err != nil {
		return fmt.Errorf("run backup.put_command: %w", errors.Join(context.Cause(ctx), err))
	}
	pipe := &input{w: in}
	err = fill(pipe)
	if pipe.broken != nil { // it has ended itself, and says why
		return failed(ctx, "put_command", said, errors.Join(cmp.Or(err, pipe.broken), ended(cmd.Wait())))
	}
	if err != nil {
		// It must not take half an object for a whole one: it is killed before its input ends.
		cancel(err)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
		return err
	}
	err = in.Close()
	return failed(ctx, "put_command", said, errors.Join(ended(cmd.Wait()), ignoreClosed(err)))
}

// startDying starts a command that the kernel kills when this process is killed: the end of its input, which comes then, must not
// look like that of an object. ctx ends once the command was waited for.
func startDying(ctx context.Context, cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	subprocess.OnThread(func() { // with the thread that has started it, too
		err := cmd.Start()
		started <- err
		if err == nil {
			<-ctx.Done()
		}
	})
	return <-started
}

// input is a command's. What is broken is told apart from other pipes that fill may use.
type input struct {
	w      io.Writer
	broken error
}

// Write implements io.Writer.
func (i *input) Write(p []byte) (int, error) {
	n, err := i.w.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		i.broken = err
	}
	return n, err
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// Get implements Store.
func (c commands) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd, said, err := c.command(ctx, "get_command", c.Commands.Get, name)
	if err != nil {
		cancel()
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("run backup.get_command: %w", err)
	}
	return &commandReader{ctx: ctx, cancel: cancel, cmd: cmd, out: bufio.NewReaderSize(out, 1<<16), said: said}, nil
}

// commandReader reads what a command writes. io.EOF comes only where it ended well.
type commandReader struct {
	ctx    context.Context
	cancel func()
	cmd    *exec.Cmd
	out    io.Reader
	said   *said
	ended  error
	waited bool
}

// Read implements io.Reader.
func (r *commandReader) Read(p []byte) (int, error) {
	if r.waited {
		return 0, cmp.Or(r.ended, io.EOF)
	}
	n, err := r.out.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	r.waited = true
	r.ended = failed(r.ctx, "get_command", r.said, ended(r.cmd.Wait()))
	return n, cmp.Or(r.ended, io.EOF)
}

// Close implements io.Closer.
func (r *commandReader) Close() error {
	r.cancel()
	if !r.waited {
		r.waited = true
		r.ended = os.ErrClosed
		_ = r.cmd.Wait() // it was killed
	}
	return nil
}

// List implements Store.
func (c commands) List(ctx context.Context) (objects []Object, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd, said, err := c.command(ctx, "list_command", c.Commands.List, "")
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("run backup.list_command: %w", err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && len(objects) <= ObjectsMax {
		if name := strings.TrimSpace(lines.Text()); checkName(name) == nil {
			objects = append(objects, Object{name, -1})
		}
	}
	if len(objects) > ObjectsMax {
		cancel()
		_ = cmd.Wait() // it was killed
		return nil, tooMany("the repository")
	}
	if err := lines.Err(); err != nil {
		cancel()
		_ = cmd.Wait() // it was killed: nobody reads what else it prints
		return nil, fmt.Errorf("backup.list_command does not print a name in each line: %w", err)
	}
	if err := ended(cmd.Wait()); err != nil {
		return nil, failed(ctx, "list_command", said, err)
	}
	slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return objects, nil
}

// Delete implements Store.
func (c commands) Delete(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	cmd, said, err := c.command(ctx, "delete_command", c.Commands.Delete, name)
	if err != nil {
		return err
	}
	return failed(ctx, "delete_command", said, ended(cmd.Run()))
}
