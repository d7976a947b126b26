package agent

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/errant"
	"github.com/quorate/quorate/internal/agent/local"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// durableEvery is how often a new durable mark is taken while there is something new. It
// costs one fsync of InnoDB's redo log.
const durableEvery = 10 * time.Second

// probeFile, in mysqld's directory beside its data, is written to notice a disk that hangs.
const probeFile = "probe"

// localConfig describes this node to its mysqld (package local).
func (a *Agent) localConfig() local.Config {
	return local.Config{
		Self: a.self.Name, Node: localNode{a}, Board: a.board, Variables: a.variables,
		Discover: func() (*install.Installation, error) { return mysqld.Discover(a.cfg.MySQL.BaseDir, a.cfg.MySQL.User) },
		Feed:     func() *mysqlwire.Feed { return a.feed }, FeedUser: feedUser, FeedPassword: a.feedPassword,
		Tap: a.ownTap, Observe: a.commits.Observe,
		Probe: a.data.Join("mysql", probeFile), ErrantDir: a.data.Join(errant.Dir), Tasks: worker{work: &a.work}, Logger: a.logger,
	}
}

// worker is a clock.Tasks whose tasks end before Run does.
type worker struct {
	clock.Machine
	work *sync.WaitGroup
}

// Go implements clock.Tasks.
func (w worker) Go(f func()) { w.work.Go(f) }

// ownTap fills in what the configuration of a tap takes from this node.
func (a *Agent) ownTap(c *mysqlwire.TapConfig) {
	c.Socket, c.User, c.Password = a.local.Server().Socket(), mysqld.TapUser, a.secrets.Tap
	c.ServerID, c.ReplicaUUID = a.serverID(serverIDOfTap), a.derivedUUID(uuidOfTap)
	c.HeartbeatPeriod, c.EntryBytesMax, c.StageBytesMin = a.cfg.Raft.ElectionTimeout, entryBytesMax, uint64(a.cfg.Log.StageSizeMin)
	c.CheckAccounts = local.CheckAccounts
}

// currentProcess is the mysqld that runs; nil = none does.
func (a *Agent) currentProcess() *mysqld.Process { return a.local.Process() }

// durable returns the durable mark of the mysqld that runs, or ran last.
func (a *Agent) durable() replay.Mark { return a.mark.Of(a.board.Own().ServerUUID) }

// ownEpoch is this node, as its epochs name it.
func (a *Agent) ownEpoch() entry.Epoch {
	own := a.board.Own()
	return entry.Epoch{Primary: a.self.Name, ServerUUID: parseUUID(own.ServerUUID), ServerVersion: own.ServerVersion}
}

// localNode is this node as package local asks it.
type localNode struct{ *Agent }

// ForeignXANoted and what follows implement prepared.Node.
func (n localNode) ForeignXANoted() (bool, error) { return n.local.Server().ForeignXANoted() }
func (n localNode) NoteForeignXA() error          { return n.local.Server().NoteForeignXA() }
func (n localNode) Durable() uint64               { return n.durable().Index }
func (n localNode) Applied(executed *gtid.Set) uint64 {
	return n.Lag.Executed(executed, time.Now()).Applied
}

// PreparedIn implements prepared.Node.
func (n localNode) PreparedIn(from uint64, executed *gtid.Set, open map[binlog.XID]gtid.GTID) error {
	log := n.logReader()
	defer log.Close()
	return replay.PreparedIn(log, from, executed, open)
}

// Base and what follows implement local.Node.
func (n localNode) Base() context.Context                   { return n.ctx }
func (n localNode) Input(in role.Input)                     { n.input(in) }
func (n localNode) Doubt(incarnation uint64, reason string) { n.Inbox.Doubt(incarnation, reason) }
func (n localNode) OpenWrites(a *mysqld.Admin, open func(mysqld.Writers) error) error {
	return n.following.OpenWrites(a, open)
}

// host is this node, around its mysqld. It implements member.Host.
type host struct{ *Agent }

// Durable and what follows implement member.Host.
func (h host) Durable() replay.Mark { return h.durable() }
func (h host) WaitIndex(ctx context.Context, index uint64) error {
	return h.requests.WaitIndex(ctx, index)
}
func (h host) CatchingUp(text string) { h.local.CatchingUp(text) }

// CaughtUp implements primary.Host.
func (h host) CaughtUp(lacked int64, took time.Duration) {
	h.chronicle.CaughtUp(lacked, took)
	h.logger.Info("caught up", "lacked", lacked, "took", took.Round(time.Millisecond))
}

// Judged implements primary.Host: it notes what was found when mysqld's gtid_executed was compared with the log.
func (h host) Judged(v replay.Verdict) {
	// Errant transactions are saved once mysqld has ended.
	h.board.Update(func(s *status.Node) { s.Errant, s.ErrantSaved, s.ErrantAllSaved = v.Errant.String(), "", false })
	if v.Refused != "" || v.Done == nil { // it was not compared with the log
		return
	}
	h.logger.Info("mysqld holds the log up to", "index", v.Index, "committed", h.Raft.Committed().Mark().Index,
		"no_ops", v.Done.String(), "xa_again", v.Again.String())
}
