package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster/status"
)

const (
	// noteFormat is the format of what a program is told.
	noteFormat = 1
	// retryMin and retryMax bound the pause after a failure.
	retryMin = time.Second
	retryMax = time.Minute
	// stopWait bounds how long the agent's end waits for a program that runs.
	stopWait = 5 * time.Second
)

// State is what a program is told of.
type State struct {
	Role    status.Role
	Primary string
	// PrimaryPeer is the host:port where the primary's agent listens for others; "" = no primary
	// is known.
	PrimaryPeer string
	Term        uint64
}

// Told is what a program is told, in JSON. Fields are only added.
type Told struct {
	Format  int       `json:"format"`
	Cluster string    `json:"cluster"`
	Node    string    `json:"node"`
	At      time.Time `json:"at"`
	// Sequence grows by one with each call on this node.
	Sequence uint64 `json:"sequence"`
	// Role is this node's role, PreviousRole the role that was told last; "" = none was told.
	Role         status.Role `json:"role"`
	PreviousRole status.Role `json:"previous_role"`
	// Primary is the name of the node that is open for writes; "" = none is known.
	Primary         string `json:"primary"`
	PreviousPrimary string `json:"previous_primary"`
	PrimaryPeer     string `json:"primary_peer"`
	Term            uint64 `json:"term"`
}

// Notes keeps durably what was told.
type Notes interface {
	HookNote() (datadir.HookNote, error)
	WriteHookNote(n datadir.HookNote) error
}

// Config says whom to tell, and of what.
type Config struct {
	Cluster, Node string
	// Timeout bounds one run.
	Timeout time.Duration
	// Look returns the newest state, and a channel that is closed when it may have changed.
	Look  func() (State, <-chan struct{})
	Notes Notes
	// Execute runs the program until it ends or ctx does, and returns what it has said.
	Execute func(ctx context.Context, t Told, input []byte) (output string, err error)
	// Trouble shows in the status why nothing is told; "" = nothing is in the way.
	Trouble func(text string)
	Logger  *slog.Logger
}

// errUnnoted: the program was told, and the disk does not take that.
var errUnnoted = errors.New("that cannot be noted")

// Stats are counters of a Teller.
type Stats struct {
	Runs, Failures uint64
	// Failing: telling the newest state was tried, and has failed until now.
	Failing bool
	// Took is how long the last run took.
	Took time.Duration
}

// Teller tells a program.
type Teller struct {
	Config
	mu    sync.Mutex
	stats Stats
}

// New makes a Teller. It starts nothing.
func New(c Config) *Teller { return &Teller{Config: c} }

// Stats returns the counters.
func (t *Teller) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// Run tells the program of each state until ctx ends.
func (t *Teller) Run(ctx context.Context) error {
	note, err := t.Notes.HookNote()
	if err != nil {
		t.Logger.Warn("it is not known what the hook was told: telling it again", "error", err)
		note = datadir.HookNote{Pending: true}
	}
	pause, tried := retryMin, State{}
	for {
		state, changed := t.Look()
		var retry <-chan time.Time
		if note.Pending || note.Role != state.Role || note.Primary != state.Primary {
			if tried.Role != state.Role || tried.Primary != state.Primary {
				pause = retryMin // the state is new
			}
			tried = state
			switch next, err := t.tell(ctx, note, state); {
			case err == nil:
				note, pause = next, retryMin
				t.Trouble("")
				continue // the state may have changed meanwhile
			case ctx.Err() != nil:
				return nil
			default:
				note = next
				was := "was not told"
				if errors.Is(err, errUnnoted) {
					was = "was told"
				}
				t.Logger.Warn("the hook "+was, "role", state.Role, "primary", state.Primary, "again_in", pause, "error", err)
				t.Trouble(fmt.Sprintf("the hook %s that the role is %s and the primary %q: %v; it is tried again", was, state.Role, state.Primary, err))
				retry, pause = time.After(pause), min(2*pause, retryMax)
			}
		}
		if !t.wait(ctx, changed, retry, state) {
			return nil
		}
	}
}

// wait waits for another state, or until it is time to try again; false: ctx has ended.
func (t *Teller) wait(ctx context.Context, changed <-chan struct{}, retry <-chan time.Time, was State) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-retry:
			return true
		case <-changed:
		}
		var now State
		now, changed = t.Look()
		if now.Role != was.Role || now.Primary != was.Primary {
			return true
		}
	}
}

// tell runs the program once. It returns the note of what is known afterwards.
func (t *Teller) tell(ctx context.Context, note datadir.HookNote, s State) (datadir.HookNote, error) {
	said := Told{
		Format: noteFormat, Cluster: t.Cluster, Node: t.Node, At: time.Now().UTC().Truncate(time.Millisecond), Sequence: note.Sequence + 1,
		Role: s.Role, PreviousRole: note.Role, Primary: s.Primary, PreviousPrimary: note.Primary, PrimaryPeer: s.PrimaryPeer, Term: s.Term,
	}
	note.Sequence, note.Pending = said.Sequence, true
	// If that cannot be noted, the program is run all the same: a full disk may be why it has to take an address away.
	if err := t.Notes.WriteHookNote(note); err != nil {
		t.Logger.Warn("cannot note that the hook is told", "error", err)
	}
	input, err := json.Marshal(said)
	if err != nil {
		return note, fmt.Errorf("encode what it is told: %w", err)
	}
	// The program still has stopWait to end when the agent ends.
	running, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.Timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		grace := time.NewTimer(stopWait)
		defer grace.Stop()
		select {
		case <-grace.C:
			cancel()
		case <-running.Done():
		}
	})()
	began := time.Now()
	output, err := t.Execute(running, said, append(input, '\n'))
	took := time.Since(began)
	if err != nil && running.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it has run for longer than %s, and was killed", t.Timeout)
	}
	t.mu.Lock()
	t.stats.Runs++
	if err != nil {
		t.stats.Failures++
	}
	t.stats.Failing, t.stats.Took = err != nil, took
	t.mu.Unlock()
	if err != nil {
		return note, fmt.Errorf("%w%s", err, quoted(output))
	}
	t.Logger.Info("the hook was told", "role", s.Role, "primary", s.Primary, "sequence", said.Sequence, "took", took.Round(time.Millisecond), "output", output)
	was := note
	note.Role, note.Primary, note.Pending = s.Role, s.Primary, false
	if err := t.Notes.WriteHookNote(note); err != nil {
		return was, fmt.Errorf("%w: %w", errUnnoted, err) // it is told again, as it would be after a restart
	}
	return note, nil
}

func quoted(output string) string {
	if output == "" {
		return ""
	}
	return fmt.Sprintf(": it said %q", output)
}
