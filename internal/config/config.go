package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// Config is everything that an operator can set for one node.
type Config struct {
	// Cluster is the cluster's name, the same on every node.
	Cluster string
	// Node is this node's name: one of Members.
	Node string
	// DataDir is the absolute path of the directory that the agent owns.
	DataDir string
	// KeyFile is the absolute path of this node's key, outside of DataDir: a node that has lost its
	// data is still this node.
	KeyFile string
	// PeerTLS names the operator's own authority for nodes, if there is one.
	PeerTLS PeerTLS
	// LogLevel is the lowest level that the agent logs.
	LogLevel slog.Level
	// Members are the initial members, in the order of the file. The list is
	// the same on every node.
	Members []Member
	// Added are members that were added later. A node with an empty data directory
	// asks them, too. The list need not be the same on every node. This node may be in it.
	Added []Added
	// Join is set for a node that joins an existing cluster. The node is then not
	// in Members, which has the members with which the cluster began.
	Join Join
	// Bootstrap: begin with an empty data directory even if other nodes do not answer. It comes from
	// the command line, not from the file.
	Bootstrap bool
	// Readers are the accounts of downstream readers.
	Readers []Reader

	Raft    Raft
	Log     Log
	MySQL   MySQL
	Feed    Feed
	Router  Router
	API     API
	Control Control
	Hooks   Hooks
	Backup  Backup
	Site    Site

	// source says where each value came from, for messages; nil without a file.
	source *source
}

// PeerTLS has the absolute paths for an operator's own authority for nodes: all are set, or none.
type PeerTLS struct {
	// CAFile holds the authority's certificates, CertificateFile the certificate that it has issued to this
	// node, KeyFile the key for that certificate.
	CAFile, CertificateFile, KeyFile string
}

// Member is one initial member.
type Member struct {
	Name string
	// Peer is the host:port where its agent listens for other agents.
	Peer string
	Kind cluster.Kind
	// Weight says how much the member is wanted as the leader, until the cluster state
	// says otherwise. A logger has none.
	Weight int
	// Key is the key that the node has at the beginning; "" = connections are plain.
	Key cluster.Key
}

// Added is a member that was added later.
type Added struct {
	Name string
	// Peer and Key are as in Member.
	Peer string
	Key  cluster.Key
}

// Join has the settings of a node that joins, which an initial member has in Members.
type Join struct {
	// Peer is the host:port where its agent listens; "" = this node does not join.
	Peer string
	// Kind is the kind of the node. A logger has no mysqld. A learner stays a learner.
	Kind cluster.Kind
}

// Joins tells whether this node is not one of the initial members.
func (c Config) Joins() bool { return c.Join.Peer != "" }

// Raft holds the timing of elections.
type Raft struct {
	// Heartbeat is the interval at which a leader shows that it is alive.
	Heartbeat time.Duration
	// ElectionTimeout is how long a follower waits in silence, at least,
	// before it stands for election. A leader's lease is shorter (I5).
	ElectionTimeout time.Duration
}

// Log holds the settings of the replicated log.
type Log struct {
	// SegmentSize is the size at which a new segment file is begun.
	SegmentSize Bytes
	// RetentionSize and RetentionAge bound the part of the log that is kept although no node needs it:
	// a segment may be purged when the log is larger, or the segment older. An
	// age of 0 is no bound. A segment that a node needs is never purged.
	RetentionSize Bytes
	RetentionAge  time.Duration
	// StageSizeMin is the size from which on a transaction travels beside the
	// log, in a stage, and not inside of an entry.
	StageSizeMin Bytes
	// CacheSize bounds the memory for the newest entries. PrefetchSize bounds the memory for entries that are
	// read ahead for nodes and readers that are behind them.
	CacheSize    Bytes
	PrefetchSize Bytes
}

