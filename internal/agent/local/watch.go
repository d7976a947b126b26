package local

import (
	"cmp"
	"context"
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
)

// aboutReplication is the key, among the board's troubles, of what is wrong with replication.
const aboutReplication = "replication"

// aboutTLS is the key of what is wrong with mysqld's TLS, and aboutCertificate that of a certificate that will end.
const (
	aboutTLS         = "tls"
	aboutCertificate = board.Last + "certificate"
)

// errUnknownXID stops an applier that is to end an XA transaction that is not prepared.
const errUnknownXID = 1397 // ER_XAER_NOTA

// PrimaryStatus implements primary.Polled.
func (s running) PrimaryStatus(ctx context.Context) (primary.PrimaryStatus, error) {
	p, err := s.Admin.PrimaryStatus(ctx)
	readers := slices.DeleteFunc(p.Dumps, func(u string) bool { return u == mysqld.TapUser })
	return primary.PrimaryStatus{Executed: p.Executed, SemiSync: primary.SemiSync(p.SemiSync), Readers: readers}, err
}

// Progressed implements primary.Probes.
func (s running) Progressed(progress string, l consensus.Lag, now time.Time) {
	s.m.standstill.Commits(progress, l.Transactions > 0, now)
	s.m.LagAt.Store(&now)
}

// Silent and what follows implement primary.Probes.
func (s running) Silent(ctx context.Context, r status.Role) {
	s.m.standstill.Greets(ctx, r, s.m.server.Socket(), s.doubt)
}
func (s running) Full() string { return s.m.standstill.Full() }
func (s running) Disk(ctx context.Context, r status.Role) {
	s.m.standstill.Disk(r, func() (int, error) { return s.slowWriters(ctx) }, s.doubt)
}

func (s running) doubt(reason string) { s.m.cfg.Node.Doubt(s.Incarnation(), reason) }

// slowWriters counts the statements that have been writing for longer than a disk may take.
func (s running) slowWriters(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, standstill.GreetTimeout)
	defer cancel()
	sessions, err := s.SlowWriters(ctx, standstill.Patience)
	if errors.Is(err, context.Canceled) {
		return 0, nil // the agent stops
	}
	return len(sessions), err
}

// Applies implements primary.Probes. What mysqld answered just before its end is not said of it behind its end.
func (s running) Applies(r primary.ReplicaStatus, stopped string) {
	trouble := ""
	switch {
	case r.Unacknowledged != "":
		trouble = "it cannot take over: " + stopped
	case stopped != "" && stopped != s.Full():
		trouble = cannotTakeOver(stopped, s.m.cfg.Self)
	}
	s.m.cfg.Board.SetTrouble(aboutReplication, trouble)
	if trouble != "" && s.m.cfg.Board.Own().Mysqld != status.MysqldRunning {
		s.m.cfg.Board.SetTrouble(aboutReplication, "")
	}
	s.pollForeignXA(r.Errno == errUnknownXID)
}

// Grants looks whether an account has a privilege that fences a primary. After a look that has
// found none, an account can get one only by a transaction: without one, Grants does not look again.
func (s running) Grants(ctx context.Context, executed string) (doubts []string) {
	looked, begun := grantsLooked{s.Incarnation(), executed}, time.Now()
	if s.m.grants == looked || begun.Before(s.m.grantsDue) {
		return nil
	}
	err := s.JudgeGrants(ctx)
	took := time.Since(begun)
	s.m.grantsDue = begun.Add(nextLook(took))
	var found *grantsError
	switch {
	case err == nil:
		s.m.grants, s.m.grantsUnseen = looked, false
	case errors.As(err, &found):
		doubts = append(doubts, found.Error())
	case !s.m.grantsUnseen:
		s.m.grantsUnseen = true
		s.m.cfg.Logger.Warn("mysqld does not say which accounts may attach as replicas: asking again, and again", "took", took, "error", err)
	}
	return doubts
}

// nextLook is how long after the beginning of a look at the grants the next one begins, at the earliest: with 100 000
// accounts a look takes seconds, and takes at most a twentieth of a core.
func nextLook(took time.Duration) time.Duration { return 20 * took }

