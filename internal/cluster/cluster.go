package cluster

// NodeID is a node's Raft id: never 0, never used again for another node.
type NodeID uint64

// Kind says what a node is made of.
type Kind string

// The node kinds.
const (
	// KindFull votes, keeps the log and runs a mysqld.
	KindFull Kind = "full"
	// KindLogger votes and keeps the log; it runs no mysqld.
	KindLogger Kind = "logger"
	// KindLearner keeps the log without a vote.
	KindLearner Kind = "learner"
)

// Member is one node as the configuration names it.
type Member struct {
	ID   NodeID `json:"id,string"`
	Name string `json:"name"`
	// Peer is the host:port where its agent listens for other agents.
	Peer string `json:"peer"`
	Kind Kind   `json:"kind"`
}

// Role is what a node does at the moment, as people read it.
type Role string

// The roles of a node.
const (
	// RoleStarting: the agent is up, mysqld not yet ready.
	RoleStarting Role = "starting"
	// RoleUnverified: mysqld is up, but not yet judged against the
	// Raft-committed log (I3). It votes and serves nothing.
	RoleUnverified Role = "unverified"
	// RoleReplica: mysqld applies the committed log from its own agent.
	RoleReplica Role = "replica"
	// RolePromoting: leader, bringing its mysqld forward before it opens.
	RolePromoting Role = "promoting"
	// RolePrimary: leader, mysqld open for writes.
	RolePrimary Role = "primary"
	// RoleDemoting: was primary; mysqld is being stopped or made read-only.
	RoleDemoting Role = "demoting"
	// RoleFenced: mysqld may not run or serve until somebody looks (Reason).
	RoleFenced Role = "fenced"
	// RoleErrant: mysqld holds transactions that the committed log lacks.
	RoleErrant Role = "errant"
)

// MysqldState is the phase of a node's mysqld process.
type MysqldState string

// The states of a mysqld.
const (
	MysqldNone     MysqldState = "none"
	MysqldStopped  MysqldState = "stopped"
	MysqldStarting MysqldState = "starting"
	MysqldRunning  MysqldState = "running"
	MysqldStopping MysqldState = "stopping"
)

// LogState is how a node's log is.
type LogState string

// The states of a log.
const (
	LogOK LogState = "ok"
	// LogFull: its disk has no space left.
	LogFull LogState = "full"
	// LogDamaged: what was fsynced cannot be read any more.
	LogDamaged LogState = "damaged"
	// LogRepairing: what was damaged is fetched from another node.
	LogRepairing LogState = "repairing"
)

// NodeStatus is what a node says of itself. Nodes send it to each other, so
// any agent can show the whole cluster.
type NodeStatus struct {
	// ID is text in JSON: it has more digits than a JavaScript number keeps.
	ID   NodeID `json:"id,string"`
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Peer is where its agent listens for other agents.
	Peer string `json:"peer"`
	// Reachable is false where the status is an old one or was never heard.
	Reachable bool `json:"reachable"`
	// AgeMs is how old this status is on the node that shows it.
	AgeMs int64 `json:"age_ms"`

	Role Role `json:"role"`
	// Reason is a sentence: why the node is in this role, or what it waits for.
	Reason string `json:"reason,omitempty"`
	// Leader is the Raft leader's id as this node knows it; 0 = none.
	Leader NodeID `json:"leader,string"`
	Term   uint64 `json:"term"`
	// LogLast is the last index in the node's log, LogCommit the highest index
	// that it knows to be committed and has on its own disk.
	LogLast   uint64 `json:"log_last"`
	LogCommit uint64 `json:"log_commit"`
	// LogFirst is the oldest index in the node's log, LogBytes and LogSegments
	// are its size.
	LogFirst    uint64 `json:"log_first"`
	LogBytes    int64  `json:"log_bytes"`
	LogSegments int    `json:"log_segments"`
	// LogState says how the log is; LogDetail is a sentence where it is not ok.
	LogState  LogState `json:"log_state,omitempty"`
	LogDetail string   `json:"log_detail,omitempty"`
	// DurableMark is the index up to which the node's InnoDB holds everything,
	// also after a loss of power; 0 = not known.
	DurableMark uint64 `json:"durable_mark"`
	// PurgeBlocked says why the log is longer than its retention; "" = it is not.
	PurgeBlocked string `json:"purge_blocked,omitempty"`
	// StageBlocked says which large transaction waits because disks are full, and
	// whose; "" = none does.
	StageBlocked string `json:"stage_blocked,omitempty"`
	// Applied is the index up to which mysqld has every transaction.
	Applied uint64 `json:"applied"`
	// The lag of mysqld behind the log's commit index.
	LagTransactions int64   `json:"lag_transactions"`
	LagBytes        int64   `json:"lag_bytes"`
	LagSeconds      float64 `json:"lag_seconds"`

	Mysqld        MysqldState `json:"mysqld"`
	MysqldPID     int         `json:"mysqld_pid,omitempty"`
	ServerVersion string      `json:"server_version,omitempty"`
	ServerUUID    string      `json:"server_uuid,omitempty"`
	GTIDExecuted  string      `json:"gtid_executed,omitempty"`
	// Errant holds the GTIDs that mysqld has and the committed log lacks.
	Errant string `json:"errant,omitempty"`
	// WaitingSessions is the number of sessions that wait for an ACK.
	WaitingSessions int64 `json:"waiting_sessions"`
	// Router is the host:port of the node's read/write port.
	Router string `json:"router,omitempty"`
	// AgentVersion is the quorate version.
	AgentVersion string `json:"agent_version"`
}

// Status is the cluster as one node sees it.
type Status struct {
	Cluster   string `json:"cluster"`
	ClusterID string `json:"cluster_id"`
	// Self is the name of the node that answers.
	Self string `json:"self"`
	// Primary is the name of the node that is open for writes; "" = none.
	Primary string       `json:"primary"`
	Nodes   []NodeStatus `json:"nodes"`
}
