package repository

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/sys/subprocess"
)

// Commands are the operator's commands. /bin/sh runs them, with the object's name in
// QUORATE_OBJECT, and for Put a name for its unfinished object in QUORATE_PART.
type Commands struct {
	// Put stores its stdin, Get writes the object to its stdout, List prints one name in each
	// line, Delete deletes the object.
	Put, Get, List, Delete string
	// Idle is how long a command may neither read, nor write, nor end, before it is killed; 0 = for ever.
	Idle time.Duration
}

const (
	objectVariable = "QUORATE_OBJECT"
	// partVariable is another name at each Put: two archives may store the same object at the same time.
	partVariable = "QUORATE_PART"
	// saidBytesMax is how many last bytes of a command's error output are kept.
	saidBytesMax = 4 << 10
	// pieceBytesMax is how much of its input a command gets at once. A command that reads less than that in Idle
	// counts as idle.
	pieceBytesMax = 16 << 10
	// waitDelay is how long a killed command may hold its pipes open.
	waitDelay = 5 * time.Second
)

// commands is a repository that is reached by commands.
type commands struct{ Commands }

// NewCommands returns the repository that the operator's commands reach.
func NewCommands(c Commands) Store { return commands{c} }

// command makes a command. When ctx ends, it is killed with its whole process group.
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

// idle kills a command that does nothing while we wait for it. It does not count the time of our own side: a slow
// source of an object, or a slow reader.
type idle struct {
	limit time.Duration
	timer *time.Timer
}

// idleEnds returns the idle of a command; cancel must kill the command. A process that has left the command's group
// may still hold the pipe, so the pipe is closed afterwards.
func (c commands) idleEnds(cancel func(error), pipe io.Closer) *idle {
	i := &idle{limit: c.Idle}
	if i.limit > 0 {
		i.timer = time.AfterFunc(math.MaxInt64, func() {
			cancel(fmt.Errorf("it has taken nothing, given nothing and not ended for %s, and was killed", units.Duration(i.limit)))
			time.AfterFunc(waitDelay, func() { _ = pipe.Close() })
		})
	}
	return i
}

// waits runs wait, which waits for the command, under the limit.
func (i *idle) waits(wait func()) {
	if i.timer != nil {
		i.timer.Reset(i.limit)
		defer i.timer.Stop()
	}
	wait()
}

// said keeps the last bytes of a command's error output.
type said struct{ text []byte }

// Write implements io.Writer.
func (s *said) Write(p []byte) (int, error) {
	s.text = append(s.text, p...)
	if over := len(s.text) - saidBytesMax; over > 0 {
		s.text = slices.Delete(s.text, 0, over)
	}
	return len(p), nil
}

// failed returns why a command failed; nil if err is nil.
func failed(ctx context.Context, setting string, s *said, err error) error {
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(string(bytes.ToValidUTF8(s.text, []byte("?")))), " ")
	return fmt.Errorf("backup.%s: %w: %s", setting, errors.Join(context.Cause(ctx), err), cmp.Or(text, "it said nothing"))
}

// ended returns how a command has ended. If a process that it left running holds its output open, the command itself
// has still ended well.
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
	cmd.Env = append(cmd.Env, partVariable+"="+name+"."+rand.Text())
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("run backup.put_command: %w", err)
	}
	if err := startDying(ctx, cmd); err != nil {
		return fmt.Errorf("run backup.put_command: %w", errors.Join(context.Cause(ctx), err))
	}
	idle := c.idleEnds(cancel, in)
	wait := func() (err error) {
		idle.waits(func() { err = ended(cmd.Wait()) })
		return err
	}
	pipe := &input{w: in, idle: idle}
	err = fill(pipe)
	if pipe.broken != nil { // the command has ended by itself, and its output says why; or it was idle
		return failed(ctx, "put_command", said, errors.Join(cmp.Or(err, pipe.broken), wait()))
	}
	if err != nil {
		// The command must not take half an object for a whole one: kill it before its input
		// ends.
		cancel(err)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed, so its error says nothing
		return err
	}
	err = in.Close()
	return failed(ctx, "put_command", said, errors.Join(wait(), ignoreClosed(err)))
}

// startDying starts a command that the kernel kills when this process is killed: its input then ends, and the command
// must not take that for the end of the object. ctx must end after the command has ended.
func startDying(ctx context.Context, cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	subprocess.OnThread(func() { // the command also dies with the thread that started it
		err := cmd.Start()
		started <- err
		if err == nil {
			<-ctx.Done()
		}
	})
	return <-started
}