// MySQL holds the settings of this node's mysqld.
type MySQL struct {
	// BaseDir is the installation's prefix; "" = look for one.
	BaseDir string
	// Port and Bind are where mysqld itself listens: only on loopback, or on one address
	// of this node, where the kernel fences it, and also on loopback.
	Port int
	Bind string
	// BindUnfencedStaleReads lets mysqld listen at Bind even if the kernel does not fence
	// it: while a node is frozen or cut off, reads there are stale.
	BindUnfencedStaleReads bool
	// User is the OS user that mysqld runs as; "" = the agent's own.
	User string
	// PromotionTimeout is how long a new leader may make no progress towards an open
	// mysqld before it hands over to another node.
	PromotionTimeout time.Duration
	// MaxApplyLag is how long the best replica may need to apply what it lacks:
	// the primary slows writes down when it is more. 0 = no bound.
	MaxApplyLag time.Duration
	// XAPreparedMaxAge is how long an XA transaction may be prepared before the
	// primary rolls it back. 0 = no bound.
	XAPreparedMaxAge time.Duration
	// Variables are further server variables. The ones that quorate depends
	// on are refused by package mysqld, which knows the list.
	Variables map[string]string
}

// Feed is where this node's mysqld replicates from.
type Feed struct {
	Listen string
	// ReadersListen is where downstream readers connect; "" = nowhere. ReadersMax
	// bounds their connections.
	ReadersListen string
	ReadersMax    int
}

// Router holds the settings of the client-facing ports.
type Router struct {
	// ReadWrite is the host:port where clients connect.
	ReadWrite string
	// ReadOnly is the host:port where clients read from replicas; "" = nowhere.
	ReadOnly string
	// ReadMaxLag is how old the data may be that clients read there. ReadGrace is how long a client may stay with a
	// replica that has fallen behind.
	ReadMaxLag, ReadGrace time.Duration
	// ReadPrimary: the primary serves these clients, too, where no replica may.
	ReadPrimary bool
	// HoldTimeout is how long a new connection waits for a primary, or for a replica that may be read.
	HoldTimeout time.Duration
	// HoldMax is how many connections may wait at the same time, at each port.
	HoldMax int
	// Allow is where clients may come from; empty = from anywhere.
	Allow []netip.Prefix
	// Forward: a node passes clients on to the node that serves them; else it refuses
	// them.
	Forward bool
}

// API is where the agent answers HTTP.
type API struct {
	Listen string
	// TokensFile is the absolute path of the file with the tokens for requests there; "" = everybody may
	// read without a token, and nobody may operate.
	TokensFile string
	// Pprof: the port also shows Go's profiles of the agent, only to this host.
	Pprof bool
}

// Control says where the agent takes operators' requests, only on this host.
type Control struct {
	// Socket is the path of the Unix socket; "" = control.sock in DataDir.
	Socket string
	// Group is the OS group whose accounts may ask, beside root and the agent's own
	// account; "" = none.
	Group string
}

// Hooks has the program that the agent runs when something changes.
type Hooks struct {
	// OnChange is a program, by its absolute path, and its arguments. It is told of each change of
	// this node's role and of the primary. nil = there is no program.
	OnChange []string
	// Timeout bounds one run.
	Timeout time.Duration
}

// Backup says where backups are kept. "quorate backup", "archive" and "restore" use it. The agent only shows
// whether it is set (quorate_backup_configured).
type Backup struct {
	// Directory is the place; "" = the commands reach the place. /bin/sh runs the commands.
	Directory                                          string
	PutCommand, GetCommand, ListCommand, DeleteCommand string
	// CommandIdle is for how long a command may do nothing before it is killed; 0 = for ever.
	CommandIdle time.Duration
	// Recipients are age's public keys, for which all is encrypted; nil = nothing is.
	Recipients []string
	// Interval is how long a piece of the log may wait for more entries before it is stored.
	Interval time.Duration
	// KeepFull is how many full backups "quorate backup prune" keeps.
	KeepFull int
}

