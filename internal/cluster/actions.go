package cluster

import (
	"cmp"
	"time"

	"github.com/quorate/quorate/internal/config/units"
)

// The defaults of a switchover: for how long writes may be closed before the switchover is called off, and how
// long the other node may take before that to catch up.
const (
	MaxPauseDefault = 2 * time.Second
	WaitDefault     = 10 * time.Second
)

// SwitchoverRequest asks for an orderly move of the primary to another node.
type SwitchoverRequest struct {
	// To is the node's name; "" = the best node.
	To     string `json:"to,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	// MaxPause bounds for how long writes are closed. After that the switchover is called off.
	MaxPause time.Duration `json:"max_pause_ns"`
	// Wait bounds the time before writes are closed, in which the other node has to catch up.
	Wait time.Duration `json:"wait_ns"`
}

// String says in one line what is asked for.
func (r SwitchoverRequest) String() string {
	return "switchover to " + cmp.Or(r.To, "the best node")
}

// Switchover says what a switchover did, or would do.
type Switchover struct {
	From string `json:"from"`
	To   string `json:"to,omitempty"`
	// Why says in a few words why that node was chosen.
	Why    string `json:"why,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	// Blocks are sentences that say what prevents the switchover.
	Blocks []string `json:"blocks,omitempty"`
	// Notes are sentences that say what the switchover will meet.
	Notes []string `json:"notes,omitempty"`
	// PauseMs is the time from the beginning of closing writes until this node knew the new primary.
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

// String says in one line what is asked for.
func (r RestartRequest) String() string {
	if r.InPlace {
		return "restart mysqld of " + r.Node + " in place"
	}
	return "restart mysqld of " + r.Node
}

// RestartMax bounds a restart of mysqld from its request to its answer. The mysqld of a replica may take 4 min
// to shut down.
const RestartMax = 6 * time.Minute

// Restarted is the result of a restart.
type Restarted struct {
	Node string `json:"node"`
	// Moved is the switchover that came first, nil if there was none.
	Moved       *Switchover `json:"moved,omitempty"`
	DryRun      bool        `json:"dry_run,omitempty"`
	Incarnation uint64      `json:"incarnation"`
	// Seconds is the time from mysqld's end until it was a replica, or the primary, again.
	Seconds float64 `json:"seconds"`
	// Notes are sentences that say what is not as it should be after the restart; for a dry run, what the
	// restart would mean.
	Notes []string `json:"notes,omitempty"`
}

// InstalledRequest asks which mysqld a node would start next.
type InstalledRequest struct {
	Node string `json:"node"`
}

// Installed answers an InstalledRequest.
type Installed struct {
	Node string `json:"node"`
	// Version is the version of the program on disk.
	Version string `json:"version"`
	// Data is the version of the server that made the data, or upgraded it last; "" = not known.
	Data string `json:"data,omitempty"`
	// NativePassword: the node's configuration has mysql_native_password on, which MySQL 8.4 otherwise has off.
	NativePassword bool `json:"native_password,omitempty"`
	// NativeAccounts are some of the accounts that log in with mysql_native_password, as the primary knows them; nil =
	// not known.
	NativeAccounts []string `json:"native_accounts"`
}

// SessionsRequest asks a node for the newest clients of its ports.
type SessionsRequest struct {
	Node string `json:"node"`
	// Last is how many clients to return, up to LinesMax. A client has at most 500 bytes (two names of 64,
	// three addresses). So all are 5 MB, and control.AnswerBytesMax is 8 MiB.
	Last int `json:"last"`
}

// Sessions answers a SessionsRequest.
type Sessions struct {
	Node string `json:"node"`
	// Clients is how many clients have come to this node's ports. Newest are the newest of them, and of the
	// clients that other nodes have sent to this node, oldest first.
	Clients int       `json:"clients"`
	Newest  []Session `json:"newest"`
}

// SessionState is what a client is doing.
type SessionState string

// The states of a client.
const (
	SessionHeld   SessionState = "held"   // it waits for a node that accepts it
	SessionRouted SessionState = "routed" // it is connected to a node
)

// Session is a client of the agents' ports.
type Session struct {
	// Client is the client's address; "" = only the node to which it came knows that.
	Client string       `json:"client,omitempty"`
	Port   string       `json:"port"` // read_write or read_only
	State  SessionState `json:"state"`
	// Node is the node to which the client came, Target the node whose mysqld it is connected to.
	Node   string    `json:"node"`
	Target string    `json:"target,omitempty"`
	Since  time.Time `json:"since"`
	// Stream is the near end, at Node, of the connection to the target's agent; "" = no such connection is
	// needed.
	Stream string `json:"stream,omitempty"`
	// Server is the address by which mysqld knows the client: HOST of its process list. "" = not known.
	Server string `json:"server,omitempty"`
}

// SecretsRotated names a node whose internal passwords change at its agent's next start.
type SecretsRotated struct {
	Node string `json:"node"`
}

// FenceRequest asks that no mysqld runs on a node, or that mysqld may run again.
type FenceRequest struct {
	Node   string `json:"node"`
	Reason string `json:"reason,omitempty"`
	// Force fences the primary, too: its sessions end at once, without knowing the outcome of their commits.
	Force  bool `json:"force,omitempty"`
	DryRun bool `json:"dry_run,omitempty"`
}

// String names the node and the reason.
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

// FenceResult is the result of a FenceRequest.
type FenceResult struct {
	Fence
	// Changed is false if the fence was as asked for already; then Fence is the fence from before. A dry run
	// answers as if it had been done.
	Changed bool `json:"changed"`
	DryRun  bool `json:"dry_run,omitempty"`
	// Notes are sentences that say what the fence means for the cluster.
	Notes []string `json:"notes,omitempty"`
}

// String describes the fence in one sentence.
func (f Fence) String() string {
	s := "fenced by " + f.By + " at " + units.Time(f.At)
	if f.Reason != "" {
		s += ": " + f.Reason
	}
	return s
}

// Told is what the status of the fenced node says.
func (f Fence) Told() string { return f.String() + "; quorate unfence ends that" }
