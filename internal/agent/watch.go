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
	"github.com/quorate/quorate/internal/agent/standstill"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// aboutReplication keys what ails replication among the board's troubles.
const aboutReplication = "replication"

// aboutTLS keys that mysqld runs without the TLS that it should have.
const aboutTLS = "tls"

// errUnknownXID stops an applier that is to end an XA transaction that is not prepared.
const errUnknownXID = 1397 // ER_XAER_NOTA

// PrimaryStatus implements primary.Polled.
func (s localServer) PrimaryStatus(ctx context.Context) (primary.PrimaryStatus, error) {
	p, err := s.Admin.PrimaryStatus(ctx)
	readers := slices.DeleteFunc(p.Dumps, func(u string) bool { return u == mysqld.TapUser })
	return primary.PrimaryStatus{Executed: p.Executed, SemiSync: primary.SemiSync(p.SemiSync), Readers: readers}, err
}

// Progressed implements primary.Probes.
func (s localServer) Progressed(progress string, l consensus.Lag, now time.Time) {
	s.agent.standstill.Commits(progress, l.Transactions > 0, now)
	s.agent.lagAt.Store(&now)
}

// Silent and what follows implement primary.Probes.
func (s localServer) Silent(ctx context.Context, r status.Role) {
	s.agent.standstill.Greets(ctx, r, s.agent.server.Socket(), s.doubt)
}
func (s localServer) Full() string { return s.agent.standstill.Full() }
func (s localServer) Disk(ctx context.Context, r status.Role) {
	s.agent.standstill.Disk(r, func() (int, error) { return s.slowWriters(ctx) }, s.doubt)
}

func (s localServer) doubt(reason string) { s.agent.doubt(s.process, reason) }

// slowWriters counts the statements that have been writing for longer than a disk may take.
func (s localServer) slowWriters(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, standstill.GreetTimeout)
	defer cancel()
	sessions, err := s.SlowWriters(ctx, standstill.Patience)
	if errors.Is(err, context.Canceled) {
		return 0, nil // the agent stops
	}
	return len(sessions), err
}

// Applies implements primary.Probes.
func (s localServer) Applies(r primary.ReplicaStatus, stopped string) {
	trouble := ""
	if stopped != "" && stopped != s.Full() {
		trouble = cannotTakeOver(stopped, s.agent.self.Name)
	}
	s.agent.board.SetTrouble(aboutReplication, trouble)
	s.pollForeignXA(r.Errno == errUnknownXID)
}

// Grants looks whether an account can do what fences a primary. Who cannot, as the
// look before has found, gets there by a transaction alone: without one it needs no look.
func (s localServer) Grants(ctx context.Context, executed string) (doubts []string) {
	looked := grantsLooked{s.Incarnation(), executed}
	if s.agent.grants == looked {
		return nil
	}
	err := s.agent.judgeGrants(ctx)
	if err == nil {
		s.agent.grants = looked
	}
	if found := (*grantsError)(nil); errors.As(err, &found) {
		doubts = append(doubts, found.Error())
	}
	return doubts
}

// grantsLooked is what mysqld had before its grants were found in order.
type grantsLooked struct {
	incarnation uint64
	executed    string
}

// certificateSoon is how long before its end a certificate of mysqld's is shown.
const certificateSoon = 30 * 24 * time.Hour

// Guarded says that mysqld runs without the TLS that it should have: it only logs that.
// And that the certificate which it was given ends soon: then clients that verify it stop.
func (s localServer) Guarded(ctx context.Context) {
	a := s.agent
	options, ends, err := s.process.TLS(ctx)
	if err != nil {
		return
	}
	a.certificateEnds.Store(max(0, ends.Unix()))
	text := certificateEnds(ends, time.Now())
	if len(options) == 0 {
		s.tellCertificate(ctx, ends)
	} else {
		text = fmt.Sprintf("mysqld runs without TLS although mysql.variables sets %s: \"quorate config check FILE\", as root, says what is wrong with the files; "+
			"mend them, then \"quorate restart-mysqld %s\"", strings.Join(options, ", "), a.self.Name)
	}
	if a.board.SetTrouble(aboutTLS, text) && text != "" {
		a.logger.Error("mysqld's TLS", "reason", text)
	}
}

