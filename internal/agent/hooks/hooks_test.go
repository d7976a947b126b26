package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node's board and disk, and a hook that does what it is told to.
type node struct {
	mu      sync.Mutex
	state   State
	changed chan struct{}
	note    datadir.HookNote
	broken  error // of the disk
	told    []Told
	trouble string
	execute func(ctx context.Context) error
}

func newNode(role status.Role, primary string) *node {
	return &node{state: State{Role: role, Primary: primary}, changed: make(chan struct{})}
}

func (n *node) set(role status.Role, primary string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state.Role, n.state.Primary = role, primary
	n.wake()
}

func (n *node) wake() {
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) look() (State, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state, n.changed
}

func (n *node) HookNote() (datadir.HookNote, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.note, n.broken
}

func (n *node) WriteHookNote(note datadir.HookNote) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.broken == nil {
		n.note = note
	}
	return n.broken
}

func (n *node) teller() *Teller {
	return New(Config{
		Cluster: "shop", Node: "a", Timeout: 10 * time.Second, Look: n.look, Notes: n, Logger: slog.New(slog.DiscardHandler),
		Trouble: func(text string) { n.mu.Lock(); n.trouble = text; n.mu.Unlock() },
		Execute: func(ctx context.Context, t Told, input []byte) (string, error) {
			n.mu.Lock()
			var read Told
			if err := json.Unmarshal(input, &read); err != nil || !cmp.Equal(read, t) {
				n.trouble = fmt.Sprintf("the input is %s, %v", input, err)
			}
			n.told = append(n.told, t)
			execute := n.execute
			n.mu.Unlock()
			if execute == nil {
				return "", nil
			}
			return "words", execute(ctx)
		},
	})
}

func (n *node) troubled() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.trouble
}

// saw returns what the hook was told, and forgets it.
func (n *node) saw() (texts []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.told {
		texts = append(texts, fmt.Sprintf("%d %s->%s %s->%s", t.Sequence, t.PreviousRole, t.Role, t.PreviousPrimary, t.Primary))
	}
	n.told = nil
	return texts
}

func (n *node) want(t *testing.T, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, n.saw()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// run runs a teller until stop, which waits for its end.
func run(t *testing.T, n *node) (teller *Teller, stop func()) {
	t.Helper()
	teller = n.teller()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- teller.Run(ctx) }()
	return teller, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestChangesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(status.RoleStarting, "")
		_, stop := run(t, n)
		n.want(t, "the first state", "1 ->starting ->")
		n.set(status.RoleReplica, "b")
		n.want(t, "a change", "2 starting->replica ->b")
		n.mu.Lock()
		n.wake()
		n.mu.Unlock()
		n.want(t, "nothing that matters")
		n.set(status.RoleReplica, "c")
		n.want(t, "another primary", "3 replica->replica b->c")
		stop()
		n.set(status.RolePrimary, "a")
		_, stop = run(t, n)
		n.want(t, "what came while the agent was away", "4 replica->primary c->a")
		stop()
		_, stop = run(t, n)
		n.want(t, "a restart without a change")
		stop()
	})
}

// TestNewestIsTold: one run at a time; a state that came and went meanwhile is not told.
func TestNewestIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(status.RoleReplica, "b")
		running := 0
		n.execute = func(ctx context.Context) error {
			running++
			if running > 1 {
				t.Error("two run at a time")
			}
			<-time.After(5 * time.Second)
			running--
			return nil
		}
		_, stop := run(t, n)
		n.want(t, "the first", "1 ->replica ->b")
		n.set(status.RolePromoting, "")
		n.set(status.RolePrimary, "a")
		n.want(t, "while it runs")
		time.Sleep(6 * time.Second)
		n.want(t, "the newest", "2 replica->primary b->a")
		time.Sleep(6 * time.Second)
		n.want(t, "and no more")
		stop()
	})
}