// grantsLooked is what mysqld had before its grants were found in order.
type grantsLooked struct {
	incarnation uint64
	executed    string
}

// certificateSoon is how long before its end the status says that mysqld's certificate ends.
const certificateSoon = 30 * 24 * time.Hour

// Guarded says that mysqld runs without the TLS that it should have, which mysqld only logs. It
// also says that mysqld's certificate ends soon: after that, clients that verify it cannot connect.
// It tells the other nodes what they compare: the certificate, mysqld's time zone, and how it names tables.
func (s running) Guarded(ctx context.Context) {
	m := s.m
	s.tellFixed(ctx)
	options, ends, err := s.process.TLS(ctx)
	if err != nil {
		return
	}
	m.CertificateEnds.Store(max(0, ends.Unix()))
	soon, wrong := certificateEnds(ends, time.Now())
	if len(options) == 0 {
		s.tellCertificate(ctx, ends)
	} else {
		soon, wrong = "", fmt.Sprintf("mysqld runs without TLS although mysql.variables sets %s: \"quorate config check FILE\", as the agent's account, says what is wrong with the files; "+
			"mend them, then \"quorate restart-mysqld %s\"", strings.Join(options, ", "), m.cfg.Self)
	}
	news := m.cfg.Board.SetTrouble(aboutCertificate, soon)
	if text := soon + wrong; m.cfg.Board.SetTrouble(aboutTLS, wrong) || news && text != "" {
		m.cfg.Logger.Error("mysqld's TLS", "reason", text)
	}
}

// certificateTold is the certificate that the board was told of: the incarnation of mysqld that
// shows it, and when it ends.
type certificateTold struct {
	incarnation uint64
	ends        time.Time
}

// tellCertificate tells the other nodes what clients see of this mysqld's certificate. The file
// is read again only when mysqld has another certificate.
func (s running) tellCertificate(ctx context.Context, ends time.Time) {
	m := s.m
	now := certificateTold{s.Incarnation(), ends}
	if m.certificate == now {
		return
	}
	shown, err := s.process.Shown(ctx)
	if err != nil {
		return // if mysqld cannot read it either, Guarded says so
	}
	m.certificate = now
	m.cfg.Board.Update(func(n *status.Node) { n.ClientCA, n.ClientNames = cmp.Or(shown.CA, status.OwnCA), shown.Names })
}

// tellFixed tells the other nodes what does not change while this mysqld runs, and what they compare: its time zone, and
// how it names tables.
func (s running) tellFixed(ctx context.Context) {
	m := s.m
	if m.fixedOf == s.Incarnation() {
		return
	}
	z, err := s.Zone(ctx)
	names, err2 := s.LowerCaseTableNames(ctx)
	if err = errors.Join(err, err2); err != nil {
		m.cfg.Logger.Debug("what mysqld has fixed", "error", err) // the next poll asks again
		return
	}
	m.fixedOf = s.Incarnation()
	m.cfg.Board.Update(func(n *status.Node) {
		n.TimeZone = &status.TimeZone{Global: z.Global, January: z.January, July: z.July, Rules: z.Rules}
		n.LowerCaseTableNames = &names
	})
}

// certificateEnds says that a certificate ends soon, or that it has ended.
func certificateEnds(at, now time.Time) (soon, ended string) {
	if at.IsZero() || at.Sub(now) > certificateSoon {
		return "", ""
	}
	text := fmt.Sprintf(" on %s: put a new one in its place, then run \"quorate restart-mysqld\" for this node", at.UTC().Format(time.DateOnly))
	const which = "the certificate that mysqld shows its clients"
	if at.Before(now) {
		return "", which + " has ended" + text
	}
	return which + " ends" + text, ""
}

// cannotTakeOver says what follows for a replica that does not apply.
func cannotTakeOver(why, node string) string {
	return fmt.Sprintf("it cannot take over: %s; its replication is started again every 2 s; if that does not help: quorate restart-mysqld %s, then quorate node rebuild %s", why, node, node)
}

// CatchingUp shows the state of a catch-up that takes long; "" = it is over.
func (m *Mysqld) CatchingUp(text string) { m.cfg.Board.SetTrouble(aboutReplication, text) }
