package primary

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/role"
)

// polled is a mysqld that records what it is asked. It does not answer the questions in hangs.
type polled struct {
	*dutiful
	own     status.Node
	starts  uint64 // of later mysqlds
	hangs   []string
	during  func() // is called by the first question of a poll
	primary PrimaryStatus
	replica ReplicaStatus
	drifts  []string
}

func (p *polled) answer(ctx context.Context, what string) error {
	p.at("%s", what)
	if p.during != nil {
		p.during()
	}
	if !slices.Contains(p.hangs, what) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (p *polled) Incarnation() uint64         { return p.dutiful.Incarnation() + p.starts }
func (p *polled) Own() status.Node            { return p.own }
func (p *polled) Update(f func(*status.Node)) { f(&p.own) }

func (p *polled) GTIDExecuted(ctx context.Context) (*gtid.Set, error) {
	return &gtid.Set{}, p.answer(ctx, "executed")
}
func (p *polled) PrimaryStatus(ctx context.Context) (PrimaryStatus, error) {
	return p.primary, p.answer(ctx, "primary")
}
func (p *polled) ReplicaStatus(ctx context.Context) (ReplicaStatus, error) {
	return p.replica, p.answer(ctx, "replica")
}
func (p *polled) ApplyProgress(context.Context, string) (string, error) {
	p.at("progress")
	return "", nil
}
func (p *polled) Drifts(context.Context) ([]string, error)    { p.at("drifts"); return p.drifts, nil }
func (p *polled) Progressed(string, consensus.Lag, time.Time) {}
func (p *polled) Silent(_ context.Context, r status.Role)     { p.at("silent %s", r) }
func (p *polled) Disk(context.Context, status.Role)           { p.at("disk") }
func (p *polled) Full() string                                { return "" }
func (p *polled) Applies(_ ReplicaStatus, stopped string)     { p.at("applies: %s", stopped) }
func (p *polled) Grants(context.Context, string) []string     { p.at("grants"); return []string{"a grant"} }
func (p *polled) Guarded(context.Context)                     { p.at("guarded") }

// watched returns a watch on a mysqld in a role.
func watched(t *testing.T, is status.Role) (*Watch, *polled) {
	o, d := onDuty(t)
	p := &polled{dutiful: d, own: status.Node{Role: is, Mysqld: status.MysqldRunning},
		primary: PrimaryStatus{SemiSync: SemiSync{On: true, Clients: 1}}, replica: ReplicaStatus{Receives: true, Applies: true}}
	o.cfg.Local = func() (Local, error) { return p, nil }
	t.Cleanup(o.Close)
	return &Watch{Slot: o.Slot, Board: p, Lag: &consensus.LagTracker{}, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, p
}

// TestWatchAsksOnce: a poll is one question, or two if mysqld is held up, and ends in time.
func TestWatchAsksOnce(t *testing.T) {
	for _, c := range []struct {
		role  status.Role
		hangs string
		did   string
	}{
		{status.RolePrimary, "", "primary, disk"},
		{status.RoleReplica, "", "replica, disk, applies: "},
		{status.RolePromoting, "", "executed, progress, disk"},
		{status.RoleDemoting, "", "executed, disk"},
		{status.RolePrimary, "primary", "primary, executed, disk"},
		{status.RoleReplica, "replica", "replica, executed, disk"},
		{status.RoleReplica, "replica executed", "replica, executed, silent replica, disk"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, p := watched(t, c.role)
			p.hangs = strings.Fields(c.hangs)
			began := time.Now()
			w.poll(t.Context(), p, false)
			if took := time.Since(began); strings.Join(p.did, ", ") != c.did || took > 4*WatchInterval {
				t.Errorf("%s, where %q hangs: it did %q in %s, want %q", c.role, c.hangs, p.did, took, c.did)
			}
		})
	}
}

// TestWatchDoubts: a poll of mysqld finds what must not be.
func TestWatchDoubts(t *testing.T) {
	for what, c := range map[string]struct {
		role  status.Role
		spoil func(p *polled)
		guard bool
		want  string
	}{
		"a primary in order":         {status.RolePrimary, func(*polled) {}, false, ""},
		"semi-sync is off":           {status.RolePrimary, func(p *polled) { p.primary.On = false }, false, "semi-sync was switched off"},
		"foreign replica and reader": {status.RolePrimary, func(p *polled) { p.primary.Clients, p.primary.Readers = 2, []string{"cdc"} }, false, "a foreign semi-sync replica is attached (2 in all); account cdc reads the binlog directly"},
		"a primary has more":         {status.RolePrimary, func(p *polled) { p.primary.Executed = judgedUUID + ":1" }, false, "mysqld holds transactions that are not committed"},
		"a replica has more":         {status.RoleReplica, func(p *polled) { p.replica.Executed = judgedUUID + ":1" }, false, "mysqld holds transactions that are not committed"},
		"a grant":                    {status.RolePrimary, func(*polled) {}, true, "a grant"},
		"a variable":                 {status.RoleReplica, func(p *polled) { p.drifts = []string{"x is 1", "y is 2"} }, true, "x is 1; y is 2"},
		"it is a replica by now": {status.RolePrimary, func(p *polled) {
			p.primary.On, p.during = false, func() { p.own.Role = status.RoleReplica }
		}, true, ""},
		"mysqld has ended": {status.RolePrimary, func(p *polled) { p.primary.On, p.own.Mysqld = false, status.MysqldStopped }, true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, p := watched(t, c.role)
			c.spoil(p)
			w.poll(t.Context(), p, c.guard)
			var want []role.Input
			if c.want != "" {
				want = []role.Input{role.Doubt{Incarnation: 7, Reason: c.want}}
			}
			if d := cmp.Diff(want, w.Slot.cfg.Inbox.Mail()); d != "" {
				t.Errorf("%s (-want +got):\n%s", what, d)
			}
		})
	}
}