// TestFailuresAreRetried: ever more slowly, until a newer state comes.
func TestFailuresAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(status.RoleReplica, "b")
		n.execute = func(context.Context) error { return errors.New("exit status 1") }
		teller, stop := run(t, n)
		n.want(t, "at once", "1 ->replica ->b")
		if s := teller.Stats(); s.Runs != 1 || s.Failures != 1 || !s.Failing {
			t.Errorf("%+v", s)
		}
		if !strings.Contains(n.troubled(), `the role is replica and the primary "b": exit status 1: it said "words"`) {
			t.Errorf("trouble %q", n.troubled())
		}
		time.Sleep(time.Second)
		n.want(t, "after a second", "2 ->replica ->b")
		time.Sleep(2*time.Second - 1)
		n.want(t, "not yet")
		time.Sleep(time.Nanosecond)
		n.want(t, "after two more", "3 ->replica ->b")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if tries := len(n.saw()); tries < 9 || tries > 15 {
			t.Errorf("%d tries in ten minutes", tries)
		}
		n.set(status.RolePrimary, "a")
		synctest.Wait()
		if got := n.saw(); len(got) != 1 || !strings.HasSuffix(got[0], " ->primary ->a") {
			t.Errorf("a newer state is told at once: %v", got)
		}
		n.mu.Lock()
		n.execute = nil
		n.mu.Unlock()
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		if got := n.saw(); len(got) != 1 {
			t.Errorf("a second later: %v", got)
		}
		if s := teller.Stats(); s.Failing || n.troubled() != "" {
			t.Errorf("%+v, trouble %q", s, n.troubled())
		}
		stop()
	})
}

// TestTimeLimit: a program that hangs is killed, and tried again.
func TestTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(status.RoleReplica, "b")
		n.execute = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		_, stop := run(t, n)
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if !strings.Contains(n.troubled(), "it has run for longer than 10s, and was killed") {
			t.Errorf("trouble %q", n.troubled())
		}
		began := time.Now()
		time.Sleep(2 * time.Second) // it runs again
		stop()
		if took := time.Since(began); took > 2*time.Second+stopWait {
			t.Errorf("the agent's end waited for %s", took)
		}
		if note, _ := n.HookNote(); !note.Pending {
			t.Errorf("it was not told, and the note says %+v", note)
		}
	})
}

// TestKilledInTheMiddle: an agent that is killed while the hook runs tells the state of its next
// start, even if that is what the hook was told before.
func TestKilledInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(status.RoleReplica, "b")
		_, stop := run(t, n)
		n.want(t, "a replica", "1 ->replica ->b")
		n.execute = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		n.set(status.RolePrimary, "a")
		synctest.Wait()
		killed, _ := n.HookNote() // what the disk has now
		stop()
		n = newNode(status.RoleReplica, "b")
		n.note = killed
		_, stop = run(t, n)
		n.want(t, "as before, and told again", "3 replica->replica b->b")
		stop()
		_, stop = run(t, n)
		n.want(t, "and not once more")
		stop()
	})
}

// TestNoteIsBroken: a full disk, which takes no note, keeps no program from being told. It is told again until the disk
// takes the note. A node whose disk was full once kept its address: nobody told its hook to take it away.
func TestNoteIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(status.RoleReplica, "b")
		_, stop := run(t, n)
		n.want(t, "a replica", "1 ->replica ->b")
		n.mu.Lock()
		n.broken = errors.New("no space left")
		n.mu.Unlock()
		n.set(status.RoleFenced, "b")
		n.want(t, "fenced", "2 replica->fenced b->b")
		if !strings.Contains(n.troubled(), "the hook was told that the role is fenced") || !strings.Contains(n.troubled(), "no space left") {
			t.Errorf("trouble %q", n.troubled())
		}
		n.mu.Lock()
		n.execute = func(context.Context) error { return errors.New("exit status 1") }
		n.mu.Unlock()
		time.Sleep(time.Second)
		n.want(t, "again", "3 replica->fenced b->b")
		if !strings.Contains(n.troubled(), "the hook was not told that the role is fenced") {
			t.Errorf("trouble %q", n.troubled())
		}
		n.mu.Lock()
		n.broken, n.execute = nil, nil
		n.mu.Unlock()
		time.Sleep(time.Minute)
		n.want(t, "with space again", "4 replica->fenced b->b")
		if n.troubled() != "" || n.note.Pending {
			t.Errorf("trouble %q, note %+v", n.troubled(), n.note)
		}
		stop()
	})
}

