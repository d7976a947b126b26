package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/member"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/sys/clock"
)

// runGossip sends this node's status to the peers, and tells the role machine about the peers.
func (a *Agent) runGossip(ctx context.Context) error {
	own := func() status.Node {
		if t, ok := (routeBackend{a}).primary(); ok && t.Local {
			a.board.Served(a.Slot.Served())
		}
		return a.ownStatus()
	}
	send := func(own status.Node) error {
		blob, err := json.Marshal(own)
		if err != nil {
			return fmt.Errorf("encode own status: %w", err)
		}
		a.peers.SendStatus(blob)
		return nil
	}
	return a.Gossip(ctx, new(clock.OneTimer), own, send)
}

// lagStatus sets what is known of the lag.
func (a *Agent) lagStatus(s *status.Node) {
	if !a.TakesPart() {
		s.LagUnknown = true
		return
	}
	a.heard.LagStatus(s, a.Raft, a.local.LagAt.Load(), time.Now(), a.asksLeader())
}

// ownStatus is this node's whole status.
func (a *Agent) ownStatus() status.Node { return a.completed(a.board.Own()) }

// completed completes the board's status with what other parts of the agent know.
func (a *Agent) completed(s status.Node) status.Node {
	s.TwoSides = a.stance.TwoSides()
	s.Joined, s.Empty = a.data.known.Joined(), a.data.known.Empty()
	a.lagStatus(&s)
	if a.healing != nil {
		member.CompleteHealing(&s, a.healing, a.durable())
	}
	if !a.TakesPart() {
		return s // the log is being healed, or copied
	}
	a.Complete(&s)
	s.LogSegments, s.LogBytes = a.log.Size()
	s.PurgeBlocked = a.purgeBlocked()
	s.PreparedXA = a.xa.Count()
	s.StageBlocked = a.stageBlocked(a.Bulk.Blocked())
	for _, p := range a.peers.Stats().Peers {
		if p.Plain {
			s.PlainPeers = append(s.PlainPeers, a.board.Name(p.ID))
		}
	}
	s.AuditSeq, s.HistorySeq = a.records.Audit.Seq(a.self.Name), a.records.History.Seq(a.self.Name)
	a.acksStatus(&s)
	if s.Role == status.RolePrimary {
		p, _, _ := a.LagBound.Now()
		s.Pace = p.Reason
		if t, ok := a.Slot.Stats(); ok {
			own, majority := a.Raft.CommitSeconds()
			s.Commits = a.commits.Lately(t.Transactions, own, majority)
		}
	}
	s = board.Shown(s, a.Raft.VotesIn(), a.Slot.Serving())
	if s.Role == status.RolePrimary {
		sight := a.sight(s)
		sight.Primary = s.Name
		s.Quorum, s.Failover = a.outlook(sight)
	}
	return s
}
