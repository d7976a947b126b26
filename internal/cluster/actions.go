package cluster

import (
	"cmp"
	"time"

	"github.com/quorate/quorate/internal/config/units"
)

// What a switchover is asked for with, where nothing else is said: for how long writes may be
// closed before it is called off, and how long the other node may take to catch up first.
const (
	MaxPauseDefault = 2 * time.Second
	WaitDefault     = 10 * time.Second
)

// SwitchoverRequest asks for another primary, in order.
type SwitchoverRequest struct {
	// To is the node's name; "" = the best that there is.
	To     string `json:"to,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	// MaxPause bounds for how long writes are closed before it is called off.
	MaxPause time.Duration `json:"max_pause_ns"`
	// Wait bounds the time before: until the other node has caught up.
	Wait time.Duration `json:"wait_ns"`
}

// String says in a line what is asked for.
func (r SwitchoverRequest) String() string {
	return "switchover to " + cmp.Or(r.To, "the best node")
}

// Switchover says what a switchover did, or would do.
type Switchover struct {
	From string `json:"from"`
	To   string `json:"to,omitempty"`
	// Why says in a few words why that node.
	Why    string `json:"why,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	// Blocks are sentences: what keeps it from being done.
	Blocks []string `json:"blocks,omitempty"`
	// Notes are sentences: what it meets.
	Notes []string `json:"notes,omitempty"`
	// PauseMs is from the moment at which writes were being closed until the new
	// primary was known here.
	PauseMs float64 `json:"pause_ms,omitempty"`
}

// RestartRequest asks for a new mysqld on a node.
type RestartRequest struct {
	Node string `json:"node"`
	// InPlace: a primary stays the leader, and writes wait until its mysqld is back.
	InPlace  bool          `json:"in_place,omitempty"`
	DryRun   bool          `json:"dry_run,omitempty"`
	MaxPause time.Duration `json:"max_pause_ns"`
}

// String says in a line what is asked for.
func (r RestartRequest) String() string {
	if r.InPlace {
		return "restart mysqld of " + r.Node + " in place"
	}
	return "restart mysqld of " + r.Node
}

// RestartMax bounds a restart of mysqld from its request to its answer: that of a replica may take 4 min to shut down.
const RestartMax = 6 * time.Minute

// Restarted says what a restart did.
type Restarted struct {
	Node string `json:"node"`
	// Moved is the switchover that came first, nil if there was none.
	Moved       *Switchover `json:"moved,omitempty"`
	DryRun      bool        `json:"dry_run,omitempty"`
	Incarnation uint64      `json:"incarnation"`
	// Seconds is from mysqld's end to its being a replica, or the primary, again.
	Seconds float64 `json:"seconds"`
	// Notes are sentences: what is not as it should be then; of a dry run, what it means.
	Notes []string `json:"notes,omitempty"`
}

// InstalledRequest asks which mysqld a node's next start would take.
type InstalledRequest struct {
	Node string `json:"node"`
}

// Installed answers an InstalledRequest.
type Installed struct {
	Node string `json:"node"`
	// Version is that of the program on disk.
	Version string `json:"version"`
	// Data is the version of the server that made the data, or upgraded them last; "" = not known.
	Data string `json:"data,omitempty"`
}

// SessionsRequest asks a node for the newest clients of its ports.
type SessionsRequest struct {
	Node string `json:"node"`
	// Last is how many of them, up to LinesMax. One has at most 500 bytes (two names of 64, three addresses):
	// all are 5 MB, and control.AnswerBytesMax is 8 MiB.
	Last int `json:"last"`
}

// Sessions answers a SessionsRequest.
type Sessions struct {
	Node string `json:"node"`
	// Clients is how many have come to this node's ports, Newest are the newest of them, oldest first, and of
	// those that other nodes have sent here.
	Clients int       `json:"clients"`
	Newest  []Session `json:"newest"`
}

// SessionState is how far a client is.
type SessionState string

// The states of a client.
const (
	SessionHeld   SessionState = "held"   // it waits for a node that takes it
	SessionRouted SessionState = "routed" // it is connected to one
)

// Session is a client of the agents' ports.
type Session struct {
	// Client is its address; "" = the node that it came to knows that.
	Client string       `json:"client,omitempty"`
	Port   string       `json:"port"` // read_write or read_only
	State  SessionState `json:"state"`
	// Node is the one that it came to, Target the one whose mysqld it is connected to.
	Node   string    `json:"node"`
	Target string    `json:"target,omitempty"`
	Since  time.Time `json:"since"`
	// Stream is the near end, at Node, of its connection to the target's agent; "" = it needs none.
	Stream string `json:"stream,omitempty"`
	// Server is the address by which mysqld knows it: HOST of its process list. "" = not known.
	Server string `json:"server,omitempty"`
}

// SecretsRotated says whose internal passwords are new from its agent's next start on.
type SecretsRotated struct {
	Node string `json:"node"`
}

// FenceRequest asks that no mysqld runs on a node, or that one may run again.
type FenceRequest struct {
	Node   string `json:"node"`
	Reason string `json:"reason,omitempty"`
	// Force takes the primary, too: its sessions end at once, in doubt.
	Force  bool `json:"force,omitempty"`
	DryRun bool `json:"dry_run,omitempty"`
}

// String names the node, and says why.
func (r FenceRequest) String() string {
	if r.Reason == "" {
		return "node " + r.Node
	}
	return "node " + r.Node + ": " + r.Reason
}

// Fence is an operator's fence on a node.
type Fence struct {
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// FenceResult says what became of a FenceRequest.
type FenceResult struct {
	Fence
	// Changed is false where it was so already: the fence is the one of then. A dry run
	// answers as if it were done.
	Changed bool `json:"changed"`
	DryRun  bool `json:"dry_run,omitempty"`
	// Notes are sentences: what it means for the cluster.
	Notes []string `json:"notes,omitempty"`
}

// String says it in a sentence.
func (f Fence) String() string {
	s := "fenced by " + f.By + " at " + units.Time(f.At)
	if f.Reason != "" {
		s += ": " + f.Reason
	}
	return s
}