// ControlSocket returns the path of the socket that takes operators' requests.
func (c Config) ControlSocket() string {
	return cmp.Or(c.Control.Socket, filepath.Join(c.DataDir, "control.sock"))
}

// Default returns a Config with every default. The cluster's name, the node's
// name and the members have none.
func Default() Config {
	return Config{
		DataDir:  "/var/lib/quorate",
		Join:     Join{Kind: cluster.KindFull},
		LogLevel: slog.LevelInfo,
		Raft: Raft{
			Heartbeat:       100 * time.Millisecond,
			ElectionTimeout: time.Second,
		},
		// A rotation of the primary's binlog fsyncs the whole old file under a
		// lock, so the file, and with it the segment, stays small.
		Log: Log{
			SegmentSize:   128 * MiB,
			RetentionSize: 16 * GiB,
			RetentionAge:  72 * time.Hour,
			StageSizeMin:  8 * MiB,
			CacheSize:     64 * MiB,
			PrefetchSize:  64 * MiB,
		},
		MySQL: MySQL{
			Port:             3306,
			Bind:             "127.0.0.1",
			PromotionTimeout: 30 * time.Second,
			MaxApplyLag:      10 * time.Second,
			XAPreparedMaxAge: time.Hour,
		},
		Feed: Feed{Listen: "127.0.0.1:7402", ReadersMax: 32},
		Router: Router{
			ReadWrite:   "0.0.0.0:6446",
			ReadMaxLag:  2 * time.Second,
			ReadGrace:   30 * time.Second,
			HoldTimeout: 30 * time.Second,
			HoldMax:     1000,
			Forward:     true,
		},
		API:    API{Listen: "127.0.0.1:7401"},
		Hooks:  Hooks{Timeout: 30 * time.Second},
		Backup: Backup{CommandIdle: 30 * time.Minute, Interval: time.Minute, KeepFull: 7},
	}
}

// ClusterMembers returns the members with their ids, in the order of the file.
func (c Config) ClusterMembers() []cluster.Member {
	members := make([]cluster.Member, 0, len(c.Members))
	for _, m := range c.Members {
		members = append(members, cluster.Member{
			ID: MemberID(c.Cluster, m.Name), Name: m.Name, Peer: m.Peer, Kind: m.Kind, Weight: m.Weight, Key: m.Key,
		})
	}
	return members
}

// AddedMembers are the other nodes that were added later, as they were at the beginning:
// without a vote.
func (c Config) AddedMembers() (members []cluster.Member) {
	for _, m := range c.Added {
		if m.Name != c.Node {
			members = append(members, cluster.Member{ID: MemberID(c.Cluster, m.Name), Name: m.Name, Peer: m.Peer, Kind: cluster.KindLearner, Key: m.Key})
		}
	}
	return members
}

// Self returns this node's own entry among the members, or the member as which it joins. It is
// the zero Member only if the Config does not pass Validate.
func (c Config) Self() cluster.Member {
	for _, m := range c.ClusterMembers() {
		if m.Name == c.Node {
			return m
		}
	}
	if c.Joins() {
		return cluster.Member{ID: MemberID(c.Cluster, c.Node), Name: c.Node, Peer: c.Join.Peer, Kind: c.Join.Kind}
	}
	return cluster.Member{}
}

// ClusterID returns the cluster's 64-bit id, never 0 (see the package comment).
func (c Config) ClusterID() uint64 {
	names := make([]string, 0, len(c.Members))
	for _, m := range c.Members {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return hash64("quorate-cluster\x00" + c.Cluster + "\x00" + strings.Join(names, "\x00"))
}

// MemberID returns the Raft id of the node called name in a cluster, never 0
// (see the package comment). Names hold no NUL byte, so two different pairs
// never hash the same text.
func MemberID(clusterName, name string) cluster.NodeID {
	return cluster.NodeID(hash64("quorate-node\x00" + clusterName + "\x00" + name))
}

func hash64(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return cmp.Or(binary.BigEndian.Uint64(sum[:8]), 1)
}
