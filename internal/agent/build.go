package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/mysqlrouter"
	"github.com/quorate/quorate/internal/agent/old"
	"github.com/quorate/quorate/internal/agent/prepared"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/agent/scheduler"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/front/router"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/mysql/routermeta"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/transport"
)

// feedUser is the name with which our own mysqld attaches to the feed.
const feedUser = "quorate_feed"

// entryBytesMax is the length of the longest entry: what a frame between agents
// carries (64 MiB), less room for its headers. Longer transactions are staged,
// from log.stage_size_min (at most 16 MiB) on.
const entryBytesMax = 60 << 20

func (a *Agent) mysqldConfig() mysqld.Config {
	return mysqld.Config{
		Installation: a.local.Installed.Load(), DataDir: a.data.Join("mysql"),
		Port: a.cfg.MySQL.Port, Bind: a.port.Binds(a.ownAddress()), Inherit: a.port.Inherited(), ServerID: a.serverID(serverIDOfMysqld),
		OSUser: a.cfg.MySQL.User, Variables: a.cfg.MySQL.Variables,
		Secrets: a.secrets, Logger: a.logger,
	}
}

func (a *Agent) buildRouter() {
	a.router = router.New(router.Config{
		Listen: a.cfg.Router.ReadWrite, HoldTimeout: a.cfg.Router.HoldTimeout,
		HoldMax: a.cfg.Router.HoldMax, Allow: a.cfg.Router.Allow, Refuse: !a.cfg.Router.Forward, Name: a.board.Name, Logger: a.logger,
	}, routeBackend{a})
}

func (a *Agent) buildPeers() {
	a.peers = transport.New(a.transportConfig(peerHandler{a}, a.transportPeers()))
}

// buildWatches makes the parts that look after prepared XA transactions, the scheduler's events, what MySQL Router
// reads, and old data.
func (a *Agent) buildWatches() {
	a.xa = prepared.New(prepared.Config{
		AgeMax: a.cfg.MySQL.XAPreparedMaxAge, Serving: a.serves,
		Note: func(what string) { a.records.Note(what, "done") }, Logger: a.logger,
	})
	a.events = scheduler.New(scheduler.Config{
		Board: a.board, Server: func() scheduler.Server { return scheduler.Of(a.local.Process()) }, Serves: a.serves, Term: func() uint64 { return a.Raft.Role().Term }, Logger: a.logger,
	})
	a.told = mysqlrouter.New(mysqlrouter.Config{
		Board: a.board, Self: a.self.ID, Cluster: a.cfg.Cluster, ClusterID: a.cfg.ClusterID(), Serves: func() bool { return a.currentProcess() != nil && a.serves() },
		Term: func() uint64 { return a.Raft.Role().Term }, Update: a.updateRouterMetadata, Impatient: a.impatientRouters, Logger: a.logger,
	})
	a.old = old.New(old.Config{
		Dir: a.data.Path(), Logger: a.logger,
		Member: func() bool {
			role := a.board.Own().Role
			return role == status.RoleReplica || role == status.RolePrimary || role == status.RoleLogger
		},
		Copying: func() bool { return a.backups.Copying() },
		Show:    func(all []status.OldData) { a.board.Update(func(s *status.Node) { s.Old = all }) },
		Note:    func(what string) { a.records.Note(what, "done") },
	})
}

// updateRouterMetadata is a mysqlrouter.Update.
func (a *Agent) updateRouterMetadata(ctx context.Context, on bool, want func(routermeta.Metadata) routermeta.Metadata) (is routermeta.Metadata, wrote bool, err error) {
	err = a.withRouterSchema(func(schema *routermeta.Schema) (err error) {
		is, wrote, err = schema.Update(ctx, on, want)
		return err
	})
	return is, wrote, err
}

// impatientRouters is mysqlrouter.Config's Impatient.
func (a *Agent) impatientRouters(ctx context.Context, least time.Duration) (names []string, err error) {
	err = a.withRouterSchema(func(schema *routermeta.Schema) (err error) {
		names, err = schema.Impatient(ctx, least)
		return err
	})
	return names, err
}