// TestWatchWaitingSessions: sessions wait at a primary. A former one that goes on as a replica has none.
func TestWatchWaitingSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := watched(t, status.RolePrimary)
		p.primary.WaitSessions = 30
		w.poll(t.Context(), p, false)
		if p.own.WaitingSessions != 30 {
			t.Errorf("the primary shows %d sessions that wait", p.own.WaitingSessions)
		}
		p.own.Role = status.RoleReplica
		w.poll(t.Context(), p, false)
		if p.own.WaitingSessions != 0 {
			t.Errorf("as a replica it still shows %d sessions that wait", p.own.WaitingSessions)
		}
	})
}

// TestWatchRestarts: replication that has stopped is started again, every fourth poll.
func TestWatchRestarts(t *testing.T) {
	for _, replica := range []ReplicaStatus{{Receives: true, Applies: true}, {Receives: true}, {Applies: true}} {
		synctest.Test(t, func(t *testing.T) {
			w, p := watched(t, status.RoleReplica)
			p.replica = replica
			ctx, cancel := context.WithTimeout(t.Context(), 8*WatchInterval+WatchInterval/2)
			defer cancel()
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
			polls, starts := 0, 0
			for _, did := range p.did {
				switch did {
				case "replica":
					polls++
				case "start":
					starts++
				}
			}
			if stopped := replica != (ReplicaStatus{Receives: true, Applies: true}); polls != 8 || (starts == 2) != stopped {
				t.Errorf("%+v: %d polls, started %d times", replica, polls, starts)
			}
		})
	}
}

// TestWatchUnacknowledged: a session that waits for an ACK on a replica, in two polls of the same mysqld, puts it in
// doubt. At once such a replica counts as one that does not apply.
func TestWatchUnacknowledged(t *testing.T) {
	const waits = "a statement of 'app'@'%' waits for an ACK"
	for _, c := range []struct {
		what  string
		is    status.Role
		polls []string // what each of them finds
		want  bool
	}{
		{"nobody waits", status.RoleReplica, []string{"", ""}, false},
		{"for a moment", status.RoleReplica, []string{waits, "", waits}, false},
		{"for good", status.RoleReplica, []string{"", waits, waits}, true},
		{"another mysqld", status.RoleReplica, []string{waits, "new " + waits}, false},
		{"a former primary that is settled", status.RoleDemoting, []string{waits, waits}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, p := watched(t, c.is)
			for _, found := range c.polls {
				p.replica.Unacknowledged = strings.TrimPrefix(found, "new ")
				if p.replica.Unacknowledged != found {
					p.starts++
				}
				w.poll(t.Context(), p, false)
				if says := p.own.ApplierStopped; c.is == status.RoleReplica && strings.HasPrefix(says, waits) != (found != "") {
					t.Errorf("%s: a poll found %q, and the status says %q", c.what, found, says)
				}
			}
			var want []role.Input
			if c.want {
				want = []role.Input{role.Doubt{Incarnation: 7, Reason: unackedText(p.replica)}}
			}
			if d := cmp.Diff(want, w.Slot.cfg.Inbox.Mail()); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.what, d)
			}
		})
	}
}
