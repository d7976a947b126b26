package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// countedMysqld counts what it is asked. What is in hangs does not answer.
type countedMysqld struct {
	asked []string
	hangs map[string]bool
}

func (m *countedMysqld) answer(ctx context.Context, what string) error {
	m.asked = append(m.asked, what)
	if !m.hangs[what] {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (m *countedMysqld) GTIDExecuted(ctx context.Context) (string, error) {
	return "executed", m.answer(ctx, "executed")
}

func (m *countedMysqld) PrimaryStatus(ctx context.Context) (mysqld.PrimaryStatus, error) {
	return mysqld.PrimaryStatus{Executed: "primary"}, m.answer(ctx, "primary")
}

func (m *countedMysqld) ReplicaStatus(ctx context.Context) (mysqld.ReplicaStatus, error) {
	return mysqld.ReplicaStatus{Executed: "replica"}, m.answer(ctx, "replica")
}

// TestPollAsksOnce: a poll is one question, two where mysqld is held up, and ends in time.
func TestPollAsksOnce(t *testing.T) {
	for _, c := range []struct {
		role            status.Role
		hangs, asked    []string
		executed        string
		primary, silent bool
	}{
		{role: status.RolePrimary, asked: []string{"primary"}, executed: "primary", primary: true},
		{role: status.RoleReplica, asked: []string{"replica"}, executed: "replica"},
		{role: status.RolePromoting, asked: []string{"executed"}, executed: "executed"},
		{role: status.RoleDemoting, asked: []string{"executed"}, executed: "executed"},
		{role: status.RolePrimary, hangs: []string{"primary"}, asked: []string{"primary", "executed"}, executed: "executed"},
		{role: status.RoleReplica, hangs: []string{"replica"}, asked: []string{"replica", "executed"}, executed: "executed"},
		{role: status.RoleReplica, hangs: []string{"replica", "executed"}, asked: []string{"replica", "executed"}, silent: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &countedMysqld{hangs: map[string]bool{}}
			for _, what := range c.hangs {
				m.hangs[what] = true
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 4*watchInterval)
			defer cancel()
			found, err := askStatus(ctx, m, c.role)
			if c.silent {
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 4*watchInterval {
					t.Errorf("%s: %v after %s", c.role, err, time.Since(began))
				}
			} else if err != nil || found.executed != c.executed || (found.primary != nil) != c.primary {
				t.Errorf("%s: %+v, %v", c.role, found, err)
			}
			if !slices.Equal(m.asked, c.asked) {
				t.Errorf("%s was asked for %q, not %q", c.role, m.asked, c.asked)
			}
		})
	}
}