// certificateTold is the certificate of which the board tells what clients see: that of an
// incarnation of mysqld, and until when it counts.
type certificateTold struct {
	incarnation uint64
	ends        time.Time
}

// tellCertificate tells the other nodes what clients see of this mysqld's certificate. The file
// is read again only when mysqld has another one.
func (s localServer) tellCertificate(ctx context.Context, ends time.Time) {
	a := s.agent
	now := certificateTold{s.Incarnation(), ends}
	if a.certificate == now {
		return
	}
	shown, err := s.process.Shown(ctx)
	if err != nil {
		return // where mysqld cannot read it either, Guarded says so
	}
	a.certificate = now
	a.board.Update(func(n *status.Node) { n.ClientCA, n.ClientNames = cmp.Or(shown.CA, status.OwnCA), shown.Names })
}

// certificateEnds says that a certificate ends soon, or has ended; "" = it does not, or
// that is not known.
func certificateEnds(at, now time.Time) string {
	if at.IsZero() || at.Sub(now) > certificateSoon {
		return ""
	}
	ends := "ends"
	if at.Before(now) {
		ends = "has ended"
	}
	return fmt.Sprintf("the certificate that mysqld shows its clients %s on %s: put a new one in its place, then \"quorate restart-mysqld\" this node",
		ends, at.UTC().Format(time.DateOnly))
}

func (a *Agent) doubt(p *mysqld.Process, reason string) { a.Inbox.Doubt(p.Incarnation(), reason) }

// runGossip tells the peers of this node, and the role machine of the peers.
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
	return a.board.Gossip(ctx, new(clock.OneTimer), own, send, func(own status.Node, in role.Peers) {
		a.judgeTimings(own, &in)
		a.Inbox.Peers(in)
	})
}

// lagStatus says whether the figures of the lag count, and how old they are; and how the log is. A replica does not know
// its lag where what is committed does not reach it: its log's disk is full or hangs, or its leader has not said of
// all that is here how new that is.
func (a *Agent) lagStatus(s *status.Node) {
	at := a.lagAt.Load()
	if at != nil {
		s.LagAge = time.Since(*at).Seconds()
	}
	s.LagUnknown = s.Leader == 0 || s.Mysqld != status.MysqldRunning || at == nil
	if a.Raft == nil { // the log is being healed
		s.LagUnknown = true
		return
	}
	logged := s.LogState == "" || s.LogState == status.LogOK
	if took := a.Raft.Stalled(); took > 0 && logged {
		logged, s.LogState, s.LogDetail = false, status.LogStalled, fmt.Sprintf("its disk has not answered for %s", took.Round(time.Second))
	}
	s.LagUnknown = s.LagUnknown || !logged
	if s.Role == status.RoleReplica && a.asksLeader() {
		oldest := time.Duration((s.LagAge + s.LagSeconds) * float64(time.Second))
		s.LagUnknown = !a.heard.KnowsLag(a.Raft.Committed().Mark().Index, s.Applied, oldest) || s.LagUnknown
	}
}

// ownStatus completes the board's status with what others own.
func (a *Agent) ownStatus() status.Node {
	s := a.board.Own()
	s.Joined, s.Empty = a.data.known.Joined(), a.data.known.Empty()
	a.lagStatus(&s)
	if a.Raft == nil {
		return s // the log is being healed
	}
	a.Complete(&s)
	segments := a.log.Segments()
	s.LogSegments, s.LogBytes = len(segments), 0
	for _, segment := range segments {
		s.LogBytes += segment.Bytes
	}
	s.PurgeBlocked = a.purgeBlocked()
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
		s.Commits = a.commits()
	}
	s = board.Shown(s, a.Raft.VotesIn(), a.Slot.Serving())
	if s.Role == status.RolePrimary {
		sight := a.sight(s)
		sight.Primary = s.Name
		s.Quorum, s.Failover = a.outlook(sight)
	}
	return s
}