// TestFullDiskIsSeen: a program that fails while the disk takes no note counts as failing.
func TestFullDiskIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(status.RoleReplica, "b")
		n.broken, n.execute = errors.New("no space left"), func(context.Context) error { return errors.New("exit status 1") }
		teller, stop := run(t, n)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s := teller.Stats(); !s.Failing || s.Failures < 9 || s.Runs != s.Failures {
			t.Errorf("%+v", s)
		}
		stop()
	})
}

// TestToldNoteIsBroken: if it cannot be noted that the hook was told, the hook is told again, and the status says why
// for as long as that lasts.
func TestToldNoteIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(status.RoleReplica, "b")
		n.execute = func(context.Context) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.broken = errors.New("no space left")
			return nil
		}
		_, stop := run(t, n)
		n.want(t, "told", "1 ->replica ->b")
		if !strings.Contains(n.troubled(), "no space left") {
			t.Errorf("trouble %q", n.troubled())
		}
		n.mu.Lock()
		n.broken, n.execute = nil, nil
		n.mu.Unlock()
		time.Sleep(time.Minute)
		n.want(t, "with space again", "2 ->replica ->b")
		if n.troubled() != "" {
			t.Errorf("trouble %q", n.troubled())
		}
		stop()
	})
}

// script writes a shell script.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestExecute runs real programs: what they get, what is kept of what they say, how they end.
func TestExecute(t *testing.T) {
	t.Setenv("QUORATE_SECRET", "x")
	told := Told{Cluster: "shop", Node: "a", Role: status.RolePrimary, PreviousRole: status.RoleReplica, Primary: "a", PreviousPrimary: "b", PrimaryPeer: "h:1"}
	dir := t.TempDir()
	path := script(t, `cat > "$1/input"; env | sort > "$1/env"; echo "$2"; printf 'a\033b\n' >&2`)
	output, err := Execute([]string{path, dir, "two words"})(t.Context(), told, []byte(`{"x":1}`))
	if err != nil || output != "two words a b" {
		t.Errorf("%q, %v", output, err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "input")); string(got) != `{"x":1}` {
		t.Errorf("input %q", got)
	}
	env, _ := os.ReadFile(filepath.Join(dir, "env"))
	for _, line := range []string{"QUORATE_ROLE=primary", "QUORATE_PREVIOUS_ROLE=replica", "QUORATE_PRIMARY=a", "QUORATE_NODE=a", "PATH=/usr/local/sbin"} {
		if !strings.Contains(string(env), line) {
			t.Errorf("the environment lacks %s:\n%s", line, env)
		}
	}
	if strings.Contains(string(env), "SECRET") {
		t.Errorf("the environment has what is not the hook's:\n%s", env)
	}
	output, err = Execute([]string{script(t, `head -c 100000 /dev/zero | tr '\0' x; exit 3`)})(t.Context(), told, nil)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || len(output) > outputBytesMax+8 || !strings.HasSuffix(output, "x …") {
		t.Errorf("%d bytes, %v", len(output), err)
	}
	if _, err := Execute([]string{"/nonexistent"})(t.Context(), told, nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestExecuteKillsAll: at the end of its time the hook ends with what it has started.
func TestExecuteKillsAll(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "pid")); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := Execute([]string{script(t, `sleep 1000 & echo $! > "$1/new"; mv "$1/new" "$1/pid"; wait`), dir})(ctx, Told{}, nil)
	if err == nil {
		t.Error("it has ended well")
	}
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("what it has started runs: %s", stat)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestExecuteLeavesSomethingRunning: what the hook has started, and left running with its output open, does not make it fail.
func TestExecuteLeavesSomethingRunning(t *testing.T) {
	output, err := Execute([]string{script(t, `sleep 1000 & echo "$!"`)})(t.Context(), Told{}, nil)
	pid, wrong := strconv.Atoi(output)
	if wrong != nil {
		t.Fatalf("%q, %v", output, err)
	}
	if err := errors.Join(err, syscall.Kill(pid, syscall.SIGKILL)); err != nil {
		t.Error(err)
	}
}
