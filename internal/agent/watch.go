package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// aboutReplication keys what ails replication among the board's troubles.
const aboutReplication = "replication"

// aboutTLS keys that mysqld runs without the TLS that it should have.
const aboutTLS = "tls"

// errUnknownXID stops an applier that is to end an XA transaction that is not prepared.
const errUnknownXID = 1397 // ER_XAER_NOTA

// runWatch polls mysqld: for the status, and for what must not be.
func (a *Agent) runWatch(ctx context.Context) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		own := a.board.Own()
		p := a.currentProcess()
		if p == nil || own.Mysqld != status.MysqldRunning {
			continue
		}
		pollCtx, cancel := context.WithTimeout(ctx, 4*watchInterval)
		found, err := askStatus(pollCtx, p.Admin(), own.Role)
		if err == nil {
			err = a.pollApplied(pollCtx, p, own.Role, found.executed)
		}
		if err != nil && errors.Is(pollCtx.Err(), context.DeadlineExceeded) {
			a.pollGreeting(ctx, p, own.Role)
		}
		now := a.board.Own() // the polls before may have taken two seconds
		a.pollDisk(p, now.Role, func() (int, error) { return slowWriters(ctx, p) })
		switch guard := n%primary.GuardEvery == 0; {
		case now.Role != own.Role || now.Term != own.Term: // at the next poll
		case found.primary != nil:
			a.pollPrimary(pollCtx, p, *found.primary, guard)
		case found.replica != nil:
			a.pollReplica(pollCtx, p, *found.replica, guard)
		}
		cancel()
	}
}

// mysqldStatus is what a poll was told.
type mysqldStatus struct {
	executed string
	primary  *mysqld.PrimaryStatus // nil: it is none, or does not say
	replica  *mysqld.ReplicaStatus // likewise
}

// statusAsker is mysqld.Admin.
type statusAsker interface {
	GTIDExecuted(ctx context.Context) (string, error)
	PrimaryStatus(ctx context.Context) (mysqld.PrimaryStatus, error)
	ReplicaStatus(ctx context.Context) (mysqld.ReplicaStatus, error)
}

// askStatus asks once for all that the role needs. A mysqld that does not answer that
// in most of the time is asked for gtid_executed alone, which waits for less.
func askStatus(ctx context.Context, admin statusAsker, role status.Role) (found mysqldStatus, err error) {
	most, cancel := context.WithTimeout(ctx, 3*watchInterval)
	defer cancel()
	switch role {
	case status.RolePrimary:
		if s, err := admin.PrimaryStatus(most); err == nil {
			return mysqldStatus{executed: s.Executed, primary: &s}, nil
		}
	case status.RoleReplica:
		if s, err := admin.ReplicaStatus(most); err == nil {
			return mysqldStatus{executed: s.Executed, replica: &s}, nil
		}
	}
	found.executed, err = admin.GTIDExecuted(ctx)
	return found, err
}

// pollApplied notes what mysqld has, and looks whether it has more than was
// ever committed (I3). gtid_executed was read first: the committed set only
// grows, so a transaction that is missing there was not committed.
func (a *Agent) pollApplied(ctx context.Context, p *mysqld.Process, role status.Role, executed string) error {
	set, err := gtid.ParseSet(executed)
	if err != nil {
		return fmt.Errorf("parse gtid_executed: %w", err)
	}
	a.doubt(p, primary.WatchExecuted(role, set, a.node.Committed().Contains))
	now := time.Now()
	done := set.String()
	if role == status.RolePromoting { // it may be inside of a long transaction
		if done, err = a.applyProgress(ctx, p.Admin(), done); err != nil {
			return err
		}
	}
	a.disk.commits(done, now)
	l := a.lag.Executed(set, now)
	if l.Transactions == 0 {
		a.board.SetTrouble(aboutSpace, "") // it has written all that it received
	}
	a.applier.Applied(role, l, now)
	a.board.Update(func(s *status.Node) {
		s.GTIDExecuted = set.String()
		a.applier.Show(s, l)
	})
	return nil
}

// pollPrimary fences a primary that anyone but the tap could acknowledge.
func (a *Agent) pollPrimary(ctx context.Context, p *mysqld.Process, s mysqld.PrimaryStatus, guard bool) {
	a.board.Update(func(n *status.Node) { n.WaitingSessions, n.ApplierStopped = int64(s.WaitSessions), "" })
	a.doubt(p, primary.WatchPrimary(primary.SemiSync(s.SemiSync), slices.DeleteFunc(s.Dumps, func(u string) bool { return u == mysqld.TapUser })))
	if guard {
		a.pollGuarded(ctx, p)
		a.pollGrants(ctx, p, s.Executed)
	}
}

// pollGrants looks whether an account can do what fences a primary. Who cannot, as the
// look before has found, gets there by a transaction alone: without one it needs no look.
func (a *Agent) pollGrants(ctx context.Context, p *mysqld.Process, executed string) {
	looked := grantsLooked{p.Incarnation(), executed}
	if a.grants == looked {
		return
	}
	err := a.judgeGrants(ctx)
	if err == nil {
		a.grants = looked
	}
	if found := (*grantsError)(nil); errors.As(err, &found) {
		a.doubt(p, []string{found.Error()})
	}
}

