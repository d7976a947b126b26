package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode"
)

const (
	// outputBytesMax is how much of what a program says is kept.
	outputBytesMax = 2 << 10
	// outputWait bounds how long its output is read once it has ended: a process that it has left
	// running may hold the output open.
	outputWait = time.Second
)

// Execute runs a command that is told a change: in JSON on its standard input, and the main fields
// in its environment. The environment has nothing else from the agent.
func Execute(command []string) func(ctx context.Context, t Told, input []byte) (string, error) {
	return func(ctx context.Context, t Told, input []byte) (string, error) {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir = "/"
		cmd.Env = []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
			"QUORATE_CLUSTER=" + t.Cluster, "QUORATE_NODE=" + t.Node, "QUORATE_ROLE=" + string(t.Role), "QUORATE_PREVIOUS_ROLE=" + string(t.PreviousRole),
			"QUORATE_PRIMARY=" + t.Primary, "QUORATE_PREVIOUS_PRIMARY=" + t.PreviousPrimary, "QUORATE_PRIMARY_PEER=" + t.PrimaryPeer,
		}
		cmd.Stdin = bytes.NewReader(input)
		said := &bounded{}
		cmd.Stdout, cmd.Stderr = said, said
		// Processes that it starts are in its process group, and are killed with it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = outputWait
		err := cmd.Run()
		if errors.Is(err, exec.ErrWaitDelay) { // the command itself has ended well
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("run %s: %w", command[0], err)
		}
		return said.text(), err
	}
}

// bounded keeps the beginning of what is written to it. os/exec writes from one goroutine.
type bounded struct {
	kept []byte
	more bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := min(len(p), outputBytesMax-len(b.kept))
	b.kept = append(b.kept, p[:room]...)
	b.more = b.more || room < len(p)
	return len(p), nil
}

// text returns what was kept in one line, without what cannot be printed.
func (b *bounded) text() string {
	line := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(string(b.kept), "?"), func(r rune) bool { return !unicode.IsPrint(r) }), " ")
	if b.more {
		line += " …"
	}
	return strings.TrimSpace(line)
}
