package status

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

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
	// RoleFenced: mysqld may not run or serve until somebody has looked (Reason).
	RoleFenced Role = "fenced"
	// RoleErrant: mysqld holds transactions that the committed log lacks.
	RoleErrant Role = "errant"
	// RoleLogger: it votes and keeps the log; there is no mysqld.
	RoleLogger Role = "logger"
	// RoleForming: its data directory is empty. It waits until all initial members have answered: one of them may
	// know that this node had data before.
	RoleForming Role = "forming"
	// RoleJoining: it has no log yet, and is being given one.
	RoleJoining Role = "joining"
	// RoleRemoved: it is no member any more, and serves nothing.
	RoleRemoved Role = "removed"
)

// The values that an answer has instead of a role that is not known now (Node.Shown). No node says them of
// itself.
const (
	// RoleUnreachable: it was heard before, and is not heard now.
	RoleUnreachable Role = "unreachable"
	// RoleRefused: it answers, and refuses the node that shows this status.
	RoleRefused Role = "refused"
	// RoleUnknown: it was never heard.
	RoleUnknown Role = "unknown"
)

// Judged tells whether the node's mysqld was compared with the log and found good: it is that of a primary or a
// replica.
func (r Role) Judged() bool { return r == RolePrimary || r == RoleReplica }

// Roles returns all roles that a node can have.
func Roles() []Role {
	return []Role{RoleStarting, RoleUnverified, RoleReplica, RolePromoting, RolePrimary, RoleDemoting, RoleFenced, RoleErrant,
		RoleLogger, RoleForming, RoleJoining, RoleRemoved}
}

// MysqldState is the phase of a node's mysqld process.
type MysqldState string

// The states of a mysqld.
const (
	MysqldNone     MysqldState = "none"
	MysqldStopped  MysqldState = "stopped"
	MysqldStarting MysqldState = "starting"
	MysqldRunning  MysqldState = "running"
)

// LogState is the state of a node's log.
type LogState string

// The states of a log.
const (
	LogOK LogState = "ok"
	// LogFull: its disk has no space left.
	LogFull LogState = "full"
	// LogStalled: its disk has not answered for an election timeout.
	LogStalled LogState = "stalled"
	// LogDamaged: something that was fsynced cannot be read any more.
	LogDamaged LogState = "damaged"
	// LogRepairing: the damaged part is being fetched from another node.
	LogRepairing LogState = "repairing"
)

// LogStates returns all states of a log.
func LogStates() []LogState {
	return []LogState{LogOK, LogFull, LogStalled, LogDamaged, LogRepairing}
}

// SeedPhase is a phase of how a node joins.
type SeedPhase string

// The phases of a join, in their order.
const (
	// SeedWaiting: it was not added yet, or no member can be reached.
	SeedWaiting SeedPhase = "waiting"
	// SeedData: the data of another node's mysqld are being copied.
	SeedData SeedPhase = "data"
	// SeedLog: the log is being copied.
	SeedLog SeedPhase = "log"
)

// Seed is how far a joining node is.
type Seed struct {
	Phase SeedPhase `json:"phase"`
	// From is the node that it copies from.
	From string `json:"from,omitempty"`
	// Bytes were copied in this phase, of BytesTotal, which is an estimate; 0 = not known.
	Bytes      int64 `json:"bytes"`
	BytesTotal int64 `json:"bytes_total"`
	// Seconds is the time until the phase ends; 0 = not known.
	Seconds float64 `json:"seconds_left"`
}

// Commits is how a primary commits. The times are those of the stages of a commit, one after the other, each a
// mean over batches of transactions; 0 = there was no batch.
type Commits struct {
	PerSecond float64 `json:"transactions_per_second"`
	// ReceiveSeconds is the time from mysqld's binlog to the tap, ProposeSeconds from there to Raft,
	// FsyncSeconds from there until it is on the primary's disk.
	ReceiveSeconds float64 `json:"receive_seconds"`
	ProposeSeconds float64 `json:"propose_seconds"`
	FsyncSeconds   float64 `json:"fsync_seconds"`
	// MajoritySeconds is the time from there until it is on a majority's disks, ReleaseSeconds from there to
	// its ACK.
	MajoritySeconds float64 `json:"majority_seconds"`
	ReleaseSeconds  float64 `json:"release_seconds"`
}

