package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/internal/agent/local"
	"github.com/quorate/quorate/internal/agent/member"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/retention"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// memberConfig describes this node to package member.
func (a *Agent) memberConfig() member.Config {
	return member.Config{
		Self: a.self, Home: a.data.Home, Known: a.data.known, Board: a.board, Stance: a.stance, Departing: a.departing, State: &a.state,
		Process: &a.local, Host: host{a}, Peers: followed{a}, Look: a.askAdded,
		Slot:  primary.SlotConfig{Local: a.local.Local, Own: a.ownEpoch, Clients: clients{a}, Clock: worker{work: &a.work}},
		Inbox: primary.InboxConfig{Clock: clock.Machine{}, Pick: rand.IntN},
		Shell: primary.Shell{
			Stepped: a.stepped,
			Began:   func(e role.Effect) { a.logger.Info("effect", "do", e.String(), "to", a.board.Name(e.To)) },
			Ended: func(e role.Effect, d role.Done, err error) {
				if err != nil {
					a.logger.Warn("operation", "op", e.String(), "verdict", d.Verdict, "reason", err)
				}
			},
		},
		Purger: retention.Config{Retention: a.retention(), Every: purgeEvery},
		Marker: retention.MarkerConfig{
			Mysqld: a.local.Marked, Marks: &a.mark, Every: durableEvery,
			Prepared: func(ctx context.Context, m retention.Mysqld, open []replay.PreparedXA) error {
				a.xa.Look(ctx, m.(local.Marked).Process.Admin(), open)
				return nil
			},
			Also: func(ctx context.Context, m retention.Mysqld) {
				a.local.LookAtAccounts(ctx, m.(local.Marked).Process)
				a.local.LookAtTables(ctx, m.(local.Marked).Process.Admin().ZoneDependent)
			},
		},
		OpenLog: a.logReader, Status: a.ownStatus, WriteState: a.writeState, WritePromise: a.data.WritePromise,
		MysqldDir: a.data.Join("mysql"), ElectionTimeout: a.cfg.Raft.ElectionTimeout, ElectionTimeoutMax: config.ElectionTimeoutMax,
		Promotion: a.cfg.MySQL.PromotionTimeout, MaxApplyLag: a.cfg.MySQL.MaxApplyLag,
		Clock: clock.Machine{}, Now: time.Now, Logger: a.logger,
	}
}

// openMember builds what takes part in the cluster. The log is open.
func (a *Agent) openMember() error {
	a.records.Open()
	err := a.Open(a.log, consensus.Config{
		Members: a.cfg.ClusterMembers(), Heartbeat: a.cfg.Raft.Heartbeat, ElectionTimeout: a.cfg.Raft.ElectionTimeout,
		Logger: a.logger, Send: a.peers.Send, OnRole: a.onRole, OnLease: a.leaseChanged, OnState: a.onState,
		OnAckEvent: a.onAckEvent, OnBroken: a.onBroken,
	}, a.copiesConfig())
	if err == nil {
		a.board.SetState(a.state.Point().State)
	}
	return err
}

// onRole logs what this node has become in Raft. It is called in a turn of consensus, so it must not block.
func (a *Agent) onRole(r consensus.RoleState) {
	a.logger.Info("raft", "term", r.Term, "leader", a.board.Name(r.Leader), "leading", r.Leading)
}