// grantsLooked is what mysqld had before its grants were found in order.
type grantsLooked struct {
	incarnation uint64
	executed    string
}

// pollReplica restarts replication that has stopped, and says why it did.
func (a *Agent) pollReplica(ctx context.Context, p *mysqld.Process, s mysqld.ReplicaStatus, guard bool) {
	full := a.board.Trouble(aboutSpace)
	replica := replicaStatus(s)
	stopped := a.applier.Stopped(replica, full)
	a.board.Update(func(n *status.Node) { n.ApplierStopped = stopped })
	trouble := ""
	if stopped != "" && stopped != full {
		trouble = cannotTakeOver(stopped, a.self.Name)
	}
	a.board.SetTrouble(aboutReplication, trouble)
	a.pollForeignXA(p, s.SQLErrno == errUnknownXID)
	if guard {
		if a.board.Own().Role == status.RoleReplica && replica.Stopped() {
			a.logger.Warn("replication is not running: starting it again", "error", s.SQLError+s.IOError)
			if err := p.Admin().StartReplica(ctx, feedUser, a.feedPassword); err != nil {
				a.logger.Warn("start replication", "error", err)
			}
		}
		a.pollGuarded(ctx, p)
	}
}

func (a *Agent) pollGuarded(ctx context.Context, p *mysqld.Process) {
	drifts, err := p.CheckGuarded(ctx)
	if err != nil {
		return
	}
	var doubts []string
	for _, d := range drifts {
		doubts = append(doubts, d.String())
	}
	a.doubt(p, doubts)
	a.pollTLS(ctx, p)
}

// pollTLS says that mysqld runs without the TLS that it should have: it only logs that.
func (a *Agent) pollTLS(ctx context.Context, p *mysqld.Process) {
	options, err := p.TLSOff(ctx)
	if err != nil {
		return
	}
	text := ""
	if len(options) > 0 {
		text = fmt.Sprintf("mysqld runs without TLS although mysql.variables sets %s: \"quorate config check FILE\", as root, says what is wrong with the files; "+
			"mend them, then \"quorate restart-mysqld %s\"", strings.Join(options, ", "), a.self.Name)
	}
	if a.board.SetTrouble(aboutTLS, text) && text != "" {
		a.logger.Error("mysqld runs without TLS", "reason", text)
	}
}

func (a *Agent) doubt(p *mysqld.Process, reasons []string) {
	if len(reasons) > 0 {
		a.inbox.Doubt(p.Incarnation(), strings.Join(reasons, "; "))
	}
}

// runGossip sends this node's status to its peers, and the peers' to the role machine, at
// every change that matters and at intervals.
func (a *Agent) runGossip(ctx context.Context) error {
	ticker := time.NewTicker(board.GossipInterval)
	defer ticker.Stop()
	for {
		changed := a.board.Changes()
		if t, ok := (routeBackend{a}).Primary(); ok && t.Local {
			a.board.Served(a.slot.Served())
		}
		own := a.ownStatus()
		blob, err := json.Marshal(own.Bounded())
		if err != nil {
			return fmt.Errorf("encode own status: %w", err)
		}
		a.peers.SendStatus(blob)
		in := a.board.ForRole(own)
		a.judgeTimings(own, &in)
		a.inbox.Peers(in)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
}

// ownStatus completes the board's status with what others own.
func (a *Agent) ownStatus() status.Node {
	s := a.board.Own()
	s.Joined, s.Empty = a.data.known.Joined(), a.data.known.Empty()
	s.LagUnknown = s.Leader == 0 || s.Mysqld != status.MysqldRunning
	if a.node == nil {
		return s // the log is being healed
	}
	s.LogLast = a.log.LastIndex()
	segments := a.log.Segments()
	s.LogFirst, s.LogSegments, s.LogBytes = segments[0].FirstIndex, len(segments), 0
	for _, segment := range segments {
		s.LogBytes += segment.Bytes
	}
	s.LogState = cmp.Or(s.LogState, status.LogOK)
	if took := a.node.Stalled(); took > 0 && s.LogState == status.LogOK {
		s.LogState, s.LogDetail = status.LogStalled, fmt.Sprintf("its disk has not answered for %s", took.Round(time.Second))
	}
	s.LagUnknown = s.LagUnknown || s.LogState != status.LogOK // what is committed does not reach it
	s.DurableMark, s.PurgeBlocked = a.durable().Index, a.purgeBlocked()
	s.StageBlocked = a.stageBlocked(a.bulk.Blocked())
	s.LogCommit = a.node.Committed().Mark().Index
	s.FedBy = a.learner.FedBy()
	s.StateKept = a.state.Point().Index
	s.AuditSeq, s.HistorySeq = a.records.Audit.Seq(a.self.Name), a.records.History.Seq(a.self.Name)
	a.acksStatus(&s)
	if s.Role == status.RolePrimary {
		p, _, _ := a.lagBound.Now()
		s.Pace = p.Reason
	}
	s = board.Shown(s, a.node.VotesIn(), a.slot.Serving())
	if s.Role == status.RolePrimary {
		sight := a.sight(s)
		sight.Primary = s.Name
		s.Quorum, s.Failover = a.outlook(sight)
	}
	return s
}