// withRouterSchema gives f the schema that MySQL Router reads.
func (a *Agent) withRouterSchema(f func(*routermeta.Schema) error) error {
	p := a.currentProcess()
	if p == nil {
		return errors.New("mysqld does not run")
	}
	db, err := p.OpenOwnSchemas()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return f(routermeta.New(db))
}

// boardConfig describes the status table as it is before this node has heard anything.
func (a *Agent) boardConfig() board.Config {
	s := status.Node{
		ID: a.self.ID, Name: a.self.Name, Kind: a.self.Kind, Weight: a.self.Weight, Peer: a.self.Peer, Reachable: true,
		StateVersion: new(uint64), StateFormat: cluster.StateFormat, Role: status.RoleStarting, Mysqld: status.MysqldStopped,
		Instance: a.data.Own().Instance, Router: a.cfg.Router.ReadWrite, ReadOnly: a.cfg.Router.ReadOnly, AgentVersion: a.version,
		Heartbeat: a.cfg.Raft.Heartbeat, ElectionTimeout: a.cfg.Raft.ElectionTimeout,
	}
	if a.self.Kind == cluster.KindLogger {
		s.Role, s.Mysqld = status.RoleLogger, status.MysqldNone
	}
	state := cluster.NewState(a.cfg.ClusterMembers())
	if !a.data.Own().Keyed {
		state.PeerSecurity = cluster.PeersPlain
	}
	if a.data.Life() == datadir.Joining { // it asks these, too, until it is told a state
		state.Members = append(state.Members, a.cfg.AddedMembers()...)
	}
	if k := a.keys.Shown(); k != nil {
		s.Key = k.Name()
	}
	s.PeerAuthority = a.authority != nil
	return board.Config{
		Self: s, State: state, Known: a.data.known, Now: time.Now,
		DialError: func(id cluster.NodeID) string { return a.peers.DialError(id) },
	}
}

func (a *Agent) transportIdentity() transport.Identity {
	return transport.Identity{
		ClusterID: a.cfg.ClusterID(), ClusterName: a.cfg.Cluster, Node: a.self.ID,
		NodeName: a.self.Name, Instance: a.data.Instance(), Version: a.version,
	}
}

// transportConfig describes a transport with these peers. It listens at this node's peer address.
func (a *Agent) transportConfig(h transport.Handler, peers []transport.Peer) transport.Config {
	return transport.Config{
		Identity: a.transportIdentity(), Key: a.keys.Shown(), Authority: a.authority, Security: a.board.State().PeerSecurity,
		Listen: a.self.Peer, Peers: peers, Handler: h, Logger: a.logger,
	}
}

func (a *Agent) transportPeers() []transport.Peer { return transport.PeersOf(a.board.Members()) }

func (a *Agent) buildFeed() (err error) {
	a.feed, err = mysqlwire.NewFeed(mysqlwire.FeedConfig{
		Listen: a.cfg.Feed.Listen, User: feedUser, Password: a.feedPassword,
		ServerID: a.serverID(serverIDOfFeed), ServerUUID: func() string { return a.derivedUUID(uuidOfFeed) },
		ServerVersion: func() string { return a.local.Installed.Load().Version.String() },
		Source: &feed.Source{
			Log:      func() feed.Log { return a.logReader() },
			Changed:  func() (consensus.Mark, <-chan struct{}) { return a.Raft.Committed().Changed() },
			Executed: a.local.Executed, Durable: a.durable, Open: a.openEvents, Logger: a.logger,
		},
		Workers: a.local.ApplierWorkers, WrapPayloads: true, Logger: a.logger,
	})
	return err
}

func (a *Agent) buildAPI() {
	a.api = api.New(api.Config{
		Listen: a.cfg.API.Listen, Socket: a.cfg.ControlSocket(), Group: a.cfg.Control.Group,
		TokensFile: a.cfg.API.TokensFile, Pprof: a.cfg.API.Pprof, Stream: a.stream, Logger: a.logger,
	}, provider{a})
}