// OldData are the data that a node had before it was rebuilt.
type OldData struct {
	// Dir is a path on the node's host. It may be deleted at any time.
	Dir   string `json:"dir"`
	Bytes int64  `json:"bytes"`
	// Until is when the node deletes the data by itself; earlier if its disk gets full.
	Until time.Time `json:"until"`
}

// Node is what a node says of itself. Nodes send it to each other, so any agent can show the whole cluster.
type Node struct {
	// ID is text in JSON: it has more digits than a JavaScript number can keep.
	ID   cluster.NodeID `json:"id,string"`
	Name string         `json:"name"`
	Kind cluster.Kind   `json:"kind"`
	// Peer is where its agent listens for other agents.
	Peer string `json:"peer"`
	// Weight and Site are the member's, in the cluster state of the node that shows this status.
	Weight int    `json:"weight"`
	Site   string `json:"site,omitempty"`
	// RequireAck says that ACKs wait for this node, and how that degrades (Member.Degrade); "" = they do not
	// wait.
	RequireAck string `json:"require_ack,omitempty"`
	// Source is the member's source. FedBy is the node from which a learner with a source gets its log now, by
	// its own words; "" = from the leader.
	Source string `json:"source,omitempty"`
	FedBy  string `json:"fed_by,omitempty"`
	// StateFormat is the newest format of a cluster state that its quorate knows; 0 = the first (1).
	StateFormat int `json:"state_format,omitempty"`
	// StateVersion is the version of the newest cluster state that the node has applied; nil: its quorate has
	// no such state.
	StateVersion *uint64 `json:"state_version,omitempty"`
	// StateKept is the index of the newest change of the cluster state that the node has on its disk.
	StateKept uint64 `json:"state_kept,omitempty"`
	// Reachable is false if the status is an old one, or was never heard. Then mysqld, log and all other fields
	// are as they were heard last.
	Reachable bool `json:"reachable"`
	// AgeMs is how old this status is on the node that shows it.
	AgeMs int64 `json:"age_ms"`
	// Refusal is set if the node answers the node that shows this status, and still is not reachable, because
	// one of them refuses the other.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Unreached says why the node that shows this status cannot connect to this node, though it hears this
	// node. For the node that shows the status it says why no other node reaches it. "" = no such trouble.
	Unreached string `json:"unreached,omitempty"`
	// Strangers are nodes of this cluster that dial the node while it has no leader, and that it does not know. What
	// they say of themselves is not proven.
	Strangers []Stranger `json:"strangers,omitempty"`
	// Instance is the id of its data directory. It changes when the directory is made again.
	Instance string `json:"instance,omitempty"`
	// Leaving: the cluster has given it another data directory, and it has not been heard with that yet. What
	// it said of its log and its mysqld in this directory does not count any more.
	Leaving bool `json:"leaving,omitempty"`
	// Joined has the members without a vote that the node has heard with the data directories that the cluster
	// gave them.
	Joined map[cluster.NodeID]string `json:"joined,omitempty"`
	// Empty are the members that have just come to the node with an empty data directory, while it knows
	// another directory of them.
	Empty []cluster.NodeID `json:"empty,omitempty"`

	// Role is what the node does. If the node is not reachable, an answer has unreachable, refused (it answers,
	// and refuses the node that shows this status) or unknown (it was never heard).
	Role Role `json:"role"`
	// RoleLast is the role with which a node that is not reachable was heard last; "" = it was never heard, or
	// it is reachable.
	RoleLast Role `json:"role_last,omitempty"`
	// Reason is a sentence that says why the node is in this role, or what it waits for, and behind that what else ails
	// it.
	Reason string `json:"reason,omitempty"`
	// ReasonBeside is Reason without what other lines of the same answer say: which nodes refuse this one. It is there only if
	// it differs.
	ReasonBeside *string `json:"reason_beside,omitempty"`
	// Advice: Reason is only advice that stands for long, such as on a certificate.
	Advice bool `json:"advice,omitempty"`
	// TwoSides: a majority and a node that was recovered without it refuse each other, and this node is on one side. Both
	// sides may take writes. Reason says which agent to stop.
	TwoSides bool `json:"two_sides,omitempty"`
	// Leader is the Raft leader's id as this node knows it; 0 = none.
	Leader cluster.NodeID `json:"leader,string"`
	Term   uint64         `json:"term"`
	// LogLast is the last index in the node's log. LogCommit is the highest index that it knows to be committed
	// and has on its own disk.
	LogLast   uint64 `json:"log_last"`
	LogCommit uint64 `json:"log_commit"`
	// LogFirst is the oldest index in the node's log. LogBytes and LogSegments are the log's size.
	LogFirst    uint64 `json:"log_first"`
	LogBytes    int64  `json:"log_bytes"`
	LogSegments int    `json:"log_segments"`
	// Seed says how far a joining node is; nil: it does not join.
	Seed *Seed `json:"seed,omitempty"`
	// Old are the data that the node gave up when it was rebuilt, and keeps for a while.
	Old []OldData `json:"old,omitempty"`
	// LogState says how the log is. LogDetail is a sentence if the log is not ok.
	LogState  LogState `json:"log_state,omitempty"`
	LogDetail string   `json:"log_detail,omitempty"`
	// DurableMark is the index up to which the node's InnoDB keeps everything, even after a loss of power; 0 =
	// not known.
	DurableMark uint64 `json:"durable_mark"`
	// PurgeBlocked says why the log is longer than its retention; "" = it is not.
	PurgeBlocked string `json:"purge_blocked,omitempty"`
	// StageBlocked says which large transaction waits, and why: disks are full, and of which nodes, or it
	// cannot be copied (CommitsWait); "" = none waits.
	StageBlocked string `json:"stage_blocked,omitempty"`
	// Events is how many events of a primary's mysqld do not run though they are not disabled. EventNames are
	// some of their names.
	Events     int64  `json:"events,omitempty"`
	EventNames string `json:"event_names,omitempty"`
	// Follow is a sentence of a primary that says how far it has followed the cluster's source; "" = the
	// cluster follows none.
	Follow string `json:"follow,omitempty"`
	// SiteHeard is what the other site was heard to have, as far as the node knows: the site that is followed,
	// or from which this one took over; nil = nothing is known.
	SiteHeard *cluster.SiteHeard `json:"site_heard,omitempty"`
	// Applied is the index up to which mysqld has every transaction.
	Applied uint64 `json:"applied"`
	// LagTransactions, LagBytes and LagSeconds are how far mysqld is behind the log's commit index. An answer
	// has null if LagUnknown is true.
	LagTransactions int64   `json:"lag_transactions"`
	LagBytes        int64   `json:"lag_bytes"`
	LagSeconds      float64 `json:"lag_seconds"`
	// LagUnknown: the figures above are not known. The node is not reachable, has no leader that could say what
	// is committed, has a log that takes nothing, or has no mysqld that could say what it has.
	LagUnknown bool `json:"lag_unknown,omitempty"`
	// LagAge is how many seconds old the figures above are, counted from mysqld's answer.
	LagAge float64 `json:"lag_age_seconds,omitempty"`
	// PreparedXA is how many XA transactions are prepared. The figure is up to some seconds old.
	PreparedXA int `json:"prepared_xa,omitempty"`
	// ApplyRate is how many bytes of transactions mysqld applies in a second while it has some to apply; 0 =
	// not known.
	ApplyRate float64 `json:"apply_bytes_per_second"`
	// ApplyStuck is for how many seconds mysqld has applied nothing although it lacks something: it is in a
	// long statement, or waits for a lock.
	ApplyStuck float64 `json:"apply_stuck_seconds,omitempty"`
	// ApplierStopped says why a replica's mysqld does not apply what is committed, so that it could not take
	// over; "" = it applies.
	ApplierStopped string `json:"applier_stopped,omitempty"`
	// AcksWait are the members for which a leader's ACKs wait. AcksDropped are the members with require-ack for
	// which ACKs do not wait at the moment.
	AcksWait    []cluster.AckWait `json:"acks_wait,omitempty"`
	AcksDropped []cluster.AckWait `json:"acks_dropped,omitempty"`
	// Quorum and Failover are what a primary tells the other nodes for their Cluster.
	Quorum   *Quorum   `json:"quorum,omitempty"`
	Failover *Failover `json:"failover,omitempty"`
	// Commits is how a primary has committed in the last seconds; nil: not known.
	Commits *Commits `json:"commits,omitempty"`
	// Pace is a sentence of a primary that says why it slows writes down, or why nothing bounds the lag of its
	// replicas.
	Pace string `json:"pace,omitempty"`

	Mysqld        MysqldState `json:"mysqld"`
	MysqldPID     int         `json:"mysqld_pid,omitempty"`
	ServerVersion string      `json:"server_version,omitempty"`
	// Upgrading: the mysqld that starts is newer than its data. It upgrades them first, which may take long. It is
	// false if a mysqld of that version has failed to start before.
	Upgrading    bool   `json:"upgrading,omitempty"`
	ServerUUID   string `json:"server_uuid,omitempty"`
	GTIDExecuted string `json:"gtid_executed,omitempty"`
	// Errant holds the GTIDs that mysqld has and the committed log lacks.
	Errant string `json:"errant,omitempty"`
	// ErrantSaved is a sentence that says where these transactions were saved, or why they were not.
	ErrantSaved string `json:"errant_saved,omitempty"`
	// ErrantAllSaved: all of them were saved.
	ErrantAllSaved bool `json:"errant_all_saved,omitempty"`
	// WaitingSessions is the number of sessions that wait for an ACK.
	WaitingSessions int64 `json:"waiting_sessions"`
	// MysqldPort is the host:port at which clients reach this node's mysqld itself; "" = nowhere. The kernel
	// fences that port; if nothing does, Reason says so.
	MysqldPort string `json:"mysqld_port,omitempty"`
	// MySQLRouter is the host:port at which MySQL Router finds its mysqld: MysqldPort, or loopback if the whole
	// cluster is there. "" = nowhere.
	MySQLRouter string `json:"mysql_router,omitempty"`
	// Router is the host:port of the node's read/write port.
	Router string `json:"router,omitempty"`
	// ReadOnly is the host:port of the node's read-only port; "" = it has none, and no client is sent to it to
	// read.
	ReadOnly string `json:"read_only,omitempty"`
	// Heartbeat and ElectionTimeout are its settings; 0: its quorate is older, does not report them, and
	// promises no lease.
	Heartbeat       time.Duration `json:"heartbeat_ns,omitempty"`
	ElectionTimeout time.Duration `json:"election_timeout_ns,omitempty"`
	// ClientCA names the CA of the certificate that clients see of its mysqld: OwnCA = made by mysqld itself,
	// "" = not known. ClientNames are the names in the certificate by which clients may know the node; nil =
	// not known.
	ClientCA    string   `json:"client_ca,omitempty"`
	ClientNames []string `json:"client_names,omitempty"`
	// TimeZone is that of its mysqld; nil: it has none, or it is not known.
	TimeZone *TimeZone `json:"time_zone,omitempty"`
	// LowerCaseTableNames is that variable of its mysqld; nil: it has none, or it is not known.
	LowerCaseTableNames *int `json:"lower_case_table_names,omitempty"`
	// Key is the name of the node's key; "" = it has none.
	Key cluster.Key `json:"key,omitempty"`
	// KnownBy are the keys by which the cluster knows the node: its own, and during a change the next one. The
	// node that answers fills it in.
	KnownBy []cluster.Key `json:"known_by,omitempty"`
	// PeerAuthority: the node knows an operator's authority, which tells it to which node a key belongs.
	PeerAuthority bool `json:"peer_authority,omitempty"`
	// PlainPeers are the names of the nodes to which it has a connection without TLS, or the last one was without TLS and there is no
	// next one yet.
	PlainPeers []string `json:"plain_peers,omitempty"`
	// AgentVersion is the quorate version.
	AgentVersion string `json:"agent_version"`
	// AuditSeq is the number of the newest line of its own in its audit log; 0 = there is none.
	AuditSeq uint64 `json:"audit_seq,omitempty"`
	// HistorySeq is the same for its history.log.
	HistorySeq uint64 `json:"history_seq,omitempty"`

	// Level and About are set only in an answer: how urgent it is to look at the node, and what there is to say
	// of it, in sentences (Cluster.InWords).
	Level Level    `json:"level,omitempty"`
	About []string `json:"about,omitempty"`
}