// input is the input of a command. broken is an error of this pipe, as opposed to other pipes
// that fill may use.
type input struct {
	w      io.Writer
	idle   *idle
	broken error
}

// Write implements io.Writer.
func (i *input) Write(p []byte) (written int, err error) {
	for piece := range slices.Chunk(p, pieceBytesMax) {
		n := 0
		i.idle.waits(func() { n, err = i.w.Write(piece) })
		if written += n; err != nil {
			i.broken = err
			return written, err
		}
	}
	return written, nil
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
	ctx, cancel := context.WithCancelCause(ctx)
	cmd, said, err := c.command(ctx, "get_command", c.Commands.Get, name)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("run backup.get_command: %w", err)
	}
	return &commandReader{ctx: ctx, cancel: func() { cancel(nil) }, cmd: cmd, out: bufio.NewReaderSize(out, 1<<16), idle: c.idleEnds(cancel, out), said: said}, nil
}

// commandReader reads the output of a command. It returns io.EOF only if the command ended
// well.
type commandReader struct {
	ctx    context.Context
	cancel func()
	cmd    *exec.Cmd
	out    io.Reader
	idle   *idle
	said   *said
	ended  error
	waited bool
}

// Read implements io.Reader.
func (r *commandReader) Read(p []byte) (n int, err error) {
	if r.waited {
		return 0, cmp.Or(r.ended, io.EOF)
	}
	r.idle.waits(func() { n, err = r.out.Read(p) })
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) && r.ctx.Err() == nil {
		return n, fmt.Errorf("%w: %w", ErrGet, err)
	}
	r.waited = true
	r.idle.waits(func() { r.ended = ended(r.cmd.Wait()) })
	if r.ended = failed(r.ctx, "get_command", r.said, r.ended); r.ended != nil {
		r.ended = fmt.Errorf("%w: %w", ErrGet, r.ended)
	}
	return n, cmp.Or(r.ended, io.EOF)
}

// Close implements io.Closer.
func (r *commandReader) Close() error {
	r.cancel()
	if !r.waited {
		r.waited = true
		r.ended = os.ErrClosed
		_ = r.cmd.Wait() // it was killed, so its error says nothing
	}
	return nil
}

// decoratedName fits a line that has more than the name of a backup's object: of "ls -l", or a path.
var decoratedName = regexp.MustCompile(`[/\s](full|log)-[0-9][^/\s]*$`)

// List implements Store.
func (c commands) List(ctx context.Context) (objects []Object, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
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
	lines, idle := bufio.NewScanner(out), c.idleEnds(cancel, out)
	scan := func() (more bool) {
		idle.waits(func() { more = lines.Scan() })
		return more
	}
	decorated := ""
	for scan() && len(objects) <= ObjectsMax {
		name := strings.TrimSpace(lines.Text())
		if checkName(name) == nil {
			objects = append(objects, Object{name, -1})
		} else if decorated == "" && decoratedName.MatchString(name) {
			decorated = name
		}
	}
	if len(objects) > ObjectsMax {
		cancel(nil)
		_ = cmd.Wait() // it was killed, so its error says nothing
		return nil, tooMany("the repository")
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		cancel(nil)
		_ = cmd.Wait() // it was killed: nobody reads the rest of its output
		return nil, fmt.Errorf("backup.list_command does not print a name in each line: %w", err)
	}
	idle.waits(func() { err = ended(cmd.Wait()) })
	if err != nil {
		return nil, failed(ctx, "list_command", said, err)
	}
	if len(objects) == 0 && decorated != "" { // else the repository would count as empty
		return nil, fmt.Errorf("backup.list_command must print in each line the name of an object and nothing else: no path, no size. It printed %.300q", decorated)
	}
	slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return objects, nil
}

// Delete implements Store.
func (c commands) Delete(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd, said, err := c.command(ctx, "delete_command", c.Commands.Delete, name)
	if err != nil {
		return err
	}
	c.idleEnds(cancel, io.NopCloser(nil)).waits(func() { err = ended(cmd.Run()) })
	return failed(ctx, "delete_command", said, err)
}

// Parts implements Store.
func (c commands) Parts(context.Context, bool) ([]Part, error) { return nil, nil }

// Whole implements Store. It is not known what a command leaves when it is killed, or its host stops.
func (c commands) Whole() bool { return false }