func (a *Agent) logOptions() seglog.Options {
	return seglog.Options{
		FS: vfs.OS{}, Dir: a.data.Join("log"), Identity: a.logIdentity(), Logger: a.logger,
		SegmentBytesMax: int64(a.cfg.Log.SegmentSize), CacheBytesMax: int64(a.cfg.Log.CacheSize),
		PrefetchBytesMax: int64(a.cfg.Log.PrefetchSize),
	}
}

// Server ids must differ within the node's own little topology (its mysqld,
// its tap, its feed) and, for mysqld, within the cluster.
const (
	serverIDOfMysqld = 0
	serverIDOfTap    = 1 << 29
	serverIDOfFeed   = 2 << 29
	// serverIDOfReaders and all others are below 1<<31: mysqld prints server ids as signed numbers.
	serverIDOfReaders = 3 << 29
)

// serverID derives a MySQL server id from the node's id.
func (a *Agent) serverID(of uint32) uint32 {
	return of | max(uint32(a.self.ID)&(1<<29-1), 1)
}

// What UUIDs are derived for.
const (
	uuidOfTap  = "tap"
	uuidOfFeed = "feed"
	// uuidOfReaders differs from uuidOfFeed: a downstream replica must not take its source
	// for the feed of this node's own mysqld.
	uuidOfReaders = "readers"
)

// derivedUUID is stable for this data directory and differs from any other.
func (a *Agent) derivedUUID(of string) string {
	sum := sha256.Sum256([]byte("quorate-uuid\x00" + of + "\x00" + a.data.Own().Instance))
	return gtid.UUID(sum[:16]).String()
}

func parseUUID(text string) [16]byte {
	u, err := gtid.ParseUUID(text)
	if err != nil {
		return [16]byte{}
	}
	return u
}

// logIdentity ties the log to its cluster and node.
func (a *Agent) logIdentity() (id [16]byte) { return logIdentity(a.cfg) }

func logIdentity(cfg config.Config) (id [16]byte) {
	binary.LittleEndian.PutUint64(id[:], cfg.ClusterID())
	binary.LittleEndian.PutUint64(id[8:], uint64(cfg.Self().ID))
	return id
}

// provider answers the API. While the log is healed, the node takes no part in Raft, and
// there is little to tell.
type provider struct{ *Agent }

// Status implements api.Provider: the cluster as this node sees it.
func (p provider) Status() status.Cluster {
	own := p.completed(p.board.OwnBeside())
	sight := p.sight(own)
	state := sight.State
	s := status.Cluster{
		Cluster: p.cfg.Cluster, ClusterID: formatID(p.cfg.ClusterID()), Self: p.self.Name, Nodes: sight.Nodes,
		StateVersion: state.Version, Maintenance: state.Maintenance, Durability: state.Durability,
		Reseed: cmp.Or(state.Reseed, cluster.ReseedAuto), Errant: cmp.Or(state.Errant, cluster.ErrantKeep),
		RetainBytesMax: state.RetainBytesMax, MySQLRouter: state.MySQLRouter, EventsOff: state.EventsOff, Follow: state.Follow, Closing: state.Closing, Site: state.Site, PeerSecurity: state.PeerSecurity, Recovered: quorumloss.StillWithout(state), LastChange: p.records.LastChange(),
	}
	last := p.board.LastPrimary().At
	if s.Primary = p.primaryName(); s.Primary == "" && !last.IsZero() {
		s.NoPrimarySince, s.NoPrimarySeconds = last.UTC().Truncate(time.Millisecond), time.Since(last).Seconds()
	}
	sight.Primary = s.Primary
	s.Quorum, s.Failover = p.outlook(sight)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Name == s.Primary && n.Quorum != nil && n.ElectionTimeout > 0 { // an older agent knows of no leases
			s.Quorum, s.Failover = n.Quorum, n.Failover
		}
		n.Quorum, n.Failover = nil, nil // the cluster's status has them once
	}
	return s
}