// MarshalJSON writes null for a lag that an answer (InWords) does not know: 0 would be the lag of a node that
// has everything. Between agents the last figures are sent: agents use them.
func (n Node) MarshalJSON() ([]byte, error) {
	type plain Node // without this method
	if !n.LagUnknown || n.Level == "" {
		return json.Marshal(plain(n))
	}
	return json.Marshal(struct {
		plain
		LagTransactions *int64   `json:"lag_transactions"`
		LagBytes        *int64   `json:"lag_bytes"`
		LagSeconds      *float64 `json:"lag_seconds"`
	}{plain: plain(n)})
}

// Cluster is the cluster as one node sees it.
type Cluster struct {
	Cluster   string `json:"cluster"`
	ClusterID string `json:"cluster_id"`
	// Self is the name of the node that answers.
	Self string `json:"self"`
	// Primary is the name of the node that is open for writes; "" = none.
	Primary string `json:"primary"`
	// Summary says in sentences how the cluster is, the most important first (InWords).
	Summary []Sentence `json:"summary,omitempty"`
	Nodes   []Node     `json:"nodes"`
	// NoPrimarySince is when the node knew of a primary last, NoPrimarySeconds how long ago that is; zero = it
	// never knew of one, or knows of one now.
	NoPrimarySince   time.Time `json:"no_primary_since,omitzero"`
	NoPrimarySeconds float64   `json:"no_primary_seconds,omitempty"`
	// Quorum is what the primary sees; without a primary, what this node sees. nil: this node is no member.
	Quorum *Quorum `json:"quorum,omitempty"`
	// Failover is what a failover would take now; nil while there is no primary.
	Failover *Failover `json:"failover,omitempty"`
	// StateVersion, Maintenance and Durability are from the cluster state that this node has.
	StateVersion uint64               `json:"state_version"`
	Maintenance  *cluster.Maintenance `json:"maintenance,omitempty"`
	Durability   cluster.Durability   `json:"durability,omitempty"`
	// Recovered is set while former members are missing after a recovery.
	Recovered *cluster.Recovery `json:"recovered,omitempty"`
	// Reseed, Errant and RetainBytesMax are those of the cluster state, with their defaults.
	Reseed         cluster.Reseed       `json:"reseed,omitempty"`
	Errant         cluster.ErrantPolicy `json:"errant,omitempty"`
	RetainBytesMax int64                `json:"retain_bytes_max,omitempty"`
	// MySQLRouter: the primary keeps the metadata by which MySQL Router finds the members.
	MySQLRouter bool `json:"mysql_router,omitempty"`
	// EventsOff: the event scheduler runs on no node.
	EventsOff bool `json:"events_off,omitempty"`
	// Follow is the server outside of the cluster that the primary follows; nil = none.
	Follow *cluster.Follow `json:"follow,omitempty"`
	// Closing is the cutover that has closed that server, or may have; nil = none.
	Closing *cluster.Closing `json:"closing,omitempty"`
	// Site is the other site, from which this cluster has taken over; nil = none is known.
	Site *cluster.OtherSite `json:"site,omitempty"`
	// PeerSecurity says how connections between agents are protected; "" = they are not.
	PeerSecurity cluster.PeerSecurity `json:"peer_security,omitempty"`
	// LastChange is the newest change of the primary; nil = none is known.
	LastChange *cluster.HistoryRow `json:"last_change,omitempty"`
}

// WithoutAuthority names the nodes that cannot check key k: an authority issued it, and they know no authority.
func WithoutAuthority(k cluster.Key, nodes []Node) (names []string) {
	for _, n := range nodes {
		if k.Issued() && !n.PeerAuthority {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}
