package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// judged notes what mysqld's gtid_executed comes to.
func (a *Agent) judged(v replay.Verdict) {
	// Whatever is errant is saved once mysqld has ended (saveErrant).
	a.board.Update(func(s *status.Node) { s.Errant, s.ErrantSaved, s.ErrantAllSaved = v.Errant.String(), "", false })
	if v.Refused != "" || v.Done == nil { // it was not held against the log
		return
	}
	a.logger.Info("mysqld holds the log up to", "index", v.Index, "committed", a.Raft.Committed().Mark().Index,
		"no_ops", v.Done.String(), "xa_again", v.Again.String())
}

// localServer is the mysqld that runs, as the operations of package primary ask it.
type localServer struct {
	*mysqld.Admin
	process *mysqld.Process
	agent   *Agent
}

// local returns the mysqld that runs.
func (a *Agent) local() (primary.Local, error) {
	p := a.currentProcess()
	if p == nil {
		return nil, primary.ErrNoMysqld
	}
	return localServer{p.Admin(), p, a}, nil
}

// SemiSyncStatus implements primary.Server.
func (s localServer) SemiSyncStatus(ctx context.Context) (primary.SemiSync, error) {
	status, err := s.Admin.SemiSyncStatus(ctx)
	return primary.SemiSync(status), err
}

// EndLockWaiters implements primary.Server.
func (s localServer) EndLockWaiters(ctx context.Context) (int, error) {
	ended, err := s.Admin.EndLockWaiters(ctx)
	if ended > 0 {
		s.agent.logger.Warn("ended sessions that waited for a lock when this node lost the primary's role", "sessions", ended)
	}
	return ended, err
}

// GTIDExecuted implements primary.JudgedServer.
func (s localServer) GTIDExecuted(ctx context.Context) (*gtid.Set, error) {
	text, err := s.Admin.GTIDExecuted(ctx)
	if err != nil {
		return nil, fmt.Errorf("read gtid_executed: %w", err)
	}
	return gtid.ParseSet(text)
}

// executed returns mysqld's gtid_executed.
func (a *Agent) executed(ctx context.Context) (*gtid.Set, error) {
	s, err := a.local()
	if err != nil {
		return nil, err
	}
	return s.GTIDExecuted(ctx)
}

// ReplicaBinlog and what follows implement primary.JudgedServer.
func (s localServer) ReplicaBinlog() bool                       { return s.process.Options().ReplicaBinlog }
func (s localServer) EnableSemiSync(ctx context.Context) error  { return s.process.EnableSemiSync(ctx) }
func (s localServer) RemoveOldBinlogs() error                   { return s.process.RemoveOldBinlogs() }
func (s localServer) XAEnded(ctx context.Context) (bool, error) { return s.ForeignXA(ctx) }
func (s localServer) JudgeGrants(ctx context.Context) error     { return s.agent.judgeGrants(ctx) }

// AddPurged implements primary.JudgedServer.
func (s localServer) AddPurged(ctx context.Context, set *gtid.Set) error {
	return s.Admin.AddPurged(ctx, set.String())
}

// Drifts implements primary.JudgedServer.
func (s localServer) Drifts(ctx context.Context) ([]string, error) {
	drifts, err := s.process.CheckGuarded(ctx)
	texts := make([]string, len(drifts))
	for i, d := range drifts {
		texts[i] = d.String()
	}
	return texts, err
}

// JudgeForeignXA implements primary.JudgedServer.
func (s localServer) JudgeForeignXA(ctx context.Context, promote bool) error {
	return s.agent.foreignXAError(s.agent.foreignXA.Judge(ctx, s, promote))
}

// grantsError says that accounts hold what they must not.
type grantsError struct{ accounts string }

func (e *grantsError) Error() string {
	return fmt.Sprintf("accounts hold privileges with which commits can go unreplicated: %s: revoke them", e.accounts)
}

// judgeGrants looks for accounts whose replicas could acknowledge commits.
func (a *Agent) judgeGrants(ctx context.Context) error {
	admin, err := a.admin()
	if err != nil {
		return err
	}
	grants, err := admin.ScanGrants(ctx)
	if err != nil || len(grants) == 0 {
		return err
	}
	texts := make([]string, len(grants))
	for i, g := range grants {
		texts[i] = g.Account + " (" + g.Privilege + ")"
	}
	return &grantsError{accounts: strings.Join(texts, ", ")}
}
